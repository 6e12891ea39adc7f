// What ssh writes before and after an agent has proved itself, in reads of any size: each byte is
// told once, in lines that no terminal obeys, and nothing but its own words is taken for an answer
// of the shell there.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/agent/remote_script.h"
#include "launcher/process/output_lines.h"
#include "tests/fuzz/require.h"

using namespace regroup::agent;
using namespace regroup::base;
using namespace regroup::process;
using regroup::fuzz::require;

namespace {

constexpr std::size_t kLargestRead = 16 << 10;  // of PipedProcess

// The sizes of reads are in the input too.
std::vector<std::string> cut(std::string_view bytes, std::uint32_t sizes) {
  OutputLines lines;
  std::vector<std::string> out;
  while (!bytes.empty()) {
    const std::string_view read = bytes.substr(0, 1 + sizes % kLargestRead);
    bytes.remove_prefix(read.size());
    sizes = sizes * 1'103'515'245 + 12'345;
    for (std::string& line : lines.add(read)) out.push_back(std::move(line));
  }
  if (std::string rest = lines.take_rest(); !rest.empty()) out.push_back(std::move(rest));
  return out;
}

std::vector<std::string> split(std::string_view bytes) {
  std::vector<std::string> out;
  while (!bytes.empty()) {
    out.emplace_back(bytes.substr(0, bytes.find('\n')));
    bytes.remove_prefix(std::min(out.back().size() + 1, bytes.size()));
  }
  return out;
}

void check_for_terminal(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    require(byte >= 0x20 && byte != 0x7f);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    require(byte != 0xc2 || next < 0x80 || next >= 0xa0);
  }
}

void check_line(const std::string& line, std::uint8_t status) {
  const AgentOrder order{1, "node1", "/bin/regroup", {}, "/tmp"};
  const Answer answer = answer_in(line);
  if (answer != Answer::kNone) require(line.starts_with("regroup-spawn: ") && line.size() < 40);
  require(explain(answer, order).ok() == (answer == Answer::kNone || answer == Answer::kHere));
  const std::string text = printable(line);
  require(text.size() <= std::min<std::size_t>(line.size(), 500));
  check_for_terminal(text);
  for (const bool was_up : {false, true})
    check_for_terminal(explain(Ending{"ssh", status << 8, was_up, text}, order).message());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::uint32_t seed = size == 0 ? 0 : data[size - 1] * 2'654'435'761U;
  const std::vector<std::string> lines = cut(bytes, seed);
  if (size < OutputLines::kLongestPiece) require(lines == split(bytes));
  for (const std::string& line : lines) check_line(line, data[0]);

  std::string endless;  // as nothing but a line of this size is cut elsewhere than at its end
  for (const char c : bytes) endless += c == '\n' ? ' ' : c;
  while (!endless.empty() && endless.size() < 2 * OutputLines::kLongestPiece) endless += endless;
  std::string told;
  for (const std::string& piece : cut(endless, seed)) {
    require(piece.size() < OutputLines::kLongestPiece + kLargestRead);
    told += piece;
  }
  require(told == endless);
  return 0;
}
