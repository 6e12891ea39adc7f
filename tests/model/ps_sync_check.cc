// An explicit-state model of the parameter server's mode sync: two ranges, two leaves a step, two
// workers. Workers compute leaves from the version before at all ranges and push nodes of leaves;
// a range applies a step once it has every leaf. Replication is ps_check's subject: here a range
// that loses its primary keeps its versions and loses the nodes of the step that is not complete.
// docs/design/ps_replication.md is the protocol in words.
//   usage: ps_sync_check [-workers N] [-steps N] [-F faults] [-f kinds] [-off RULE] [-max states]
//   [-expect holds|INVARIANT] [-reach WORDS] [-full]
// Kinds of faults: w a worker killed, k the primary of a range lost. -off, -expect, -full:
// ps_check.cc.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/model/moves.h"
#include "tests/model/state_search.h"

namespace regroup::model::ps_sync {

using Byte = std::uint8_t;
inline constexpr int kRanges = 2, kLeaves = 2, kWorkers = 2, kSteps = 3;
inline constexpr int kNodes = 4;  // by its leaves, as bits: 1, 2 and both
inline constexpr Byte kAll = (1 << kLeaves) - 1;

enum Rule : Byte {
  kFree,       // version c - 1 stays until c + 1 is applied
  kOverlap,    // a node that holds others replaces them, one inside another is a duplicate
  kAllRanges,  // a worker begins c + 1 once all ranges have completed c
  kLate,       // a node of a completed step counts for nothing
  kVersion,    // a leaf of c is computed from version c - 1 of every range
  kAgain,      // a worker asks which leaves lack, also after it has pushed its own
  kRules
};
constexpr const char* kRuleNames[kRules] = {"free", "overlap", "allranges",
                                            "late", "version", "again"};

struct Options {
  int off = 0;
  int workers = 2;
  int steps = 2;
  int faults = 1;
  std::string kinds = "w";
  std::size_t max_states = 30'000'000;
  bool liveness = true;
  [[nodiscard]] bool has(Rule rule) const { return (off >> rule & 1) == 0; }
};

struct Worker {
  Byte alive, step;
  Byte read;    // ranges of which it has version step - 1
  Byte wrong;   // it has another version of some
  Byte node;    // that it pushes; 0: none
  Byte pushed;  // ranges
};
struct Range {
  Byte version;       // newest complete step
  Byte held[kNodes];  // how often each node of the next step is held
};
struct State {
  Range r[kRanges];
  Worker w[kWorkers];
  // Nodes on the way: bit 0 computed from the right versions, bit 1 from others.
  Byte node[kRanges][kSteps + 1][kNodes];
  Byte faults;
};
using Successor = SuccessorOf<State>;

namespace {

struct Moves : MovesOf<Options, State> {
  template <class... Values>
  void emit(State t, fmt::format_string<Values...> text, Values&&... values) const {
    for (Worker& w : t.w) {
      if (w.alive == 0) w = {};
    }
    for (int r = 0; r < kRanges; ++r) {
      for (int step = 0; step <= t.r[r].version && o.has(kLate); ++step)
        std::memset(t.node[r][step], 0, kNodes);
    }
    add(t, text, std::forward<Values>(values)...);
  }
};

int covered(const Range& r) {
  int leaves = 0;
  for (int node = 1; node < kNodes; ++node) leaves |= r.held[node] != 0 ? node : 0;
  return leaves;
}

int least_version(const State& s) { return std::min(s.r[0].version, s.r[1].version); }

void complete(const Moves& m, State* t, int range) {
  Range& r = t->r[range];
  if (covered(r) != kAll) return;
  for (int leaf = 0; leaf < kLeaves; ++leaf) {
    int times = 0;
    for (int node = 1; node < kNodes; ++node) times += (node >> leaf & 1) * r.held[node];
    if (times != 1)
      m.violate(fmt::format("I8: leaf {} of step {} counts {} times in range {}", leaf,
                            r.version + 1, times, range));
  }
  ++r.version;
  std::memset(r.held, 0, sizeof r.held);
}

void take_node(const Moves& m, int range, int step, int node, bool right) {
  const Range& r = m.s.r[range];
  if ((m.s.node[range][step][node] >> (right ? 0 : 1) & 1) == 0) return;
  if (r.version == m.o.steps || (step <= r.version && m.o.has(kLate))) return;
  if (step > r.version + 1) return;
  const int leaves = covered(r);
  const bool inside = (leaves & node) == node;
  if (m.o.has(kOverlap) ? inside : r.held[node] != 0) return;
  if (!right || step != r.version + 1)
    m.violate(fmt::format("I8: step {} of range {} counts a leaf of other versions", r.version + 1,
                          range));
  State t = m.s;
  Range& to = t.r[range];
  for (int other = 1; other < kNodes && m.o.has(kOverlap); ++other) {
    if ((other & node) == other) to.held[other] = 0;
  }
  ++to.held[node];
  complete(m, &t, range);
  m.emit(t, "range {} takes node {:b} of step {}{}", range, node, step,
         t.r[range].version != r.version ? ": complete" : "");
}

void read(const Moves& m, int i, int range) {
  const Worker& w = m.s.w[i];
  const Range& r = m.s.r[range];
  if ((w.read >> range & 1) != 0 || r.version + 1 < w.step) return;
  const bool newest = r.version + 1 == w.step;
  const bool before = r.version == w.step && m.o.has(kFree);
  if (!newest && !before && m.o.has(kVersion)) return;
  State t = m.s;
  t.w[i].read |= static_cast<Byte>(1 << range);
  if (!m.o.has(kVersion) && !newest) t.w[i].wrong = 1;
  m.emit(t, "worker {} reads range {} for step {}", i, range, w.step);
}

void choose(const Moves& m, int i, int node) {
  const Worker& w = m.s.w[i];
  const bool chosen = w.node != 0 && (w.pushed != kAll || !m.o.has(kAgain));
  if (w.read != kAll || chosen || w.node == node) return;
  bool lacks = false;
  for (const Range& r : m.s.r) {
    lacks |= r.version + 1 == w.step && (covered(r) & node) != node;
  }
  if (!lacks) return;
  State t = m.s;
  t.w[i].node = static_cast<Byte>(node);
  t.w[i].pushed = 0;
  m.emit(t, "worker {} computes node {:b} of step {}", i, node, w.step);
}

// It keeps what it has pushed, and pushes it again to a new primary.
void push(const Moves& m, int i, int range) {
  const Worker& w = m.s.w[i];
  if (w.node == 0) return;
  const auto kind = static_cast<Byte>(1 << w.wrong);
  State t = m.s;
  t.w[i].pushed |= static_cast<Byte>(1 << range);
  t.node[range][w.step][w.node] |= kind;
  if (std::memcmp(&t, &m.s, sizeof t) == 0) return;
  if (least_version(m.s) + 1 < w.step)
    m.violate(fmt::format("I8: worker {} pushes step {}, a range has not completed the one before",
                          i, w.step));
  m.emit(t, "worker {} pushes node {:b} of step {} to range {}", i, w.node, w.step, range);
}

void next_step(const Moves& m, int i) {
  const Worker& w = m.s.w[i];
  const int complete =
      m.o.has(kAllRanges) ? least_version(m.s) : std::max(m.s.r[0].version, m.s.r[1].version);
  if (complete < w.step || w.step == m.o.steps) return;
  State t = m.s;
  t.w[i] = {1, static_cast<Byte>(complete + 1), 0, 0, 0, 0};
  if (complete == m.o.steps) t.w[i].step = w.step, t.w[i].read = kAll;
  m.emit(t, "worker {} begins step {}", i, complete + 1);
}

void start(const Moves& m, int i) {
  if (m.s.w[i].alive != 0 || least_version(m.s) == m.o.steps) return;
  State t = m.s;
  t.w[i] = {1, static_cast<Byte>(least_version(m.s) + 1), 0, 0, 0, 0};
  m.emit(t, "a new worker {} finds version {} complete", i, least_version(m.s));
}

void fault(const Moves& m, char kind) {
  for (int i = 0; kind == 'w' && i < m.o.workers; ++i) {
    if (m.s.w[i].alive == 0) continue;
    State t = m.s;
    ++t.faults;
    t.w[i].alive = 0;
    m.emit(t, "FAULT worker {} is killed", i);
  }
  for (int r = 0; kind == 'k' && r < kRanges; ++r) {
    State t = m.s;
    ++t.faults;
    std::memset(t.r[r].held, 0, sizeof t.r[r].held);
    std::memset(t.node[r], 0, sizeof t.node[r]);  // of the epoch before
    m.emit(t, "FAULT the primary of range {} is lost with its nodes", r);
  }
}

}  // namespace

State initial(const Options& o) {
  State s;
  std::memset(&s, 0, sizeof s);
  for (int i = 0; i < o.workers; ++i) s.w[i].alive = s.w[i].step = 1;
  return s;
}

bool goal(const Options& o, const State& s) { return least_version(s) == o.steps; }

void successors(const Options& o, const State& s, bool labels, std::vector<Successor>* out,
                std::string* violation) {
  out->clear();
  violation->clear();
  const Moves m{{o, s, labels, out, violation}};
  for (int r = 0; r < kRanges; ++r) {
    for (int step = 1; step <= o.steps; ++step) {
      for (int node = 1; node < kNodes; ++node) {
        for (const bool right : {true, false}) take_node(m, r, step, node, right);
      }
    }
  }
  for (int i = 0; i < o.workers; ++i) {
    start(m, i);
    if (s.w[i].alive == 0) continue;
    next_step(m, i);
    for (int node = 1; node < kNodes; ++node) choose(m, i, node);
    for (int r = 0; r < kRanges; ++r) {
      read(m, i, r);
      push(m, i, r);
    }
  }
  const std::size_t faults = out->size();
  for (const char kind : s.faults < o.faults ? o.kinds : std::string()) fault(m, kind);
  for (std::size_t i = faults; i < out->size(); ++i) (*out)[i].fault = true;
}

std::string describe(const State& s) {
  return fmt::format("     ranges at versions {} and {}\n", s.r[0].version, s.r[1].version);
}

}  // namespace regroup::model::ps_sync

