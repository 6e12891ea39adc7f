// Breadth-first search over the protocol model: no promise broken, no deadlock, and from every
// state a way to the end without a further fault. Prints the shortest trace of what goes wrong.
//   usage: protocol_check [-h0 N] [-h1 N] [-S steps] [-F faults] [-f kinds] [-J 0|1] [-jh host]
//   [-slots]
//                         [-finish] [-ring N] [-lease] [-heals] [-off RULE]... [-on RULE]...
//                         [-none]
//                         [-nbuf N] [-planrev] [-fence] [-votebystep] [-max states] [-nolive]
//                         [-expect holds|fails] [-reach WORDS] [-full]
// kinds of faults: protocol_faults.cc; rules: protocol_rules.h. Exit status 0: as expected
// (default: holds). -reach: a move with these words in its label counts as a violation: the run
// does come there. -full: skip (77) unless REGROUP_TEST_FULL is set. A build for a sanitizer looks
// at fewer states: most_states.h.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>

#include "tests/model/protocol.h"
#include "tests/model/state_search.h"

namespace {

using namespace regroup::model::protocol;
using Search = regroup::model::StateSearch<Options, State, Successor>;

constexpr std::uint64_t kAllRules = (std::uint64_t{1} << kRules) - 1;
constexpr std::uint64_t bit(Rule rule) { return std::uint64_t{1} << rule; }

struct Arguments {
  Options options;
  bool expect_holds = true;
  bool full = false;  // too long for every day
  std::string reach;
};

// Name of what is wrong, or nothing.
std::string parse(int argc, char** argv, Arguments* out) {
  Options& o = out->options;
  const auto number = [](int* to) {
    return [to](const std::string& v) { return *to = std::atoi(v.c_str()), true; };
  };
  const auto rule = [&o](bool off) {
    return [&o, off](const std::string& v) {
      const Rule r = rule_named(v);
      if (r == kRules) return false;
      o.off = off ? o.off | bit(r) : o.off & ~bit(r);
      return true;
    };
  };
  const std::map<std::string, std::function<bool(const std::string&)>> with_value = {
      {"-h0", number(&o.on_host[0])},
      {"-h1", number(&o.on_host[1])},
      {"-S", number(&o.steps)},
      {"-F", number(&o.faults)},
      {"-jh", number(&o.joiner_host)},
      {"-nbuf", number(&o.result_buffers)},
      {"-ring", number(&o.ring)},
      {"-f", [&](const std::string& v) { return o.kinds = v, true; }},
      {"-J", [&](const std::string& v) { return o.joiner = v == "1", true; }},
      {"-max", [&](const std::string& v) { return o.max_states = std::stoull(v), true; }},
      {"-reach", [&](const std::string& v) { return out->reach = v, !v.empty(); }},
      {"-off", rule(true)},
      {"-on", rule(false)},
      {"-expect", [&](const std::string& v) {
         return out->expect_holds = v == "holds", v == "holds" || v == "fails";
       }}};
  const std::map<std::string, std::function<void()>> plain = {
      {"-full", [&] { out->full = true; }},
      {"-slots", [&] { o.reuse_slots = true; }},
      {"-finish", [&] { o.finish = true; }},
      {"-lease", [&] { o.lease = true; }},
      {"-heals", [&] { o.heals = true; }},
      {"-planrev", [&] { o.plan_reversed = true; }},
      {"-fence", [&] { o.check_fence = true; }},
      {"-votebystep", [&] { o.votes_by_generation = false; }},
      {"-nolive", [&] { o.liveness = false; }},
      {"-none", [&] { o.off = kAllRules & ~(bit(kJournal) | bit(kFence)); }}};
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (const auto it = plain.find(name); it != plain.end()) {
      it->second();
      continue;
    }
    const auto it = with_value.find(name);
    if (it == with_value.end() || i + 1 == argc || !it->second(argv[++i])) return name;
  }
  const bool fits = o.on_host[0] >= 0 && o.on_host[0] <= 2 && o.on_host[1] >= 0 &&
                    o.on_host[1] <= 2 && o.joiner_host >= 0 && o.joiner_host < kHosts &&
                    o.result_buffers >= 1 && o.result_buffers <= 2 && o.ring >= 0;
  if (!fits) return "a number";
  // Without time nobody would ever end or go on.
  return !o.lease && o.kinds.find_first_of("gs") != std::string::npos
             ? "fault g or s without -lease"
             : "";
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (const std::string wrong = parse(argc, argv, &arguments); !wrong.empty()) {
    std::fprintf(
        stderr,
        "protocol_check: %s is not understood; the head of protocol_check.cc has the usage\n",
        wrong.c_str());
    return 2;
  }
  if (arguments.full && std::getenv("REGROUP_TEST_FULL") == nullptr) {
    std::puts("skipped: only with REGROUP_TEST_FULL");
    return 77;
  }
  Search search(arguments.options, arguments.reach, "I4");
  const bool holds = search.run();
  return holds == arguments.expect_holds || search.cut() ? 0 : 1;
}
