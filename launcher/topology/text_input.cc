// Bounded parsers for hand-written numbers, lists and files.
#include "launcher/topology/text_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/fd.h"

namespace regroup::topology {
namespace {

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

template <class T>
std::optional<T> number(std::string_view text, T least, T most, int base = 10) {
  T value{};
  const auto [end, error] = [&] {
    if constexpr (std::is_floating_point_v<T>) {
      return std::from_chars(text.data(), text.data() + text.size(), value);
    } else {
      return std::from_chars(text.data(), text.data() + text.size(), value, base);
    }
  }();
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return {};
  return value;
}

// The position after the escape sequence whose escape character is before `at` ("[4m", "(B",
// "]0;title\a"); at most the end of the line.
std::size_t end_of_escape(std::string_view text, std::size_t at) {
  const auto is = [&](char least, char most) {
    return at < text.size() && text[at] >= least && text[at] <= most;
  };
  const char kind = at < text.size() ? text[at] : '\n';
  if (kind == '\n') return at;
  if (kind == '[') {
    ++at;
    while (is(' ', '?')) ++at;
  } else if (kind == ']') {
    while (at < text.size() && text[at] != '\a' && text[at] != '\x1b' && text[at] != '\n') ++at;
    return at < text.size() && text[at] == '\a' ? at + 1 : at;
  } else {
    while (is(' ', '/')) ++at;
  }
  return at < text.size() && text[at] != '\n' ? at + 1 : at;
}

}  // namespace

base::Status input_error(std::string_view source, std::size_t line, std::string_view what) {
  return base::invalid_argument(line == 0 ? fmt::format("{}: {}", source, what)
                                          : fmt::format("{}:{}: {}", source, line, what));
}

std::optional<std::int64_t> whole_number(std::string_view text, std::int64_t least,
                                         std::int64_t most) {
  return number<std::int64_t>(text, least, most);
}

std::optional<double> real_number(std::string_view text, double least, double most) {
  const auto value = number<double>(text, least, most);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<std::vector<int>> number_list(std::string_view text, int most) {
  std::vector<int> out;
  for (const std::string_view piece : split(text, ',')) {
    const std::size_t dash = piece.find('-');
    const auto first = whole_number(piece.substr(0, dash), 0, most);
    const auto last =
        dash == std::string_view::npos ? first : whole_number(piece.substr(dash + 1), 0, most);
    if (!first || !last || *last < *first) return {};
    if (out.size() + static_cast<std::size_t>(*last - *first) > static_cast<std::size_t>(most))
      return {};
    for (std::int64_t i = *first; i <= *last; ++i) out.push_back(static_cast<int>(i));
  }
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end()) return {};
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  if (separator != ' ') {
    for (std::size_t at = 0;;) {
      const std::size_t end = text.find(separator, at);
      out.push_back(text.substr(at, end - at));
      if (end == std::string_view::npos) return out;
      at = end + 1;
    }
  }
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && !blank(text[end])) ++end;
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<std::string> bus_id(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() != 2 && parts.size() != 3) return {};
  const std::vector<std::string_view> device = split(parts.back(), '.');
  if (device.size() > 2) return {};
  const auto hex = [](std::string_view digits, std::uint32_t most) {
    return number<std::uint32_t>(digits, 0, most, 16);
  };
  const auto domain = parts.size() == 3 ? hex(parts[0], UINT32_MAX) : 0;
  const auto bus = hex(parts[parts.size() - 2], 0xFF), dev = hex(device[0], 0xFF);
  const auto function = device.size() == 2 ? hex(device[1], 0xF) : 0;
  if (!domain || !bus || !dev || !function) return {};
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", *domain, *bus, *dev, *function);
}

base::Result<std::string> read_text_file(const std::string& path, std::size_t most) {
  // Opening a pipe must not block.
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return base::system_error("open", path, errno);
  std::string out;
  char buffer[16384];
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::system_error("read", path, errno);
    if (got == 0) return out;
    out.append(buffer, static_cast<std::size_t>(got));
    if (out.size() > most) return input_error(path, 0, fmt::format("longer than {} bytes", most));
  }
}

std::string plain_screen(std::string_view text) {
  std::string out;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\x1b') {
      i = end_of_escape(text, i + 1) - 1;
    } else if (c == '\b') {
      if (!out.empty() && out.back() != '\n') out.pop_back();
    } else if (c == '\xc2' && i + 1 < text.size() && text[i + 1] == '\xa0') {
      out += ' ';
      ++i;
    } else {
      out += c;
    }
  }
  return out;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (out.size() < kMaxNodes) out.push_back(it->path().filename());
  }
  std::sort(out.begin(), out.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  return out;
}

base::Status check_machine(const Machine& machine, std::string_view source) {
  const auto beyond = [source](std::size_t count, std::uint32_t most, std::string_view what) {
    return count <= most
               ? base::Status()
               : input_error(source, 0,
                             fmt::format("{} {}, expected at most {}", count, what, most));
  };
  REGROUP_RETURN_IF_ERROR(beyond(machine.ends(), kMaxEnds, "GPUs, NICs and NUMA nodes"));
  REGROUP_RETURN_IF_ERROR(beyond(machine.nodes.size(), kMaxNodes, "nodes"));
  return beyond(machine.links.size(), kMaxLinks, "links");
}

}  // namespace regroup::topology
