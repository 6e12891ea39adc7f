// What the readers of topologies share: messages that begin "SOURCE:LINE: ", numbers and lists with
// bounds.
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

inline constexpr std::size_t kMaxTopologyBytes = std::size_t{16} << 20;  // of a file
inline constexpr std::uint32_t kMaxEnds = 512;    // GPUs, NICs and NUMA nodes of a machine
inline constexpr std::uint32_t kMaxNodes = 4096;  // with switches
inline constexpr std::uint32_t kMaxLinks = 32768;
inline constexpr int kMaxCpu = 65535;

// kInvalidArgument, "SOURCE:LINE: WHAT"; line 0: "SOURCE: WHAT".
[[nodiscard]] base::Status input_error(std::string_view source, std::size_t line,
                                       std::string_view what);

// The number that all of `text` is, if it lies in [least, most].
[[nodiscard]] std::optional<std::int64_t> whole_number(std::string_view text, std::int64_t least,
                                                       std::int64_t most);
[[nodiscard]] std::optional<double> real_number(std::string_view text, double least, double most);

// "0-3,8": ascending and without doubles; nothing if malformed or beyond `most`.
[[nodiscard]] std::optional<std::vector<int>> number_list(std::string_view text, int most);

// Pieces between `separator`s; between blanks if that is ' ', without empty ones.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);
[[nodiscard]] std::string_view trimmed(std::string_view text);

// "0000:34:00.0" in lower case and with its domain, from "34:00.0", "00000000:34:00.0" or
// "0000:34:00.0"; nothing if it is none.
[[nodiscard]] std::optional<std::string> bus_id(std::string_view text);

// The whole file. kNotFound, kInvalidArgument: longer than `most`.
[[nodiscard]] base::Result<std::string> read_text_file(const std::string& path,
                                                       std::size_t most = kMaxTopologyBytes);

// Text that was copied from a terminal, without escape sequences ("\x1b[4m"), characters that were
// overstruck
// ("_\bG") and a byte order mark; a blank that does not break (U+00A0) is a blank.
[[nodiscard]] std::string plain_screen(std::string_view text);

// Names in a folder, in order, at most kMaxNodes of them; none if it cannot be read. Those that end
// in digits count by them.
[[nodiscard]] std::vector<std::string> names_in(const std::string& folder);

// Whether a machine just read is one: every end has a node, bounds hold. The error says what is
// wrong.
[[nodiscard]] base::Status check_machine(const Machine& machine, std::string_view source);

}  // namespace regroup::topology
