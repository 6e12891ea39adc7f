// A member for black-box tests: real steps whose sums are checked, no data.
//   elastic_member STEPS MILLISECONDS_PER_LEAF [FINGERPRINT [MODEL [LAST_STEP [DECLARED_ELEMENTS
//   [FAULT]]]]]
// LAST_STEP: leaves the program with exit status 0 after it, before finish(); 0 is never.
// FAULT: "bad-load", a state copied from others lands here with one bit wrong; "linger", it drops
// its session after LAST_STEP and sleeps instead of leaving the program; "gates=DIR", it runs a
// region after LAST_STEP and goes on ("regions": after every step, without a word), but at each
// PLACE says "PLACE ID" (ID: its REGROUP_MEMBER) and stays while the file DIR/PLACE.ID is there:
// "body" within the region, before its vote, "finish" before finish(), "end" behind it; "leaf" in
// the midst of each, without a word; "loss": it records 1/S as the loss of step S;
// "flip=IDS@STEP": from STEP on members of these IDs (REGROUP_MEMBER) compute one wrong bit in each
// leaf, another one in each member; "flip", as "flip=...": prints "weights CRC" at the end;
// "die=EVENT@STEP": rank 0 kills itself there, the first one that comes to it. Prints "step S size
// N" for each step at rank 0, "region SUM runs N", and "finished W" with the weight at the end.
// Once there is the file XDG_RUNTIME_DIR/hurry, leaves take no time: a test that has seen what it
// waited for need not wait for the rest of the training.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "regroup/session.h"

using regroup::base::Code;

namespace {

constexpr std::size_t kElements = 64;
constexpr std::uint64_t kBatch = 16;  // no shard of up to 16 is empty

[[noreturn]] void stop(const regroup::base::Status& status) {
  if (status.code() == Code::kLeft) {
    std::printf("left\n");
    std::exit(0);
  }
  std::fprintf(stderr, "elastic_member: %s\n", status.to_string().c_str());
  std::exit(3);
}

template <class T>
T must(regroup::base::Result<T> result) {
  if (!result.ok()) stop(result.status());
  return std::move(*result);
}

class Weights final : public regroup::elastic::State {
 public:
  Weights(std::vector<float>* values, bool bad_load) : values_(values), bad_load_(bad_load) {}
  [[nodiscard]] std::uint64_t capacity() const override { return values_->size() * sizeof(float); }
  [[nodiscard]] regroup::base::Result<std::vector<std::span<const std::byte>>> save() override {
    return std::vector{std::as_bytes(std::span(*values_))};
  }
  [[nodiscard]] regroup::base::Status load(std::span<const std::byte> bytes) override {
    std::memcpy(values_->data(), bytes.data(), bytes.size());
    if (bad_load_) reinterpret_cast<unsigned char*>(values_->data())[5] ^= 1;
    return {};
  }

