// The parameter server of this host: memory that outlives its servers, and regroup-ps, which is
// started again whenever it ends. docs/design/ps_store.md.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/ps/handover.h"
#include "collective/ps/segment.h"
#include "launcher/process/piped_process.h"
#include "launcher/spec/request.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::job {

struct ParameterServerOptions {
  std::string program;            // path of regroup-ps
  spec::Environment environment;  // its
  std::string memory_socket;      // where members get the memory's descriptors
  std::string status_socket;      // where `regroup status` gets status_json()
  std::uint64_t seed = 0;         // of initial rows
  std::uint64_t bytes = 0;        // of all tables
  std::uint32_t shards = 1;       // threads of the server
};

// How a server ended, and what becomes of it.
struct ServerEnd {
  bool killed = false;  // from outside, which may happen however often
  base::Duration lived{};
};
struct ServerVerdict {
  bool again = true;       // false: it cannot serve; the job ends
  base::Duration after{};  // until the next start
};
// Decides on ends of servers. Pure.
class ServerRestarts {
 public:
  // The next server is started at once, and from the second end in a row on within kShort of a
  // start later and later. After kMost such ends that were no kills there is no next one.
  static constexpr std::chrono::seconds kShort{1};
  static constexpr std::chrono::milliseconds kFirstDelay{10};
  static constexpr std::chrono::seconds kLongestDelay{1};
  static constexpr int kMost = 5;
  [[nodiscard]] ServerVerdict on_end(const ServerEnd& end);

 private:
  int short_ = 0;   // ends in a row within kShort
  int failed_ = 0;  // of them, no kills
};

// The memory that options ask for. kInvalidArgument: too little or too much for a shard.
[[nodiscard]] base::Result<collective::ps::ServerMemorySpec> memory_spec(
    const ParameterServerOptions& options);

// Used by the loop's thread. The destructor ends the server; the memory lasts as long as a member
// has it mapped.
class ParameterServer {
 public:
  struct Events {
    std::function<void(const std::string&)> said;  // for the user
    std::function<void()> failed;                  // no server can be started: end the job
    std::function<bool()> ending;                  // the job ends: no server is started any more
  };
  // Makes the memory, listens, starts the first server. kInvalidArgument, kResourceExhausted: there
  // is no such memory. Blocks to reserve the memory.
  [[nodiscard]] static base::Result<std::unique_ptr<ParameterServer>> start(
      boost::asio::io_context& loop, ParameterServerOptions options, Events events);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // {"pid", "shards", "bytes", "clients", "ranges", "updates", "restarts"}; `updates`: pushes that
  // are applied, one for each range; `bytes`: of all segments;
  // `clients`: processes that have asked for the memory.
  [[nodiscard]] std::string status_json();

 private:
  ParameterServer(boost::asio::io_context& loop, ParameterServerOptions options, Events events);
  [[nodiscard]] base::Status start_server();
  void on_end(int wait_status);
  void give_memory(base::Fd socket);

  boost::asio::io_context& loop_;
  const ParameterServerOptions options_;
  const Events events_;
  collective::ps::OwnedServerMemory memory_;
  std::vector<collective::ps::StoreMemory> stores_;  // by shard, to read
  transport::Listener members_;
  transport::Listener askers_;
  boost::asio::steady_timer back_off_;
  ServerRestarts restarts_;
  std::shared_ptr<process::PipedProcess> server_;
  base::TimePoint started_{};
  pid_t pid_ = 0;  // 0: none runs
  std::uint64_t starts_ = 0;
  std::uint64_t clients_ = 0;
};

}  // namespace regroup::job
