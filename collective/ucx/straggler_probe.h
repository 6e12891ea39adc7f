// The straggler probes of a member: a rank that has waited for a while without a result sends the
// others a message with its operation, again and again. So all ranks learn of a mismatch that no
// data would show, which ranks have not arrived, and that a rank that waits as well is still alive.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "collective/ucx/operation_descriptor.h"
#include "collective/ucx/peer_mesh.h"

namespace regroup::collective::ucx {

// Of an operation, before its first probe.
inline constexpr std::chrono::milliseconds kProbeDelay(10);

// Whether this member waits for a rank of the World.
using WaitsFor = std::function<bool(int rank)>;

// The ranks of the World that rank `self` probes in `operation`: all others of its communicator; of
// a large communicator only those that it waits for.
[[nodiscard]] std::vector<int> probed_ranks(const OperationDescriptor& operation, int self,
                                            const WaitsFor& waits_for);

// A rank of the World that runs another operation.
struct MismatchedRank {
  int rank = -1;
  CollectiveSignature signature;  // of its operation
};

// Of one collective operation after the other: the current one, which the caller names. Owned and
// used by one thread. Nothing blocks.
class StragglerProbes {
 public:
  // `mesh` must outlive it.
  explicit StragglerProbes(PeerMesh& mesh) : mesh_(mesh) {}

  // When the next probe is due; `begun`: when the current operation began.
  [[nodiscard]] base::TimePoint next(base::TimePoint begun) const {
    return last_ == base::TimePoint() ? begun + kProbeDelay : last_ + mesh_.probe_interval();
  }
  // Sends a probe to each of probed_ranks(), and connects to those that lack a connection: at the
  // first probe of an operation it skips them instead. A probe is not repeated while the previous
  // one has not been sent, because its receiver does not read.
  void send(const OperationDescriptor& operation, const WaitsFor& waits_for, base::TimePoint now);
  // The current operation is complete: drops what the others have sent about it.
  void end(const OperationDescriptor& operation);

  // A rank from which a message of another operation has come, with the number of `operation`.
  [[nodiscard]] std::optional<MismatchedRank> find_mismatch(
      const OperationDescriptor& operation) const;
  // Ranks of the communicator from which no message of this operation has arrived, ascending.
  [[nodiscard]] std::vector<int> missing_ranks(const OperationDescriptor& operation) const;

 private:
  PeerMesh& mesh_;
  base::TimePoint last_{};        // of the current operation; none yet: zero
  std::map<int, Transfer> sent_;  // the last probe, by rank in the World
};

}  // namespace regroup::collective::ucx
