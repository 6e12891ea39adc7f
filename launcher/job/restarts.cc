// Each launch has a name, agents, an arena and files of its own: nothing of one that failed is used
// again but what its checkpoints hold.
#include "launcher/job/restarts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "base/printable.h"
#include "launcher/agent/children.h"
#include "launcher/agent/reparenting.h"
#include "launcher/agent/tree.h"
#include "launcher/agent/uplink.h"
#include "launcher/job/start.h"
#include "launcher/process/run_in_subprocess.h"
#include "launcher/process/signals.h"

namespace regroup::job {
namespace {

constexpr std::uint32_t kMostRestarts = 3;
constexpr std::chrono::seconds kFirstPause(1);
constexpr std::chrono::seconds kLongestPause(30);
// An agent whose link is silent ends its members after agent::kSilence, one below another dials the
// controller for a while before.
constexpr base::Duration kDoubtfulHostWait = agent::kSilence + std::chrono::seconds(1);
constexpr base::Duration kDoubtfulTreeWait =
    agent::kParentSilence + agent::kOrphanLimit + std::chrono::seconds(1);

// The signals that end a job. An ignored SIGHUP (nohup) is left out, because it would stay pending
// for ever.
sigset_t signals_that_end(const spec::JobSpec& spec) {
  sigset_t ends;
  ::sigemptyset(&ends);
  for (int signal : {SIGINT, SIGTERM, SIGQUIT}) ::sigaddset(&ends, signal);
  for (int signal : notice_signals(spec)) ::sigaddset(&ends, signal);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) ::sigaddset(&ends, SIGHUP);
  return ends;
}

// The signal that came first, or 0.
int signal_within(const sigset_t& ends, base::Duration pause) {
  const base::TimePoint until = base::SystemClock().now() + pause;
  for (;;) {
    const auto left =
        std::max<base::Duration>(until - base::SystemClock().now(), base::Duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec wait{
        seconds.count(),
        std::chrono::duration_cast<std::chrono::nanoseconds>(left - seconds).count()};
    const int signal = ::sigtimedwait(&ends, nullptr, &wait);
    if (signal > 0) return signal;
    if (errno != EINTR) return 0;
  }
}

// As an agent would end the job.
int status_of(int signal, const spec::JobSpec& spec) {
  const agent::AgentOptions agent = agent_options(spec, {}, {});
  const bool users = signal == SIGINT || signal == SIGQUIT || signal == SIGHUP;
  return users ? agent.stopped_status : agent.notice_status.value_or(agent.stopped_status);
}

base::Duration doubt(const spec::JobSpec& spec, int hosts) {
  if (hosts == 0 || !spec.several_hosts()) return {};
  const std::uint32_t radix = spec.tree_radix.value_or(agent::kRadix);
  const bool deep = radix > 0 && spec.hosts.size() > radix;
  return (deep ? kDoubtfulTreeWait : kDoubtfulHostWait) +
         (hosts < 0 ? spec.orphan_timeout : base::Duration::zero());
}

}  // namespace

HeldJournal::HeldJournal(const JobFiles& files, const JobLaunch& launch) {
  auto opened = JournalFile::open(files.journal());
  if (!opened.ok()) return;
  journal_ = std::move(*opened);
  if (launch.failures.length > 0) (void)journal_->append(launch.failures);
}

membership::FailureStreak HeldJournal::failures() const {
  if (!journal_) return {};
  auto past = journal_->written();
  return past.ok() ? std::move(past->failures) : membership::FailureStreak();
}

LaunchEnd end_of(const agent::Guardian& guardian, int status,
                 const spec::CheckpointPlan& checkpoints, const HeldJournal& journal) {
  const proto::Step resumed = checkpoints.resume ? checkpoints.resume->step : 0;
  return {status, checkpoints.directory.empty() ? std::nullopt : guardian.state_lost(),
          std::max<proto::Step>(resumed, guardian.resumed()), journal.failures()};
}

std::string nothing_to_go_on_from(const std::string& directory) {
  return fmt::format(
      "all members with the job's state are lost, and {} contains no checkpoint of it", directory);
}

Restarts::Restarts(const spec::JobSpec& spec)
    : spec_(spec),
      most_(spec.max_restarts.value_or(kMostRestarts)),
      began_(base::SystemClock().now()) {}

std::optional<int> Restarts::over(const LaunchEnd& end) {
  if (!end.state_lost || most_ == 0) return end.status;
  if (end.resumed > std::exchange(resumed_, end.resumed)) fruitless_ = 0;
  if (fruitless_ == most_) {
    return fail(
        fmt::format(
            "the job was launched {} without a newer checkpoint (--max-restarts {}): it is not "
            "restarted",
            base::counted(fruitless_ + 1, "time"), most_),
        end.status);
  }
  const base::Duration usual = kFirstPause * (1LL << std::min(fruitless_, 5U));
  // Members of a host that was not heard to end may hold the state yet, and would go on beside the
  // new ones.
  const base::Duration pause =
      std::max(std::min<base::Duration>(usual, kLongestPause), doubt(spec_, *end.state_lost));
  const base::Duration spent = base::SystemClock().now() - began_;
  if (spec_.timeout > base::Duration::zero() && spent + pause >= spec_.timeout)
    return fail(
        "--timeout leaves no time to resume from the newest checkpoint: the job is not restarted",
        end.status);
  ++fruitless_;
  ++launches_;
  status_ = end.status;
  failures_ = membership::passed_on(end.failures);
  if (!spec_.quiet)
    fail(fmt::format("the job resumes from its newest checkpoint in {} s (restart {} of {})",
                     std::chrono::duration_cast<std::chrono::seconds>(pause).count(), fruitless_,
                     most_),
         0);
  process::HeldLocks::release_all();
  const int signal = signal_within(signals_that_end(spec_), pause);
  if (signal == 0) return std::nullopt;
  return fail(fmt::format("{} received: the job is not restarted", process::signal_name(signal)),
              status_of(signal, spec_));
}

JobLaunch Restarts::launch() const {
  return {launches_, base::SystemClock().now() - began_, status_, failures_};
}

}  // namespace regroup::job
