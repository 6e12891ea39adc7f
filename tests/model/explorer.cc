// Breadth-first search over choices: (which fiber) x (step, drain a store, be killed).
#include "tests/model/explorer.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <unordered_set>
#include <utility>

#include "tests/model/most_states.h"

namespace regroup::model {
namespace {

struct State {
  std::vector<std::byte> memory;
  std::vector<Fiber> fibers;
  unsigned kills = 0;
};

enum class Deed : std::uint8_t { kStep, kDrain, kKill };

struct Choice {
  Deed deed = Deed::kStep;
  std::uint8_t fiber = 0;
};

struct Origin {
  std::uint32_t parent = 0;
  Choice choice;
};

struct Key {
  std::uint64_t a = 0x9e3779b97f4a7c15ULL, b = 0xc2b2ae3d27d4eb4fULL;
  void add(std::uint64_t x) {
    a = (a ^ x) * 0xff51afd7ed558ccdULL;
    a ^= a >> 32;
    b = (b + x) * 0xc4ceb9fe1a85ec53ULL;
    b ^= b >> 29;
  }
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  std::size_t operator()(const Key& key) const { return key.a; }
};

Key key_of(const State& state) {
  Key key;
  for (std::size_t i = 0; i < state.memory.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, state.memory.data() + i, std::min<std::size_t>(8, state.memory.size() - i));
    key.add(word);
  }
  key.add(state.kills);
  for (const Fiber& f : state.fibers) {
    key.add(static_cast<std::uint64_t>(f.local.pc) << 32 | f.local.generation);
    key.add(static_cast<std::uint64_t>(f.local.position) << 32 | f.local.count);
    key.add(static_cast<std::uint64_t>(f.asleep_on) << 2 | (f.finished ? 2U : 0U) |
            (f.dead ? 1U : 0U));
    key.add(f.results.size());
    for (const std::uint64_t r : f.results) key.add(r);
    key.add(f.stores.size());
    for (const BufferedStore& s : f.stores)
      key.add(static_cast<std::uint64_t>(s.offset) << 32 | s.size), key.add(s.value);
  }
  return key;
}

class Search {
 public:
  Search(Scenario& scenario, const Limits& limits)
      : scenario_(scenario), limits_(limits), memory_(scenario.memory()) {
    initial_.memory.assign(memory_.begin(), memory_.end());
    for (const Local& local : scenario.start()) initial_.fibers.emplace_back().local = local;
  }

  Findings run() {
    visit(initial_, {});
    for (std::uint32_t at = 0; !queue_.empty(); ++at) {
      const State state = std::move(queue_.front());
      queue_.pop_front();
      if (expand(state, at) || origins_.size() > std::min(limits_.states, kMostStates)) break;
    }
    load(initial_);
    findings_.states = origins_.size();
    findings_.cut = findings_.states > kMostStates && findings_.violation.empty();
    findings_.complete = queue_.empty() && findings_.violation.empty();
    return std::move(findings_);
  }

 private:
  // True when a violation was found.
  bool expand(const State& state, std::uint32_t at) {
    bool moves = false;
    const auto fibers = static_cast<std::uint8_t>(state.fibers.size());
    for (std::uint8_t f = 0; f < fibers; ++f) {
      for (const Deed deed : {Deed::kStep, Deed::kDrain, Deed::kKill}) {
        State next = state;
        std::string failure;
        if (!apply(next, {deed, f}, &failure, nullptr)) continue;
        ++findings_.steps;
        if (deed != Deed::kKill) moves = true;
        if (failure.empty()) failure = scenario_.broken(state.memory.data());
        if (!failure.empty()) return report(failure, at, Choice{deed, f});
        visit(std::move(next), {at, {deed, f}});
      }
    }
    if (moves) return false;
    load(state);
    for (std::size_t f = 0; f < state.fibers.size(); ++f) {
      const Fiber& fiber = state.fibers[f];
      if (fiber.dead || fiber.finished) continue;
      if (std::string why = scenario_.stuck(f, fiber.local); !why.empty()) {
        return report(scenario_.name(f) + (fiber.asleep_on == kAwake ? " waits" : " sleeps") +
                          " for ever: " + why,
                      at, {});
      }
    }
    return false;
  }

