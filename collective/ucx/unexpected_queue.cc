// Accounts for the messages that it keeps.
#include "collective/ucx/unexpected_queue.h"

#include <fmt/format.h>

namespace regroup::collective::ucx {
namespace {

std::size_t local_bytes(const ActiveMessage& message) { return message.fetch ? 0 : message.bytes; }

}  // namespace

base::Status UnexpectedQueue::put(ActiveMessage message) {
  const MatchKey& key = message.header.key;
  Usage& usage = usage_[static_cast<std::size_t>(key.from)];
  message.counted = key.kind != MessageKind::kPointToPoint || usage.posted == 0;
  if (message.counted && (usage.messages >= kMaxMessages || usage.bytes >= kMaxBytes)) {
    return base::resource_exhausted(
        fmt::format("rank {}: unexpected-message limit exceeded ({} messages, {} bytes queued)",
                    key.from, usage.messages, usage.bytes));
  }
  if (message.counted) {
    usage.messages += 1;
    usage.bytes += local_bytes(message);
  } else {
    usage.posted -= 1;
  }
  queue_.emplace(key, message);
  return {};
}

ActiveMessage* UnexpectedQueue::find(const MatchKey& key) {
  const auto found = queue_.lower_bound(key);
  return found != queue_.end() && found->first == key ? &found->second : nullptr;
}

ActiveMessage UnexpectedQueue::remove(Queue::iterator at) {
  const ActiveMessage message = at->second;
  queue_.erase(at);
  if (!message.counted) return message;
  Usage& usage = usage_[static_cast<std::size_t>(message.header.key.from)];
  usage.messages -= 1;
  usage.bytes -= local_bytes(message);
  return message;
}

std::optional<ActiveMessage> UnexpectedQueue::remove_any() {
  return queue_.empty() ? std::nullopt : std::optional(remove(queue_.begin()));
}

void UnexpectedQueue::drop_probes(const CommunicatorId& communicator, std::uint64_t until) {
  for (auto at = queue_.lower_bound({communicator, MessageKind::kProbe, 0, 0, 0});
       at != queue_.end() &&
       at->first < MatchKey{communicator, MessageKind::kProbe, until + 1, 0, 0};) {
    static_cast<void>(remove(at++));
  }
}

}  // namespace regroup::collective::ucx
