// Functions that the readers of topologies share: errors "SOURCE:LINE: ...", and bounded numbers
// and lists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/values.h"  // lower()
#include "launcher/topology/machine.h"

namespace regroup::topology {

inline constexpr std::size_t kMaxTopologyBytes = std::size_t{16} << 20;  // size of a file
inline constexpr std::uint32_t kMaxEnds = 512;    // GPUs, NICs and NUMA nodes of a machine
inline constexpr std::uint32_t kMaxNodes = 4096;  // ends and switches of a machine
inline constexpr std::uint32_t kMaxLinks = 32768;
inline constexpr int kMaxCpu = 65535;

// kInvalidArgument, "SOURCE:LINE: WHAT"; line 0: "SOURCE: WHAT".
[[nodiscard]] base::Status input_error(std::string_view source, std::size_t line,
                                       std::string_view what);

// Parses all of `text` as a number in [least, most]; empty if it is not one.
[[nodiscard]] std::optional<std::int64_t> whole_number(std::string_view text, std::int64_t least,
                                                       std::int64_t most);
[[nodiscard]] std::optional<double> real_number(std::string_view text, double least, double most);

// Parses "0-3,8" to ascending numbers without duplicates; empty if malformed or above `most`.
[[nodiscard]] std::optional<std::vector<int>> number_list(std::string_view text, int most);

// Splits at each `separator`; for ' ' at any blanks, without empty pieces.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);
[[nodiscard]] std::string_view trimmed(std::string_view text);

// Normalises "34:00.0", "00000000:34:00.0" or "0000:34:00.0" to "0000:34:00.0", in lower case;
// empty if malformed.
[[nodiscard]] std::optional<std::string> bus_id(std::string_view text);

// Reads a whole file. kNotFound: no such file. kInvalidArgument: longer than `most` bytes.
[[nodiscard]] base::Result<std::string> read_text_file(const std::string& path,
                                                       std::size_t most = kMaxTopologyBytes);

// Cleans text that was copied from a terminal: removes escape sequences ("\x1b[4m"), overstruck
// characters ("_\bG") and a byte order mark, and makes no-break spaces (U+00A0) blanks.
[[nodiscard]] std::string plain_screen(std::string_view text);

// The names in a folder, sorted (names that end in digits by their number), at most kMaxNodes; none
// if it cannot be read.
[[nodiscard]] std::vector<std::string> names_in(const std::string& folder);

// Checks a machine after reading: every end has a node, and the bounds hold. The error names the
// fault.
[[nodiscard]] base::Status check_machine(const Machine& machine, std::string_view source);

}  // namespace regroup::topology