  // False if the choice does not exist in this state. Leaves the scenario's memory as it is after
  // the choice.
  bool apply(State& state, Choice choice, std::string* failure, std::string* label) {
    Fiber& fiber = state.fibers[choice.fiber];
    if (fiber.dead) return false;
    load(state);
    switch (choice.deed) {
      case Deed::kStep:
        if (fiber.finished || fiber.asleep_on != kAwake ||
            !step(state, choice.fiber, failure, label))
          return false;
        break;
      case Deed::kDrain:
        if (fiber.stores.empty()) return false;
        drain(state, choice.fiber, label);
        break;
      case Deed::kKill:
        if (state.kills == limits_.kills || !scenario_.mortal(choice.fiber)) return false;
        while (!fiber.stores.empty()) drain(state, choice.fiber, nullptr);
        fiber = {.local = {}, .dead = true};
        ++state.kills;
        scenario_.killed(choice.fiber);
        if (label != nullptr) *label = "is killed";
        break;
    }
    std::copy(memory_.begin(), memory_.end(), state.memory.begin());
    return true;
  }

  bool step(State& state, std::size_t self, std::string* failure, std::string* label) {
    Fiber& fiber = state.fibers[self];
    Execution execution(memory_, state.fibers, self, limits_.tso, label != nullptr);
    try {
      while (!fiber.finished) {
        Local local = fiber.local;
        execution.begin_round();
        fiber.finished = !scenario_.round(self, local);
        fiber.local = local;
        fiber.results.clear();
      }
      fiber.local = {};
    } catch (const Execution::Yield&) {
    } catch (const Execution::Blocked&) {
      return false;
    }
    *failure = std::move(execution.failure);
    if (label != nullptr) *label = std::move(execution.label);
    return true;
  }

  void drain(State& state, std::size_t self, std::string* label) {
    Execution execution(memory_, state.fibers, self, limits_.tso, label != nullptr);
    execution.drain_one();
    if (label != nullptr) *label = std::move(execution.label);
  }

  void visit(State state, Origin origin) {
    if (!seen_.insert(key_of(state)).second) return;
    origins_.push_back(origin);
    queue_.push_back(std::move(state));
  }

  void load(const State& state) {
    std::copy(state.memory.begin(), state.memory.end(), memory_.begin());
  }

  bool report(const std::string& what, std::uint32_t at, std::optional<Choice> last) {
    findings_.violation = what;
    std::vector<Choice> way;
    if (last) way.push_back(*last);
    for (; at != 0; at = origins_[at].parent) way.push_back(origins_[at].choice);
    State state = initial_;
    for (auto it = way.rbegin(); it != way.rend(); ++it) {
      std::string failure, label;
      if (apply(state, *it, &failure, &label))
        findings_.trace.push_back(scenario_.name(it->fiber) + ": " + named(label));
    }
    return true;
  }

  // "+40" becomes the name of the cell at offset 40.
  [[nodiscard]] std::string named(std::string label) const {
    for (std::size_t at = 0; (at = label.find('+', at)) != std::string::npos; ++at) {
      const std::size_t end = label.find_first_not_of("0123456789", at + 1);
      const std::string digits =
          label.substr(at + 1, end == std::string::npos ? end : end - at - 1);
      if (digits.empty()) continue;
      const auto cell = scenario_.cells.find(std::stoul(digits));
      if (cell != scenario_.cells.end()) label.replace(at, digits.size() + 1, cell->second);
    }
    return label;
  }

  Scenario& scenario_;
  const Limits limits_;
  const std::span<std::byte> memory_;
  State initial_;
  std::deque<State> queue_;
  std::vector<Origin> origins_;
  std::unordered_set<Key, KeyHash> seen_;
  Findings findings_;
};

}  // namespace

Findings explore(Scenario& scenario, const Limits& limits) {
  return Search(scenario, limits).run();
}

}  // namespace regroup::model
