// Collective operations among the members of one World. A Communicator is never resized: a new generation
// opens a new one. Every wait has a deadline and sees the revoke of the generation. Not thread-safe; all
// members call the same operations in the same order with the same sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/clock.h"
#include "core/status.h"
#include "core/world.h"

namespace regroup::collective {

enum class Dtype : std::uint8_t { kFloat32, kFloat64, kInt32, kInt64 };

[[nodiscard]] std::size_t size_of(Dtype dtype);

// A canonical partial sum that every member of this host can read.
struct Partial {
  core::Interval leaves;
  std::span<const std::byte> data;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Element-wise sum over all ranks in canonical tree order (leaf r is rank r's input), the same bits in
  // every rank. `in` and `out` are of equal size, a multiple of the element, and may be the same memory.
  // Fails with kRevoked, kDeadlineExceeded; `out` is then undefined.
  [[nodiscard]] virtual core::Status allreduce(std::span<const std::byte> in, std::span<std::byte> out,
                                               Dtype dtype, core::TimePoint deadline) = 0;
  // Copies `data` of rank `root` into that of all others.
  [[nodiscard]] virtual core::Status broadcast(std::span<std::byte> data, int root,
                                               core::TimePoint deadline) = 0;
  // Returns when all ranks have entered it.
  [[nodiscard]] virtual core::Status barrier(core::TimePoint deadline) = 0;

  // Sums `partials`, disjoint canonical nodes that cover the leaves 0..leaves-1, into the shared `result` of
  // this host: each rank of the host writes one slice. Every rank passes the same partials and has seen their
  // seals. When it returns ok the whole result can be read by every rank of the host. The inputs stay intact
  // whatever happens.
  [[nodiscard]] virtual core::Status sum_partials(std::span<const Partial> partials, std::uint32_t leaves,
                                                  std::span<std::byte> result, Dtype dtype,
                                                  core::TimePoint deadline) = 0;
};

}  // namespace regroup::collective
