// A member whose gradients are in memory of a device, or of the host, for black-box tests:
//   device_member host|device|harvest|join|staged|apart STEPS MILLISECONDS_PER_LEAF [DEADLINE_S
//   [DEVICE]]
// harvest: as device, but the session fills leaves from gradients elsewhere on the device, of which
// each second one is of another stream.
// staged: as host, but the gradients are copies of those of a GPU; apart: the same, but this thread
// has no context of one.
// join: as device, but the session loads the driver first; the program ends once it has joined.
// Trains with pseudo-random gradients that depend on step, leaf and weights. Prints "step S size N"
// for each step at rank 0, and "finished DIGEST" at the end: equal digests are equal weights. Once
// there is the file XDG_RUNTIME_DIR/hurry, leaves take no time. DEVICE_MEMBER_WRONG=ID:STEP: the
// member of that REGROUP_MEMBER computes a wrong number in each leaf from STEP on.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/crc32c.h"
#include "collective/cuda/driver.h"
#include "regroup/session.h"
#include "regroup/state.h"

namespace {

using regroup::base::Code;
using regroup::base::Status;
using regroup::collective::cuda::DevicePointer;
using regroup::collective::cuda::Driver;
using regroup::collective::cuda::Stream;

constexpr std::size_t kElements = 3001;
// Elements kFirst to kSecond are 0 in each gradient; kSecond is at a multiple of 16 bytes.
constexpr std::size_t kFirst = 1200;
constexpr std::size_t kSecond = 1204;

struct Failed {
  Status status;
};
[[noreturn]] void stop(const Status& status) { throw Failed{status}; }

template <class T>
T must(regroup::base::Result<T> result) {
  if (!result.ok()) stop(result.status());
  return std::move(*result);
}

// The device, by calls that copy only: kernels need another compiler.
class Device {
 public:
  Device() : driver_(must(regroup::collective::cuda::load_driver())) {
    check(driver_.init(0), "cuInit");
    regroup::collective::cuda::Context context = nullptr;
    check(driver_.primary_context_retain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(driver_.context_set(context), "cuCtxSetCurrent");
    for (Stream* const stream : {&stream_, &other_, &state_})
      check(driver_.stream_create(stream, regroup::collective::cuda::kNonBlockingStream, 0),
            "cuStreamCreate");
  }
  [[nodiscard]] Stream stream() const { return stream_; }
  // Of the state: it stays the same, as TrackedState::track_device() asks.
  [[nodiscard]] Stream state() const { return state_; }
  // What is put on the stream from now on goes on another one, which begins when this one is done.
  void change_stream() {
    check(driver_.stream_synchronize(stream_), "cuStreamSynchronize");
    std::swap(stream_, other_);
  }
  [[nodiscard]] void* allocate(std::size_t bytes) const {
    DevicePointer pointer = 0;
    check(driver_.memory_allocate(&pointer, bytes), "cuMemAlloc");
    return reinterpret_cast<void*>(pointer);
  }
  void write(void* to, const std::vector<float>& values, Stream stream) const {
    check(driver_.copy_to_device(reinterpret_cast<DevicePointer>(to), values.data(),
                                 values.size() * sizeof(float), stream),
          "cuMemcpyHtoDAsync");
  }
  void read(std::vector<float>& values, const void* from, Stream stream) const {
    check(driver_.copy_to_host(values.data(), reinterpret_cast<DevicePointer>(from),
                               values.size() * sizeof(float), stream),
          "cuMemcpyDtoHAsync");
    check(driver_.stream_synchronize(stream), "cuStreamSynchronize");
  }

 private:
  void check(regroup::collective::cuda::DriverResult result, const char* call) const {
    if (const Status status = driver_.status(result, call); !status.ok()) stop(status);
  }
  const Driver driver_;
  Stream stream_ = nullptr;
  Stream other_ = nullptr;
  Stream state_ = nullptr;
};

// Of the weights as they are, so that a wrong sum shows in all later steps.
void compute(std::vector<float>& gradient, const std::vector<float>& weights, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    gradient[i] = static_cast<float>(state % 20011) / 10007.0F - 1.0F + 0.1F * weights[i];
  }
  std::fill(gradient.begin() + kFirst, gradient.begin() + kSecond, 0.0F);
}

void spoil(std::vector<float>& gradient, std::uint64_t step) {
  const char* const wrong = std::getenv("DEVICE_MEMBER_WRONG");
  const char* const id = std::getenv("REGROUP_MEMBER");
  if (wrong == nullptr || id == nullptr) return;
  char* end = nullptr;
  if (std::strtoull(wrong, &end, 10) != std::strtoull(id, nullptr, 10)) return;
  if (*end == ':' && step >= std::strtoull(end + 1, nullptr, 10)) gradient.back() += 1.0F;
}

// Two parts with exact weights, and zeros in between.
void fill(regroup::elastic::Session& session, const Device& device, void* at,
          std::vector<float>& values) {
  const auto* const there = static_cast<const float*>(at);
  for (std::size_t i = kSecond; i < kElements; ++i) values[i] *= 0.5F;
  device.write(at, values, device.stream());
  const regroup::elastic::GradientPart parts[] = {
      {0, kFirst, there, 1}, {kSecond, kElements - kSecond, there + kSecond, 2}};
  regroup::elastic::GradientPart odd[] = {parts[0], parts[1]};
  odd[1].begin += 1;
  odd[1].count -= 1;
  if (session.fill_gradient(odd).code() != Code::kInvalidArgument)
    stop(regroup::base::internal_error("a part at 4 bytes was taken"));
  if (const Status filled = session.fill_gradient(parts); !filled.ok()) stop(filled);
}

int run(int argc, char** argv) {
  if (argc < 4 || argc > 6) return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto steps = std::strtoull(argv[2], nullptr, 10);
  const std::chrono::milliseconds pause(std::strtol(argv[3], nullptr, 10));
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  const std::filesystem::path hurry =
      std::filesystem::path(folder == nullptr ? "/" : folder) / "hurry";
  std::vector<float> weights(kElements, 0.0F);
  std::vector<float> values(kElements);
  std::unique_ptr<Device> device;
  void* there = nullptr;     // the weights on the device
  void* gradient = nullptr;  // what a leaf is filled from
  regroup::elastic::TrackedState state;
  regroup::elastic::Options options;
  options.elements = kElements;
  options.state = &state;
  options.fingerprint = "equal on all";
  if (argc > 4) options.deadline = std::chrono::seconds(std::strtol(argv[4], nullptr, 10));
  if (argc > 5) options.device = static_cast<int>(std::strtol(argv[5], nullptr, 10));
  const std::string mode = argv[1];
  const bool harvest = mode == "harvest";
  std::unique_ptr<Device> context;
  if (mode == "staged") context = std::make_unique<Device>();
  options.staged_by_caller = mode == "staged" || mode == "apart";
  if (harvest || mode == "device") {
    device = std::make_unique<Device>();
    options.memory = regroup::elastic::Memory::kDevice;
    options.stream = device->stream();
    there = device->allocate(kElements * sizeof(float));
    if (harvest) gradient = device->allocate(kElements * sizeof(float));
    device->write(there, weights, device->state());
    if (state.track_device("host", weights.data(), 4, "float32").code() != Code::kInvalidArgument)
      return 4;
    if (const Status tracked = state.track_device("weights", there, kElements * sizeof(float),
                                                  "float32", device->state());
        !tracked.ok())
      stop(tracked);
  } else {
    state.track("weights", std::span(weights));
  }
  options.model = state.describe();
  if (mode == "join") options.memory = regroup::elastic::Memory::kDevice;
  auto session = must(regroup::elastic::Session::join(options));
  if (mode == "join") return 0;
  while (session->last_step() < steps) {
    const auto step = must(session->next_step());
    if (device) device->read(weights, there, device->state());
    while (const auto shard = must(session->next_shard())) {
      if (!std::filesystem::exists(hurry)) std::this_thread::sleep_for(pause);
      compute(values, weights, shard->seed);
      spoil(values, step->step);
      if (harvest) {
        device->change_stream();
        if (const Status changed = session->change_stream(device->stream()); !changed.ok())
          stop(changed);
        fill(*session, *device, gradient, values);
      } else if (device)
        device->write(shard->gradient.data(), values, device->stream());
      else
        std::memcpy(shard->gradient.data(), values.data(), shard->gradient.size());
    }
    const auto sum = must(session->commit());
    if (device)
      device->read(values, sum.data(), device->stream());
    else
      std::memcpy(values.data(), sum.data(), sum.size());
    for (std::size_t i = 0; i < kElements; ++i) weights[i] -= 0.01F * values[i];
    if (device) device->write(there, weights, device->state());
    if (session->world().rank == 0)
      fmt::print("step {} size {}\n", step->step, session->world().size);
  }
  if (const Status done = session->finish(); !done.ok()) stop(done);
  fmt::print("finished {:08x}\n", regroup::base::crc32c(std::as_bytes(std::span(weights))));
  return 0;
}

}  // namespace

// After an error the session ends before the process.
int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Failed& failed) {
    if (failed.status.code() == Code::kLeft) return 0;
    fmt::print(stderr, "device_member: {}\n", failed.status.to_string());
    return 3;
  }
}
