// Chooses the receivers of straggler probes, and evaluates the messages of other ranks.
#include "collective/ucx/straggler_probe.h"

#include <algorithm>
#include <utility>

namespace regroup::collective::ucx {
namespace {

// Largest communicator of which a rank probes all ranks, not only those that it waits for.
constexpr std::size_t kMaxProbed = 64;

}  // namespace

std::vector<int> probed_ranks(const OperationDescriptor& operation, int self,
                              const WaitsFor& waits_for) {
  std::vector<int> ranks;
  const bool is_large = operation.ranks.size() > kMaxProbed;
  for (const int rank : operation.ranks) {
    if (rank != self && (!is_large || waits_for(rank))) ranks.push_back(rank);
  }
  return ranks;
}

// The first probe goes only to connected ranks: making a connection takes UCX 1 to 2 ms of
// processor time on both sides, and most long operations are merely large.
void StragglerProbes::send(const OperationDescriptor& operation, const WaitsFor& waits_for,
                           base::TimePoint now) {
  const bool first = std::exchange(last_, now) == base::TimePoint();
  for (const int rank : probed_ranks(operation, mesh_.rank(), waits_for)) {
    if (first && !mesh_.was_connected(rank)) continue;
    Transfer& last = sent_[rank];
    if (!mesh_.connect(rank) || !last.done()) continue;
    last = mesh_.send(
        rank,
        {{operation.communicator, MessageKind::kProbe, operation.number}, operation.signature}, {});
  }
}

void StragglerProbes::end(const OperationDescriptor& operation) {
  mesh_.drop_probes(operation.communicator, operation.number);
  last_ = {};
}

std::optional<MismatchedRank> StragglerProbes::find_mismatch(
    const OperationDescriptor& operation) const {
  std::optional<MismatchedRank> mismatched;
  for (const MessageKind kind : {MessageKind::kProbe, MessageKind::kData}) {
    mesh_.unexpected().for_each(operation.communicator, kind, operation.number,
                                [&](const ActiveMessage& message) {
                                  const MessageHeader& header = message.header;
                                  const bool is_same_number = header.key.number == operation.number;
                                  if (is_same_number && header.signature != operation.signature)
                                    mismatched = {header.key.from, header.signature};
                                  return is_same_number && !mismatched;
                                });
  }
  return mismatched;
}

std::vector<int> StragglerProbes::missing_ranks(const OperationDescriptor& operation) const {
  std::vector<int> arrived{mesh_.rank()};
  for (const MessageKind kind : {MessageKind::kProbe, MessageKind::kData}) {
    mesh_.unexpected().for_each(operation.communicator, kind, operation.number,
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

}  // namespace regroup::collective::ucx
