// A member for random schedules: trains the digits model of examples/cpp and leaves an audit trail
// that survives SIGKILL. usage: chaos_member CSV DIR EPOCHS PACE_US [BALLAST [GRADIENT [device]]],
// bytes of state and of each gradient beside the model's; the state's change with each step.
// PACE_US: how long a shard takes, until DIR/../hurry exists; "Ncpu": how much processor time.
// device: gradients and sums are in memory of a GPU.
//   DIR/computed.PID   one line per shard handed out, written before it is computed: step leaf
//   sample... DIR/stood.PID      one line per step begun: step generation rank members
//   DIR/weights.PID    hex of the final weights and velocity, of each member that finished
//   DIR/left.PID       of each member that was let go before the end
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/crc32c.h"
#include "base/status.h"
#include "examples/cpp/digits_model.h"
#include "regroup/session.h"
#include "tests/chaos/device.h"

using regroup::base::Code;
using regroup::base::Result;
using regroup::base::Status;
namespace elastic = regroup::elastic;

namespace {

[[noreturn]] void stop(const Status& status) {
  std::fprintf(stderr, "chaos_member: %s\n", status.to_string().c_str());
  std::_Exit(1);
}

void write_all(int fd, const std::string& text) {
  if (::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    stop(regroup::base::internal_error("audit trail: short write"));
}

// The whole file or none, whenever SIGKILL comes.
void write_whole(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  write_all(fd, text);
  ::close(fd);
  if (std::rename(part.c_str(), path.c_str()) != 0)
    stop(regroup::base::system_error("rename", part, errno));
}

// Takes results apart. A member that is let go says so and ends here.
struct Must {
  std::string left_path;

  void operator()(const Status& status) const {
    if (status.ok()) return;
    if (status.code() != Code::kLeft) stop(status);
    write_whole(left_path, status.message() + "\n");
    std::_Exit(0);
  }
  template <class T>
  T operator()(Result<T> result) const {
    (*this)(result.status());
    return std::move(*result);
  }
};

int open_trail(const std::string& dir, const char* kind) {
  const std::string path = fmt::format("{}/{}.{}", dir, kind, ::getpid());
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
}

std::string stand_of(const elastic::StepInfo& step, const elastic::WorldInfo& world) {
  return fmt::format("{} {} {} {}\n", step.step, world.generation, world.rank, world.size);
}

std::string trail_of(const elastic::StepInfo& step, const elastic::Shard& shard) {
  std::string line = fmt::format("{} {}", step.step, shard.leaf);
  for (const std::uint64_t sample : shard.samples) line += fmt::format(" {}", sample);
  return line + "\n";
}

class Pace {
 public:
  Pace(const std::string& text, const std::string& dir)
      : time_(std::stoul(text)),
        clock_(text.ends_with("cpu") ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC),
        hurry_(dir + "/../hurry") {}

  [[nodiscard]] std::chrono::nanoseconds now() const {
    timespec at{};
    ::clock_gettime(clock_, &at);
    return std::chrono::seconds(at.tv_sec) + std::chrono::nanoseconds(at.tv_nsec);
  }

  // Members outnumber cores: one that only lets time pass leaves them to the others.
  void fill(std::chrono::nanoseconds since) const {
    if (clock_ == CLOCK_THREAD_CPUTIME_ID) {
      while (now() < since + time_) {
      }
      return;
    }
    const bool hurry = time_ >= std::chrono::milliseconds(1) && ::access(hurry_.c_str(), F_OK) == 0;
    if (!hurry) std::this_thread::sleep_for(since + time_ - now());
  }

 private:
  const std::chrono::microseconds time_;
  const clockid_t clock_;
  const std::string hurry_;
};

// Other floats for each leaf of each step.
void weigh_down(std::span<float> ballast, std::uint32_t seed) {
  for (std::uint32_t i = 0; i < ballast.size(); ++i)
    ballast[i] = static_cast<float>((i * 2654435761U + seed) >> 12) * 1e-6F;
}

// Into `whole`. Takes its time, so that kills meet a member that computes.
void compute(digits::Model& model, const std::vector<digits::Sample>& samples,
             const elastic::StepInfo& step, const elastic::Shard& shard, const Pace& pace,
             std::span<float> whole) {
  const auto since = pace.now();
  const auto leaf = whole.first(digits::kParameters);
  weigh_down(whole.subspan(digits::kParameters), static_cast<std::uint32_t>(shard.seed));
  std::fill(leaf.begin(), leaf.end(), 0.0F);
  const float scale = 1.0F / static_cast<float>(step.samples);
  for (const std::uint64_t i : shard.samples) model.add_gradient(samples[i], scale, leaf);
  pace.fill(since);
}

std::string hex_of(digits::Model& model, std::span<const float> ballast, std::uint32_t sums) {
  std::string text =
      fmt::format("{:08x}{:08x}", regroup::base::crc32c(std::as_bytes(ballast)), sums);
  for (const auto values : {model.weights(), model.velocity()}) {
    for (const std::byte b : std::as_bytes(values))
      text += fmt::format("{:02x}", static_cast<unsigned>(b));
  }
  return text + "\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5 || argc > 8 || (argc == 8 && std::string(argv[7]) != "device"))
    stop(regroup::base::invalid_argument(
        "usage: chaos_member CSV DIR EPOCHS PACE_US [BALLAST [GRADIENT [device]]]"));
  const std::string dir = argv[2];
  const std::vector<digits::Sample> samples = digits::load(argv[1]);
  digits::Model model(1);
  const auto floats = [&](int i) { return (i < argc ? std::stoull(argv[i]) : 0) / sizeof(float); };
  std::vector<float> ballast(floats(5));
  std::uint32_t sums = 0;  // a CRC32C of what all gradients' ballast has summed to
  elastic::TrackedState state;
  state.track("weights", model.weights());
  state.track("velocity", model.velocity());
  if (!ballast.empty()) state.track("ballast", std::span(ballast));
  if (floats(6) > 0) state.track("sums", std::span(&sums, 1));
  elastic::Options options;
  options.elements = digits::kParameters + floats(6);
  options.state = &state;
  options.model = state.describe();
  options.samples = samples.size();
  options.batch = 64;
  options.epochs = std::stoull(argv[3]);
  const Pace pace(argv[4], dir);

  const int audit = open_trail(dir, "computed");
  const int stood = open_trail(dir, "stood");
  const Must must{fmt::format("{}/left.{}", dir, ::getpid())};
  std::optional<chaos::Device> device;
  std::vector<float> host;  // a gradient or a sum that is on the device
  if (argc > 7) {
    device = must(chaos::Device::open());
    host.resize(options.elements);
    options.memory = elastic::Memory::kDevice;
    options.stream = device->stream();
  }
  auto session = must(elastic::Session::join(options));
  while (const auto step = must(session->next_step())) {
    write_all(stood, stand_of(*step, session->world()));
    while (const auto shard = must(session->next_shard())) {
      write_all(audit, trail_of(*step, *shard));
      const auto there = shard->gradient;
      compute(model, samples, *step, *shard, pace,
              device ? std::span(host)
                     : std::span(reinterpret_cast<float*>(there.data()), options.elements));
      if (device) must(device->write(there, host.data()));
    }
    auto sum = must(session->commit());
    if (device) {
      must(device->read(host.data(), sum));
      sum = std::as_bytes(std::span(host));
    }
    const std::span gradient(reinterpret_cast<const float*>(sum.data()), digits::kParameters);
    model.apply(gradient, 0.1F, 0.9F);
    sums = regroup::base::crc32c(sum.subspan(gradient.size_bytes()), sums);
    for (std::size_t i = 0; i < ballast.size(); ++i) ballast[i] += gradient[i % gradient.size()];
  }
  must(session->finish());
  write_whole(fmt::format("{}/weights.{}", dir, ::getpid()), hex_of(model, ballast, sums));
}
