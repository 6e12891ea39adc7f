// The straggler probes of a member: a rank that has waited for a while without a result repeatedly
// sends the others a message with its operation. From these, ranks learn of a mismatch that no data
// would show, which ranks have not arrived, and that waiting ranks are still alive.
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

// How long an operation runs before its first probe.
inline constexpr std::chrono::milliseconds kProbeDelay(10);

// True if this member waits for `rank` of the World.
using WaitsFor = std::function<bool(int rank)>;

// The ranks of the World that rank `self` probes in `operation`: all others of its communicator,
// or, if that is large, only those that it waits for.
[[nodiscard]] std::vector<int> probed_ranks(const OperationDescriptor& operation, int self,
                                            const WaitsFor& waits_for);

// A rank of the World that runs another operation.
struct MismatchedRank {
  int rank = -1;
  CollectiveSignature signature;  // of the operation that it runs
};

// Works on one collective operation after the other, which the caller passes. Used by one thread.
// Nothing blocks.
class StragglerProbes {
 public:
  // `mesh` must outlive it.
  explicit StragglerProbes(PeerMesh& mesh) : mesh_(mesh) {}

  // When the next probe is due; `begun`: when the current operation began.
  [[nodiscard]] base::TimePoint next(base::TimePoint begun) const {
    return last_ == base::TimePoint() ? begun + kProbeDelay : last_ + mesh_.probe_interval();
  }
  // Sends a probe to each of probed_ranks(), and connects to those without a connection (the first
  // probe of an operation skips them instead). Does not repeat a probe to a rank while the previous
  // one is still unsent because that rank does not read.
  void send(const OperationDescriptor& operation, const WaitsFor& waits_for, base::TimePoint now);
  // Call when the current operation is complete: drops the probes that others have sent about it.
  void end(const OperationDescriptor& operation);

  // A rank that has sent a message with the number of `operation` but another signature.
  [[nodiscard]] std::optional<MismatchedRank> find_mismatch(
      const OperationDescriptor& operation) const;
  // Ranks of the communicator from which no message of this operation has arrived, ascending.
  [[nodiscard]] std::vector<int> missing_ranks(const OperationDescriptor& operation) const;

 private:
  PeerMesh& mesh_;
  base::TimePoint last_{};        // time of the current operation's last probe; zero: none yet
  std::map<int, Transfer> sent_;  // the last probe to each rank of the World
};

}  // namespace regroup::collective::ucx