 private:
  std::vector<float>* values_;
  bool bad_load_;
};

class Gates {
 public:
  explicit Gates(const std::string& fault) {
    if (fault.rfind("gates=", 0) == 0) folder_ = fault.substr(6);
  }
  [[nodiscard]] bool used() const { return !folder_.empty(); }
  void pass(const char* place) const {
    if (!used()) return;
    std::printf("%s %s\n", place, std::getenv("REGROUP_MEMBER"));
    wait(place);
  }
  void wait(const char* place) const {
    if (!used()) return;
    const char* id = std::getenv("REGROUP_MEMBER");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (std::filesystem::exists(folder_ + "/" + place + "." + id)) {
      if (std::chrono::steady_clock::now() > deadline) std::exit(4);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  std::string folder_;
};

// FAULT "die=EVENT@STEP".
void die_at(const std::string& fault, regroup::elastic::Session* session,
            regroup::elastic::StepEvent event, std::uint64_t step) {
  const std::string here = "die=" + std::string(name_of(event)) + "@" + std::to_string(step);
  if (session == nullptr || session->world().rank != 0 || fault != here) return;
  // Fails if another member was here before.
  if (std::filesystem::create_directory(std::string(std::getenv("XDG_RUNTIME_DIR")) + "/died"))
    std::raise(SIGKILL);
}

// FAULT "flip=1,2@4": what a faulty processor does.
void flip_bit(const std::string& fault, std::uint64_t step, float* leaf) {
  const auto at = fault.find('@');
  if (fault.rfind("flip=", 0) != 0 || at == std::string::npos) return;
  const std::string id = std::getenv("REGROUP_MEMBER");
  if (step < std::strtoull(fault.c_str() + at + 1, nullptr, 10)) return;
  if (("," + fault.substr(5, at - 5) + ",").find("," + id + ",") == std::string::npos) return;
  reinterpret_cast<unsigned char*>(leaf)[4 * std::stoul(id) + 2] ^= 16;
}

// The work of a leaf.
void compute_for(std::chrono::milliseconds time) {
  static const char* const kFolder = std::getenv("XDG_RUNTIME_DIR");
  static const std::string kHurry = kFolder == nullptr ? "" : std::string(kFolder) + "/hurry";
  const auto end = std::chrono::steady_clock::now() + time;
  for (auto left = end - std::chrono::steady_clock::now(); left.count() > 0;
       left = end - std::chrono::steady_clock::now()) {
    if (!kHurry.empty() && std::filesystem::exists(kHurry)) return;
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(left, std::chrono::milliseconds(20)));
  }
}

// Counts the members, who then vote that it is so.
void count_in_region(regroup::elastic::Session& session, const Gates& gates, bool quiet = false) {
  const float one = 1.0F;
  float sum = 0.0F;
  int runs = 0;
  const auto body = [&](regroup::collective::Communicator& all) -> regroup::base::Status {
    runs += 1;
    REGROUP_RETURN_IF_ERROR(
        all.allreduce(std::as_bytes(std::span(&one, 1)), std::as_writable_bytes(std::span(&sum, 1)),
                      regroup::collective::Dtype::kFloat32,
                      regroup::base::SystemClock().now() + std::chrono::minutes(1)));
    gates.pass("body");
    return {};
  };
  if (const auto status = session.collective(body); !status.ok()) stop(status);
  if (quiet) return;
  std::printf("region %.1f runs %d\n", static_cast<double>(sum), runs);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto steps = std::strtoull(argv[1], nullptr, 10);
  const std::chrono::milliseconds compute(std::strtol(argv[2], nullptr, 10));
  std::vector<float> weights(kElements, 0.0F);
  const std::string fault = argc > 7 ? argv[7] : "";
  const Gates gates(fault);
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
  regroup::elastic::Session* joined = nullptr;
  options.observer = [&](regroup::elastic::StepEvent event, std::uint64_t step) {
    die_at(fault, joined, event, step);
  };
  auto session = must(regroup::elastic::Session::join(options));
  joined = session.get();
  while (const auto step = must(session->next_step())) {
    while (const auto shard = must(session->next_shard())) {
      compute_for(compute);
      gates.wait("leaf");
      auto* leaf = reinterpret_cast<float*>(shard->gradient.data());
      for (std::size_t i = 0; i < kElements; ++i) leaf[i] = 1.0F;
      flip_bit(fault, step->step, leaf);
    }
    const auto sum = must(session->commit());
    const auto* values = reinterpret_cast<const float*>(sum.data());
    for (std::size_t i = 0; i < kElements; ++i) weights[i] += values[i];
    if (fault == "loss") session->report_loss(1.0 / static_cast<double>(step->step));
    if (session->world().rank == 0) {
      std::printf("step %llu size %d\n", static_cast<unsigned long long>(step->step),
                  session->world().size);
    }
    if (fault == "regions") count_in_region(*session, gates, true);
    if (step->step == last_step && fault == "linger") {
      session.reset();
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
    if (step->step == last_step && !gates.used()) return 0;
    if (step->step == last_step) count_in_region(*session, gates);
  }
  gates.pass("finish");
  if (const auto done = session->finish(); !done.ok()) stop(done);
  std::printf("finished %.1f\n", static_cast<double>(weights[0]));
  if (fault.rfind("flip", 0) == 0)
    std::printf("weights %08x\n", regroup::base::crc32c(std::as_bytes(std::span(weights))));
  gates.pass("end");
}
