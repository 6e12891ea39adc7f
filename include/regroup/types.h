// Numbers and times that the public headers share.
#pragma once

#include <chrono>
#include <cstdint>

namespace regroup::base {

using Duration = std::chrono::nanoseconds;
// Time since an arbitrary start; only differences mean anything. CLOCK_MONOTONIC, so comparable
// between processes.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

}  // namespace regroup::base

namespace regroup::proto {

using Generation = std::uint32_t;  // grows by one at each membership change; 0 is "none yet"
using MemberId = std::uint32_t;    // never reused within a job
using Step = std::uint64_t;        // 1 is the first; 0 is "none yet"

}  // namespace regroup::proto

namespace regroup {

using base::Duration, base::TimePoint;
using proto::Generation, proto::MemberId, proto::Step;

}  // namespace regroup
