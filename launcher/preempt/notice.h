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
    kShrink,   // a host goes
    kSuspend,  // it stops for a while
    kKill,     // it ends with all that runs on it
    kPause,    // it stands still for a moment and goes on where it was: nothing ends
    kAdvice    // nothing is taken away; `what` says it
  };
  Kind kind = Kind::kShrink;
  std::vector<std::string> hosts;        // names; empty: the host that received the notice
  std::optional<base::Duration> within;  // until then; none: not known
  std::optional<base::Duration> lasts;   // of a pause or a suspension; none: not known
  bool begun = false;     // or its time has passed: the time that is left is not known
  bool planned = false;   // by a cloud, perhaps days ahead
  bool machines = false;  // `hosts` are the cloud's names of virtual machines
  std::string what = {};  // the cloud's word, for messages: "Redeploy"
  bool operator==(const Notice&) const = default;
};

// What a source says at a time (seconds since 1970): nothing, or notices, the soonest first. It may
// be
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
// What was cancelled or is over is no notice. kInvalidArgument: none of these. Whatever the bytes
// are, it returns.
[[nodiscard]] base::Result<std::vector<Notice>> parse_notices(std::string_view text,
                                                              std::int64_t now);

// What a cloud says as JSON; a part of parse_notices(), unordered.
[[nodiscard]] base::Result<std::vector<Notice>> parse_cloud_notices(std::string_view text,
                                                                    std::int64_t now);

// Seconds since 1970 of "2026-11-22T20:30:00Z", "Sun, 22 Nov 2026 20:30:00 GMT" or "22 Nov 2026
// 20:30:00 GMT"; a zone may be "+02:00", none is UTC. None: it is no time.
[[nodiscard]] std::optional<std::int64_t> parse_time(const std::string& text);

// True: the notice concerns that host: it names no host, or that host, in full or in the short
// form. `machine_names`: the cloud's names of the host's virtual machine.
[[nodiscard]] bool is_for(const Notice& notice, std::string_view host,
                          const std::vector<std::string>& machine_names = {});

// What `notices`, all of one host, come to: the gravest kind of an end, and the soonest time. None:
// no end.
[[nodiscard]] std::optional<Notice> gravest(const std::vector<Notice>& notices);

// Until then; unknown: as long as is usual.
[[nodiscard]] base::Duration time_left(const Notice& notice);

[[nodiscard]] const char* kind_name(Notice::Kind kind);

// The names of a virtual machine in Azure's instance metadata; empty: they are none.
[[nodiscard]] std::vector<std::string> parse_machine_names(std::string_view text);

}  // namespace regroup::preempt
