// What explicit-state models share (state_search.h): a successor of a state, and how moves add one
// or report that an invariant is broken.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace regroup::model {

template <class State>
struct SuccessorOf {
  std::string label;  // empty unless asked for
  State state;
  bool fault;
};

// Of one state `s`.
template <class Options, class State>
struct MovesOf {
  const Options& o;
  const State& s;
  bool labels;
  std::vector<SuccessorOf<State>>* out;
  std::string* violation;

  template <class... Values>
  void add(const State& t, fmt::format_string<Values...> text, Values&&... values) const {
    out->push_back(
        {labels ? fmt::format(text, std::forward<Values>(values)...) : std::string(), t, false});
  }
  void violate(const std::string& what) const {
    if (violation->empty()) *violation = what;
  }
};

}  // namespace regroup::model
