// Holds the allocation, forwards its end to the job, and starts the job's agents where this
// allocation's start command works in its own job only. No other part of the job runs here.
#include "launcher/cli/join.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <csignal>
#include <functional>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "base/values.h"
#include "launcher/alloc/resize.h"
#include "launcher/cli/join_relay.h"
#include "launcher/job/grant.h"
#include "launcher/job/job_files.h"
#include "launcher/job/pods.h"
#include "launcher/job/start.h"
#include "launcher/lease/grant_lines.h"
#include "launcher/lease/leased_agents.h"
#include "launcher/lease/socket_line_reader.h"
#include "launcher/process/signals.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::cli {
namespace {

constexpr std::chrono::seconds kDefaultGrace{30};
// As Slurm has it, from SIGTSTP to SIGSTOP.
constexpr base::Duration kSuspendGrace = std::chrono::seconds(2);
constexpr std::chrono::seconds kGraceMargin{5};  // after the grace, for the controller's reply
constexpr int kTries = 5;                        // to reconnect to the job ...
constexpr std::chrono::seconds kPause{1};        // ... the first one at once
constexpr int kWriteLimitMs = 5'000;             // for a job that does not read
constexpr const char* kJoinHelp =
    "usage: regroup join [JOB] [--grace SECONDS] [--allocator NAME] [-H HOST[:SLOTS],...]\n"
    "                    [--through COMMAND...]\n"
    "       regroup join --relay [JOB]\n"
    "       regroup join --resized [JOB]\n"
    "Lend the hosts of this allocation to a running job of -np MIN:MAX, until the job ends or a\n"
    "SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 or SIGXCPU recalls them (SIGTSTP: until SIGCONT).\n"
    "Members on these hosts then leave at the end of their step, and this command ends with status "
    "0;\n"
    "a second SIGINT ends it at once.\n\n"
    "  JOB                     the job's ID; required only if you run several\n"
    "  --grace SECONDS         time for members to leave (default: the allocator's, else 30)\n"
    "  --allocator NAME        allocator that granted the hosts (default: detected)\n"
    "  -H HOST[:SLOTS],...     lend only these hosts\n"
    "  --through COMMAND...    last option; reach a job on another host: COMMAND runs `regroup "
    "join\n"
    "                          --relay [JOB]` there, for example ssh head regroup join --relay\n"
    "  --resized               run as the notification command of a resizable LSF job (bsub -ar "
    "-rnc,\n"
    "                          bresize -rnc); the job keeps the hosts or releases them\n"
    "  -h, --help              print this help\n";

struct JoinArguments {
  std::string job, allocator, hosts;
  std::optional<base::Duration> grace;
  std::vector<std::string> through;  // a command
  bool help = false, relay = false, resized = false;
};

base::Result<JoinArguments> parse_arguments(const std::vector<std::string>& words) {
  JoinArguments out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool valued =
        word == "--grace" || word == "--allocator" || word == "-H" || word == "--host";
    if (word == "--help" || word == "-h") {
      out.help = true;
    } else if (word == "--relay" || word == "--resized") {
      (word == "--relay" ? out.relay : out.resized) = true;
    } else if (word == "--through") {
      out.through.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      if (out.through.empty())
        return base::invalid_argument("join --through: a command is missing");
      break;
    } else if (valued && i + 1 == words.size()) {
      return base::invalid_argument(fmt::format("join {}: a value is missing", word));
    } else if (word == "--grace") {
      REGROUP_RETURN_IF_ERROR(base::parse_seconds(word, words[++i], out.grace.emplace()));
    } else if (valued) {
      (word == "--allocator" ? out.allocator : out.hosts) = words[i + 1];
      ++i;
    } else if (word.starts_with('-') || !out.job.empty()) {
      return base::invalid_argument(fmt::format("join: unexpected argument '{}'", word));
    } else {
      out.job = word;
    }
  }
  return out;
}

base::Result<spec::Grant> hosts_of(const JoinArguments& words,
                                   const spec::Environment& environment) {
  auto grant = job::grant_of(environment, words.hosts.empty() ? words.allocator : "none");
  if (!grant.ok()) return grant;
  if (!words.hosts.empty()) {
    REGROUP_ASSIGN_OR_RETURN(auto hosts, spec::parse_host_list(words.hosts));
    return spec::Grant{.by = "-H " + words.hosts, .hosts = std::move(hosts)};
  }
  if (grant->by.empty()) {
    return base::unavailable(
        "join: no allocator granted hosts here (`regroup allocation` shows why); "
        "give hosts that ssh reaches by -H HOST:SLOTS");
  }
  std::erase_if(grant->hosts, [](const auto& host) { return host.slots == 0; });
  return grant;
}

// srun, and PBS's pbs_attach through ssh, take the job as an argument; other start commands do not.
bool works_in_its_own_job_only(const spec::Grant& grant) {
  return !grant.before.empty() && grant.before.front() != "srun";
}

