// The warning before something is taken away, whoever gives it: a watched file, a command, a metadata
// address.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/status.h"

namespace regroup::launcher {

struct Notice {
  enum class Kind : std::uint8_t {
    kShrink,
    kSuspend,
    kKill
  };  // a host goes, stops for a while, ends with all
  Kind kind = Kind::kShrink;
  std::vector<std::string> who;          // hosts; empty: the one where it was heard
  std::optional<core::Duration> within;  // until then; none: the notice does not tell
  bool operator==(const Notice&) const = default;
};

// What a source says at a time (seconds since 1970): nothing, or a notice. It may be
//   shrink|suspend|kill [within=SECONDS] [who=HOST,...]     our own words
//   {"action": "terminate", "time": "2026-11-22T20:30:00Z"}  of EC2: spot/instance-action
//   TRUE, FALSE; NONE, TERMINATE_ON_HOST_MAINTENANCE ...    of Google: instance/preempted, maintenance-event
//   {"Events": [{"EventType": "Preempt", "NotBefore": ..}]} of Azure: scheduledevents
// kInvalidArgument: none of these. Whatever the bytes are, it returns.
[[nodiscard]] core::Result<std::optional<Notice>> parse_notice(std::string_view text, std::int64_t now);

// Seconds since 1970 of "2026-11-22T20:30:00Z" or "Sun, 22 Nov 2026 20:30:00 GMT"; none: it is neither.
[[nodiscard]] std::optional<std::int64_t> parse_time(const std::string& text);

// Whether it is for that host: it names nobody, or it, or one of its names is the short form of the other.
[[nodiscard]] bool is_for(const Notice& notice, std::string_view host);

[[nodiscard]] const char* kind_name(Notice::Kind kind);

}  // namespace regroup::launcher
