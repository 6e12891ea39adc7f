// Tries every interleaving of a scenario's fibers, breadth first, so that the first violation found
// is a shortest one. States that differ in nothing that matters later (memory, what each fiber has
// read in its round, sleepers, store buffers) are visited once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/model/execution.h"

namespace regroup::model {

class Scenario {
 public:
  virtual ~Scenario() = default;
  // All that the fibers share: trivially copyable, at a fixed address, its first value set by the
  // constructor.
  virtual std::span<std::byte> memory() = 0;
  [[nodiscard]] virtual std::vector<Local> start() const = 0;  // one per fiber
  // Runs one round of a fiber: shipped code between two points where `local` says all that it
  // remembers. False: it has nothing left to do. Called again and again with the same `local`;
  // deterministic.
  virtual bool round(std::size_t fiber, Local& local) = 0;
  [[nodiscard]] virtual std::string name(std::size_t fiber) const = 0;

  [[nodiscard]] virtual bool mortal(std::size_t) const { return false; }
  virtual void killed(std::size_t) {}  // what its death changes in memory at once
  // Why a state cannot follow the state `before`; empty if it may.
  [[nodiscard]] virtual std::string broken(const std::byte* /*before*/) { return {}; }
  // Why this living fiber may not stay where it is for ever; empty if it may.
  [[nodiscard]] virtual std::string stuck(std::size_t fiber, const Local& local) = 0;

  std::map<std::size_t, std::string> cells;  // offset in memory -> name, for traces
};

struct Limits {
  bool tso = false;    // x86 store buffers
  unsigned kills = 0;  // mortal fibers that may be killed, at any point
  std::size_t states = 5'000'000;
};

struct Findings {
  std::size_t states = 0;
  std::size_t steps = 0;
  bool complete = false;           // every state was visited
  bool cut = false;                // it stopped at kMostStates (most_states.h)
  std::string violation;           // empty if none
  std::vector<std::string> trace;  // shortest way to it
};

[[nodiscard]] Findings explore(Scenario& scenario, const Limits& limits);

}  // namespace regroup::model
