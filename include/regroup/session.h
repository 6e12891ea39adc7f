// Session: the interface of a training loop. One per process, used only by the thread that called
// join(): calls of other threads return kInvalidArgument and do nothing. A regroup happens inside
// these calls: after a member died next_shard() may return leaves of the same step again. Without
// the checks of ok():
//
//   auto session = Session::join(options).value();                 // blocks until this process is
//   in a World while (auto step = session->next_step().value()) {             // nothing: all
//   epochs are done
//     while (auto shard = session->next_shard().value()) {         // nothing: the step is
//     committed
//       // fill shard->gradient with the sum over shard->samples, divided by step->samples
//     }
//     apply(session->commit().value());                            // the sum over all leaves,
//     read-only
//   }
//   auto status = session->finish();
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regroup/communicator.h"
#include "regroup/state.h"
#include "regroup/status.h"
#include "regroup/types.h"

namespace regroup::elastic {

// An event of a step on this member, for measurements.
enum class StepEvent : std::uint8_t {
  kRevoked,   // it noticed that the generation is over
  kJoined,    // it entered a World
  kSealed,    // a leaf of it is complete
  kGathered,  // all leaves of the step are sealed
  kReduced,   // the whole result is readable
  kCommitted,
};
[[nodiscard]] const char* name_of(StepEvent event);  // "revoked"

struct Options {
  std::uint64_t elements = 0;  // of a gradient and what is summed with it
  collective::Dtype dtype = collective::Dtype::kFloat32;  // kFloat32 or kFloat64
  State* state = nullptr;                                 // outlives the session
  std::string model;        // digest of names, types, shapes: members that differ are refused
  std::string fingerprint;  // numeric environment; empty: default_fingerprint()
  std::uint64_t samples =
      0;  // of the data set; 0: no sampler, the caller maps (step, shard) to data itself
  std::uint64_t batch = 0;   // samples per step
  std::uint64_t epochs = 0;  // 0: no end
  std::function<void(StepEvent, proto::Step)>
      observer;                        // may be empty; called by the training thread; must be quick
  std::chrono::seconds deadline{600};  // of any single wait for other members
};

struct StepInfo {
  proto::Step step = 0;     // 1, 2, ...
  std::uint64_t epoch = 0;  // 0, 1, ...
  std::uint64_t samples =
      0;  // of the whole batch; the last batch of an epoch may be smaller than Options::batch
  bool first_of_epoch = false;
};

struct Shard {
  std::uint32_t leaf = 0;  // 0..V-1
  std::vector<std::uint64_t>
      samples;  // indices into the data set; if empty, the gradient is exactly zero
  std::span<std::byte> gradient;  // to be filled completely: elements * size of dtype bytes
  std::uint64_t seed = 0;         // for all random numbers drawn while computing it
};

struct WorldInfo {
  proto::Generation generation = 0;
  int rank = 0;  // for a learner that is in no World yet: the size
  int size = 1;
  std::uint32_t shards = 1;
  std::string why;
};

class Session {
 public:
  // Joins through the agent in the environment (`REGROUP_AGENT`), or with the other ranks that a
  // launcher started on this host, or alone (docs/design/fixed_size_worlds.md). Blocks until this
  // process is in a World and has its state; or, as a learner, has the state of an earlier step:
  // its first steps then only apply the others' results (docs/design/catch_up.md).
  // kInvalidArgument: refused, with the agent's reason. kLeft: the job has ended.
  [[nodiscard]] static base::Result<std::unique_ptr<Session>> join(const Options& options);
  ~Session();

  // Begins the next step. Nothing: all epochs are done. kLeft: this member was asked to leave, and
  // nothing is lost: end the process with exit status 0.
  [[nodiscard]] base::Result<std::optional<StepInfo>> next_step();
  // Seals the shard returned before and returns the next one for this member to compute. Nothing:
  // the step is committed by the whole World. Blocks on other members; regroups when one is lost.
  [[nodiscard]] base::Result<std::optional<Shard>> next_shard();
  // The sum of all leaves of the committed step, valid until next_step(). Only after next_shard()
  // returned nothing.
  [[nodiscard]] base::Result<std::span<const std::byte>> commit();
  // Memory for this member's share of a checkpoint, if one of the state after this step is due;
  // else empty. Call after next_shard() returned nothing and before the sum is applied. An
  // optimizer may write its results there, until the next call, as the copies of
  // regroup/optimizer.h; saved(i) then says that target i holds what its tensor holds from now on.
  // The session copies the rest.
  [[nodiscard]] base::Result<std::vector<SaveTarget>> save_targets();
  void saved(std::size_t target);  // of the last save_targets()
  [[nodiscard]] SaveCounts save_counts() const;
  // Shown by `regroup status` for the step just applied.
  void report_loss(double loss);

  // A collective section: runs `body` on every member of the World with a communicator, and again
  // after a regroup, so it must have no side effects until it returns OK. Call between steps, after
  // the last sum was applied. If `body` fails, the session is unusable. A member that joined after
  // the last step runs it alone.
  [[nodiscard]] base::Status collective(
      const std::function<base::Status(collective::Communicator&)>& body);
  // The old name of collective(), for one release.
  [[nodiscard]] base::Status region(
      const std::function<base::Status(collective::Communicator&)>& body) {
    return collective(body);
  }
  // Ends the loop before next_step() has returned nothing, with the last sum applied: later changes
  // of the state are the caller's own, as after the last epoch; without this call finish() compares
  // the state as it is then. Copies the state for the checkpoint of the last step. next_step() may
  // still follow.
  [[nodiscard]] base::Status leave_loop();
  // All members agree that training is over: exit status 0 means success only after this call. With
  // --checkpoint the state after the last step is saved, whatever the interval; the job's exit
  // status is 0 only if that checkpoint is on disk. kLeft: this member joined after the last step;
  // end the process with exit status 0.
  [[nodiscard]] base::Status finish();

  [[nodiscard]] WorldInfo world() const;
  [[nodiscard]] proto::Step last_step() const;  // last applied or, in a step, the one before it
  [[nodiscard]] std::uint64_t job_seed() const;

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Instruction set, threads per member, version of libc, and a digest of the executable, which is
// read once through; a binding adds its framework's version.
[[nodiscard]] std::string default_fingerprint();

}  // namespace regroup::elastic

namespace regroup {

using elastic::Session, elastic::Shard, elastic::StepInfo, elastic::WorldInfo;
using SessionOptions = elastic::Options;

}  // namespace regroup
