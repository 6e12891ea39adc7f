// Starts agents through a local process that reaches a shell: `ssh HOST /bin/sh` for other hosts,
// `/bin/sh` for this one.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/agent/remote_script.h"
#include "launcher/agent/spawner.h"
#include "launcher/process/piped_process.h"
#include "launcher/spec/request.h"
#include "launcher/transport/job_secret.h"

namespace regroup::agent {

// Limit until `up` for an allocator's command, which may queue.
inline constexpr std::chrono::seconds kAllocatorLimit{20};

struct SpawnOptions {
  spec::Environment environment;                   // of the local processes; its PATH is searched
  std::size_t parallel = 32;                       // started at a time
  base::Duration limit = std::chrono::seconds(5);  // from the start of the local process until `up`
};

// `command` reaches a host when the address, `after` and "/bin/sh" are appended: ssh, or an
// allocator's own command. ssh also gets the options that keep it from prompting (host keys are the
// user's business). kNotFound names the program.
[[nodiscard]] base::Result<std::unique_ptr<Spawner>> make_ssh_spawner(
    boost::asio::io_context& loop, std::shared_ptr<const transport::JobSecret> secret,
    SpawnEvents events, SpawnOptions options, std::vector<std::string> command = {"ssh"},
    std::vector<std::string> after = {});
// Starts all agents on this host, whatever host an order names.
[[nodiscard]] base::Result<std::unique_ptr<Spawner>> make_fork_spawner(
    boost::asio::io_context& loop, std::shared_ptr<const transport::JobSecret> secret,
    SpawnEvents events, SpawnOptions options);

class ProcessSpawner final : public Spawner {
 public:
  // `command` without the host, which is appended if `append_host`; `path`: its program.
  struct Way {
    std::string path;
    std::vector<std::string> command;
    bool append_host = false;
    std::vector<std::string> after = {};  // arguments after the host
  };
  ProcessSpawner(boost::asio::io_context& loop, std::shared_ptr<const transport::JobSecret> secret,
                 SpawnEvents events, SpawnOptions options, Way way);
  ~ProcessSpawner() override;
  void start(AgentOrder order) override;
  void end(proto::NodeId node) override;

 private:
  struct Agent {
    explicit Agent(boost::asio::io_context& loop, AgentOrder o)
        : order(std::move(o)), timer(loop) {}
    AgentOrder order;
    boost::asio::steady_timer timer;
    std::shared_ptr<process::PipedProcess> process;
    bool up = false;
    bool late = false;
    Answer answer = Answer::kNone;
    std::vector<std::string> held;  // lines before `up`
    std::string last_line;
  };

  void fill();
  [[nodiscard]] base::Status launch(Agent& agent);
  void on_line(proto::NodeId node, std::string_view line, bool error);
  void on_up(Agent& agent);
  void on_late(proto::NodeId node);
  void on_ended(proto::NodeId node, int wait_status);
  [[nodiscard]] base::Status reason(const Agent& agent, int wait_status) const;
  void report_later(proto::NodeId node, base::Status why);
  void report(proto::NodeId node, const base::Status& why);

  boost::asio::io_context& loop_;
  const std::shared_ptr<const transport::JobSecret> secret_;
  const SpawnEvents events_;
  const SpawnOptions options_;
  const Way way_;
  const std::string tool_;  // name in messages
  std::map<proto::NodeId, Agent> agents_;
  std::deque<proto::NodeId> waiting_;
  std::size_t on_their_way_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for posted calls
};

}  // namespace regroup::agent
