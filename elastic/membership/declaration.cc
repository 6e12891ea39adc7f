// Serves docs/architecture.md section 3: the fingerprint.
#include "elastic/membership/declaration.h"

#include <fmt/format.h>

#include <sstream>

namespace regroup::membership {
namespace {

core::Status differs(core::MemberId id, const char* what, const std::string& its, const std::string& ours) {
  return core::invalid_argument(
      fmt::format("member {} is refused: its {} is {}, that of the job is {}", id, what, its, ours));
}

// The words NAME=... of fingerprint `a` that `b` does not have: ": they differ in build, libc".
std::string difference(const std::string& a, const std::string& b) {
  std::string names;
  std::istringstream words(a);
  const std::string other = " " + b + " ";
  for (std::string word; words >> word;) {
    const std::size_t end = word.find('=');
    if (end == std::string::npos || other.find(" " + word + " ") != std::string::npos) continue;
    names += (names.empty() ? ": they differ in " : ", ") + word.substr(0, end);
  }
  return names;
}

}  // namespace

core::Status check_declaration(const core::Join& join, const core::Join& first, bool any_fingerprint,
                               std::string* warning) {
  const auto number = [](std::uint64_t n) { return fmt::format("{}", n); };
  if (join.model != first.model) {
    return differs(join.member, "model", fmt::format("'{}'", join.model), fmt::format("'{}'", first.model));
  }
  if (join.elements != first.elements) {
    return differs(join.member, "number of gradient elements", number(join.elements), number(first.elements));
  }
  if (join.element_bytes != first.element_bytes) {
    return differs(join.member, "element size", number(join.element_bytes), number(first.element_bytes));
  }
  if (join.state_bytes != first.state_bytes) {
    return differs(join.member, "state size", number(join.state_bytes), number(first.state_bytes));
  }
  if (join.fingerprint == first.fingerprint) return {};
  core::Status status =
      differs(join.member, "numeric fingerprint", fmt::format("'{}'", join.fingerprint),
              fmt::format("'{}'", first.fingerprint) + difference(join.fingerprint, first.fingerprint));
  if (!any_fingerprint) return status;
  *warning = fmt::format(
      "member {} is let in under --bits=off: results are not reproducible bit by bit: its "
      "fingerprint is '{}', that of the job is '{}'{}",
      join.member, join.fingerprint, first.fingerprint, difference(join.fingerprint, first.fingerprint));
  return {};
}

core::Status check_resumed(const core::Join& join, const std::string& fingerprint, bool any_fingerprint,
                           std::string* warning) {
  if (fingerprint.empty() || join.fingerprint == fingerprint) return {};
  const std::string both = fmt::format(
      "its numeric fingerprint is '{}', that of the checkpoint which the job goes on from is '{}'{}",
      join.fingerprint, fingerprint, difference(join.fingerprint, fingerprint));
  if (!any_fingerprint)
    return core::invalid_argument(
        fmt::format("member {} is refused: {}; with --bits=off the job goes on, with other bits than an "
                    "uninterrupted one",
                    join.member, both));
  *warning = fmt::format("member {} is let in under --bits=off: results are not reproducible bit by bit: {}",
                         join.member, both);
  return {};
}

}  // namespace regroup::membership
