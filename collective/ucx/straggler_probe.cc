// What members tell each other beside their data: the roll call, and that the ranks disagree.
//
// Who has waited for a while without result calls the roll, again and again: it tells the others what it is
// in. So all learn of a disagreement that no data would show, who is missing, and whether those who wait too
// can still be heard.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "collective/ucx/engine.h"

namespace regroup::collective {

using core::Status;
using core::TimePoint;

namespace {

constexpr std::chrono::seconds kFailureDrainTimeout(2);
constexpr std::size_t kMaxProbed =
    64;  // members of a communicator: more, and only those waited for are notified

TimePoint time_now() { return core::SystemClock().now(); }

}  // namespace

// Stays until everybody knows, since closing connections on which something is unread takes back what was
// said, but not for ever: who comes later finds it where our address was.
void Engine::fail_all(const Status& why) {
  if (!failed_.ok()) return;
  failed_ = why;
  if (queue_.empty()) return;
  const CommunicatorId communicator = queue_.front().operation.communicator;
  const std::string& text = failed_.message();
  std::vector<int> left = queue_.front().operation.ranks;
  std::vector<int> notified;
  std::erase(left, mesh_->rank());
  const auto tell = [&](int rank) {
    if (!mesh_->connect(rank)) return false;
    static_cast<void>(
        mesh_->send(rank, {{communicator, MessageKind::kFailure}, {}}, std::as_bytes(std::span(text))));
    notified.push_back(rank);
    return true;
  };
  const auto knows = [&](int rank) {
    return !mesh_->lost(rank).empty() ||
           mesh_->find({communicator, MessageKind::kAck, 0, 0, rank}) != nullptr ||
           mesh_->find({communicator, MessageKind::kFailure, 0, 0, rank}) != nullptr;
  };
  for (const TimePoint end = time_now() + kFailureDrainTimeout; time_now() < end && !mesh_->is_over();) {
    std::erase_if(left, tell);
    std::erase_if(notified, knows);
    if (left.empty() && notified.empty()) break;
    if (!mesh_->progress()) ::sched_yield();
  }
  const auto says_so_too = [&](int rank) {
    return rank < mesh_->rank() && mesh_->find({communicator, MessageKind::kFailure, 0, 0, rank}) != nullptr;
  };
  if ((left.empty() && notified.empty()) || std::ranges::any_of(queue_.front().operation.ranks, says_so_too))
    return;
  mesh_->publish_failure(text);
}

void Engine::fail_mismatch(const CollectiveSignature& mine, int rank, const CollectiveSignature& theirs) {
  const auto& ranks = queue_.front().operation.ranks;
  const auto number_of = [&](int r) { return std::ranges::find(ranks, r) - ranks.begin(); };
  fail_all(core::invalid_argument(
      fmt::format("{}: rank {} is in {}, rank {} in {}", name_of(static_cast<Kind>(mine.what & 0xff)),
                  number_of(mesh_->rank()), describe(mine), number_of(rank), describe(theirs))));
}

void Engine::receive_failure(const OperationDescriptor& operation) {
  const ActiveMessage* heard = nullptr;
  mesh_->unexpected().for_each(operation.communicator, MessageKind::kFailure, 0,
                               [&](const ActiveMessage& message) {
                                 heard = message.fetch ? nullptr : &message;
                                 return heard == nullptr;
                               });
  if (heard == nullptr) return;
  fail(core::invalid_argument(std::string(static_cast<const char*>(heard->data), heard->bytes)));
  const Transfer ack =
      mesh_->send(heard->header.key.from, {{operation.communicator, MessageKind::kAck}, {}}, {});
  for (const TimePoint end = time_now() + kFailureDrainTimeout;
       time_now() < end && !ack.done() && !mesh_->is_over();) {
    if (!mesh_->progress()) ::sched_yield();
  }
}

// Of those that have left, and call no roll.
void Engine::check_published_failures(const OperationDescriptor& operation) {
  for (const int rank : operation.ranks) {
    if (rank == mesh_->rank() || !is_probed(operation, rank)) continue;
    const std::string word = mesh_->published_failure(rank);
    if (!word.empty()) return fail(core::invalid_argument(word));
  }
}

void Engine::find_mismatch(const OperationDescriptor& operation) {
  const MessageHeader* mismatched = nullptr;
  for (const MessageKind kind : {MessageKind::kProbe, MessageKind::kData}) {
    mesh_->unexpected().for_each(operation.communicator, kind, operation.number,
                                 [&](const ActiveMessage& message) {
                                   const bool here = message.header.key.number == operation.number;
                                   if (here && message.header.call != operation.call)
                                     mismatched = &message.header;
                                   return here && mismatched == nullptr;
                                 });
  }
  if (mismatched != nullptr) fail_mismatch(operation.call, mismatched->key.from, mismatched->call);
}

TimePoint Engine::next_probe(const Pending& pending) const {
  return pending.last_probe == TimePoint() ? pending.begun + kProbeDelay
                                           : pending.last_probe + mesh_->probe_interval();
}

// Of many, only those that we wait for.
bool Engine::is_probed(const OperationDescriptor& operation, int rank) const {
  const auto waits_for = [&](const Waiter* w) { return w->peer() == rank; };
  return operation.ranks.size() <= kMaxProbed || std::ranges::any_of(waiters_, waits_for);
}

// A call that has not left yet, since nobody reads, is not repeated. The first goes to those we know: to
// connect with everybody costs UCX 1 to 2 ms of processor time each, and most operations are late only
// because they are large.
void Engine::send_probes() {
  const bool first = std::exchange(queue_.front().last_probe, time_now()) == TimePoint();
  const OperationDescriptor& operation = queue_.front().operation;
  for (const int rank : operation.ranks) {
    if (rank == mesh_->rank() || (first && !mesh_->was_connected(rank)) || !is_probed(operation, rank))
      continue;
    Transfer& last = probes_[rank];
    if (!mesh_->connect(rank) || !last.done()) continue;
    last = mesh_->send(rank,
                       {{operation.communicator, MessageKind::kProbe, operation.number}, operation.call}, {});
  }
}

// Ranks of the communicator of which nothing has been heard in this operation.
std::vector<int> Engine::missing_ranks(const OperationDescriptor& operation) const {
  std::vector<int> here{mesh_->rank()};
  for (const MessageKind kind : {MessageKind::kProbe, MessageKind::kData}) {
    mesh_->unexpected().for_each(operation.communicator, kind, operation.number,
                                 [&](const ActiveMessage& message) {
                                   here.push_back(message.header.key.from);
                                   return true;
                                 });
  }
  std::vector<int> out;
  for (std::size_t r = 0; r < operation.ranks.size(); ++r) {
    if (std::ranges::find(here, operation.ranks[r]) == here.end()) out.push_back(static_cast<int>(r));
  }
  return out;
}

}  // namespace regroup::collective
