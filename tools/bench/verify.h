// Makes the data of an iteration and counts the wrong elements of a result. Independent of the code
// that is measured: it does not use collective/.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/bench/operations.h"

namespace regroup::bench {

// Writes the input of `rank` in `iteration` to `to`: whole elements of the case's type.
void fill(collective::Output to, const Case& c, int rank, std::uint64_t iteration);

// Writes values to all elements that no result has.
void spoil(collective::Output output);

// Returns the number of elements of `result` that differ in any bit from what `parts` expect after
// `iteration` of `c` between `ranks` ranks. Expected sums and products are exact and rounded to the
// type once; those of integers wrap.
[[nodiscard]] std::uint64_t count_wrong(collective::Input result, const std::vector<Part>& parts,
                                        const Case& c, int ranks, std::uint64_t iteration);

}  // namespace regroup::bench
