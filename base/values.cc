// Parsing of option values, and the message for each malformed value.
#include "base/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <csignal>

namespace regroup::base {

Status bad_value(std::string_view name, std::string_view value, std::string_view wanted) {
  return invalid_argument(
      fmt::format("option {}{}{}: {}", name, value.empty() ? "" : " ", value, wanted));
}

namespace {

template <class T>
Status parse_number(std::string_view name, std::string_view text, T least, T& out) {
  const bool negative = text.starts_with('-');
  if (!negative && !read_number(text, out)) return bad_value(name, text, "expected a whole number");
  if (!negative && out >= least) return {};
  return bad_value(name, text, fmt::format("expected a whole number >= {}", least));
}

// Reads a number within bounds that later arithmetic cannot overflow.
bool read_real(std::string_view text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= 0 && out <= 1e9;
}

}  // namespace

Status parse_count(std::string_view name, std::string_view text, std::uint32_t least,
                   std::uint32_t& out) {
  return parse_number(name, text, least, out);
}

Status parse_count(std::string_view name, std::string_view text, std::uint64_t& out) {
  return parse_number(name, text, std::uint64_t{0}, out);
}

Status parse_seconds(std::string_view name, std::string_view text, Duration& out) {
  double seconds = 0;
  if (!read_real(text, seconds)) return bad_value(name, text, "expected a number of seconds");
  out = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  return {};
}

Status parse_cpus(std::string_view name, std::string_view text, double& out) {
  double cpus = 0;
  if (!read_real(text, cpus) || cpus <= 0 || cpus > 65536) {
    return bad_value(name, text, "expected a positive number of processors, for example 2 or 0.5");
  }
  out = cpus;
  return {};
}

Status parse_bytes(std::string_view name, std::string_view text, std::uint64_t& out) {
  std::string_view digits = text;
  std::string unit;
  while (!digits.empty() && std::isalpha(static_cast<unsigned char>(digits.back())) != 0) {
    unit.insert(unit.begin(),
                static_cast<char>(std::toupper(static_cast<unsigned char>(digits.back()))));
    digits.remove_suffix(1);
  }
  static constexpr std::string_view kUnits = "KMGT";
  const std::string_view rest = std::string_view(unit).substr(unit.empty() ? 0 : 1);
  const std::size_t power = unit.empty() || unit == "B" ? 0 : kUnits.find(unit[0]) + 1;
  std::uint64_t number = 0;
  if (!read_number(digits, number) || number == 0 || (power == 0 && unit.size() > 1) ||
      (power != 0 && !rest.empty() && rest != "B" && rest != "IB" && rest != "I") ||
      (!unit.empty() && unit != "B" && kUnits.find(unit[0]) == std::string_view::npos) ||
      number > (~std::uint64_t{0} >> (10 * power))) {
    return bad_value(name, text, "expected a size, for example 512M or 2G");
  }
  out = number << (10 * power);
  return {};
}

Status parse_word(std::string_view name, std::string_view text, std::string_view on,
                  std::string_view off, bool& out) {
  if (text != on && text != off)
    return bad_value(name, text, fmt::format("expected {} or {}", on, off));
  out = text == on;
  return {};
}

Status parse_signals(std::string_view name, std::string_view text, std::vector<int>& out) {
  out.clear();
  if (text == "none") return {};
  for (const std::string& word : split(text, ",")) {
    std::string upper = word;
    std::transform(upper.begin(), upper.end(), upper.begin(),
                   [](unsigned char c) { return std::toupper(c); });
    const std::string_view plain =
        upper.starts_with("SIG") ? std::string_view(upper).substr(3) : upper;
    int found = 0;
    for (int number = 1; number < 32; ++number) {
      const char* known = ::sigabbrev_np(number);
      if (known != nullptr && plain == known) found = number;
    }
    if (found == 0 && (!read_number(plain, found) || found < 1 || found > SIGRTMAX)) {
      return bad_value(name, text, fmt::format("unknown signal '{}'", word));
    }
    if (found == SIGKILL || found == SIGSTOP) {
      return bad_value(name, text,
                       fmt::format("{} cannot be forwarded, since no process can catch it", word));
    }
    if (found == SIGCHLD) {
      return bad_value(name, text,
                       fmt::format("{} cannot be forwarded, since the launcher uses it", word));
    }
    out.push_back(found);
  }
  return {};
}

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (separators.find(c) != std::string_view::npos) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\f\v";
  const std::size_t from = text.find_first_not_of(kBlank);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(kBlank) - from + 1);
}

Result<std::vector<std::string>> shell_words(std::string_view line) {
  std::vector<std::string> words;
  bool open = false;  // a word has begun
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == 0 && (c == ' ' || c == '\t' || c == '\r')) {
      open = false;
      continue;
    }
    if (quote == 0 && !open && c == '#') break;
    if (!open) words.emplace_back();
    open = true;
    if (c == quote && quote != 0) {
      quote = 0;
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < line.size()) {
      words.back() += line[++i];
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) return invalid_argument(fmt::format("unbalanced quote {}", quote));
  return words;
}

std::vector<std::string> file_words(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  std::vector<std::string> words;
  bool open = false;  // a word has begun
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (kBlank.find(c) != std::string_view::npos) {
      open = false;
      continue;
    }
    if (!open && c == '#') break;
    const std::string_view escaped = open ? " \t\"'\\#" : "\"'\\#";
    const bool may_quote = !open || words.back().ends_with('=');
    if (!open) words.emplace_back();
    open = true;
    const bool quotes = may_quote && (c == '"' || c == '\'');
    const std::size_t closed = quotes ? line.find(c, i + 1) : std::string_view::npos;
    const bool ends_word =
        closed != std::string_view::npos &&
        (closed + 1 == line.size() || kBlank.find(line[closed + 1]) != std::string_view::npos);
    if (ends_word) {
      words.back() += line.substr(i + 1, closed - i - 1);
      i = closed;
    } else if (c == '\\' && i + 1 < line.size() &&
               escaped.find(line[i + 1]) != std::string_view::npos) {
      words.back() += line[++i];
    } else {
      words.back() += c;
    }
  }
  return words;
}

}  // namespace regroup::base
