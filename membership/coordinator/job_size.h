// How many members an elastic job is to have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "membership/coordinator/journal_entry.h"
#include "membership/membership.h"
#include "proto/world.h"

namespace regroup::membership {

// Three numbers of members, and what hosts add to or take from them:
// - target: what the user requested (--initial-size, `regroup resize`), changed by notices and by
//   hosts that come and go. A job without a requested size follows the slots of its hosts.
// - desired: the target less the lost members that are not replaced. The coordinator starts or
//   dismisses members until there are so many.
// - capacity: processes that may run at once, which is less than `desired` where slots are missing.
// Pure; every function that returns bool says whether the intent must be journaled.
class JobSize {
 public:
  // Uses the target, the limits, the slots, and whether lost members are replaced.
  explicit JobSize(const Policy& policy);
  // Continues as an earlier incarnation intended, which had saved its intent.
  void restore(const Intent& intent);
  void save(Intent* intent) const;  // writes target, desired and said

  [[nodiscard]] std::uint32_t target() const { return target_; }
  [[nodiscard]] std::uint32_t desired() const { return desired_; }
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] bool follows_hosts() const { return follows_hosts_; }
  // The requested target, without leased slots; 0: none was requested. For Intent::said.
  [[nodiscard]] std::uint32_t requested() const;
  // Members that the job is to have, but has no slots for.
  [[nodiscard]] std::uint32_t lacked() const { return desired_ - std::min(desired_, capacity_); }

  // `regroup resize`: earlier leases and missing slots do not count any more.
  void request(std::uint32_t members);
  // Members of a launch, which may be fewer than the target.
  void launch(std::uint32_t members) { desired_ = members; }
  // The job has begun with fewer members than the target, and is filled up.
  bool refill();
  // A member leaves on notice: the job needs one less, down to the minimum, or down to one where
  // lost members are not replaced.
  void leave_one();
  // A hung member is not replaced, down to the minimum.
  void drop_one();
  // A member is lost. True if it is not replaced.
  bool lose_one();
  // Before the first World, `staying` members remain of those that have joined.
  void keep_at_most(std::uint32_t staying);

  // The hosts of the job have `slots` slots.
  void set_slots(std::uint32_t slots);
  // The launcher has taken the slots of a job on one host back.
  void take_capacity() { capacity_ = 0; }
  // The first launch takes what hosts there are.
  bool fit_to_capacity();
  // A host has come: slots that a user leased to the job beyond the requested size make it larger
  // while the host is there, after they have filled the `lacked` members. Returns by how many
  // members, which grow() adds.
  [[nodiscard]] std::uint32_t lease(proto::NodeId node, std::uint32_t slots, std::uint32_t lacked);
  // A host that an earlier incarnation knew has come: it takes its part of the restored leases.
  void restore_lease(proto::NodeId node, std::uint32_t slots);
  // Adds leased members; a job that follows its hosts grows to their slots.
  bool grow(std::uint32_t leased);
  // All slots of a host are taken back: returns the desired size without the members by which the
  // job grew with it, for shrink_to(), and ends its lease.
  [[nodiscard]] std::uint32_t end_lease(proto::NodeId node);
  // Sets the size that members which leave with their host leave behind. It stays `size` where
  // slots are missing `for_now`, else it is at most the capacity.
  void shrink_to(std::uint32_t size, bool for_now);
  // The slots of a host have changed from `had` to `slots`. Those missing `for_now` make the job
  // smaller only once it is known that they will not return, unless there is room elsewhere then.
  bool settle_missing(proto::NodeId node, std::uint32_t had, std::uint32_t slots, bool for_now);
  // The host is lost, and its lease with it.
  bool lose_host(proto::NodeId node);

  // What the journal says of the desired size, for the World that is formed next.
  void journaled() { journaled_ = desired_; }
  [[nodiscard]] bool is_journaled() const { return journaled_ == desired_; }

 private:
  struct HostShare {
    std::uint32_t leased = 0;   // members by which the job is larger while the host is there
    std::uint32_t missing = 0;  // members by which it shrinks if missing slots do not return
  };
  [[nodiscard]] std::uint32_t leased() const;
  [[nodiscard]] std::uint32_t floor() const { return replace_ ? min_ : 1; }
  void set(std::uint32_t size) { target_ = desired_ = size; }

  // Constant after construction.
  const std::uint32_t min_;
  const std::uint32_t max_;
  const std::uint32_t spares_;
  const bool replace_;
  const bool oversubscribe_;

  std::uint32_t target_;
  std::uint32_t desired_;
  std::uint32_t capacity_;
  bool follows_hosts_;
  std::uint32_t journaled_ = 0;
  std::map<proto::NodeId, HostShare> hosts_;
  std::uint32_t restored_leases_ = 0;  // that no host has taken yet
};

}  // namespace regroup::membership
