// The member that `./dev bench recovery` runs: a flat model of MB megabytes, a fixed busy time per
// shard, and in every generation of full size one member that kills itself by a timer, at a random
// moment of a step. usage: recovery_member DIR STEPS SEED MB COMPUTE_MS WORKERS
//   DIR/timeline.PID   see tests/bench/timeline.h; "kill" lines carry the moment for which the
//   timer was set
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "base/status.h"
#include "elastic/sampler.h"
#include "regroup/session.h"
#include "tests/bench/timeline.h"

using regroup::base::Code;
using regroup::base::Result;
using regroup::base::Status;
namespace bench = regroup::bench;
namespace elastic = regroup::elastic;

namespace {

// Undisturbed steps of a generation before the next kill.
constexpr std::uint64_t kSettleSteps = 15;

[[noreturn]] void stop(const Status& status) {
  std::fprintf(stderr, "recovery_member: %s\n", status.to_string().c_str());
  std::_Exit(status.code() == Code::kLeft ? 0 : 1);
}

template <class T>
T must(Result<T> result) {
  if (!result.ok()) stop(result.status());
  return std::move(*result);
}

// SIGKILL for this process at the absolute moment `at_ns`, delivered by the kernel's timer.
void arm_kill(std::int64_t at_ns) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  itimerspec when{};
  when.it_value = {at_ns / 1'000'000'000, at_ns % 1'000'000'000};
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
      ::timer_settime(timer, TIMER_ABSTIME, &when, nullptr) != 0) {
    stop(regroup::base::internal_error("recovery_member: no timer"));
  }
}

void busy(double milliseconds) {
  timespec t{};
  const auto used = [&t] {
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
  };
  for (const double end = used() + milliseconds; used() < end;) {
  }
}

// Whose turn it is to die, when and where; decided by each member for itself from (seed,
// generation).
struct Fate {
  Fate(std::uint64_t seed, const elastic::WorldInfo& world)
      : random(elastic::mix(seed, world.generation)),
        mine(static_cast<int>(random % static_cast<unsigned>(world.size)) == world.rank),
        in_reduction(random / 8 % 3 == 0),
        after(kSettleSteps + random / 64 % 8) {}
  // Uniform in [0, 1).
  [[nodiscard]] double moment() const {
    return static_cast<double>(random >> 11) / 9007199254740992.0;
  }
  std::uint64_t random;
  bool mine;
  bool in_reduction;
  std::uint64_t after;  // steps of this generation
};

class Member {
 public:
  Member(char** argv)
      : timeline_(argv[1]),
        steps_(std::stoull(argv[2])),
        seed_(std::stoull(argv[3])),
        weights_(static_cast<std::size_t>(std::stod(argv[4]) * 250'000)),
        compute_ms_(std::stod(argv[5])),
        workers_(std::stoi(argv[6])) {}

  void run() {
    elastic::TrackedState state;
    state.track("weights", std::span(weights_));
    elastic::Options options;
    options.elements = weights_.size();
    options.state = &state;
    options.model = state.describe();
    options.observer = [this](elastic::StepEvent event, regroup::proto::Step step) {
      observe(event, step);
    };
    session_ = must(elastic::Session::join(options));
    note("entered", 0);
    while (session_->last_step() < steps_) one_step();
    if (const Status done = session_->finish(); !done.ok()) stop(done);
  }

 private:
  void one_step() {
    const auto step = must(session_->next_step());
    step_began_ = note("open", step->step);
    const elastic::WorldInfo world = session_->world();
    if (world.generation != generation_)
      generation_ = world.generation, generation_began_ = step->step;
    const Fate fate(seed_, world);
    doomed_ = fate.mine && world.size == workers_ && step->step + 40 < steps_ &&
              step->step == generation_began_ + fate.after;
    kill_at_ = fate.moment();
    kill_in_reduction_ = fate.in_reduction;
    if (doomed_ && !kill_in_reduction_) kill_within(step_ns_);
    while (const auto shard = must(session_->next_shard())) {
      busy(compute_ms_);
      const std::span leaf(reinterpret_cast<float*>(shard->gradient.data()), weights_.size());
      std::fill(leaf.begin(), leaf.end(), value(step->step, shard->leaf));
    }
    apply(step->step, must(session_->commit()), world.shards);
    note("applied", step->step);
    if (!doomed_)
      step_ns_ = (3 * step_ns_ + static_cast<double>(bench::now_ns() - step_began_)) / 4;
  }

  // A power of two times a small integer: every sum is exact, so any order gives the value that
  // apply() checks.
  static float value(std::uint64_t step, std::uint32_t leaf) {
    return static_cast<float>((step * 31 + leaf * 7) % 64) / 1024.0F;
  }

  void apply(std::uint64_t step, std::span<const std::byte> bytes, std::uint32_t shards) {
    const std::span sum(reinterpret_cast<const float*>(bytes.data()), weights_.size());
    float expected = 0.0F;
    for (std::uint32_t leaf = 0; leaf < shards; ++leaf) expected += value(step, leaf);
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] -= 0.125F * sum[i];
    for (const std::size_t i : {std::size_t{0}, sum.size() / 3, sum.size() - 1}) {
      if (sum[i] != expected) stop(regroup::base::internal_error("recovery_member: wrong sum"));
    }
  }

  void observe(elastic::StepEvent event, regroup::proto::Step step) {
    const std::int64_t at = note(elastic::name_of(event), step);
    if (event == elastic::StepEvent::kGathered) {
      gathered_at_ = at;
      if (doomed_ && kill_in_reduction_) kill_within(reduction_ns_);
    }
    if (event == elastic::StepEvent::kCommitted) {
      reduction_ns_ = (3 * reduction_ns_ + static_cast<double>(at - gathered_at_)) / 4;
    }
  }

  void kill_within(double span_ns) {
    const std::int64_t at = bench::now_ns() + static_cast<std::int64_t>(kill_at_ * span_ns);
    timeline_.add(at, kill_in_reduction_ ? "kill-in-reduction" : "kill", session_->last_step() + 1,
                  generation_, workers_);
    arm_kill(at);
  }

  std::int64_t note(const char* what, std::uint64_t step) {
    const std::int64_t at = bench::now_ns();
    const elastic::WorldInfo world = session_ ? session_->world() : elastic::WorldInfo();
    if (!timeline_.add(at, what, step, world.generation, world.size))
      stop(regroup::base::internal_error("timeline: short write"));
    return at;
  }

  const bench::Timeline timeline_;
  const std::uint64_t steps_;
  const std::uint64_t seed_;
  std::vector<float> weights_;
  const double compute_ms_;
  const int workers_;
  std::unique_ptr<elastic::Session> session_;
  std::uint32_t generation_ = 0;
  std::uint64_t generation_began_ = 0;
  bool doomed_ = false, kill_in_reduction_ = false;
  double kill_at_ = 0.0;
  double step_ns_ = 10e6, reduction_ns_ = 2e6;  // running means
  std::int64_t step_began_ = 0, gathered_at_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7)
    stop(regroup::base::invalid_argument(
        "usage: recovery_member DIR STEPS SEED MB COMPUTE_MS WORKERS"));
  Member(argv).run();
  return 0;
}
