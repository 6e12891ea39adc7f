// Each launch has a name, agents, an arena and files of its own: nothing of one that failed is used again but
// what its checkpoints hold.
#include "launcher/cmd/restarts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>

#include "launcher/cmd/patience.h"
#include "launcher/cmd/start.h"
#include "launcher/node/children.h"

namespace regroup::cmd {
namespace {

constexpr std::uint32_t kMostRestarts = 3;
constexpr std::chrono::seconds kFirstPause(1);
constexpr std::chrono::seconds kLongestPause(30);
// An agent whose link is silent ends its members after node::kSilence; one whose launcher is gone and has
// said so, --orphan-timeout later.
constexpr core::Duration kDoubt = node::kSilence + std::chrono::seconds(1);

// True if a signal that ends a job came first.
bool ended_within(core::Duration pause) {
  sigset_t ends;
  ::sigemptyset(&ends);
  for (int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) ::sigaddset(&ends, signal);
  const core::TimePoint until = core::SystemClock().now() + pause;
  for (;;) {
    const auto left = std::max<core::Duration>(until - core::SystemClock().now(), core::Duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec wait{seconds.count(),
                        std::chrono::duration_cast<std::chrono::nanoseconds>(left - seconds).count()};
    if (::sigtimedwait(&ends, nullptr, &wait) >= 0) return true;
    if (errno != EINTR) return false;
  }
}

}  // namespace

LaunchEnd end_of(const launcher::Guardian& guardian, int status, const node::CheckpointPlan& checkpoints) {
  return {status, checkpoints.directory.empty() ? std::nullopt : guardian.state_lost(),
          checkpoints.resume ? checkpoints.resume->step : 0};
}

std::string nothing_to_go_on_from(const std::string& directory) {
  return fmt::format("all that had the job's state are lost, and {} has no checkpoint of it", directory);
}

Restarts::Restarts(const Options& options)
    : most_(options.max_restarts.value_or(kMostRestarts)),
      orphans_(options.orphan_timeout),
      timeout_(options.timeout),
      hosts_(options.several_hosts()),
      quiet_(options.quiet),
      began_(core::SystemClock().now()) {}

bool Restarts::again(const LaunchEnd& end) {
  if (!end.state_lost) return false;
  if (end.resumed > std::exchange(resumed_, end.resumed)) fruitless_ = 0;
  if (most_ == 0) return false;
  if (fruitless_ == most_) {
    fail(
        fmt::format("it was launched {} times without a newer checkpoint (--max-restarts {}): it stays ended",
                    fruitless_ + 1, most_),
        0);
    return false;
  }
  core::Duration pause =
      std::min<core::Duration>(kFirstPause * (1LL << std::min(fruitless_, 5U)), kLongestPause);
  // Members of a host that was not heard to end may hold the state yet, and would go on beside the new ones.
  if (*end.state_lost != 0 && hosts_) pause = std::max(pause, kDoubt);
  if (*end.state_lost < 0 && hosts_) pause = std::max(pause, kDoubt + orphans_);
  if (timeout_ > core::Duration::zero() && core::SystemClock().now() + pause - began_ >= timeout_)
    return false;
  ++fruitless_;
  ++launches_;
  if (!quiet_)
    fail(fmt::format("it goes on from its newest checkpoint in {} s (restart {} of {})",
                     std::chrono::duration_cast<std::chrono::seconds>(pause).count(), fruitless_, most_),
         0);
  HeldLocks::give_back();
  return !ended_within(pause);
}

Launch Restarts::launch() const { return {launches_, core::SystemClock().now() - began_}; }

}  // namespace regroup::cmd
