// Any bytes as a ledger: `regroup ledger verify` refuses it, or finds differences or none; a line
// that it reads is written as it was.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "elastic/ledger_format.h"
#include "tests/fuzz/require.h"
#include "tools/ledger/verify.h"

using namespace regroup;
using regroup::fuzz::require;

namespace {

// Computing the samples of a step takes the longer, the more of them the header promises.
constexpr std::uint64_t kMostSamples = 1 << 16;

std::string_view next_line(std::string_view* bytes) {
  const std::string_view line = bytes->substr(0, bytes->find('\n'));
  bytes->remove_prefix(std::min(line.size() + 1, bytes->size()));
  return line;
}

template <class Parse>
void check_round_trip(std::string_view text, Parse parse) {
  const auto read = parse(text);
  if (!read.ok()) return;
  const std::string again = text_of(*read);
  const auto same = parse(std::string_view(again).substr(0, again.size() - 1));
  require(same.ok() && *same == *read);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string_view first = next_line(&bytes);
  check_round_trip(first, elastic::parse_ledger_header);
  ledger_tool::Verifier verifier(kMostSamples);
  if (!verifier.header(first).ok()) return 0;
  while (!bytes.empty()) {
    const std::string_view line = next_line(&bytes);
    check_round_trip(line, elastic::parse_ledger_line);
    verifier.line(line);
  }
  verifier.end();
  require(verifier.differences().size() <= verifier.number_of_differences());
  require(!verifier.summary().empty());
  require(verifier.missing().size() <= 3);
  return 0;
}
