// Hosts that leave an elastic job: after a notice, at the end of a lease, because a script names
// them no more, or because the job does not need them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"

namespace regroup::job {

// A host has members in kStays. In the other stages those that it has leave at the end of their
// step, and it gets none.
enum class HostStage : std::uint8_t {
  kStays,
  kSuspended,  // its agent stays, and the host may be used again
  kDraining,   // it leaves the job when its members have left
  kReturning,  // as kDraining, and then the job returns it to its allocator
  kLeft,       // for good
};

enum class HostEvent : std::uint8_t {
  kDemanded,   // its provider takes it away
  kSuspended,  // its provider takes it away for some time
  kResumed,    // ... which is over
  kUnneeded,   // the job returns it
  kLost,       // its agent is lost, or could not be started
  kEnded,      // its agent has ended in order
};

// Where `event` leads from `stage`; nullopt: it changes nothing. The agent of a host that stays or
// is suspended is started again when it is lost, so that is no way to leave the job.
[[nodiscard]] std::optional<HostStage> next_stage(HostStage stage, HostEvent event);

// Members of a host that leaves have until a deadline. Pure.
class HostExits {
 public:
  // The stage of `host`; kStays unless something was said of it.
  [[nodiscard]] HostStage stage(std::size_t host) const;
  [[nodiscard]] bool stays(std::size_t host) const { return stage(host) == HostStage::kStays; }
  [[nodiscard]] bool suspended(std::size_t host) const {
    return stage(host) == HostStage::kSuspended;
  }
  [[nodiscard]] bool has_left(std::size_t host) const { return stage(host) == HostStage::kLeft; }
  // An agent that is lost is started again.
  [[nodiscard]] bool keeps_agent(std::size_t host) const { return stays(host) || suspended(host); }

  // Sources of the notices that have suspended `host`: the first 16.
  [[nodiscard]] std::vector<std::string> suspended_by(std::size_t host) const;

  // What a demand changes.
  struct Change {
    bool sooner = false;  // the host had more time before
    bool moved = false;   // its stage is another one: the coordinator and its agent must be told
  };
  // The host must be free by `deadline`: for good (demand, and return_idle for a host that the job
  // does not need), or until resume(). A further demand can only shorten the time.
  [[nodiscard]] Change demand(std::size_t host, base::TimePoint deadline);
  [[nodiscard]] Change suspend(std::size_t host, base::TimePoint deadline,
                               const std::string& source);
  [[nodiscard]] Change return_idle(std::size_t host, base::TimePoint deadline);
  // False: the host is not suspended.
  [[nodiscard]] bool resume(std::size_t host);
  // `event` is kLost or kEnded. The stage that the host has left the job from; nullopt: it stays,
  // or has left before.
  [[nodiscard]] std::optional<HostStage> leave(std::size_t host, HostEvent event);

  // What to do with a host that has been told to drain.
  enum class Step : std::uint8_t {
    kNothing,  // it does not drain, or it is suspended and free
    kWait,     // for its members
    kDismiss,  // end its agent: it is free
    kGiveUp,   // end the agent and its members: the time is over
  };
  [[nodiscard]] Step step(std::size_t host, std::size_t members, base::TimePoint now) const;

 private:
  struct Host {
    HostStage stage = HostStage::kStays;
    base::TimePoint deadline{};               // of its members
    std::set<std::string> suspended_by = {};  // while it is suspended
  };
  Change move(std::size_t host, HostEvent event, base::TimePoint deadline);

  static constexpr std::size_t kMostSources = 16;
  std::map<std::size_t, Host> hosts_;
};

}  // namespace regroup::job
