// An agent's limit counts from its turn: a level of the tree starts after the one above it, and a
// process starts SpawnOptions::parallel agents at a time.
#include "launcher/agent/bring_up_wait.h"

#include <algorithm>
#include <chrono>

#include "launcher/agent/process_spawner.h"

namespace regroup::agent {
namespace {

constexpr std::chrono::milliseconds kAskAgain{100};

}  // namespace

base::Duration longest_bring_up(std::size_t agents, std::size_t levels, base::Duration limit,
                                bool by_allocator) {
  const std::size_t turns = agents / SpawnOptions().parallel;
  base::Duration longest = (3 * levels + turns) * limit;
  if (by_allocator) longest += (1 + turns) * kAllocatorLimit;
  return longest;
}

void BringUpWait::begin(BringUp how, base::Duration limit, base::Duration longest,
                        base::TimePoint now) {
  how_ = std::move(how);
  limit_ = limit;
  last_up_ = now;
  deadline_ = now + longest;
}

void BringUpWait::on_failed(const base::Status& why) {
  failures_.push_back(why);
  if (how_.failed) how_.failed(why);
}

bool BringUpWait::is_over(base::TimePoint now) const {
  if (how_.over && how_.over()) return true;
  return how_.enough && now - last_up_ >= limit_ && how_.enough();
}

base::TimePoint BringUpWait::next_check(base::TimePoint now) const {
  return std::min(deadline_, now + kAskAgain);
}

}  // namespace regroup::agent
