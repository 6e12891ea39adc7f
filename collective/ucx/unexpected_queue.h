// The messages that have arrived at a member and that no operation has taken yet, by their keys.
// Each sender has a limit, so that a member that runs ahead, or is faulty, cannot fill the memory
// of the others. UCX owns the data of a message; a caller that removes a message must release its
// data. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/status.h"
#include "collective/ucx/active_message.h"

namespace regroup::collective::ucx {

class UnexpectedQueue {
 public:
  // Limits of one sender; a single message may exceed kMaxBytes. The limits are many times what a
  // correct member uses: it is ahead by at most one operation of each communicator, in which it
  // sends each member several messages of up to 1 MiB or one of any size, and it has at most
  // kMaxPostedReceives ready-to-receive messages outstanding.
  static constexpr std::size_t kMaxMessages = std::size_t{64} << 10;
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
  // Greatest number of receives that a communicator has posted to one sender at a time.
  static constexpr std::uint64_t kMaxPostedReceives = 1024;

  explicit UnexpectedQueue(std::size_t ranks) : usage_(ranks) {}

  // Call when sending a ready-to-receive message to `from`. The message in reply does not count
  // against the limit, since a buffer is waiting for it.
  void post_receive(int from) { usage_[static_cast<std::size_t>(from)].posted += 1; }
  // Queues a message. kResourceExhausted: the sender, which the status names, has exceeded its
  // limit, and the message is not queued.
  [[nodiscard]] base::Status put(ActiveMessage message);
  // The first message with this key, or null. Valid until it is removed.
  [[nodiscard]] ActiveMessage* find(const MatchKey& key);
  // Removes and returns the message that find(key) returns.
  ActiveMessage remove(const MatchKey& key) { return remove(queue_.lower_bound(key)); }
  [[nodiscard]] std::optional<ActiveMessage> remove_any();
  // Drops the straggler probes of a communicator with numbers up to `until`; they have no data.
  void drop_probes(const CommunicatorId& communicator, std::uint64_t until);
  // Calls `use(message)` for the messages of one kind with a number of at least `number`, in the
  // order of their keys, until it returns false.
  template <class Use>
  void for_each(const CommunicatorId& communicator, MessageKind kind, std::uint64_t number,
                Use use) const {
    auto it = queue_.lower_bound({communicator, kind, number, 0, 0});
    while (it != queue_.end() && it->first.communicator == communicator && it->first.kind == kind &&
           use(it->second))
      ++it;
  }

 private:
  using Queue = std::multimap<MatchKey, ActiveMessage>;
  struct Usage {  // by one sender
    std::size_t messages = 0;
    std::size_t bytes = 0;
    std::uint64_t posted = 0;
  };
  ActiveMessage remove(Queue::iterator at);

  Queue queue_;
  std::vector<Usage> usage_;  // by rank
};

}  // namespace regroup::collective::ucx
