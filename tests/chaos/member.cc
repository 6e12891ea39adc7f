// A member for random schedules: trains the digits model of examples/cpp and leaves an audit trail that
// survives SIGKILL. usage: chaos_member CSV DIR EPOCHS PACE_US
//   DIR/computed.PID   one line per shard handed out, written before it is computed: step leaf sample...
//   DIR/weights        hex of the final weights and velocity, by rank 0
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "elastic/session.h"
#include "examples/cpp/digits_model.h"

using regroup::core::Code;
using regroup::core::Result;
using regroup::core::Status;
namespace elastic = regroup::elastic;

namespace {

[[noreturn]] void stop(const Status& status) {
  std::fprintf(stderr, "chaos_member: %s\n", status.to_string().c_str());
  std::_Exit(status.code() == Code::kLeft ? 0 : 1);
}

template <class T>
T must(Result<T> result) {
  if (!result.ok()) stop(result.status());
  return std::move(*result);
}

void write_all(int fd, const std::string& text) {
  if (::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    stop(regroup::core::internal_error("audit trail: short write"));
}

std::string trail_of(const elastic::StepInfo& step, const elastic::Shard& shard) {
  std::string line = fmt::format("{} {}", step.step, shard.leaf);
  for (const std::uint64_t sample : shard.samples) line += fmt::format(" {}", sample);
  return line + "\n";
}

// Busy for `pace` in total, so that kills meet a member that computes.
void compute(digits::Model& model, const std::vector<digits::Sample>& samples, const elastic::StepInfo& step,
             const elastic::Shard& shard, std::chrono::microseconds pace) {
  const auto end = std::chrono::steady_clock::now() + pace;
  const std::span leaf(reinterpret_cast<float*>(shard.gradient.data()), digits::kParameters);
  std::fill(leaf.begin(), leaf.end(), 0.0F);
  const float scale = 1.0F / static_cast<float>(step.samples);
  for (const std::uint64_t i : shard.samples) model.add_gradient(samples[i], scale, leaf);
  while (std::chrono::steady_clock::now() < end) {
  }
}

void save(digits::Model& model, const std::string& path) {
  std::string text;
  for (const auto values : {model.weights(), model.velocity()}) {
    for (const std::byte b : std::as_bytes(values)) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  }
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  write_all(fd, text + "\n");
  ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) stop(regroup::core::invalid_argument("usage: chaos_member CSV DIR EPOCHS PACE_US"));
  const std::string dir = argv[2];
  const std::vector<digits::Sample> samples = digits::load(argv[1]);
  digits::Model model(1);
  elastic::TrackedState state;
  state.track("weights", model.weights());
  state.track("velocity", model.velocity());
  elastic::Options options;
  options.elements = digits::kParameters;
  options.state = &state;
  options.model = state.describe();
  options.samples = samples.size();
  options.batch = 64;
  options.epochs = std::stoull(argv[3]);
  const std::chrono::microseconds pace(std::stoul(argv[4]));

  const std::string trail = fmt::format("{}/computed.{}", dir, ::getpid());
  const int audit = ::open(trail.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  auto session = must(elastic::Session::join(options));
  while (const auto step = must(session->next_step())) {
    while (const auto shard = must(session->next_shard())) {
      write_all(audit, trail_of(*step, *shard));
      compute(model, samples, *step, *shard, pace);
    }
    const auto sum = must(session->commit());
    model.apply({reinterpret_cast<const float*>(sum.data()), digits::kParameters}, 0.1F, 0.9F);
  }
  if (const Status done = session->finish(); !done.ok()) stop(done);
  if (session->world().rank == 0) save(model, dir + "/weights");
  return 0;
}
