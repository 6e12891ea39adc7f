// Makes the data of an iteration and finds out how many elements of a result are wrong. Independent
// of the code that is measured: nothing here calls collective/.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/bench/operations.h"

namespace regroup::bench {

// Writes what `rank` brings to `iteration` into `to`: whole elements of the case's type.
void fill(collective::Output to, const Case& c, int rank, std::uint64_t iteration);

// Makes every element wrong, whatever is expected.
void spoil(collective::Output output);

// Elements of `result` that are not bit for bit what `parts` say they are after `iteration` of `c`
// between `ranks` ranks. Sums and products are exact, and rounded to the type once; of integers
// they wrap.
[[nodiscard]] std::uint64_t count_wrong(collective::Input result, const std::vector<Part>& parts,
                                        const Case& c, int ranks, std::uint64_t iteration);

}  // namespace regroup::bench
