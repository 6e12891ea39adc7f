// A server of a parameter server: for each shard a thread that is the writer of the shard's store
// and reads the lanes of its clients. It may be killed at any instruction: the next server waits
// for the store's lock, applies what the log has, and reads on where the dead one stopped.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/ps/handover.h"
#include "collective/ps/lane.h"
#include "collective/ps/store.h"

namespace regroup::collective::ps {

// A mapping of a shard's memory. kDataLoss: it is none.
struct MappedShard {
  [[nodiscard]] static base::Result<MappedShard> open(const ShardMemory& memory,
                                                      StoreMemory::Mode mode);
  StoreMemory store;
  Lanes lanes;
};

// Serves one shard. One thread, the one that called attach().
class ShardServer {
 public:
  // Waits for the store's lock until `deadline`, attaches, applies the pushes of the log. `shard`
  // must outlive it. kDeadlineExceeded: another server lives. kDataLoss: the store is damaged.
  [[nodiscard]] static base::Result<std::unique_ptr<ShardServer>> attach(const MappedShard& shard,
                                                                         base::TimePoint deadline);
  // Answers messages until `stop` is true; who sets it then rings the bell of the lanes. An error
  // means that the store is damaged.
  [[nodiscard]] base::Status serve(const std::atomic<bool>& stop);
  // Answers what is written now; returns the number of messages.
  [[nodiscard]] base::Result<std::size_t> poll();
  // Frees the lanes of clients that have ended, whose messages are all answered.
  void free_lanes();

 private:
  ShardServer(const MappedShard& shard, ShardLock lock, std::unique_ptr<Store> store);
  [[nodiscard]] base::Result<std::size_t> poll_lane(std::uint32_t number);
  [[nodiscard]] base::Status answer(std::uint32_t number, std::uint64_t place,
                                    const MessageHeader& header);
  [[nodiscard]] base::Status open_table(const OpenContent& content);
  [[nodiscard]] base::Status push(std::uint64_t client, std::byte* message,
                                  const MessageHeader& header);
  [[nodiscard]] base::Status push_part(const Push& push, Range& range);
  void refuse_lane(Lane& lane, const base::Status& why);

  const MappedShard* shard_;
  ShardLock lock_;
  std::unique_ptr<Store> store_;
  std::vector<std::uint64_t> positions_;  // of the part that is pushed
  base::TimePoint lanes_freed_{};
};

// All shards of a host, each with a thread. One thread at a time calls its functions, except
// stop().
class Server {
 public:
  // Starts the threads; each waits for its store's lock for at most `takeover`. `memory`: its
  // descriptors may be closed afterwards.
  [[nodiscard]] static base::Result<std::unique_ptr<Server>> start(const ServerMemory& memory,
                                                                   std::chrono::seconds takeover);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // Asks all threads to end after the message that each is answering. Any thread.
  void stop();
  // Blocks until all threads have ended; returns the first error, after which all others stop.
  [[nodiscard]] base::Status wait();

 private:
  explicit Server(std::vector<MappedShard> shards) : shards_(std::move(shards)) {}
  void run(std::size_t shard, std::chrono::seconds takeover);

  std::vector<MappedShard> shards_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  base::Status first_error_;  // under mutex_
  std::vector<std::thread> threads_;
};

}  // namespace regroup::collective::ps
