// Functions that fixed-size and elastic jobs on several hosts share.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/agent/hosts.h"
#include "launcher/job/option_rules.h"
#include "launcher/job/resolve.h"

namespace regroup::job {

// Identifies a build to the one on another host: its version and the versions of the protocols
// between them.
[[nodiscard]] std::string build();

// Starts agents on the hosts of `spec`, without waiting for them; on this host, if it is one of
// them, only if `with_this`.
[[nodiscard]] base::Result<std::unique_ptr<agent::Hosts>> send_agents(boost::asio::io_context& loop,
                                                                      const spec::JobSpec& spec,
                                                                      const std::string& job,
                                                                      bool with_this);

// How agents are started on hosts that are added to the job's allocation later.
[[nodiscard]] spec::Grant way_to_all(const spec::JobSpec& spec);

// The setup of every host, except for its number and name and for duties of a single host.
[[nodiscard]] agent::Setup common_setup(const spec::JobSpec& spec);

// Waits for the agents, as Hosts::bring_up(), until the guardian ends the job or --timeout has
// passed. Reports each failed agent at once.
class BringUp {
 public:
  // `spent`: the part of --timeout that earlier launches used.
  BringUp(const spec::JobSpec& spec, const base::Fd& guardian, base::Duration spent = {});
  // False: an agent has failed. `enough`: as in agent::BringUp.
  bool run(agent::Hosts& hosts, std::function<bool()> enough = {});
  // True: the job is over by now.
  [[nodiscard]] bool look();
  // Why the job is over; none: it is not.
  [[nodiscard]] const std::optional<Refusal>& over() const { return over_; }
  [[nodiscard]] base::Duration spent() const;

 private:
  const spec::JobSpec& spec_;
  const int guardian_;
  const base::TimePoint began_;
  std::optional<Refusal> over_;
};

// For an agent's process that refuses the job: reports the reason, if any, to the user and to the
// guardian, and returns the exit status.
[[nodiscard]] int refuse_job(boost::asio::io_context& loop, const Refusal& refusal,
                             base::Fd guardian);

}  // namespace regroup::job
