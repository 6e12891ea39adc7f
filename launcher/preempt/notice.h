// A preemption notice: the warning that a host will be taken away, from a watched file, a command
// or a metadata address.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace regroup::preempt {

struct Notice {
  enum class Kind : std::uint8_t {
    kShrink,   // the host will be taken away
    kSuspend,  // the host will be suspended, and come back later
    kKill,     // the host will end, with all its processes
    kPause,    // the host will be frozen for a moment; its processes continue
    kAdvice    // nothing is taken away; `what` has the advice
  };
  Kind kind = Kind::kShrink;
  std::vector<std::string> hosts;        // names; empty: the host that received the notice
  std::optional<base::Duration> within;  // time until then; empty: unknown
  std::optional<base::Duration> lasts;   // duration of a pause or suspension; empty: unknown
  bool begun = false;     // it has begun or its time has passed: the time left is unknown
  bool planned = false;   // planned by a cloud, perhaps days ahead
  bool machines = false;  // `hosts` are the cloud's names of virtual machines
  std::string what = {};  // the cloud's word for it, for messages: "Redeploy"
  bool operator==(const Notice&) const = default;
};

// Parses the text of a notice source at the time `now` (seconds since 1970). Returns the notices,
// the soonest first, without those that were cancelled or are over. Formats:
//   shrink|suspend|kill|pause [within=SECONDS] [for=SECONDS] [hosts=HOST,...]   our own words, one
//   a line
//   {"action": "terminate", "time": "2026-11-22T20:30:00Z"}  of EC2: spot/instance-action, and
//   termination-time,
//                                              rebalance recommendations, maintenance,
//                                              target-lifecycle-state
//   TRUE, FALSE; NONE, TERMINATE_ON_HOST_MAINTENANCE ...    of Google: instance/preempted,
//   maintenance-event,
//                                                           upcoming-maintenance
//   {"Events": [{"EventType": "Preempt", "NotBefore": ..}]} of Azure: scheduledevents
// kInvalidArgument: none of these formats. Safe for any bytes.
[[nodiscard]] base::Result<std::vector<Notice>> parse_notices(std::string_view text,
                                                              std::int64_t now);

// The part of parse_notices() for a cloud's JSON; the result is unordered.
[[nodiscard]] base::Result<std::vector<Notice>> parse_cloud_notices(std::string_view text,
                                                                    std::int64_t now);

// Seconds since 1970 of "2026-11-22T20:30:00Z", "Sun, 22 Nov 2026 20:30:00 GMT" or "22 Nov 2026
// 20:30:00 GMT"; a zone may be "+02:00"; without a zone: UTC. Empty: not a time.
[[nodiscard]] std::optional<std::int64_t> parse_time(const std::string& text);

// True if the notice concerns `host`: it names no host, or this one (short and full names match).
// `machine_names`: the cloud's names of the host's virtual machine.
[[nodiscard]] bool is_for(const Notice& notice, std::string_view host,
                          const std::vector<std::string>& machine_names = {});

// Combines `notices` of one host: the gravest kind that ends it, with the soonest time. Empty: none
// ends it.
[[nodiscard]] std::optional<Notice> gravest(const std::vector<Notice>& notices);

// The time until the notice takes effect; if unknown, the usual time.
[[nodiscard]] base::Duration time_left(const Notice& notice);

[[nodiscard]] const char* kind_name(Notice::Kind kind);

// Parses the names of a virtual machine in Azure's instance metadata; empty if malformed.
[[nodiscard]] std::vector<std::string> parse_machine_names(std::string_view text);

}  // namespace regroup::preempt
