// sched_setattr by number: glibc 2.36 has no wrapper. A process of another policy than SCHED_OTHER,
// which somebody has chosen (`chrt -b 0 regroup`), keeps it, and so do its members.
#include "launcher/process/priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace regroup::process {
namespace {

struct SchedAttr {  // struct sched_attr, version 0
  std::uint32_t size = sizeof(SchedAttr);
  std::uint32_t policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;  // nanoseconds; SCHED_OTHER: the slice, 0 for the kernel's
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};
static_assert(sizeof(SchedAttr) == 48);

constexpr std::uint64_t kSlice = 100'000;
constexpr int kNice = -10;

// The policy may have been set with SCHED_RESET_ON_FORK, a flag of the same number.
bool has_usual_policy() {
  return (::syscall(SYS_sched_getscheduler, 0) & ~SCHED_RESET_ON_FORK) == SCHED_OTHER;
}

bool set(int nice, std::uint64_t slice) {
  SchedAttr attr;
  attr.nice = nice;
  attr.runtime = slice;
  return ::syscall(SYS_sched_setattr, 0, &attr, 0U) == 0;
}

}  // namespace

Priority current_priority() { return {::getpriority(PRIO_PROCESS, 0)}; }

void prefer_promptness() {
  if (!has_usual_policy()) return;
  if (!set(kNice, kSlice)) set(current_priority().nice, kSlice);
}

void restore_priority(Priority priority) {
  if (has_usual_policy()) set(priority.nice, 0);
}

}  // namespace regroup::process
