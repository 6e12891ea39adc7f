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
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <unordered_map>

#include "tests/model/most_states.h"
#include "tests/model/protocol.h"

namespace {

using namespace regroup::model::protocol;
using regroup::model::kMostStates;

struct Key {
  std::uint64_t a = 0x9e3779b97f4a7c15ULL, b = 0xc2b2ae3d27d4eb4fULL;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  std::size_t operator()(const Key& key) const { return key.a; }
};

Key key_of(const State& s) {
  Key key;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&s);
  for (std::size_t i = 0; i < sizeof s; i += 8) {
    std::uint64_t x = 0;
    std::memcpy(&x, bytes + i, std::min<std::size_t>(8, sizeof s - i));
    key.a = (key.a ^ x) * 0xff51afd7ed558ccdULL;
    key.a ^= key.a >> 32;
    key.b = (key.b + x) * 0xc4ceb9fe1a85ec53ULL;
    key.b ^= key.b >> 29;
  }
  return key;
}

class Search {
 public:
  // A move with the words `reach` in its label counts as a violation, unless they are empty.
  Search(Options options, std::string reach) : o_(std::move(options)), reach_(std::move(reach)) {}

  // True if all holds.
  bool run() {
    visit(initial(o_), 0, 0);
    std::vector<Successor> next;
    std::string violation;
    for (; !queue_.empty() && origins_.size() <= std::min(o_.max_states, kMostStates); ++at_) {
      const State s = queue_.front();
      queue_.pop_front();
      successors(o_, s, !reach_.empty(), &next, &violation);
      for (const Successor& n : next) {
        if (!reach_.empty() && n.label.find(reach_) != std::string::npos)
          violation = "reached: " + n.label;
      }
      if (!violation.empty()) return violated(s, violation);
      if (!follow(next) && !goal(o_, s)) return stuck("DEADLOCK (I4)", at_);
    }
    const bool complete = queue_.empty();
    cut_ = !complete && origins_.size() > kMostStates;
    std::printf("%s: %zu states, %zu transitions, no safety violation, no deadlock\n",
                complete ? "complete" : "TRUNCATED", origins_.size(), transitions_);
    return complete && (!o_.liveness || always_finishes());
  }

  // It stopped at kMostStates and found nothing.
  [[nodiscard]] bool cut() const { return cut_; }

 private:
  struct Origin {
    std::uint32_t parent = 0;
    std::uint16_t choice = 0;
    bool goal = false;
  };

  // False if nothing but faults can happen.
  bool follow(const std::vector<Successor>& next) {
    bool any = false;
    for (std::size_t k = 0; k < next.size(); ++k) {
      ++transitions_;
      any |= !next[k].fault;
      const std::uint32_t id = visit(next[k].state, at_, k);
      if (o_.liveness && !next[k].fault && id != at_) edges_.emplace_back(id, at_);
    }
    return any;
  }

  std::uint32_t visit(const State& s, std::uint32_t parent, std::size_t choice) {
    const auto [it, fresh] = seen_.emplace(key_of(s), static_cast<std::uint32_t>(origins_.size()));
    if (fresh) {
      origins_.push_back({parent, static_cast<std::uint16_t>(choice), goal(o_, s)});
      queue_.push_back(s);
    }
    return it->second;
  }

  void trace(std::uint32_t id) {
    std::vector<std::uint16_t> choices;
    for (; id != 0; id = origins_[id].parent) choices.push_back(origins_[id].choice);
    State s = initial(o_);
    std::vector<Successor> next;
    std::string violation;
    int n = 0;
    for (auto it = choices.rbegin(); it != choices.rend(); ++it) {
      successors(o_, s, true, &next, &violation);
      std::printf("  %2d. %s\n", ++n, next[*it].label.c_str());
      s = next[*it].state;
    }
    std::printf("%s", describe(s).c_str());
  }

  bool violated(const State& s, const std::string& what) {
    std::printf("VIOLATION after %zu states: %s\n", origins_.size(), what.c_str());
    trace(at_);
    std::vector<Successor> next;
    std::string again;
    successors(o_, s, true, &next, &again);
    std::printf("  next:");
    for (const Successor& n : next) std::printf(" [%s]", n.label.c_str());
    std::puts("");
    return false;
  }

  bool stuck(const char* what, std::uint32_t id) {
    std::printf("%s after %zu states\n", what, origins_.size());
    trace(id);
    return false;
  }

  // Backwards from the goals over all edges that are no faults.
  bool always_finishes() {
    const std::size_t n = origins_.size();
    std::vector<std::uint32_t> first(n + 1, 0), from(edges_.size()), todo;
    for (const auto& [to, at] : edges_) ++first[to + 1];
    for (std::size_t i = 0; i < n; ++i) first[i + 1] += first[i];
    std::vector<std::uint32_t> fill(first.begin(), first.end() - 1);
    for (const auto& [to, at] : edges_) from[fill[to]++] = at;
    std::vector<bool> ends(n, false);
    const auto mark = [&](std::uint32_t id) {
      if (!ends[id]) ends[id] = true, todo.push_back(id);
    };
    for (std::uint32_t i = 0; i < n; ++i) {
      if (origins_[i].goal) mark(i);
    }
    while (!todo.empty()) {
      const std::uint32_t id = todo.back();
      todo.pop_back();
      for (std::uint32_t k = first[id]; k < first[id + 1]; ++k) mark(from[k]);
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      if (!ends[i]) return stuck("NO PROGRESS (I4): the end cannot be reached any more", i);
    }
    std::puts("the end can be reached from every state (I4)");
    return true;
  }

  const Options o_;
  const std::string reach_;
  std::unordered_map<Key, std::uint32_t, KeyHash> seen_;
  std::deque<State> queue_;
  std::vector<Origin> origins_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;  // to, from
  std::size_t transitions_ = 0;
  std::uint32_t at_ = 0;
  bool cut_ = false;
};

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
  Search search(arguments.options, arguments.reach);
  const bool holds = search.run();
  return holds == arguments.expect_holds || search.cut() ? 0 : 1;
}
