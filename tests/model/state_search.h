// Breadth-first search over an explicit-state model: no promise broken, no deadlock, and from every
// state a way to the end without a further fault. Prints the shortest trace of what goes wrong. A
// model is a namespace with Options (max_states, liveness), a State of bytes, Successor{label,
// state, fault} and the functions initial, successors, goal and describe over them (protocol.h has
// their contracts). A build for a sanitizer looks at fewer states: most_states.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/model/most_states.h"

namespace regroup::model {

struct StateKey {
  std::uint64_t a = 0x9e3779b97f4a7c15ULL, b = 0xc2b2ae3d27d4eb4fULL;
  bool operator==(const StateKey&) const = default;
};
struct StateKeyHash {
  std::size_t operator()(const StateKey& key) const { return key.a; }
};

template <class State>
StateKey key_of(const State& s) {
  StateKey key;
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

template <class Options, class State, class Successor>
class StateSearch {
 public:
  // A move with the words `reach` in its label counts as a violation, unless they are empty.
  // `progress` is the name of the promise that a deadlock breaks.
  StateSearch(Options options, std::string reach, std::string progress)
      : o_(std::move(options)), reach_(std::move(reach)), progress_(std::move(progress)) {}

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
      if (!follow(next) && !goal(o_, s)) return stuck("DEADLOCK", at_);
    }
    const bool complete = queue_.empty();
    cut_ = !complete && origins_.size() > kMostStates;
    std::printf("%s: %zu states, %zu transitions, no safety violation, no deadlock\n",
                complete ? "complete" : "TRUNCATED", origins_.size(), transitions_);
    return complete && (!o_.liveness || always_finishes());
  }

  // What is broken; empty if nothing is.
  [[nodiscard]] const std::string& broken() const { return broken_; }

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
    broken_ = what;
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
    broken_ = progress_ + ": " + what;
    std::printf("%s (%s) after %zu states\n", what, progress_.c_str(), origins_.size());
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
      if (!ends[i]) return stuck("NO PROGRESS: the end cannot be reached any more", i);
    }
    std::printf("the end can be reached from every state (%s)\n", progress_.c_str());
    return true;
  }

  const Options o_;
  const std::string reach_;
  const std::string progress_;
  std::string broken_;
  std::unordered_map<StateKey, std::uint32_t, StateKeyHash> seen_;
  std::deque<State> queue_;
  std::vector<Origin> origins_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;  // to, from
  std::size_t transitions_ = 0;
  std::uint32_t at_ = 0;
  bool cut_ = false;
};

}  // namespace regroup::model
