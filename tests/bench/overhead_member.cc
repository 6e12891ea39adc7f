// The member that `./dev bench overhead` runs: alternating blocks of steps of a Session that
// computes nothing, and of allreduces of as many bytes by the same kind of Communicator without the
// transaction. usage: overhead_member DIR BLOCKS STEPS_PER_BLOCK BYTES
//   DIR/overhead.RANK   one line per operation of this member: "session NS" or "communicator NS"
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "regroup/session.h"
#include "tests/bench/timeline.h"

using regroup::base::Result;
using regroup::base::Status;
namespace bench = regroup::bench;
namespace collective = regroup::collective;
namespace elastic = regroup::elastic;

namespace {

[[noreturn]] void stop(const Status& status) {
  std::fprintf(stderr, "overhead_member: %s\n", status.to_string().c_str());
  std::_Exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result.ok()) stop(result.status());
  return std::move(*result);
}

std::span<const float> floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

void expect(std::span<const float> sum, float want) {
  for (const float value : sum) {
    if (value != want) stop(regroup::base::internal_error("overhead_member: wrong sum"));
  }
}

// Nanoseconds of one step: open, seal, reduce, vote, commit.
std::int64_t one_step(elastic::Session& session, float want) {
  const std::int64_t began = bench::now_ns();
  must(session.next_step());
  while (const auto shard = must(session.next_shard())) {
    const std::span leaf(reinterpret_cast<float*>(shard->gradient.data()),
                         shard->gradient.size() / sizeof(float));
    std::fill(leaf.begin(), leaf.end(), 1.0F);
  }
  const auto sum = must(session.commit());
  const std::int64_t took = bench::now_ns() - began;
  expect(floats(sum), want);
  return took;
}

Status plain_block(collective::Communicator& communicator, int steps, std::size_t elements,
                   std::vector<std::int64_t>* out) {
  std::vector<float> in(elements), sum(elements);
  const auto deadline = regroup::base::SystemClock().now() + std::chrono::seconds(120);
  for (int i = 0; i < steps; ++i) {
    const std::int64_t began = bench::now_ns();
    std::fill(in.begin(), in.end(), 1.0F);
    REGROUP_RETURN_IF_ERROR(communicator.allreduce(std::as_bytes(std::span(in)),
                                                   std::as_writable_bytes(std::span(sum)),
                                                   collective::Dtype::kFloat32, deadline));
    out->push_back(bench::now_ns() - began);
    expect(sum, static_cast<float>(communicator.size()));
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5)
    stop(
        regroup::base::invalid_argument("usage: overhead_member DIR BLOCKS STEPS_PER_BLOCK BYTES"));
  const int blocks = std::stoi(argv[2]);
  const int steps = std::stoi(argv[3]);
  std::vector<float> weights(std::stoull(argv[4]) / sizeof(float));
  elastic::TrackedState state;
  state.track("weights", std::span(weights));
  elastic::Options options;
  options.elements = weights.size();
  options.state = &state;
  options.model = state.describe();
  auto session = must(elastic::Session::join(options));
  const auto shards = static_cast<float>(session->world().shards);

  std::vector<std::int64_t> with, without;
  for (int block = 0; block < blocks; ++block) {
    for (int i = 0; i < steps; ++i) with.push_back(one_step(*session, shards));
    const Status plain = session->collective([&](collective::Communicator& c) {
      return plain_block(c, steps, weights.size(), &without);
    });
    if (!plain.ok()) stop(plain);
  }
  std::ofstream file(std::string(argv[1]) + "/overhead." + std::to_string(session->world().rank));
  for (const std::int64_t ns : with) file << "session " << ns << '\n';
  for (const std::int64_t ns : without) file << "communicator " << ns << '\n';
  file.close();
  if (const Status done = session->finish(); !done.ok() || !file) stop(done);
  return 0;
}
