// Straggler probes, and the distribution of failures.
//
// A rank that has waited for a while without a result sends a probe to the others, again and again:
// a message with its operation. So all ranks learn of a mismatch that no data would show, which
// ranks have not arrived, and that a rank that waits as well is still alive.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "collective/ucx/engine.h"

namespace regroup::collective {

using base::Status;
using base::TimePoint;

namespace {

constexpr std::chrono::seconds kFailureDrainTimeout(2);
constexpr std::size_t kMaxProbed =
    64;  // ranks of a communicator; of more, only those waited for are probed

TimePoint time_now() { return base::SystemClock().now(); }

}  // namespace

// Waits until all ranks have acked the failure, because closing a connection on which something is
// unread discards what it has not delivered. The wait is bounded: ranks that arrive later find the
// reason that the lowest of the failed ranks publishes with its address.
void Engine::fail_all(const Status& why) {
  if (!failed_.ok()) return;
  failed_ = why;
  if (queue_.empty()) return;
  const CommunicatorId communicator = queue_.front().operation.communicator;
  const std::string& text = failed_.message();
  std::vector<int> left = queue_.front().operation.ranks;
  std::vector<int> notified;
  std::erase(left, mesh_->rank());
  const auto notify = [&](int rank) {
    if (!mesh_->connect(rank)) return false;
    static_cast<void>(mesh_->send(rank, {{communicator, MessageKind::kFailure}, {}},
                                  std::as_bytes(std::span(text))));
    notified.push_back(rank);
    return true;
  };
  const auto has_learned = [&](int rank) {
    return !mesh_->lost(rank).empty() ||
           mesh_->find({communicator, MessageKind::kAck, 0, 0, rank}) != nullptr ||
           mesh_->find({communicator, MessageKind::kFailure, 0, 0, rank}) != nullptr;
  };
  for (const TimePoint end = time_now() + kFailureDrainTimeout;
       time_now() < end && !mesh_->is_over();) {
    std::erase_if(left, notify);
    std::erase_if(notified, has_learned);
    if (left.empty() && notified.empty()) break;
    if (!mesh_->progress()) ::sched_yield();
  }
  const auto publishes_too = [&](int rank) {
    return rank < mesh_->rank() &&
           mesh_->find({communicator, MessageKind::kFailure, 0, 0, rank}) != nullptr;
  };
  if ((left.empty() && notified.empty()) ||
      std::ranges::any_of(queue_.front().operation.ranks, publishes_too))
    return;
  mesh_->publish_failure(text);
}

void Engine::fail_mismatch(const CollectiveSignature& mine, int rank,
                           const CollectiveSignature& theirs) {
  const auto& ranks = queue_.front().operation.ranks;
  const auto number_of = [&](int r) { return std::ranges::find(ranks, r) - ranks.begin(); };
  fail_all(base::invalid_argument(fmt::format("{}: rank {} is in {}, rank {} in {}", name_of(mine),
                                              number_of(mesh_->rank()), describe(mine),
                                              number_of(rank), describe(theirs))));
}

void Engine::receive_failure(const OperationDescriptor& operation) {
  const ActiveMessage* found = nullptr;
  mesh_->unexpected().for_each(operation.communicator, MessageKind::kFailure, 0,
                               [&](const ActiveMessage& message) {
                                 found = message.fetch ? nullptr : &message;
                                 return found == nullptr;
                               });
  if (found == nullptr) return;
  fail(base::invalid_argument(std::string(static_cast<const char*>(found->data), found->bytes)));
  const Transfer ack =
      mesh_->send(found->header.key.from, {{operation.communicator, MessageKind::kAck}, {}}, {});
  for (const TimePoint end = time_now() + kFailureDrainTimeout;
       time_now() < end && !ack.done() && !mesh_->is_over();) {
    if (!mesh_->progress()) ::sched_yield();
  }
}

// Of ranks that have left and send no messages.
void Engine::check_published_failures(const OperationDescriptor& operation) {
  for (const int rank : operation.ranks) {
    if (rank == mesh_->rank() || !is_probed(operation, rank)) continue;
    const std::string reason = mesh_->published_failure(rank);
    if (!reason.empty()) return fail(base::invalid_argument(reason));
  }
}

void Engine::find_mismatch(const OperationDescriptor& operation) {
  const MessageHeader* mismatched = nullptr;
  for (const MessageKind kind : {MessageKind::kProbe, MessageKind::kData}) {
    mesh_->unexpected().for_each(
        operation.communicator, kind, operation.number, [&](const ActiveMessage& message) {
          const bool is_same_number = message.header.key.number == operation.number;
          if (is_same_number && message.header.signature != operation.signature)
            mismatched = &message.header;
          return is_same_number && mismatched == nullptr;
        });
  }
  if (mismatched != nullptr)
    fail_mismatch(operation.signature, mismatched->key.from, mismatched->signature);
}

TimePoint Engine::next_probe(const Pending& pending) const {
  return pending.last_probe == TimePoint() ? pending.begun + kProbeDelay
                                           : pending.last_probe + mesh_->probe_interval();
}

// In a large communicator only the ranks that this one waits for.
bool Engine::is_probed(const OperationDescriptor& operation, int rank) const {
  const auto waits_for = [&](const Waiter* w) { return w->peer() == rank; };
  return operation.ranks.size() <= kMaxProbed || std::ranges::any_of(waiters_, waits_for);
}

// A probe is not repeated while the previous one has not been sent, because its receiver does not
// read. The first probe goes only to connected ranks: a connection costs UCX 1 to 2 ms of processor
// time on both sides, and most operations take long only because they are large.
void Engine::send_probes() {
  const bool first = std::exchange(queue_.front().last_probe, time_now()) == TimePoint();
  const OperationDescriptor& operation = queue_.front().operation;
  for (const int rank : operation.ranks) {
    if (rank == mesh_->rank() || (first && !mesh_->was_connected(rank)) ||
        !is_probed(operation, rank))
      continue;
    Transfer& last = probes_[rank];
    if (!mesh_->connect(rank) || !last.done()) continue;
    last = mesh_->send(
        rank,
        {{operation.communicator, MessageKind::kProbe, operation.number}, operation.signature}, {});
  }
}

// Ranks of the communicator from which no message of this operation has arrived.
std::vector<int> Engine::missing_ranks(const OperationDescriptor& operation) const {
  std::vector<int> arrived{mesh_->rank()};
  for (const MessageKind kind : {MessageKind::kProbe, MessageKind::kData}) {
    mesh_->unexpected().for_each(operation.communicator, kind, operation.number,
                                 [&](const ActiveMessage& message) {
                                   arrived.push_back(message.header.key.from);
                                   return true;
                                 });
  }
  std::vector<int> out;
  for (std::size_t r = 0; r < operation.ranks.size(); ++r) {
    if (std::ranges::find(arrived, operation.ranks[r]) == arrived.end())
      out.push_back(static_cast<int>(r));
  }
  return out;
}

}  // namespace regroup::collective
