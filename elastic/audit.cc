// Draws the leaf and the members, and compares their digests. docs/design/audit.md.
#include "elastic/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "elastic/allgather.h"
#include "elastic/sampler.h"

namespace regroup::elastic {
namespace {

constexpr std::uint64_t kDraw = 0x6175646974;  // apart from what else is drawn from (seed, step)

}  // namespace

std::optional<AuditPlan> plan_audit(const proto::World& world, proto::Step step, proto::Step every,
                                    std::uint64_t seed) {
  if (every == 0 || step % every != 0 || step <= world.resume.step() + 1) return std::nullopt;
  std::vector<int> ranks;  // that take part
  for (int rank = 0; rank < static_cast<int>(world.size()); ++rank) {
    if (world.members[static_cast<std::size_t>(rank)].from_step <= step) ranks.push_back(rank);
  }
  if (ranks.size() < 2) return std::nullopt;
  AuditPlan plan;
  plan.leaf = static_cast<std::uint32_t>(mix(seed, step, kDraw) % world.shards);
  plan.owner = world.rank_of(proto::owners_of(world, step)[plan.leaf]);
  const auto owner = std::ranges::find(ranks, plan.owner);
  if (owner == ranks.end()) return std::nullopt;
  std::rotate(ranks.begin(), owner, ranks.end());
  const std::size_t others = ranks.size() - 1;
  const std::uint64_t draw = mix(seed, step, kDraw + 1);
  plan.second = ranks[1 + draw % others];
  if (others > 1) plan.third = ranks[1 + (draw + 1) % others];
  return plan;
}

void Audit::begin(std::optional<AuditPlan> plan, proto::Step step, int rank) {
  plan_ = plan;
  step_ = step;
  rank_ = rank;
  third_asked_ = false;
  digest_.reset();
}

std::optional<std::uint32_t> Audit::leaf_to_compute() const {
  if (!plan_ || digest_ || rank_ != (third_asked_ ? plan_->third : plan_->second))
    return std::nullopt;
  return plan_->leaf;
}

bool Audit::compares(std::uint32_t leaf) const {
  return plan_ && plan_->leaf == leaf && (rank_ == plan_->owner || leaf_to_compute().has_value());
}

void Audit::take(std::span<const std::byte> gradient) { digest_ = base::crc32c(gradient); }

std::string Audit::drop(const proto::World& world) {
  const auto plan = std::exchange(plan_, std::nullopt);
  if (!plan || !third_asked_ || rank_ != plan->owner) return "";
  const auto id_of = [&](int rank) { return world.members[static_cast<std::size_t>(rank)].id; };
  return fmt::format(
      "audit: leaf {} of step {}: members {} and {} computed different bits, and the World changed "
      "before a third member could tell which are wrong",
      plan->leaf, step_, id_of(plan->owner), id_of(plan->second));
}

base::Result<Audit::Finding> Audit::compare(collective::Communicator& communicator,
                                            const proto::World& world, base::TimePoint deadline) {
  REGROUP_ASSIGN_OR_RETURN(const auto digests,
                           allgather(communicator, digest_.value_or(0), deadline));
  const AuditPlan plan = *plan_;
  const auto digest_of = [&](int rank) { return digests[static_cast<std::size_t>(rank)]; };
  const auto id_of = [&](int rank) { return world.members[static_cast<std::size_t>(rank)].id; };
  const std::uint32_t first = digest_of(plan.owner), second = digest_of(plan.second);
  if (first != second && !third_asked_ && plan.third >= 0) {
    third_asked_ = true;
    return Finding{};
  }
  plan_.reset();
  if (first == second) return Finding{};
  Finding finding;
  const std::string what = fmt::format("audit: leaf {} of step {}", plan.leaf, step_);
  if (plan.third < 0) {
    finding.undecided = true;
    finding.difference = fmt::format(
        "{}: members {} and {} computed different bits; with two members it cannot be known which "
        "of them is wrong",
        what, id_of(plan.owner), id_of(plan.second));
    return finding;
  }
  const std::uint32_t third = digest_of(plan.third);
  if (third != first && third != second) {
    finding.undecided = true;
    finding.difference = fmt::format(
        "{}: members {}, {} and {} computed different bits, so the program computes a leaf from "
        "more than the state, its samples and its seed, or the hardware of two of them is faulty",
        what, id_of(plan.owner), id_of(plan.second), id_of(plan.third));
    return finding;
  }
  const int odd = third == first ? plan.second : plan.owner;
  finding.own_fault = odd == rank_;
  finding.difference = fmt::format(
      "{}: member {} computed other bits than members {} and {}: its processor, memory or GPU may "
      "be faulty",
      what, id_of(odd), id_of(third == first ? plan.owner : plan.second), id_of(plan.third));
  return finding;
}

}  // namespace regroup::elastic