// The allocator's grace, less the time to hand the hosts over.
base::Duration usual_grace(const JoinArguments& words, const spec::Environment& environment) {
  constexpr std::chrono::seconds kHandOver{2};
  const auto grace = words.hosts.empty() ? job::grace_of(environment, words.allocator)
                                         : base::internal_error("-H");
  if (!grace.ok()) return kDefaultGrace;
  return std::max<base::Duration>(grace->host - kHandOver, grace->host / 2);
}

class Joiner {
 public:
  using Connect = std::function<base::Result<base::Fd>()>;
  // `first`: the first line to the job, instead of the offer.
  Joiner(Connect connect, lease::LeaseOffer offer, const spec::Environment& environment,
         std::string first = {})
      : connect_(std::move(connect)),
        offer_(std::move(offer)),
        first_(std::move(first)),
        agents_(loop_, offer_.grant, environment, [this](const std::string& line) { send(line); }),
        signals_(loop_, [this](int signal) { on_signal(signal); }),
        socket_(loop_),
        timer_(loop_),
        again_(loop_) {}

  int run() {
    const base::Status status =
        signals_.start({SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGTSTP, SIGCONT});
    if (!status.ok()) return job::fail(status.message(), 1);
    if (const base::Status offered = offer(); !offered.ok()) {
      return job::fail(
          fmt::format("join: the job accepts no further hosts (expected a job of -np MIN:MAX on "
                      "several hosts or in an allocation): {}",
                      offered.message()),
          1);
    }
    loop_.run();
    return exit_status_;
  }

 private:
  enum class Suspension { kNone, kDraining, kSuspended };

  base::Status offer() {
    REGROUP_ASSIGN_OR_RETURN(auto socket, connect_());
    begin(std::move(socket), first_.empty() ? lease::to_line(offer_) : first_);
    return {};
  }

  void begin(base::Fd socket, const std::string& line) {
    socket_.assign(socket.release());
    read_.clear();
    send(line);
    wait();
  }

  // An allocator that signals all processes of this job ends the command of --through, too, while
  // members finish their step. So it is started again, to hear when they have left; the allocation
  // is held until then.
  void lost() {
    const bool returns =
        accepted_ && !offer_.token.empty() && tries_ > 0 && suspension_ == Suspension::kNone;
    if (!returns) return end(job::fail("join: the connection to the job is lost", 1));
    if (tries_ == kTries) job::fail("join: the connection to the job is lost: connecting again", 0);
    socket_.close();
    again_.expires_after(tries_-- == kTries ? std::chrono::seconds(0) : kPause);
    again_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      auto socket = connect_();
      if (!socket.ok()) return lost();
      const std::string why = revoked_ ? why_ : "the connection to `regroup join` was lost";
      begin(std::move(*socket),
            lease::to_line(lease::LeaseReconnect{offer_.token, {offer_.grace, why}}));
    });
  }

  // SIGTSTP: the allocator stops all processes of this allocation a moment later, so the job drains
  // its hosts
  // ...
  void suspend() {
    if (suspension_ != Suspension::kNone || revoked_) return;
    suspension_ = Suspension::kDraining;
    job::fail("join: SIGTSTP: recalling the hosts until SIGCONT", 0);
    send(lease::to_line(lease::LeaseRevoke{std::min(offer_.grace, kSuspendGrace), "SIGTSTP"}));
  }
  // ... until SIGCONT.
  void resume() {
    continued_ = suspension_ != Suspension::kNone;
    if (suspension_ != Suspension::kSuspended) return;
    suspension_ = Suspension::kNone;
    continued_ = false;
    job::fail("join: SIGCONT: offering the hosts again", 0);
    if (!offer().ok()) end(job::fail("join: the job is over", 0));
  }
  void on_drained() {
    suspension_ = Suspension::kSuspended;
    socket_.close();
    if (continued_) resume();
  }

  void send(const std::string& line) {
    if (!socket_.is_open()) return;
    for (std::size_t sent = 0; sent < line.size();) {
      const ssize_t count =
          ::send(socket_.native_handle(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN && can_write()) continue;
      if (count < 0) return;  // the next read reports the lost connection
      sent += static_cast<std::size_t>(count);
    }
  }

  bool can_write() {
    pollfd writable{socket_.native_handle(), POLLOUT, 0};
    return ::poll(&writable, 1, kWriteLimitMs) > 0;
  }

  void wait() {
    socket_.async_wait(socket_.wait_read, [this](const boost::system::error_code& error) {
      if (!error && receive()) wait();
    });
  }

  bool receive() {
    const int socket = socket_.native_handle();
    const auto outcome = read_.receive(socket);
    if (outcome == lease::SocketLineReader::Outcome::kEnd) lost();
    if (outcome != lease::SocketLineReader::Outcome::kLine)
      return outcome == lease::SocketLineReader::Outcome::kNothing;
    const std::string line = read_.take();
    if (!offer_.starts) return on_reply(line);
    const auto about_agents = agents_.on_line(line, socket);
    if (about_agents.ok()) return *about_agents || on_reply(line);
    job::fail("join: " + about_agents.status().message(), 0);
    lost();
    return false;
  }

  bool on_reply(const std::string& line) {
    const auto reply = lease::parse_reply(line);
    if (!reply.ok()) return true;
    accepted_ = true;
    if (!reply->text.empty()) job::fail("join: " + reply->text, 0);
    if (!reply->over) return true;
    if (suspension_ == Suspension::kDraining && reply->ok) {
      on_drained();
    } else {
      end(reply->ok ? 0 : 1);
    }
    return false;
  }

  // The first signal revokes the lease. Further ones are steps of the allocator towards SIGKILL and
  // change nothing, except for a second Ctrl-C, which ends the command.
  void on_signal(int signal) {
    if (signal == SIGTSTP) return suspend();
    if (signal == SIGCONT) return resume();
    if (suspension_ == Suspension::kSuspended) return end(0);
    const bool repeats =
        stop_requests_.repeats(signal, signals_.by_key(), base::SystemClock().now());
    const bool again =
        revoked_ && !repeats && signal == SIGINT && why_ == process::signal_name(SIGINT);
    if (again) return end(job::fail("join: second SIGINT: ending at once", 1));
    if (revoked_) return;
    revoked_ = true;
    why_ = process::signal_name(signal);
    job::fail(fmt::format("join: {}: recalling the hosts", why_), 0);
    if (socket_.is_open()) send(lease::to_line(lease::LeaseRevoke{offer_.grace, why_}));
    timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        offer_.grace + kGraceMargin));
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) end(job::fail("join: the job did not return the hosts in time", 1));
    });
  }

  void end(int exit_status) {
    exit_status_ = exit_status;
    loop_.stop();
  }

  const Connect connect_;
  const lease::LeaseOffer offer_;
  const std::string first_;
  boost::asio::io_context loop_{1};
  lease::LeasedAgents agents_;
  process::SignalReader signals_;
  process::StopRequests stop_requests_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer timer_, again_;
  lease::SocketLineReader read_;
  std::string why_;  // of the recall
  bool revoked_ = false, continued_ = false, accepted_ = false;
  int tries_ = kTries;
  Suspension suspension_ = Suspension::kNone;
  int exit_status_ = 1;
};

