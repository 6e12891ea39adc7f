// Connects Coordinator to sockets, timers and the journal. A World is on disk before it is
// announced, so that a restarted coordinator never announces another World under the same
// generation.
#include "launcher/job/elastic_coordinator.h"

#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/printable.h"
#include "launcher/job/journal.h"
#include "launcher/job/progress_printer.h"
#include "launcher/process/due.h"
#include "launcher/process/priority.h"
#include "launcher/process/sink.h"
#include "launcher/transport/channel.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::job {
namespace {

constexpr std::size_t kMostClients = 64;
constexpr std::chrono::seconds kClientDeadline{30};  // between two requests
using membership::Sender;

class CoordinatorProcess {
 public:
  CoordinatorProcess(const CoordinatorOptions& options, base::Fd agent,
                     proto::Incarnation incarnation, JournalFile journal)
      : quiet_(options.quiet),
        incarnation_(incarnation),
        err_(loop_, STDERR_FILENO),
        journal_(std::move(journal)),
        core_(options.policy, options.job, incarnation, journal_.past()),
        agent_(std::make_shared<transport::Channel>(
            loop_, std::move(agent),
            [this](const proto::Message& message) {
              perform(core_.handle(clock_.now(), {Sender::Kind::kAgent, message.node}, message));
            },
            // The agent is gone: the guardian knows whether the job has ended, else it restarts
            // this process.
            [this](const base::Status&) {
              exit_status_ = 1;
              loop_.stop();
            })),
        listener_(loop_, [this](base::Fd socket, pid_t) { on_client(std::move(socket)); }) {
    if (options.line) err_.share(options.line.get());
    if (options.progress)
      progress_.emplace(loop_, err_, [this] { return core_.progress(clock_.now()); });
  }

  // Returns the exit status of the process; another one than 0 makes the guardian restart it.
  int run(const std::string& control_socket) {
    if (base::Status status = listener_.start(control_socket); !status.ok()) {
      if (!quiet_) say(status.message());  // the job runs without control commands
    }
    agent_->start();
    if (progress_) progress_->start();
    perform(core_.tick(clock_.now()));
    loop_.run();
    return exit_status_;
  }

 private:
  struct Client {
    std::shared_ptr<transport::Channel> channel;
    boost::asio::steady_timer deadline;
  };

  void on_client(base::Fd socket) {
    if (clients_.size() >= kMostClients) return;
    const std::uint64_t id = ++last_client_;
    auto channel = std::make_shared<transport::Channel>(
        loop_, std::move(socket),
        [this, id](const proto::Message& message) {
          restart_deadline(id);
          perform(core_.handle(clock_.now(), {Sender::Kind::kClient, id}, message));
        },
        [this, id](const base::Status&) { clients_.erase(id); });
    clients_.emplace(id, Client{channel, boost::asio::steady_timer(loop_)});
    channel->start();
    restart_deadline(id);
  }

  void restart_deadline(std::uint64_t id) {
    Client& client = clients_.at(id);
    client.deadline.expires_after(kClientDeadline);
    client.deadline.async_wait([this, id](const boost::system::error_code& error) {
      const auto late = error ? clients_.end() : clients_.find(id);
      if (late == clients_.end() || !process::is_due(late->second.deadline)) return;
      late->second.channel->close();
      clients_.erase(late);
    });
  }

  void perform(const membership::Effects& effects) {
    for (const membership::Effect& effect : effects) {
      if (exit_status_ != 0) return;
      std::visit([this](const auto& it) { perform_one(it); }, effect);
    }
    const auto next = core_.next_deadline();
    if (!next) {
      timer_.cancel();
      return;
    }
    timer_.expires_at(std::chrono::steady_clock::time_point(next->time_since_epoch()));
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) perform(core_.tick(clock_.now()));
    });
  }

  void perform_one(const membership::ToAgent& effect) {
    agent_->send({incarnation_, effect.body, effect.node});
  }
  void perform_one(const membership::ToClient& effect) {
    if (const auto found = clients_.find(effect.client); found != clients_.end()) {
      found->second.channel->send({incarnation_, effect.body});
    }
  }
  void perform_one(const membership::Journal& effect) {
    if (const auto* world = std::get_if<proto::World>(&effect.entry)) {
      newest_ = fmt::format("generation {}: {}", world->generation,
                            base::counted(world->size(), "member"));
      newest_why_ = world->why;
    }
    const base::Status status = journal_.append(effect.entry);
    if (status.ok()) return;
    // The job does not need this sentence: only a restarted coordinator cannot print it.
    if (std::holds_alternative<membership::JobEvent>(effect.entry)) {
      if (!quiet_ && !std::exchange(warned_, true))
        say(fmt::format(
            "`regroup status` may lack older events after a restart of the coordinator: {}",
            status.message()));
      return;
    }
    say(fmt::format("the coordinator cannot continue: {}", status.message()));
    exit_status_ = 1;
    loop_.stop();
  }
  void perform_one(const membership::Say& effect) {
    const bool of_world = effect.sentence == newest_why_;
    if (!quiet_) say(of_world ? fmt::format("{} ({})", newest_, effect.sentence) : effect.sentence);
  }
  // The effect before this one made the agent end the job, which ends this process, too.
  void perform_one(const membership::Done&) {
    if (progress_) progress_->end();
  }

  void say(const std::string& text) { err_.write("regroup: " + base::escaped_lines(text) + "\n"); }

  const bool quiet_;
  const proto::Incarnation incarnation_;
  int exit_status_ = 0;
  bool warned_ = false;              // of sentences that could not be written
  std::string newest_, newest_why_;  // of the World formed last, for the terminal
  base::SystemClock clock_;
  boost::asio::io_context loop_{1};
  boost::asio::steady_timer timer_{loop_};
  process::Sink err_;
  std::optional<ProgressPrinter> progress_;
  JournalFile journal_;
  membership::Coordinator core_;
  std::shared_ptr<transport::Channel> agent_;
  transport::Listener listener_;
  std::map<std::uint64_t, Client> clients_;
  std::uint64_t last_client_ = 0;
};

}  // namespace

int run_coordinator(const CoordinatorOptions& options, base::Fd agent,
                    proto::Incarnation incarnation) {
  process::prefer_promptness();
  auto journal = JournalFile::open(options.files.journal());
  if (!journal.ok()) {
    fmt::print(stderr, "regroup: {}\n", base::escaped_lines(journal.status().message()));
    return 1;
  }
  CoordinatorProcess process(options, std::move(agent), incarnation, std::move(*journal));
  return process.run(options.files.control_socket());
}

}  // namespace regroup::job
