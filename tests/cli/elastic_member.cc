// A member for black-box tests: real steps whose sums are checked, no data.
//   elastic_member STEPS MILLISECONDS_PER_LEAF [FINGERPRINT [MODEL [LAST_STEP [DECLARED_ELEMENTS [FAULT]]]]]
// LAST_STEP: leaves the program with exit status 0 after it, before finish(); 0 is never.
// FAULT: "bad-load", a state copied from others lands here with one bit wrong; "linger", it drops its session
// after LAST_STEP and sleeps instead of leaving the program. Prints "step S size N" for each step at rank 0,
// and "finished W" with the weight at the end.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "elastic/session.h"

using regroup::core::Code;

namespace {

constexpr std::size_t kElements = 64;
constexpr std::uint64_t kBatch = 16;  // no shard of up to 16 is empty

[[noreturn]] void stop(const regroup::core::Status& status) {
  if (status.code() == Code::kLeft) {
    std::printf("left\n");
    std::exit(0);
  }
  std::fprintf(stderr, "elastic_member: %s\n", status.to_string().c_str());
  std::exit(3);
}

template <class T>
T must(regroup::core::Result<T> result) {
  if (!result.ok()) stop(result.status());
  return std::move(*result);
}

class Weights final : public regroup::elastic::State {
 public:
  Weights(std::vector<float>* values, bool bad_load) : values_(values), bad_load_(bad_load) {}
  [[nodiscard]] std::uint64_t capacity() const override { return values_->size() * sizeof(float); }
  [[nodiscard]] regroup::core::Result<std::vector<std::span<const std::byte>>> save() override {
    return std::vector{std::as_bytes(std::span(*values_))};
  }
  [[nodiscard]] regroup::core::Status load(std::span<const std::byte> bytes) override {
    std::memcpy(values_->data(), bytes.data(), bytes.size());
    if (bad_load_) reinterpret_cast<unsigned char*>(values_->data())[5] ^= 1;
    return {};
  }

 private:
  std::vector<float>* values_;
  bool bad_load_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto steps = std::strtoull(argv[1], nullptr, 10);
  const std::chrono::milliseconds compute(std::strtol(argv[2], nullptr, 10));
  std::vector<float> weights(kElements, 0.0F);
  const std::string fault = argc > 7 ? argv[7] : "";
  Weights state(&weights, fault == "bad-load");
  regroup::elastic::Options options;
  options.elements = argc > 6 ? std::strtoull(argv[6], nullptr, 10) : kElements;
  const auto last_step = argc > 5 ? std::strtoull(argv[5], nullptr, 10) : 0;
  options.state = &state;
  options.fingerprint = argc > 3 ? argv[3] : "";
  options.model = argc > 4 ? argv[4] : "sum";
  options.samples = steps * kBatch;
  options.batch = kBatch;
  options.epochs = 1;
  auto session = must(regroup::elastic::Session::join(options));
  while (const auto step = must(session->next_step())) {
    while (const auto shard = must(session->next_shard())) {
      std::this_thread::sleep_for(compute);  // the work
      auto* leaf = reinterpret_cast<float*>(shard->gradient.data());
      for (std::size_t i = 0; i < kElements; ++i) leaf[i] = 1.0F;
    }
    const auto sum = must(session->commit());
    const auto* values = reinterpret_cast<const float*>(sum.data());
    for (std::size_t i = 0; i < kElements; ++i) weights[i] += values[i];
    if (session->world().rank == 0) {
      std::printf("step %llu size %d\n", static_cast<unsigned long long>(step->step), session->world().size);
    }
    if (step->step == last_step && fault == "linger") {
      session.reset();
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
    if (step->step == last_step) return 0;
  }
  if (const auto done = session->finish(); !done.ok()) stop(done);
  std::printf("finished %.1f\n", static_cast<double>(weights[0]));
}
