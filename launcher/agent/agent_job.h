// The policy of a job, called by the agent in the agent's process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/process/process_table.h"
#include "proto/message.h"

namespace regroup::agent {

class Agent;
class OtherHosts;

// All calls come from the loop's thread. The policy of a fixed-size job is in fixed_size_job.h.
class AgentJob {
 public:
  virtual ~AgentJob() = default;
  // Starts the job. On failure the job ends with exit status `start_failed_status`.
  [[nodiscard]] virtual base::Status start() = 0;
  virtual void on_exit(const process::MemberExit& exit) = 0;
  // `socket` is connected to a coordinator.
  virtual void on_coordinator(base::Fd socket, std::int32_t incarnation);
  // A signal that the guardian forwards; false: the agent sends it to all members.
  [[nodiscard]] virtual bool on_signal(int) { return false; }
  // This host, or the whole job, must end by then. Called before the members are signalled.
  virtual void on_notice(base::TimePoint) {}
  // The time that finish() may need.
  [[nodiscard]] virtual base::Duration still_needs() const { return base::Duration::zero(); }
  // The exit status once the training is complete: an end after that is no failure.
  [[nodiscard]] virtual std::optional<int> completed() const { return {}; }
  // After finish(): what the job should have written and did not, as a sentence. The exit status is
  // then not 0.
  [[nodiscard]] virtual std::string unsaved() const { return {}; }
  // How long the job continues after the guardian's death.
  [[nodiscard]] virtual base::Duration orphan_timeout() const { return base::Duration::zero(); }
  [[nodiscard]] virtual bool keeps_checkpoints() const { return false; }
  // The other hosts; nullptr if there are none.
  [[nodiscard]] virtual OtherHosts* others() { return nullptr; }
  // Called when all members have ended. Calls `then` once all messages of other hosts have arrived.
  virtual void finish(const std::function<void()>& then) { then(); }
  // Called when the members' output has been written. Calls `then` once this process may exit.
  virtual void leave(const std::function<void()>& then) { then(); }
};
// A job whose members a coordinator controls; its messages come through on_message().
class MembershipJob : public AgentJob {
 public:
  virtual void on_message(const proto::Message& message) = 0;
};
using JobFactory = std::function<std::unique_ptr<AgentJob>(Agent&)>;

}  // namespace regroup::agent
