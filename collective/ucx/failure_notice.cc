// Distributes failures that one rank finds and that concern all ranks.
#include "collective/ucx/failure_notice.h"

#include <sched.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"

namespace regroup::collective::ucx {
namespace {

constexpr std::chrono::seconds kFailureDrainTimeout(2);

base::TimePoint drain_end() { return base::SystemClock().now() + kFailureDrainTimeout; }

bool is_before(base::TimePoint end) { return base::SystemClock().now() < end; }

}  // namespace

// Waits until all ranks have acked the failure, because closing a connection with unread data
// discards what has not been delivered. The wait is bounded: ranks that arrive later find the
// reason that the lowest of the failed ranks publishes with its address.
void send_failure(PeerMesh& mesh, const CommunicatorId& communicator, std::span<const int> ranks,
                  const std::string& why) {
  const auto notice_of = [&](int rank) {
    return mesh.find({communicator, MessageKind::kFailure, 0, 0, rank}) != nullptr;
  };
  std::vector<int> left(ranks.begin(), ranks.end());
  std::vector<int> notified;
  std::erase(left, mesh.rank());
  const auto notify = [&](int rank) {
    if (!mesh.connect(rank)) return false;
    static_cast<void>(mesh.send(rank, {{communicator, MessageKind::kFailure}, {}},
                                std::as_bytes(std::span(why))));
    notified.push_back(rank);
    return true;
  };
  const auto has_learned = [&](int rank) {
    return !mesh.lost(rank).empty() ||
           mesh.find({communicator, MessageKind::kAck, 0, 0, rank}) != nullptr || notice_of(rank);
  };
  for (const base::TimePoint end = drain_end(); is_before(end) && !mesh.is_over();) {
    std::erase_if(left, notify);
    std::erase_if(notified, has_learned);
    if (left.empty() && notified.empty()) break;
    if (!mesh.progress()) ::sched_yield();
  }
  const auto publishes_too = [&](int rank) { return rank < mesh.rank() && notice_of(rank); };
  if ((left.empty() && notified.empty()) || std::ranges::any_of(ranks, publishes_too)) return;
  mesh.publish_failure(why);
}

std::optional<std::string> receive_failure(PeerMesh& mesh, const CommunicatorId& communicator) {
  const ActiveMessage* found = nullptr;
  mesh.unexpected().for_each(communicator, MessageKind::kFailure, 0,
                             [&](const ActiveMessage& message) {
                               found = message.fetch ? nullptr : &message;
                               return found == nullptr;
                             });
  if (found == nullptr) return std::nullopt;
  std::string why(static_cast<const char*>(found->data), found->bytes);
  const Transfer ack =
      mesh.send(found->header.key.from, {{communicator, MessageKind::kAck}, {}}, {});
  for (const base::TimePoint end = drain_end(); is_before(end) && !ack.done() && !mesh.is_over();) {
    if (!mesh.progress()) ::sched_yield();
  }
  return why;
}

std::string published_failure(const PeerMesh& mesh, std::span<const int> ranks) {
  for (const int rank : ranks) {
    if (std::string reason = mesh.published_failure(rank); !reason.empty()) return reason;
  }
  return {};
}

}  // namespace regroup::collective::ucx
