// What an agent serves: decides what happens to the job, in the agent's process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/clock.h"
#include "core/fd.h"
#include "core/message.h"
#include "core/status.h"
#include "launcher/supervise/process_table.h"

namespace regroup::launcher {

class Agent;
class OtherHosts;

// Decides in the agent; all calls on the loop's thread. The rigid one is in rigid_job.h.
class AgentJob {
 public:
  virtual ~AgentJob() = default;
  // Failure: the job ends with exit status `start_failed_status`.
  [[nodiscard]] virtual core::Status start() = 0;
  virtual void on_exit(const MemberExit& exit) = 0;
  // A coordinator can be spoken to through `socket`.
  virtual void on_coordinator(core::Fd socket, std::int32_t incarnation);
  // A signal that the guardian passes on; false: it goes to all members.
  [[nodiscard]] virtual bool on_signal(int) { return false; }
  // This host, or all of the job, has to be gone by then. Said before the members are told.
  virtual void on_notice(core::TimePoint) {}
  // How long finish() may take in any case.
  [[nodiscard]] virtual core::Duration still_needs() const { return core::Duration::zero(); }
  // The job's status, once its training is complete: what ends it then is no failure.
  [[nodiscard]] virtual std::optional<int> completed() const { return {}; }
  // After finish(): what the job was to leave behind and did not, as a sentence. Its status is not 0 then.
  [[nodiscard]] virtual std::string unsaved() const { return {}; }
  // How long to go on when the guardian is gone.
  [[nodiscard]] virtual core::Duration orphan_timeout() const { return core::Duration::zero(); }
  [[nodiscard]] virtual bool keeps_checkpoints() const { return false; }
  // Those that end with the job; may be none.
  [[nodiscard]] virtual OtherHosts* others() { return nullptr; }
  // No member lives any more. Calls `then`, once, when all that others have to say has been said ...
  virtual void finish(const std::function<void()>& then) { then(); }
  // ... and when members' output has been written, before this process leaves.
  virtual void leave(const std::function<void()>& then) { then(); }
};
// One whose members a coordinator decides over; what it says comes from elsewhere.
class MembershipJob : public AgentJob {
 public:
  virtual void on_message(const core::Message& message) = 0;
};
using JobFactory = std::function<std::unique_ptr<AgentJob>(Agent&)>;

}  // namespace regroup::launcher
