// The product is repeated in ever longer launches, until the GPU has computed for a while. The
// first launch loads the kernel, which may take long; its bits count like those of the others.
#include "elastic/device_health.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "collective/cuda/product_kernel.h"
#include "elastic/device_stream.h"
#include "elastic/nvml_faults.h"

namespace regroup::elastic {
namespace {

using base::Status;
using collective::cuda::DeviceKernels;
using collective::cuda::DevicePointer;
using collective::cuda::Driver;
using collective::cuda::DriverResult;
using collective::cuda::kProductInputs;
using collective::cuda::kProductThreads;

constexpr auto kProductTime = std::chrono::milliseconds(100);
constexpr std::uint32_t kMostRounds = 1U << 14;  // of a launch: some 50 ms

// Rounds that were launched, of each of the inputs.
using Rounds = std::array<std::uint32_t, kProductInputs>;

// CRC32C of words_of_inputs(), as other processors have computed it.
constexpr std::uint32_t kWordsDigest = 0x5b4185a3;

// The words of all threads for the first of the inputs, then those for the next.
std::vector<std::uint32_t> words_of_inputs() {
  std::vector<std::uint32_t> out;
  for (std::uint32_t number = 0; number < kProductInputs; ++number) {
    for (std::uint32_t thread = 0; thread < kProductThreads; ++thread)
      out.push_back(collective::cuda::Product::word(thread, number));
  }
  return out;
}

// What `rounds` add to the word of each thread of a block. An error: this processor has wrong bits
// itself, or the program has changed its rounding mode.
base::Result<std::vector<std::uint32_t>> expected_words(const Rounds& rounds) {
  const std::vector<std::uint32_t> words = words_of_inputs();
  if (base::crc32c(std::as_bytes(std::span(words))) != kWordsDigest)
    return Status(base::Code::kDataLoss, "the processor computes another product");
  std::vector<std::uint32_t> out(kProductThreads);
  for (std::size_t i = 0; i < words.size(); ++i)
    out[i % kProductThreads] += rounds[i / kProductThreads] * words[i];
  return out;
}

class Check {
 public:
  explicit Check(const DeviceStream& stream) : stream_(stream), driver_(stream.driver()) {}
  Check(const Check&) = delete;
  Check& operator=(const Check&) = delete;
  ~Check();

  // Appends a fault to `out`, if there is one: wrong bits twice. Errors: what failed says nothing
  // of the GPU's health, unless it is kDeadlineExceeded.
  [[nodiscard]] Status product(const DeviceKernels& kernels, std::vector<std::string>& out);

 private:
  // What is wrong with the bits, or "".
  [[nodiscard]] base::Result<std::string> compute_once(const DeviceKernels& kernels) const;
  // Takes the inputs by turns, so that a launch goes on where the last one ended.
  [[nodiscard]] Status compute(const DeviceKernels& kernels, Rounds& done) const;
  [[nodiscard]] std::string wrong_blocks(std::span<const std::uint32_t> words,
                                         const std::vector<std::uint32_t>& expected) const;

