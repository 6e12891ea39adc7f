// Searches the model of the parameter server's replication (ps_model.h) breadth first: no invariant
// broken, no deadlock, and from every state a way to the end without a further fault (I11).
//   usage: ps_check [-ranges N] [-replicas N] [-hosts N] [-clients N] [-pushes N] [-touches
//   LETTERS] [-F faults] [-f kinds] [-joins N] [-two] [-rows] [-reads] [-heals] [-partial] [-split]
//   [-clocks] [-bound N] [-clientjoins] [-off RULE]...
//   [-max states]
//   [-nolive] [-expect holds|INVARIANT] [-reach WORDS] [-full]
// Kinds of faults: ps_faults.cc; rules and options: ps_rules.h. Exit status 0: as expected
// (default: holds); -expect I4: the first thing found to be broken is I4. -reach: a move with these
// words in its label counts as a violation. -full: skip (77) unless REGROUP_TEST_FULL is set.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>

#include "tests/model/ps_model.h"
#include "tests/model/state_search.h"

namespace {

using namespace regroup::model::ps;
using Search = regroup::model::StateSearch<Options, State, Successor>;

struct Arguments {
  Options options;
  std::string expect = "holds";
  bool full = false;  // too long for every day
  std::string reach;
};

// Name of what is wrong, or nothing.
std::string parse(int argc, char** argv, Arguments* out) {
  Options& o = out->options;
  const auto number = [](int* to) {
    return [to](const std::string& v) { return *to = std::atoi(v.c_str()), true; };
  };
  const auto text = [](std::string* to) {
    return [to](const std::string& v) { return *to = v, !v.empty(); };
  };
  const std::map<std::string, std::function<bool(const std::string&)>> with_value = {
      {"-ranges", number(&o.ranges)},
      {"-replicas", number(&o.replicas)},
      {"-hosts", number(&o.hosts)},
      {"-clients", number(&o.clients)},
      {"-pushes", number(&o.pushes)},
      {"-bound", number(&o.bound)},
      {"-joins", number(&o.joins)},
      {"-F", number(&o.faults)},
      {"-f", text(&o.kinds)},
      {"-touches", text(&o.touches)},
      {"-reach", text(&out->reach)},
      {"-expect", text(&out->expect)},
      {"-max", [&](const std::string& v) { return o.max_states = std::stoull(v), true; }},
      {"-off", [&](const std::string& v) {
         const Rule rule = rule_named(v);
         if (rule == kRules) return false;
         o.off |= std::uint64_t{1} << rule;
         return true;
       }}};
  const std::map<std::string, bool*> plain = {
      {"-full", &out->full},  {"-two", &o.two_servers},          {"-rows", &o.rows},
      {"-clocks", &o.clocks}, {"-clientjoins", &o.client_joins}, {"-reads", &o.reads},
      {"-heals", &o.heals},   {"-partial", &o.partial},          {"-split", &o.split}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "-nolive") {
      o.liveness = false;
      continue;
    }
    if (const auto it = plain.find(name); it != plain.end()) {
      *it->second = true;
      continue;
    }
    const auto it = with_value.find(name);
    if (it == with_value.end() || i + 1 == argc || !it->second(argv[++i])) return name;
  }
  const auto between = [](int value, int low, int high) { return low <= value && value <= high; };
  const bool fits = between(o.ranges, 1, kRanges) && between(o.hosts, 1, kHosts) &&
                    between(o.replicas, 1, o.hosts) && between(o.clients, 1, kClients) &&
                    between(o.pushes, 1, kPushes);
  if (!fits) return "a number";
  const auto pushes = static_cast<std::size_t>(o.clients * o.pushes);
  return o.touches.empty() || o.touches.size() == pushes ? "" : "-touches";
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (const std::string wrong = parse(argc, argv, &arguments); !wrong.empty()) {
    std::fprintf(stderr, "ps_check: %s is not understood; the head of ps_check.cc has the usage\n",
                 wrong.c_str());
    return 2;
  }
  if (arguments.full && std::getenv("REGROUP_TEST_FULL") == nullptr) {
    std::puts("skipped: only with REGROUP_TEST_FULL");
    return 77;
  }
  Search search(arguments.options, arguments.reach, "I11");
  const bool holds = search.run();
  const bool expected =
      arguments.expect == "holds" ? holds : search.broken().rfind(arguments.expect + ":", 0) == 0;
  return expected || search.cut() ? 0 : 1;
}
