// An elastic member whose gradients a GPU computes; it holds as much of the GPU's memory as it is
// told to. usage: gpu_member DIR STEPS MB HELD_GIB [device]
//   device             gradients and sums stay in memory of the GPU (Options::memory kDevice)
//   DIR/timeline.PID   see tests/bench/timeline.h; "weights-CRC32C" after each 50th step
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/status.h"
#include "regroup/session.h"
#include "tests/bench/timeline.h"
#include "tests/gpu/gradient.h"

namespace bench = regroup::bench;
namespace elastic = regroup::elastic;
using regroup::base::Status;

namespace {

[[noreturn]] void stop(const Status& status) {
  std::fprintf(stderr, "gpu_member: %s\n", status.to_string().c_str());
  std::_Exit(status.code() == regroup::base::Code::kLeft ? 0 : 1);
}

template <class T>
T must(regroup::base::Result<T> result) {
  if (!result.ok()) stop(result.status());
  return std::move(*result);
}

class Member {
 public:
  Member(char** argv)
      : timeline_(argv[1]),
        steps_(std::stoull(argv[2])),
        weights_(static_cast<std::size_t>(std::stod(argv[3]) * 250'000)),
        gpu_(weights_.size(), static_cast<std::size_t>(std::stod(argv[4]) * (1U << 30))),
        on_device_(argv[5] != nullptr) {}

  void run() {
    elastic::TrackedState state;
    state.track("weights", std::span(weights_));
    elastic::Options options;
    options.elements = weights_.size();
    options.state = &state;
    options.model = state.describe();
    if (on_device_) options.memory = elastic::Memory::kDevice;
    options.observer = [this](elastic::StepEvent event, regroup::proto::Step step) {
      note(elastic::name_of(event), step);
    };
    session_ = must(elastic::Session::join(options));
    note("entered", 0);
    while (session_->last_step() < steps_) one_step();
    if (const Status done = session_->finish(); !done.ok()) stop(done);
  }

 private:
  void one_step() {
    const auto step = must(session_->next_step());
    note("open", step->step);
    gpu_.set_weights(weights_.data());
    while (const auto shard = must(session_->next_shard())) {
      auto* leaf = reinterpret_cast<float*>(shard->gradient.data());
      if (on_device_)
        gpu_.compute_there(step->step, shard->leaf, leaf);
      else
        gpu_.compute(step->step, shard->leaf, leaf);
    }
    const std::span<const std::byte> bytes = must(session_->commit());
    const auto* sum = reinterpret_cast<const float*>(bytes.data());
    if (on_device_) {
      gpu_.apply(sum, 0.5F, weights_.data());
    } else {
      for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] -= 0.5F * sum[i];
    }
    note("applied", step->step);
    if (step->step % 50 != 0) return;
    const std::uint32_t crc = regroup::base::crc32c(std::as_bytes(std::span(weights_)));
    note(fmt::format("weights-{:08x}", crc).c_str(), step->step);
  }

  void note(const char* what, std::uint64_t step) {
    const elastic::WorldInfo world = session_ ? session_->world() : elastic::WorldInfo();
    if (!timeline_.add(bench::now_ns(), what, step, world.generation, world.size))
      stop(regroup::base::internal_error("timeline: short write"));
  }

  const bench::Timeline timeline_;
  const std::uint64_t steps_;
  std::vector<float> weights_;
  regroup::gpu::Gradient gpu_;
  const bool on_device_;
  std::unique_ptr<elastic::Session> session_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5 || argc > 6 || (argc == 6 && std::string(argv[5]) != "device"))
    stop(regroup::base::invalid_argument("usage: gpu_member DIR STEPS MB HELD_GIB [device]"));
  try {
    Member(argv).run();
  } catch (const std::exception& error) {
    stop(regroup::base::internal_error(error.what()));
  }
  return 0;
}
