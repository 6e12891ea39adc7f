// Initial rows: a pure function of (job seed, table name, position, element), the same bits on
// every processor. So a pull of an unknown key inserts nothing, replicas need not agree on a draw,
// and an evicted row begins as it did.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "collective/ps/table.h"

namespace regroup::collective::ps {

// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11): 128 random
// bits for each counter.
using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;
[[nodiscard]] PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key);

// The quantile of the standard normal distribution at `p`, 0 < p < 1, with a relative error below
// 1e-6. Wichura's AS 241 (PPND7) over additions, multiplications, divisions and square roots, which
// round alike everywhere; the logarithm of the tails is a polynomial of our own, never libm's.
[[nodiscard]] double normal_quantile(double p);

// Draws the rows of one table. A value: copies draw the same. Any thread; nothing blocks or fails.
class InitialRows {
 public:
  // `spec` has passed check(); it is copied.
  InitialRows(std::uint64_t job_seed, const TableSpec& spec);
  // Fills `out` with elements [first, first + out.size() / size_of(dtype)) of the row at
  // `position`. Element e of a dense table is element 0 of position e.
  void fill(std::uint64_t position, std::size_t first, std::span<std::byte> out) const;

 private:
  [[nodiscard]] double draw(std::uint32_t random) const;

  Initializer init_;
  Dtype dtype_;
  PhiloxKey key_;
};

// The key of a table: mix64(job seed) XOR the FNV-1a hash of its name, mixed.
[[nodiscard]] PhiloxKey philox_key(std::uint64_t job_seed, std::string_view table);

}  // namespace regroup::collective::ps