int main(int argc, char** argv) {
  using namespace regroup::model::ps_sync;
  Options o;
  std::string expect = "holds";
  std::string reach;
  const auto number = [](int* to) {
    return [to](const std::string& v) { return *to = std::atoi(v.c_str()), true; };
  };
  const auto text = [](std::string* to) {
    return [to](const std::string& v) { return *to = v, true; };
  };
  const std::map<std::string, std::function<bool(const std::string&)>> arguments = {
      {"-workers", number(&o.workers)},
      {"-steps", number(&o.steps)},
      {"-F", number(&o.faults)},
      {"-f", text(&o.kinds)},
      {"-expect", text(&expect)},
      {"-reach", text(&reach)},
      {"-max", [&](const std::string& v) { return o.max_states = std::stoull(v), true; }},
      {"-off", [&](const std::string& v) {
         const auto* rule = std::find(kRuleNames, kRuleNames + kRules, v);
         o.off |= 1 << (rule - kRuleNames);
         return rule != kRuleNames + kRules;
       }}};
  bool full = false;
  for (int i = 1; i < argc; i += 2) {
    if (std::string(argv[i]) == "-full") {
      full = true;
      --i;
      continue;
    }
    const auto it = arguments.find(argv[i]);
    if (it == arguments.end() || i + 1 == argc || !it->second(argv[i + 1])) {
      std::fprintf(stderr, "ps_sync_check: %s is not understood; see the usage in its source\n",
                   argv[i]);
      return 2;
    }
  }
  if (full && std::getenv("REGROUP_TEST_FULL") == nullptr) {
    std::puts("skipped: only with REGROUP_TEST_FULL");
    return 77;
  }
  regroup::model::StateSearch<Options, State, Successor> search(o, reach, "I11");
  const bool holds = search.run();
  const bool expected = expect == "holds" ? holds : search.broken().rfind(expect + ":", 0) == 0;
  return expected || search.cut() ? 0 : 1;
}
