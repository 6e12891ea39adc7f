// What jobs on several hosts have in common, rigid or elastic.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/fd.h"
#include "core/status.h"
#include "launcher/cmd/job_plan.h"
#include "launcher/cmd/options.h"
#include "launcher/node/hosts.h"

namespace regroup::cmd {

// By which regroup on one host knows that on another: its version, and those of what they say to each other.
[[nodiscard]] std::string build();

// Agents are on their way to the hosts of `options`; to this one, if it is among them, only where
// `with_this`.
[[nodiscard]] core::Result<std::unique_ptr<node::Hosts>> send_agents(boost::asio::io_context& loop,
                                                                     const Options& options,
                                                                     const std::string& job, bool with_this);

// How agents get to hosts of the job's allocation that come later.
[[nodiscard]] launcher::Grant way_to_all(const Options& options);

// What all hosts are told, but for their number and name, and what only one of them does.
[[nodiscard]] node::Setup common_setup(const Options& options);

// Waits for the agents, as Hosts::bring_up(), until the guardian wants an end, or --timeout is over. Each
// that fails is said at once.
class BringUp {
 public:
  // `spent`: of --timeout, by launches before.
  BringUp(const Options& options, const core::Fd& guardian, core::Duration spent = {});
  // False: one has failed. `enough`: as of node::BringUp.
  bool run(node::Hosts& hosts, std::function<bool()> enough = {});
  // Whether it is over by now.
  [[nodiscard]] bool look();
  // What became of the job meanwhile, if it is over.
  [[nodiscard]] const std::optional<Refusal>& over() const { return over_; }
  [[nodiscard]] core::Duration spent() const;

 private:
  const Options& options_;
  const int guardian_;
  const core::TimePoint began_;
  std::optional<Refusal> over_;
};

// For the process of an agent that will not serve: says why, if there is more to say than the status, here
// and to the guardian. Its exit status.
[[nodiscard]] int refuse_job(boost::asio::io_context& loop, const Refusal& refusal, core::Fd guardian);

}  // namespace regroup::cmd