// JOB is an id, or the path of the socket itself.
base::Result<std::string> socket_of(const JoinArguments& words,
                                    const spec::Environment& environment) {
  if (words.job.starts_with('/')) return words.job;
  REGROUP_ASSIGN_OR_RETURN(const auto files, job::find_job(environment, words.job));
  return files.grants_socket();
}

Joiner::Connect connector_to_job(const JoinArguments& words, const spec::Environment& environment) {
  return [words, environment]() -> base::Result<base::Fd> {
    const auto path = socket_of(words, environment);
    auto here = path.ok() ? transport::connect_unix(*path) : base::Result<base::Fd>(path.status());
    return here.ok() || words.through.empty() ? std::move(here)
                                              : connect_through(words.through, environment);
  };
}

// LSF waits for the exit status: after a failure it offers new hosts again later, and keeps hosts
// that it wanted to reclaim.
int run_resized(const JoinArguments& words, const spec::Environment& environment) {
  const auto event = alloc::read_resize_event(job::allocation_input(environment));
  if (!event.ok()) return job::fail("join --resized: " + event.status().message(), 1);
  spec::Grant grant;
  for (const alloc::Host& host : event->hosts)
    grant.hosts.push_back({.name = host.name, .slots = host.slots});
  const base::Duration grace = words.grace.value_or(kDefaultGrace);
  const std::string shrink =
      event->grow
          ? ""
          : lease::to_line(lease::LeaseRevoke{grace, "LSB_RESIZE_EVENT=shrink", grant.hosts});
  const int status = Joiner(connector_to_job(words, environment),
                            {.grant = grant, .grace = grace, .own = true}, environment, shrink)
                         .run();
  return status == 0 ? event->taken : event->refused;
}

}  // namespace

int run_join(const CommandLine& command) {
  const auto words = parse_arguments(command.words);
  if (!words.ok()) return job::fail(words.status().message(), 1);
  if (words->help) {
    fmt::print("{}", kJoinHelp);
    return 0;
  }
  if (words->resized) return run_resized(*words, command.environment);
  const auto socket = socket_of(*words, command.environment);
  if (words->relay)
    return socket.ok() ? run_relay(*socket) : job::fail(socket.status().message(), 1);
  const auto grant = hosts_of(*words, command.environment);
  if (!grant.ok()) return job::fail(grant.status().message(), 1);
  if (!grant->launched_by.empty()) return job::serve_launcher(*grant, command.environment, false);
  if (!socket.ok() && words->through.empty()) return job::fail(socket.status().message(), 1);
  if (const auto ended = job::wait_for_pods(*grant, command.environment)) return *ended;
  lease::LeaseOffer offer{.grant = *grant,
                          .grace = words->grace.value_or(usual_grace(*words, command.environment))};
  offer.request = grant->job;
  offer.starts = works_in_its_own_job_only(*grant);
  if (!words->through.empty()) offer.token = fmt::format("{}-{}", job::new_job_id(), ::getpid());
  return Joiner(connector_to_job(*words, command.environment), std::move(offer),
                command.environment)
      .run();
}

}  // namespace regroup::cli
