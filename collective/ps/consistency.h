// The mode of clients as plain data: its checks, its names, and the word that a lane keeps of it.
// Refusals are kInvalidArgument and name both sides. Any thread; nothing blocks.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "regroup/ps.h"

namespace regroup::collective::ps {

// "async", "ssp", "sync": static strings.
[[nodiscard]] const char* name_of(Mode mode);
// kInvalidArgument names the known ones.
[[nodiscard]] base::Result<Mode> mode_of(std::string_view name);
// Refuses a staleness without mode ssp, leaves without mode sync, such a mode without its number,
// and one that is out of bounds.
[[nodiscard]] base::Status check(const Consistency& consistency);
// Refuses `here` unless it equals `there`, the mode of `who` ("worker 0").
[[nodiscard]] base::Status check_same(const Consistency& here, const Consistency& there,
                                      std::string_view who);
// The mode and its number; 0: mode async. `consistency` is one that check() accepts.
[[nodiscard]] std::uint64_t to_word(const Consistency& consistency);
[[nodiscard]] Consistency from_word(std::uint64_t word);

}  // namespace regroup::collective::ps
