// What jobs on several hosts have in common, rigid or elastic.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>

#include "core/fd.h"
#include "core/status.h"
#include "launcher/cmd/job_plan.h"
#include "launcher/cmd/options.h"
#include "launcher/node/hosts.h"

namespace regroup::cmd {

// Agents are on their way to the hosts of `options`; to this one, if it is among them, only where
// `with_this`.
[[nodiscard]] core::Result<std::unique_ptr<node::Hosts>> send_agents(boost::asio::io_context& loop,
                                                                     const Options& options,
                                                                     const std::string& job, bool with_this);

// What all hosts are told, but for their number and name, and what only one of them does.
[[nodiscard]] node::Setup common_setup(const Options& options);

// For the process of an agent that will not serve: says why, here and to the guardian. Its exit status.
[[nodiscard]] int refuse_job(boost::asio::io_context& loop, const Refusal& refusal, core::Fd guardian);

}  // namespace regroup::cmd
