// Session: what a training loop calls. One per process, used by one thread, the one that called join(): calls
// of another are kInvalidArgument, and nothing happens.
//
//   auto session = Session::join(options);                       // blocks until this process is in a World
//   while (auto step = session->next_step(); step.value()) {     // nothing: training is over, or this member
//   leaves
//     while (auto shard = session->next_shard(); shard.value()) {  // leaves to compute; nothing: the step is
//     committed
//       ... fill shard->gradient with the sum over shard->samples, divided by step->samples ...
//     }
//     auto result = session->commit();                           // the sum over all leaves, read-only
//     ... apply it ...
//   }
//   session->finish();
//
// A regroup happens inside these calls: next_shard() may hand out leaves of the same step again after a
// member died.
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

#include "collective/communicator.h"
#include "core/status.h"
#include "core/world.h"
#include "elastic/save_target.h"
#include "elastic/state.h"

namespace regroup::elastic {

// What just happened on this member, in step `step`; for measurements.
enum class StepEvent : std::uint8_t {
  kRevoked,   // noticed that the generation is over
  kJoined,    // entered a new World
  kSealed,    // a leaf is complete
  kGathered,  // has seen all seals of the step
  kReduced,   // the whole result can be read
  kCommitted,
};
[[nodiscard]] const char* name_of(StepEvent event);  // "revoked"

struct Options {
  std::uint64_t elements = 0;                             // of a gradient (and whatever travels with it)
  collective::Dtype dtype = collective::Dtype::kFloat32;  // kFloat32 or kFloat64
  State* state = nullptr;                                 // outlives the session
  std::string model;          // digest of names, types, shapes: members that differ are refused
  std::string fingerprint;    // numeric environment; empty: default_fingerprint()
  std::uint64_t samples = 0;  // of the data set; 0: no sampler, the caller maps (step, shard) to data itself
  std::uint64_t batch = 0;    // samples per step
  std::uint64_t epochs = 0;   // 0: no end
  std::function<void(StepEvent, core::Step)>
      observer;                        // may be empty; called by the training thread, must be quick
  std::chrono::seconds deadline{600};  // of any single wait on other members
};

struct StepInfo {
  core::Step step = 0;        // 1, 2, ...
  std::uint64_t epoch = 0;    // 0, 1, ...
  std::uint64_t samples = 0;  // of this whole batch: smaller than Options::batch for the last of an epoch
  bool first_of_epoch = false;
};

struct Shard {
  std::uint32_t leaf = 0;  // 0..V-1
  std::vector<std::uint64_t>
      samples;                    // indices into the data set; may be empty: the gradient is exact zero then
  std::span<std::byte> gradient;  // to fill completely; elements * size of dtype
  std::uint64_t seed = 0;         // for every random number drawn while computing it
};

struct WorldInfo {
  core::Generation generation = 0;
  int rank = 0;  // of a learner, which is in no World yet: their size
  int size = 1;
  std::uint32_t shards = 1;
  std::string why;
};

class Session {
 public:
  // Connects to the agent named in the environment (`REGROUP_AGENT`); without one meets the other ranks that
  // a launcher started on this host, or is a world of one (docs/design/fixed_size_worlds.md). Blocks until
  // the first World that contains this process, whose state it then has; or, while the others train on, until
  // it has the state of some step: its first steps are then theirs, with nothing to compute, and bring it up
  // to date (docs/design/learners.md). kInvalidArgument: refused, with the agent's reason. kLeft: the job
  // ended meanwhile, or there is no place.
  [[nodiscard]] static core::Result<std::unique_ptr<Session>> join(const Options& options);
  ~Session();

  // Begins the next step. Nothing: all epochs are done. kLeft: this member was asked to leave and nothing is
  // lost; end the process with exit status 0.
  [[nodiscard]] core::Result<std::optional<StepInfo>> next_step();
  // The next leaf for this member to compute; the one handed out before is sealed by this call. Nothing: the
  // step is committed by the whole world. Blocks on other members; regroups when one is lost.
  [[nodiscard]] core::Result<std::optional<Shard>> next_shard();
  // The committed sum of all leaves of the step, until the next next_step(). Only after next_shard() returned
  // nothing.
  [[nodiscard]] core::Result<std::span<const std::byte>> commit();
  // Where this member's part of a checkpoint goes, if the state after this step is to be one; else nothing.
  // Only after next_shard() returned nothing, before the sum is applied. Who applies it in the next moment
  // may write there, until the next call, what elastic/optimizer.h calls a copy, and says so: saved(i) means
  // that the memory of the i-th target has what the tensor holds from now on. The rest is copied by the
  // session.
  [[nodiscard]] core::Result<std::vector<SaveTarget>> save_targets();
  void saved(std::size_t target);  // of the last save_targets()
  [[nodiscard]] SaveCounts save_counts() const;
  // Shown by `regroup status` for the step just applied.
  void report_loss(double loss);

  // Runs `body` on every member of the world with a communicator for it, again after a regroup: it must have
  // no side effects until it returns ok. Between steps only, after the sum of the last one was applied. If
  // `body` fails the session is unusable. A member that joined after the last step runs it alone.
  [[nodiscard]] core::Status collective(const std::function<core::Status(collective::Communicator&)>& body);
  // The old name of collective(), for one release.
  [[nodiscard]] core::Status region(const std::function<core::Status(collective::Communicator&)>& body) {
    return collective(body);
  }
  // The caller leaves the loop before next_step() has returned nothing, and has applied the last sum: what it
  // does to its state from now on is its own, as after the last epoch. Without it finish() compares the
  // states as it finds them. Copies the state if a checkpoint of it is due. next_step() may still follow.
  [[nodiscard]] core::Status leave_loop();
  // Agrees that training is over: exit status 0 is success after it, a failure before. kLeft for a member
  // that joined after the last step: end the process with exit status 0.
  [[nodiscard]] core::Status finish();

  [[nodiscard]] WorldInfo world() const;
  [[nodiscard]] core::Step last_step() const;  // last applied or, in a step, the one before it
  [[nodiscard]] std::uint64_t job_seed() const;

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Instruction set, threads per member, version of libc, and a digest of the executable, which is read once
// through; a binding adds its framework's version.
[[nodiscard]] std::string default_fingerprint();

}  // namespace regroup::elastic