  const DeviceStream& stream_;
  const Driver& driver_;
  DevicePointer sums_ = 0;
};

// Of a device that does not answer nothing is freed: the call would wait without a limit.
Check::~Check() {
  if (sums_ != 0 && stream_.drain()) (void)driver_.memory_free(sums_);
}

Status Check::product(const DeviceKernels& kernels, std::vector<std::string>& out) {
  const std::size_t bytes = kernels.product_words() * sizeof(std::uint32_t);
  REGROUP_RETURN_IF_ERROR(stream_.check(driver_.memory_allocate(&sums_, bytes), "cuMemAlloc"));
  for (int again = 0; again < 2; ++again) {
    REGROUP_ASSIGN_OR_RETURN(std::string fault, compute_once(kernels));
    if (fault.empty()) return {};
    if (again > 0) out.push_back(std::move(fault));
  }
  return {};
}

base::Result<std::string> Check::compute_once(const DeviceKernels& kernels) const {
  std::vector<std::uint32_t> words(kernels.product_words());
  const std::size_t bytes = words.size() * sizeof(std::uint32_t);
  REGROUP_RETURN_IF_ERROR(
      stream_.check(driver_.set_bytes(sums_, 0, bytes, stream_.stream()), "cuMemsetD8Async"));
  Rounds done{};
  REGROUP_RETURN_IF_ERROR(compute(kernels, done));
  REGROUP_RETURN_IF_ERROR(stream_.copy_to_host(std::as_writable_bytes(std::span(words)), sums_));
  REGROUP_ASSIGN_OR_RETURN(const auto expected, expected_words(done));
  return wrong_blocks(words, expected);
}

Status Check::compute(const DeviceKernels& kernels, Rounds& done) const {
  const auto began = std::chrono::steady_clock::now();
  std::uint32_t next = 0, rounds = 1;
  do {
    REGROUP_RETURN_IF_ERROR(kernels.product(sums_, next, rounds, stream_.stream()));
    REGROUP_RETURN_IF_ERROR(stream_.wait("the fixed product"));
    for (std::uint32_t i = 0; i < kProductInputs; ++i)
      done[(next + i) % kProductInputs] +=
          rounds / kProductInputs + (i < rounds % kProductInputs ? 1 : 0);
    next = (next + rounds) % kProductInputs;
    rounds = std::min(rounds * 4, kMostRounds);
  } while (std::chrono::steady_clock::now() - began < kProductTime);
  return {};
}

std::string Check::wrong_blocks(std::span<const std::uint32_t> words,
                                const std::vector<std::uint32_t>& expected) const {
  const std::size_t blocks = words.size() / kProductThreads;
  std::size_t wrong = 0, first = 0;
  for (std::size_t block = blocks; block-- > 0;) {
    if (std::ranges::equal(words.subspan(block * kProductThreads, kProductThreads), expected))
      continue;
    ++wrong;
    first = block;
  }
  if (wrong == 0) return "";
  return fmt::format(
      "GPU {}: the fixed product has wrong bits in {} of {} blocks, the first is block {}",
      stream_.device_index(), wrong, blocks, first);
}

// Before a stream is created, which may wait for the device.
base::Result<proto::DeviceHealth> describe(const DeviceStream& stream) {
  const Driver& driver = stream.driver();
  proto::DeviceHealth out;
  REGROUP_ASSIGN_OR_RETURN(out.gpu, stream.visible_uuid());
  std::array<char, 128> name{};
  REGROUP_RETURN_IF_ERROR(
      stream.check(driver.device_name(name.data(), int(name.size()) - 1, stream.device_index()),
                   "cuDeviceGetName"));
  out.chip = name.data();
  return out;
}

// Work of the caller may take any time, so that the check would wait for it, not for the device.
// The null stream waits for all streams of the context that were not made non-blocking.
Status drain_caller(DeviceStream& stream) {
  REGROUP_RETURN_IF_ERROR(stream.wait("work of the program"));
  REGROUP_RETURN_IF_ERROR(stream.change_stream(nullptr));
  return stream.wait("work of the program");
}

void run(const DeviceStream& stream, const DeviceKernels* kernels, proto::DeviceHealth& out) {
  std::optional<DeviceKernels> own;
  if (kernels == nullptr) {
    auto loaded = DeviceKernels::load(stream.driver());
    if (!loaded.ok()) return;
    kernels = &own.emplace(std::move(*loaded));
  }
  Check check(stream);
  const Status status = check.product(*kernels, out.faults);
  if (status.code() == base::Code::kDeadlineExceeded) out.faults.push_back(status.message());
}

}  // namespace

bool has_device_context() {
  const auto driver = collective::cuda::load_driver();
  collective::cuda::Context context = nullptr;
  return driver.ok() && driver->context_get(&context) == DriverResult::kSuccess &&
         context != nullptr;
}

// On a stream of its own, which is not destroyed where the device does not answer.
std::optional<proto::DeviceHealth> check_device(int device, void* stream,
                                                const DeviceKernels* kernels, base::Duration wait) {
  auto opened = DeviceStream::open(device, stream, wait);
  if (!opened.ok()) return std::nullopt;
  auto out = describe(**opened);
  if (!out.ok()) return std::nullopt;
  // A MIG instance is as healthy as its GPU.
  if (const auto whole = (*opened)->device(); whole.ok())
    out->faults = nvml_faults(whole->uuid, wait / 3);
  if (!out->faults.empty()) return std::move(*out);
  if (!drain_caller(**opened).ok()) return std::nullopt;
  const Driver& driver = (*opened)->driver();
  collective::cuda::Stream own = nullptr;
  if (driver.stream_create(&own, collective::cuda::kNonBlockingStream, 0) != DriverResult::kSuccess)
    return std::nullopt;
  if ((*opened)->change_stream(own).ok()) run(**opened, kernels, *out);
  if ((*opened)->answers()) (void)driver.stream_destroy(own);
  return std::move(*out);
}

}  // namespace regroup::elastic
