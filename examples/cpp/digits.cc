// Elastic training in C++ without a framework. Run it under the launcher:
//   regroup --oversubscribe --initial-size 3 -np 2:4 digits digits.csv [WEIGHTS]
// digits.csv: see README.md beside this file. WEIGHTS: a file for the final weights, as float32.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "digits_model.h"
#include "regroup/session.h"

using regroup::base::Code;
using regroup::base::Status;

namespace {

constexpr std::uint64_t kBatch = 64;
constexpr std::uint64_t kEpochs = 30;

[[noreturn]] void stop(const Status& status) {
  if (status.code() == Code::kLeft) std::exit(0);  // asked to leave: nothing is lost
  std::fprintf(stderr, "digits: %s\n", status.to_string().c_str());
  std::exit(1);
}

template <class T>
T must(regroup::base::Result<T> result) {
  if (!result.ok()) stop(result.status());
  return std::move(*result);
}

std::span<float> as_floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<const float> as_floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

bool save(std::span<const float> values, const char* path) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size_bytes()));
  return static_cast<bool>(file.flush());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<digits::Sample> samples = digits::load(argc > 1 ? argv[1] : "digits.csv");
  if (samples.empty()) {
    std::fprintf(stderr, "digits: no samples in %s\n", argc > 1 ? argv[1] : "digits.csv");
    return 1;
  }
  digits::Model model(1);
  regroup::elastic::TrackedState state;
  state.track("weights", model.weights());
  state.track("velocity", model.velocity());

  regroup::elastic::Options options;
  options.elements = digits::kParameters + 1;  // the gradient, then the loss
  options.state = &state;
  options.model = state.describe();
  options.samples = samples.size();
  options.batch = kBatch;
  options.epochs = kEpochs;
  auto session = must(regroup::elastic::Session::join(options));

  while (const auto step = must(session->next_step())) {
    const float scale = 1.0F / static_cast<float>(step->samples);
    while (const auto shard = must(session->next_shard())) {
      const std::span<float> leaf = as_floats(shard->gradient);
      std::fill(leaf.begin(), leaf.end(), 0.0F);
      for (const std::uint64_t i : shard->samples)
        leaf.back() += scale * model.add_gradient(samples[i], scale, leaf);
    }
    const std::span<const float> gradient = as_floats(must(session->commit()));
    model.apply(gradient, 0.1F, 0.9F);
    session->report_loss(gradient.back());
    if (session->world().rank == 0 && step->first_of_epoch) {
      std::printf("epoch %2d  loss %.4f  members %d\n", static_cast<int>(step->epoch),
                  static_cast<double>(gradient.back()), session->world().size);
    }
  }
  if (const Status done = session->finish(); !done.ok()) stop(done);
  if (session->world().rank == 0) {
    std::size_t right = 0;
    for (const digits::Sample& sample : samples) right += model.right(sample) ? 1 : 0;
    std::printf("accuracy on the training set %.1f %%\n",
                100.0 * static_cast<double>(right) / static_cast<double>(samples.size()));
    if (argc > 2 && !save(model.weights(), argv[2])) {
      std::fprintf(stderr, "digits: cannot write the weights to %s\n", argv[2]);
      return 1;
    }
  }
  return 0;
}
