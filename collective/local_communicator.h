// A Communicator among members of one host, with what a backend that combines several hosts needs.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "collective/core_use.h"
#include "collective/signature.h"
#include "regroup/communicator.h"

namespace regroup::collective {

// A rank that runs another operation, and the signature of that operation.
struct Mismatch {
  std::size_t rank;
  CollectiveSignature signature;
};

// Threads, blocking and errors are those of Communicator.
class LocalCommunicator : public Communicator {
 public:
  // Starts `operation` as a part of an operation over several hosts. The ranks of this host must
  // agree on `signature`, which is that of the whole operation.
  [[nodiscard]] virtual base::Result<Request> start_part(const CollectiveSignature& signature,
                                                         const Operation& operation,
                                                         base::TimePoint deadline) = 0;
  // After a failure: a rank that runs another operation, if that caused the failure.
  [[nodiscard]] virtual std::optional<Mismatch> mismatch() const = 0;
  // As Communicator::split(), for the members of the group that are on this host.
  [[nodiscard]] virtual base::Result<std::unique_ptr<LocalCommunicator>> split_local(
      int color, base::TimePoint deadline) = 0;
  // The result may outlive the communicator.
  [[nodiscard]] virtual std::shared_ptr<const CoreUse> core_use() const = 0;
};

}  // namespace regroup::collective
