// What processes of other hosts are said to have put before a barrier of PMI-1: whatever it is,
// those of this host leave the barrier, and no answer to them is more than its line. The input is
// taken as such values, and as commands whose values then go to a second host, which must find what
// the first one holds.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/require.h"
#include "tools/pmi/pmi1_group.h"
#include "tools/pmi/pmi1_wire.h"

using namespace regroup::pmi;
using regroup::fuzz::require;

namespace {

constexpr std::uint32_t kRanks = 4;

struct Host {
  explicit Host(std::vector<std::uint32_t> ranks)
      : here(ranks), group({"kvs", {kRanks}, kRanks, "mapping", {}, std::move(ranks)}, names) {}

  Effects tell(std::uint32_t rank, const Pmi1Command& command) {
    Effects effects = group.on_command(rank, command);
    for (const Effect& effect : effects) check(effect);
    return effects;
  }
  static void check(const Effect& effect) {
    const auto* answer = std::get_if<Answer>(&effect);
    if (answer == nullptr) return;
    require(answer->text.ends_with('\n') && std::ranges::count(answer->text, '\n') == 1);
  }
  void barrier(std::string_view values) {
    const Effects effects = group.barrier_done(values);
    require(effects.size() == here.size());
    for (const Effect& effect : effects)
      require(std::get<Answer>(effect).text == "cmd=barrier_out\n");
  }
  // All of the space that every process begins with.
  std::string held() {
    std::string out;
    for (int i = 0;; ++i) {
      const Effects got =
          tell(here[0], {"getbyidx", {{"kvsname", "kvs"}, {"idx", std::to_string(i)}}});
      const std::string& line = std::get<Answer>(got.at(0)).text;
      if (line.find(" rc=0 ") == std::string::npos) return out;
      out += line;
    }
  }

  const std::vector<std::uint32_t> here;
  PublishedNames names;
  Pmi1Group group;
};

// Returns the values that a barrier would carry after these commands.
std::string values_of(Host& host, std::string_view bytes) {
  Pmi1Reader reader;
  reader.append(bytes);
  std::string values;
  const auto keep = [&values](const Effects& effects) {
    for (const Effect& effect : effects) {
      if (const auto* barrier = std::get_if<EnterBarrier>(&effect)) values += barrier->values;
    }
  };
  for (;;) {
    const auto command = reader.next();
    if (!command.ok() || !command->has_value()) break;
    keep(host.tell(host.here[0], **command));
  }
  for (const std::uint32_t rank : host.here) keep(host.tell(rank, {"barrier_in", {}}));
  return values;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Host first({0, 1}), second({2, 3});
  second.barrier(values_of(first, bytes));
  require(first.held() == second.held());
  second.barrier(bytes);
  static_cast<void>(second.held());
  return 0;
}
