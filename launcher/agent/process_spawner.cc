// The secret is sent last, when the remote shell has reported that it is about to run the agent.
#include "launcher/agent/process_spawner.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <filesystem>

#include "launcher/process/due.h"
#include "launcher/process/environment.h"
#include "launcher/spec/job_variables.h"

namespace regroup::agent {
namespace {

constexpr std::chrono::seconds kGrace{2};
constexpr std::size_t kMostHeld = 1000;  // limit of lines from a login shell

std::string name_of(const std::string& path) { return std::filesystem::path(path).filename(); }

// ssh must not prompt, since nobody would answer; it gives up connecting early enough to report
// why.
std::vector<std::string> quiet_options(base::Duration limit) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit).count();
  return {"-T", "-x",
          "-o", "BatchMode=yes",
          "-o", fmt::format("ConnectTimeout={}", std::max<std::int64_t>(1, seconds - 1))};
}

}  // namespace

base::Result<std::unique_ptr<Spawner>> make_ssh_spawner(
    boost::asio::io_context& loop, std::shared_ptr<const transport::JobSecret> secret,
    SpawnEvents events, SpawnOptions options, std::vector<std::string> command,
    std::vector<std::string> after) {
  if (command.empty())
    return base::invalid_argument("the command that reaches other hosts is empty");
  REGROUP_ASSIGN_OR_RETURN(auto path, process::find_program(command[0], "", options.environment));
  if (name_of(command[0]) == "ssh") {
    const auto quiet = quiet_options(options.limit);
    command.insert(command.end(), quiet.begin(), quiet.end());
  }
  return std::unique_ptr<Spawner>(std::make_unique<ProcessSpawner>(
      loop, std::move(secret), std::move(events), std::move(options),
      ProcessSpawner::Way{path, std::move(command), true, std::move(after)}));
}

base::Result<std::unique_ptr<Spawner>> make_fork_spawner(
    boost::asio::io_context& loop, std::shared_ptr<const transport::JobSecret> secret,
    SpawnEvents events, SpawnOptions options) {
  return std::unique_ptr<Spawner>(std::make_unique<ProcessSpawner>(
      loop, std::move(secret), std::move(events), std::move(options),
      ProcessSpawner::Way{"/bin/sh", {"/bin/sh"}, false}));
}

ProcessSpawner::ProcessSpawner(boost::asio::io_context& loop,
                               std::shared_ptr<const transport::JobSecret> secret,
                               SpawnEvents events, SpawnOptions options, Way way)
    : loop_(loop),
      secret_(std::move(secret)),
      events_(std::move(events)),
      options_(std::move(options)),
      way_(std::move(way)),
      tool_(name_of(way_.command[0])) {}

ProcessSpawner::~ProcessSpawner() {
  *alive_ = false;
  for (auto& [node, agent] : agents_) {
    if (agent.process) agent.process->abandon();
  }
}

void ProcessSpawner::start(AgentOrder order) {
  const proto::NodeId node = order.node;
  const auto [at, fresh] = agents_.try_emplace(node, loop_, std::move(order));
  if (!fresh) return;  // one order per node
  waiting_.push_back(node);
  boost::asio::post(loop_, [this, alive = alive_] {
    if (*alive) fill();
  });
}

void ProcessSpawner::fill() {
  while (on_their_way_ < options_.parallel && !waiting_.empty()) {
    const proto::NodeId node = waiting_.front();
    waiting_.pop_front();
    const auto at = agents_.find(node);
    if (at == agents_.end()) continue;
    ++on_their_way_;
    const base::Status status = launch(at->second);
    if (!status.ok()) report_later(node, status);
    if (status.ok() && events_.begun) events_.begun(node);
  }
}

