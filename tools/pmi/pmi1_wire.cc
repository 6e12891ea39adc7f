// Input is untrusted: lines and blocks have a largest size, and anything but pairs is refused.
#include "tools/pmi/pmi1_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace regroup::pmi {
namespace {

using base::Result;
using base::Status;
using Maybe = std::optional<Pmi1Command>;

constexpr std::size_t kMaxCommandBytes = 1 << 20;  // a spawn with many arguments
constexpr std::string_view kBlockEnd = "endcmd\n";

// Parses "a=1 b=2": a value ends at a blank.
Status take_words(std::string_view line, Pmi1Command& out) {
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return base::invalid_argument(
          fmt::format("PMI-1: expected key=value, got \"{}\"", word.substr(0, 80)));
    }
    out.arguments[std::string(word.substr(0, equals))] = word.substr(equals + 1);
  }
  return {};
}

// Parses one pair, whose value extends to the end of the line.
Status take_line(std::string_view line, Pmi1Command& out) {
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return base::invalid_argument(
        fmt::format("PMI-1: expected key=value, got line \"{}\"", line.substr(0, 80)));
  }
  out.arguments[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  return {};
}

Status take_block(std::string_view block, Pmi1Command& out) {
  while (!block.empty()) {
    const std::string_view line = block.substr(0, block.find('\n'));
    block.remove_prefix(std::min(line.size() + 1, block.size()));
    REGROUP_RETURN_IF_ERROR(take_line(line, out));
  }
  return {};
}

// Moves the command's name out of its arguments.
Result<Maybe> named(Pmi1Command command, const char* key) {
  command.name = command.get(key);
  command.arguments.erase(key);
  return Maybe(std::move(command));
}

}  // namespace

std::string Pmi1Command::get(const std::string& key, const std::string& otherwise) const {
  const auto found = arguments.find(key);
  return found == arguments.end() ? otherwise : found->second;
}

Result<std::int64_t> Pmi1Command::number(const std::string& key) const {
  const std::string text = get(key);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return base::invalid_argument(
        fmt::format("PMI-1 {}: {}={}: expected a number", name, key, text));
  }
  return value;
}

Result<Maybe> Pmi1Reader::fail(std::string message) {
  return error_ = base::invalid_argument(std::move(message)), error_;
}

Result<Maybe> Pmi1Reader::next() {
  if (!error_.ok()) return error_;
  const std::size_t newline = buffer_.find('\n');
  if (newline == std::string::npos || buffer_.size() > kMaxCommandBytes) {
    if (buffer_.size() > kMaxCommandBytes) return fail("PMI-1: a command is longer than 1 MiB");
    return Maybe();
  }
  const bool block = buffer_.starts_with("mcmd=");
  if (!block && !buffer_.starts_with("cmd="))
    return fail("PMI-1: a line begins with neither cmd= nor mcmd=");
  const std::size_t end = block ? buffer_.find('\n' + std::string(kBlockEnd)) : newline;
  if (end == std::string::npos) return Maybe();
  Pmi1Command command;
  const std::string_view text = std::string_view(buffer_).substr(0, end);
  const Status status = block ? take_block(text, command) : take_words(text, command);
  if (!status.ok()) return fail(status.message());
  buffer_.erase(0, end + 1 + (block ? kBlockEnd.size() : 0));
  return named(std::move(command), block ? "mcmd" : "cmd");
}

}  // namespace regroup::pmi
