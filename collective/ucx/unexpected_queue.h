// The messages that have come to a member and were not taken yet. What one member may have in it is bounded,
// so that one that runs ahead, or away, cannot fill the others' memory. Their data is UCX's: who takes a
// message out gives it back. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "collective/ucx/active_message.h"
#include "core/status.h"

namespace regroup::collective {

class UnexpectedQueue {
 public:
  // Of one member, before it is too much. A member is ahead by one operation of each communicator at most: of
  // that it sends some messages of up to 1 MiB, and one of any size to each member; and it has
  // kMaxPostedReceives messages asked for. So the next message may have any size, and these are many times as
  // much as what is not amiss.
  static constexpr std::size_t kMaxMessages = std::size_t{64} << 10;
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
  // Messages that a communicator asks a member for at a time.
  static constexpr std::uint64_t kMaxPostedReceives = 1024;

  explicit UnexpectedQueue(std::size_t ranks) : usage_(ranks) {}

  // `from` has been asked for a message, which does not count: it has the size of memory that waits for it.
  void post_receive(int from) { usage_[static_cast<std::size_t>(from)].posted += 1; }
  // kResourceExhausted names who has too much here; then the message is not kept.
  [[nodiscard]] core::Status put(ActiveMessage message);
  // The first message with this key, or null. Stays until it is removed.
  [[nodiscard]] ActiveMessage* find(const MatchKey& key);
  // Takes out the one that find() finds.
  ActiveMessage remove(const MatchKey& key) { return remove(queue_.lower_bound(key)); }
  [[nodiscard]] std::optional<ActiveMessage> remove_any();
  // Drops the roll calls of a communicator with a number up to `until`; they carry no data.
  void drop_probes(const CommunicatorId& communicator, std::uint64_t until);
  // Calls `use(message)` for those of a kind with a number from `number` on, in the order of their keys,
  // until it returns false.
  template <class Use>
  void for_each(const CommunicatorId& communicator, MessageKind kind, std::uint64_t number, Use use) const {
    auto it = queue_.lower_bound({communicator, kind, number, 0, 0});
    while (it != queue_.end() && it->first.communicator == communicator && it->first.kind == kind &&
           use(it->second))
      ++it;
  }

 private:
  using Queue = std::multimap<MatchKey, ActiveMessage>;
  struct Usage {  // of one member
    std::size_t messages = 0;
    std::size_t bytes = 0;
    std::uint64_t posted = 0;
  };
  ActiveMessage remove(Queue::iterator at);

  Queue queue_;
  std::vector<Usage> usage_;  // by rank
};

}  // namespace regroup::collective
