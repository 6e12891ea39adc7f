// elastic::Session for Python. Calls that wait for other members release the GIL; a Status that is
// not OK is raised as an exception.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "python/state.h"
#include "regroup/session.h"

namespace regroup::python {

// The communicator of a collective section, for Python code. Calls raise once the section has
// ended.
class SectionCommunicator {
 public:
  SectionCommunicator(collective::Communicator* communicator, std::chrono::seconds timeout)
      : communicator_(communicator), timeout_(timeout) {}

  [[nodiscard]] int rank() { return get().rank(); }
  [[nodiscard]] int size() { return get().size(); }
  // `object`: contiguous, writable CPU memory of the caller; anything else raises.
  void allreduce(nb::handle object);
  void broadcast(nb::handle object, int root);
  void barrier();

  void end() { communicator_ = nullptr; }
  // The first failure of an operation, even if the Python code has caught its exception.
  [[nodiscard]] const base::Status& failure() const { return failure_; }

 private:
  [[nodiscard]] collective::Communicator& get();
  [[nodiscard]] base::TimePoint deadline() const { return base::SystemClock().now() + timeout_; }
  void check(const base::Status& status);

  collective::Communicator* communicator_;
  std::chrono::seconds timeout_;
  base::Status failure_;
};

struct PythonShard {
  std::uint32_t leaf = 0;
  std::vector<std::uint64_t> samples;
  nb::object gradient;  // memoryview of the arena, to be filled completely; None: on a device
  std::uint64_t seed = 0;
};

// Only the thread that joined may call it. Inside a collective section or a State only the reading
// calls are allowed.
class PythonSession {
 public:
  // Unless `observer` is None, calls it with the name of each StepEvent and its step. If it raises,
  // the exception is printed on standard error and has no other effect.
  PythonSession(elastic::Options options, nb::object state, nb::object observer);

  [[nodiscard]] std::optional<elastic::StepInfo> next_step();
  // Leaf, seed and samples of each.
  using Planned = std::tuple<std::uint32_t, std::uint64_t, std::vector<std::uint64_t>>;
  [[nodiscard]] std::vector<Planned> planned_shards(proto::Step step);
  [[nodiscard]] Planned shard_of(proto::Step step, std::uint32_t leaf) const;
  // `self`: this object in Python, which the returned memory keeps alive.
  [[nodiscard]] std::optional<PythonShard> next_shard(nb::handle self);
  // First element, number of elements, address (0: zeros), weight.
  using Part = std::tuple<std::uint64_t, std::uint64_t, std::uintptr_t, double>;
  void fill_gradient(const std::vector<Part>& parts);
  void change_stream(std::uintptr_t stream);
  void record_samples(const std::vector<std::uint64_t>& samples);
  [[nodiscard]] nb::object commit(nb::handle self);
  void commit_into(nb::handle object);
  void commit_on_device();  // into Options::sum
  // Returns tuples (name, first byte, memory).
  [[nodiscard]] nb::list save_targets(nb::handle self);
  void saved(std::size_t target);
  [[nodiscard]] elastic::SaveCounts save_counts();
  void report_loss(double loss);
  [[nodiscard]] int begin_span(const std::string& name);
  void end_span(int span);
  [[nodiscard]] nb::object collective(const nb::object& body);
  void leave_loop();
  void finish();
  [[nodiscard]] elastic::WorldInfo world();
  [[nodiscard]] proto::Step last_step();
  [[nodiscard]] std::uint64_t job_seed();

 private:
  class Entered;
  void check_thread() const;
  template <class Call>
  auto blocking(Call call);
  [[nodiscard]] nb::object view_of(std::span<const std::byte> bytes, bool writable,
                                   nb::handle self) const;

  void observe(elastic::StepEvent event, proto::Step step) const;

  Kept kept_;
  PythonState state_;
  const nb::object observer_;
  const elastic::Options options_;
  const std::thread::id owner_;
  std::size_t targets_ = 0;  // of the last save_targets()
  bool inside_ = false;      // a call is in progress
  bool broken_ = false;      // the body of a collective section failed; other members wait in it
  std::unique_ptr<elastic::Session> session_;
};

}  // namespace regroup::python
