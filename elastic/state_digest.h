// The CRC32Cs of a state, which must be equal on all members, and the search for the first
// difference between two members. docs/design/divergence.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/world.h"
#include "regroup/communicator.h"
#include "regroup/state.h"

namespace regroup::elastic {

class StateDigest {
 public:
  [[nodiscard]] static base::Result<StateDigest> of(State& state);

  enum Kind : std::uint8_t { kValues, kTensors };
  [[nodiscard]] std::size_t count(Kind kind) const { return lists_[kind].size(); }
  // The CRC of the first `parts` parts of `kind`, including their names.
  [[nodiscard]] std::uint32_t of_first(Kind kind, std::size_t parts) const;
  // The digest of all parts of both kinds.
  [[nodiscard]] std::uint64_t of_all() const;
  [[nodiscard]] const std::string& name(Kind kind, std::size_t part) const;
  // A value as text; empty for a tensor, and for a part that does not exist.
  [[nodiscard]] const std::string& value(Kind kind, std::size_t part) const;

 private:
  struct Part {
    std::string name;
    std::string value;
    std::uint32_t crc_to_here = 0;  // of this part and all before it
  };
  void add(const StatePart& part);
  std::vector<Part> lists_[2];  // by Kind
};

// Describes how the states of the ranks differ: the members that deviate from the majority (by id;
// `members` is indexed by rank), the first value and the first tensor that differ. `digests` has
// the digests of all ranks, which must not be equal. Collective. If the communicator fails
// meanwhile, the sentence is shorter.
[[nodiscard]] std::string describe_difference(collective::Communicator& communicator,
                                              const StateDigest& own,
                                              const std::vector<std::uint64_t>& digests,
                                              const std::vector<proto::MemberId>& members,
                                              proto::Step step, base::TimePoint deadline);

// For each rank, whether it is in the largest set of ranks with equal digests; of two such sets,
// the one with the lowest rank.
[[nodiscard]] std::vector<bool> most_agree(const std::vector<std::uint64_t>& digests);
// "members 0, 2 and 5", "member 3".
[[nodiscard]] std::string list_members(const std::vector<proto::MemberId>& members);

}  // namespace regroup::elastic