base::Status ProcessSpawner::launch(Agent& agent) {
  const proto::NodeId node = agent.order.node;
  const std::string& user = agent.order.user;
  const std::string& address = agent.order.address.empty() ? agent.order.host : agent.order.address;
  if (way_.append_host) REGROUP_RETURN_IF_ERROR(check_name(address, "host"));
  if (const base::Status bad = user.empty() ? base::Status() : check_name(user, "user"); !bad.ok())
    return {bad.code(), fmt::format("{}: {}", agent.order.host, bad.message())};
  REGROUP_ASSIGN_OR_RETURN(auto script, script_of(agent.order));
  process::SpawnSpec spec;
  spec.path = way_.path;
  spec.argv = way_.command;
  if (way_.append_host && !user.empty() && way_.after.empty())
    spec.argv.insert(spec.argv.end(), {"-l", user});
  if (way_.append_host) {
    spec.argv.push_back(address);
    spec.argv.insert(spec.argv.end(), way_.after.begin(), way_.after.end());
    spec.argv.emplace_back("/bin/sh");
  }
  spec.environment = process::to_strings(
      spec::environment_for(way_.append_host ? tool_ : "", options_.environment));
  auto process = process::PipedProcess::start(
      loop_, std::move(spec),
      {.line = [this, node](std::string_view line, bool error) { on_line(node, line, error); },
       .ended = [this, node](int status) { on_ended(node, status); }});
  if (!process.ok()) {
    return {process.status().code(),
            fmt::format("{}: {}", agent.order.host, process.status().message())};
  }
  agent.process = *process;
  agent.process->feed(script);
  agent.timer.expires_after(options_.limit);
  agent.timer.async_wait([this, node, alive = alive_](const boost::system::error_code& error) {
    if (!error && *alive) on_late(node);
  });
  return {};
}

void ProcessSpawner::on_line(proto::NodeId node, std::string_view line, bool error) {
  Agent& agent = agents_.at(node);
  if (const Answer answer = answer_in(line); !agent.up && !error && answer != Answer::kNone) {
    agent.answer = answer;
    if (answer == Answer::kHere) return on_up(agent);
    return agent.process->kill();  // its end has been decided
  }
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::string text = printable(line);
  if (error && !text.empty()) agent.last_line = text;
  if (agent.up) {
    if (events_.line) events_.line(node, text);
  } else if (agent.held.size() < kMostHeld) {
    agent.held.push_back(std::move(text));
  }
}

void ProcessSpawner::on_up(Agent& agent) {
  const proto::NodeId node = agent.order.node;
  const auto alive = alive_;  // a handler may destroy this object
  if (!secret_->write(agent.process->input()).ok()) {
    return agent.process
        ->close_input();  // the process has exited: its end, with `answer`, tells why
  }
  process::call_off(agent.timer);
  agent.up = true;
  --on_their_way_;
  const std::vector<std::string> held = std::exchange(agent.held, {});
  if (events_.up) events_.up(node);
  for (const std::string& line : held) {
    if (*alive && events_.line) events_.line(node, line);
  }
  if (*alive) fill();
}

void ProcessSpawner::on_late(proto::NodeId node) {
  const auto at = agents_.find(node);
  if (at == agents_.end() || !at->second.process || !process::is_due(at->second.timer)) return;
  at->second.late = !at->second.up;
  at->second.process->kill();
}

void ProcessSpawner::on_ended(proto::NodeId node, int wait_status) {
  report(node, reason(agents_.at(node), wait_status));
}

base::Status ProcessSpawner::reason(const Agent& agent, int wait_status) const {
  if (base::Status answered = explain(agent.answer, agent.order); !answered.ok()) return answered;
  if (agent.late) {
    return base::deadline_exceeded(
        fmt::format("{}: {} did not reach a shell within {:.0f} s{}", agent.order.host, tool_,
                    std::chrono::duration<double>(options_.limit).count(),
                    agent.last_line.empty() ? "" : ": " + agent.last_line));
  }
  // The remote shell reported the start of the program, even if it ended before it got the secret.
  const bool begun = agent.answer == Answer::kHere;
  return explain(Ending{tool_, wait_status, begun, agent.last_line}, agent.order);
}

void ProcessSpawner::report_later(proto::NodeId node, base::Status why) {
  boost::asio::post(loop_, [this, alive = alive_, node, why = std::move(why)] {
    if (*alive) report(node, why);
  });
}

void ProcessSpawner::report(proto::NodeId node, const base::Status& why) {
  const auto alive = alive_;
  const auto agent = agents_.extract(node);
  if (agent.empty()) return;
  if (!agent.mapped().up) --on_their_way_;
  if (events_.ended) events_.ended(node, why);
  if (*alive) fill();
}

void ProcessSpawner::end(proto::NodeId node) {
  const auto at = agents_.find(node);
  if (at == agents_.end()) return;
  Agent& agent = at->second;
  if (!agent.process) {
    if (std::erase(waiting_, node) == 0) return;  // its failure is being reported
    ++on_their_way_;                              // report() decrements it
    return report_later(node,
                        {base::Code::kUnavailable,
                         fmt::format("{}: not started, since the job ends", agent.order.host)});
  }
  agent.process->close_input();
  agent.timer.expires_after(kGrace);
  agent.timer.async_wait([this, node, alive = alive_](const boost::system::error_code& error) {
    if (!error && *alive) on_late(node);
  });
}

}  // namespace regroup::agent
