// Parts are compared by their bits. The search for the first part that differs halves the list in
// each round: every rank contributes the CRC32C of its own first parts, and all follow the same two
// ranks.
#include "elastic/state_digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/crc32c.h"
#include "base/printable.h"
#include "elastic/allgather.h"

namespace regroup::elastic {
namespace {

using collective::Communicator;

constexpr std::size_t kMostNamed = 8;  // members
constexpr const char* kCause =
    "the likely cause is state that was not passed to join(), such as a scheduler or a random "
    "generator "
    "(PyTorch: extra=[...]), or code that differs between members (docs/guide/python.md)";

const std::string kNothing;

// A rank's entry of a list as text of bounded length.
struct DigestEntry {
  std::array<char, 160> name{};
  std::array<char, 64> value{};
};

template <std::size_t N>
void put(const std::string& text, std::array<char, N>* out) {
  const std::string shown = base::escaped(text);
  std::copy_n(shown.begin(), std::min(shown.size(), N - 1), out->begin());
}

// Two ranks whose states differ.
struct Pair {
  std::size_t usual, odd;
};

// Where the lists of `pair` first differ: an index, the length of the list if they do not.
std::optional<std::size_t> first_difference(Communicator& communicator, const StateDigest& own,
                                            StateDigest::Kind kind, Pair pair,
                                            base::TimePoint deadline) {
  const auto counts = allgather(communicator, std::uint64_t{own.count(kind)}, deadline);
  if (!counts.ok()) return std::nullopt;
  std::size_t equal = 0, different = std::min((*counts)[pair.usual], (*counts)[pair.odd]) + 1;
  while (equal + 1 < different) {
    const std::size_t middle = equal + (different - equal) / 2;
    const auto crcs = allgather(communicator, own.of_first(kind, middle), deadline);
    if (!crcs.ok()) return std::nullopt;
    if ((*crcs)[pair.usual] == (*crcs)[pair.odd])
      equal = middle;
    else
      different = middle;
  }
  return equal;
}

// "; param_groups[0]['lr'] is 0.1 in member 0 and 0.05 in member 2".
std::string show_first(Communicator& communicator, const StateDigest& own, StateDigest::Kind kind,
                       Pair pair, const std::vector<proto::MemberId>& members,
                       base::TimePoint deadline) {
  const auto at = first_difference(communicator, own, kind, pair, deadline);
  if (!at) return "";
  DigestEntry mine;
  put(own.name(kind, *at), &mine.name);
  put(own.value(kind, *at), &mine.value);
  const auto shown = allgather(communicator, mine, deadline);
  if (!shown.ok()) return "";
  const std::string names[] = {(*shown)[pair.usual].name.data(), (*shown)[pair.odd].name.data()};
  if (names[0].empty() && names[1].empty()) return "";
  if (names[0] != names[1]) {
    const std::size_t has = names[0].empty() ? 1 : 0;
    const proto::MemberId with = members[has == 0 ? pair.usual : pair.odd];
    const proto::MemberId without = members[has == 0 ? pair.odd : pair.usual];
    return fmt::format("; member {} has {}, where member {} has {}", with, names[has], without,
                       names[1 - has].empty() ? "nothing" : names[1 - has]);
  }
  if (kind == StateDigest::kTensors)
    return fmt::format("; the first tensor that differs is {}", names[0]);
  return fmt::format("; {} is {} in member {} and {} in member {}", names[0],
                     (*shown)[pair.usual].value.data(), members[pair.usual],
                     (*shown)[pair.odd].value.data(), members[pair.odd]);
}

}  // namespace

base::Result<StateDigest> StateDigest::of(State& state) {
  StateDigest out;
  REGROUP_RETURN_IF_ERROR(state.replicated([&](const StatePart& part) { out.add(part); }));
  return out;
}

void StateDigest::add(const StatePart& part) {
  std::vector<Part>& list = lists_[part.is_value ? kValues : kTensors];
  std::uint32_t crc = list.empty() ? 0 : list.back().crc_to_here;
  const std::uint64_t lengths[] = {part.name.size(), part.bytes.size()};
  crc = base::crc32c(std::as_bytes(std::span(lengths)), crc);
  crc = base::crc32c(std::as_bytes(std::span(part.name)), crc);
  crc = base::crc32c(part.bytes, crc);
  const auto* text = reinterpret_cast<const char*>(part.bytes.data());
  list.push_back({part.name, part.is_value ? std::string(text, part.bytes.size()) : "", crc});
}

std::uint32_t StateDigest::of_first(Kind kind, std::size_t parts) const {
  const std::vector<Part>& list = lists_[kind];
  const std::size_t length = std::min(parts, list.size());
  return length == 0 ? 0 : list[length - 1].crc_to_here;
}

std::uint64_t StateDigest::of_all() const {
  return std::uint64_t{of_first(kValues, count(kValues))} << 32 |
         of_first(kTensors, count(kTensors));
}

const std::string& StateDigest::name(Kind kind, std::size_t part) const {
  return part < count(kind) ? lists_[kind][part].name : kNothing;
}

const std::string& StateDigest::value(Kind kind, std::size_t part) const {
  return part < count(kind) ? lists_[kind][part].value : kNothing;
}

std::vector<bool> most_agree(const std::vector<std::uint64_t>& digests) {
  std::map<std::uint64_t, std::size_t> counts;
  for (const std::uint64_t digest : digests) ++counts[digest];
  const auto largest = std::ranges::max_element(
      digests, [&](std::uint64_t a, std::uint64_t b) { return counts[a] < counts[b]; });
  std::vector<bool> out;
  for (const std::uint64_t digest : digests) out.push_back(digest == *largest);
  return out;
}

std::string list_members(const std::vector<proto::MemberId>& members) {
  std::string out = members.size() == 1 ? "member " : "members ";
  const std::size_t named = members.size() > kMostNamed + 1 ? kMostNamed : members.size();
  for (std::size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == members.size();
    out += fmt::format("{}{}", i == 0 ? "" : last ? " and " : ", ", members[i]);
  }
  if (named < members.size()) out += fmt::format(" and {} more", members.size() - named);
  return out;
}

std::string describe_difference(Communicator& communicator, const StateDigest& own,
                                const std::vector<std::uint64_t>& digests,
                                const std::vector<proto::MemberId>& members, proto::Step step,
                                base::TimePoint deadline) {
  const std::vector<bool> usual = most_agree(digests);
  std::vector<proto::MemberId> agree, odd;
  for (std::size_t rank = 0; rank < digests.size(); ++rank)
    (usual[rank] ? agree : odd).push_back(members[rank]);
  const Pair pair{static_cast<std::size_t>(std::ranges::find(usual, true) - usual.begin()),
                  static_cast<std::size_t>(std::ranges::find(usual, false) - usual.begin())};
  const bool most = agree.size() > odd.size();
  std::string out =
      most ? fmt::format("after step {} {} {} another state than {}", step, list_members(odd),
                         odd.size() == 1 ? "has" : "have", list_members(agree))
           : fmt::format("after step {} {} have different states", step, list_members(members));
  for (const auto kind : {StateDigest::kValues, StateDigest::kTensors})
    out += show_first(communicator, own, kind, pair, members, deadline);
  return fmt::format("{}; {}", out, kCause);
}

}  // namespace regroup::elastic
