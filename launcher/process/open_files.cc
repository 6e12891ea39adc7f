// The soft limit is capped: with a hard limit of a billion, libraries that close all descriptors
// would take minutes.
#include "launcher/process/open_files.h"

#include <sys/resource.h>

#include <algorithm>

namespace regroup::process {
namespace {

constexpr rlim_t kEnough = 1 << 18;  // enough for 65,536 members

}  // namespace

std::uint64_t raise_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  if (before >= limit.rlim_cur || ::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return before;
}

bool restore_open_files(std::uint64_t soft) {
  rlimit limit{};
  if (soft == 0) return true;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  limit.rlim_cur = soft;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace regroup::process
