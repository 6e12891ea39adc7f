// Session: the interface of a training loop. A process has at most one. A regroup happens inside
// its calls: after a member died, next_shard() may return leaves of the same step again. The loop,
// without the checks of errors:
//
//   auto session = Session::join(options).value();          // blocks until there is a World
//   while (auto step = session->next_step().value()) {      // empty: all epochs are done
//     while (auto shard = session->next_shard().value()) {  // empty: the step is committed
//       // fill shard->gradient with the sum over shard->samples, divided by step->samples
//     }
//     apply(session->commit().value());                     // the sum over all leaves
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
#include <string_view>
#include <vector>

#include "regroup/communicator.h"
#include "regroup/state.h"
#include "regroup/status.h"
#include "regroup/types.h"

namespace regroup::elastic {

// An event of a step on this member, for measurements (Options::observer).
enum class StepEvent : std::uint8_t {
  kRevoked,   // the member noticed that the generation is over; also once in join(), before kJoined
  kJoined,    // the member entered a World
  kSealed,    // a leaf of this member is complete
  kGathered,  // all leaves of the step that members of this host hold are sealed
  kReduced,   // the whole result is readable
  kCommitted,
};
// The name of an event in lower case: "revoked". A static string; any thread.
[[nodiscard]] const char* name_of(StepEvent event);

// Where the gradients and sums of a session are.
enum class Memory : std::uint8_t {
  kHost,
  kDevice,  // memory of a CUDA device
};

// How a process joins. The members of a job must pass equal elements, sizes of dtype, capacities of
// state, models, samples, batches, epochs and fingerprints: join() refuses a member that differs.
struct Options {
  // Length of a gradient, in elements of `dtype`, at least 1. May have room for values that are
  // summed with it, such as the loss.
  std::uint64_t elements = 0;
  collective::Dtype dtype = collective::Dtype::kFloat32;  // kFloat32 or kFloat64
  State* state = nullptr;     // what a step changes; must not be null and must outlive the session
  std::string model;          // names and lengths of the tensors: TrackedState::describe()
  std::string fingerprint;    // numeric environment; empty: default_fingerprint()
  std::uint64_t samples = 0;  // of the data set; 0: no sampler, the caller picks the data itself
  std::uint64_t batch = 0;    // samples per step, at least 1 if `samples` is not 0
  std::uint64_t epochs = 0;   // next_step() returns nullopt after them; 0: no end
  // Steps in a row that take the same batch, with the same seeds, such as one of each network of a
  // GAN; at least 1, and 1 without a sampler.
  std::uint32_t substeps = 1;
  bool shuffle = true;     // false: each epoch takes the samples in their order
  bool drop_last = false;  // an epoch leaves out a last batch that would be short
  // The caller takes other samples than Shard::samples, and tells them with record_samples().
  bool own_order = false;
  // Called by the training thread inside the session's calls, with the open step or the next one.
  // Must return quickly. May be empty.
  std::function<void(StepEvent, proto::Step)> observer;
  std::chrono::seconds deadline{600};  // of a single wait for others or a device: 1 s to a year
  // kDevice: Shard::gradient and the sum of commit() are in memory of the CUDA device `device`,
  // which this process counts from 0. The caller fills gradients by work on `stream`, a CUstream of
  // the device's primary context (null: its default stream), and reads sums by later work on it.
  // The driver is loaded at run time.
  Memory memory = Memory::kHost;
  int device = 0;
  void* stream = nullptr;
  // kDevice: memory of the device for the sum of commit(), `elements` values that outlive the
  // session; null: the session allocates it.
  void* sum = nullptr;
  // The gradients are on `device`, but the caller copies them to Shard::gradient and the sum back.
  // Members that say so, or have kDevice, use the planes of devices; a job has no other ones.
  bool staged_by_caller = false;
};

// The step that next_step() began. Without a sampler (Options::samples is 0) `epoch` is 0 and
// `samples` is Options::batch.
struct StepInfo {
  proto::Step step = 0;     // 1, 2, ...
  std::uint64_t epoch = 0;  // 0, 1, ...
  // Of the whole batch. The last batch of an epoch may be smaller than Options::batch.
  std::uint64_t samples = 0;
  bool first_of_epoch = false;
  std::uint32_t substep = 0;  // 0 .. Options::substeps - 1
};

// One logical shard of the step, that is one of the WorldInfo::shards microbatches of its batch,
// for this member to compute. Their number is fixed for the job, whatever its members. The caller
// fills `gradient` completely before its next call of next_shard(), and does not write it
// afterwards. Equal (job seed, step, leaf) must yield equal bits on every member, so all random
// numbers are drawn from `seed`.
struct Shard {
  std::uint32_t leaf = 0;  // 0 .. WorldInfo::shards - 1
  // Indices into the data set. Empty only without a sampler: the session itself fills the leaves
  // that have no sample.
  std::vector<std::uint64_t> samples;
  // Options::elements values of Options::dtype in shared memory, or with Options::memory kDevice in
  // memory of the device, undefined at first. Valid until the next call of next_shard().
  std::span<std::byte> gradient;
  std::uint64_t seed = 0;
};

// A run of elements of a shard's gradient, in Session::fill_gradient(): `values` times `weight`.
struct GradientPart {
  std::uint64_t begin = 0;       // first element of Shard::gradient
  std::uint64_t count = 0;       // elements
  const void* values = nullptr;  // `count` values of Options::dtype, of any alignment; null: zeros
  double weight = 1;             // rounded to Options::dtype
};

// The World of this process. For a learner that is not yet in a World: the newest World of the
// other members, with `rank` equal to `size`; generation 0 if there is none.
struct WorldInfo {
  proto::Generation generation = 0;
  int rank = 0;              // 0 .. size - 1
  int size = 1;              // members
  std::uint32_t shards = 1;  // V: logical shards of a step, fixed for the life of the job
  std::string why;           // why this World was formed, for a log
};

// This process as a member of the job. The example is at the head of this file.
//
// Thread: the one that called join() makes every call and destroys the session. Calls of another
// thread that return a Status return kInvalidArgument and do nothing; the others are not checked.
//
// Blocking: only join(), next_step(), next_shard(), collective() and finish() wait for other
// members or the agent. They regroup inside, however often that is needed, and a member that lost
// its World waits without a deadline for the next one (the launcher's --min-members-timeout ends
// the job).
//
// Errors, besides those named at the calls: kDeadlineExceeded: other members, or a device, took
// longer than Options::deadline. kPeerLost: the agent of this host, or a World of fixed size, has
// ended. kLeft: this member was excluded; end the process with exit status 0. kInvalidArgument:
// calls in an order that the example does not have. kDataLoss: the members' states differ, or a
// device found damaged memory. kInternal: work on a device failed (Options::memory kDevice), in
// next_shard(), commit() or whatever copies the state.
// After an error other than kInvalidArgument end the process: the session cannot go on, and the job
// replaces the member.
class Session {
 public:
  // Joins through the agent in the environment (`REGROUP_AGENT`), or with the other ranks that a
  // launcher started on this host, or alone. Blocks until this
  // process is in a World and has its state; or, as a learner, has the state of an earlier step:
  // its first steps then only apply the others' results.
  // kInvalidArgument: wrong `options`, or refused, with the agent's reason. kLeft: the job has
  // ended. kDeadlineExceeded: without an agent, no World was formed within Options::deadline.
  [[nodiscard]] static base::Result<std::unique_ptr<Session>> join(const Options& options);
  // The number of shards, WorldInfo::shards, of the job that join() would join. Does not block.
  // kInvalidArgument: an environment variable is malformed. kUnavailable: only the agent knows,
  // which reads it from a checkpoint.
  [[nodiscard]] static base::Result<std::uint32_t> expected_shards();
  // Leaves the job: before finish(), as if this process had died, so that no member waits for it.
  // In a World of fixed size the agent kills the process then, since the others cannot go on.
  ~Session();

  // Begins the next step; the sum of the last one must have been applied. nullopt: all epochs are
  // done. kLeft: this member was asked to leave, and nothing is lost: end the process with exit
  // status 0. kInvalidArgument: the previous step is not committed. Blocks a learner until the
  // result that it applies next arrives, and a member that was asked to leave until it may.
  [[nodiscard]] base::Result<std::optional<StepInfo>> next_step();
  // Seals the shard returned before and returns the next one for this member to compute. nullopt:
  // all members have voted and this one has committed the step: every later World keeps it. Waits
  // for other members; regroups if one is lost.
  [[nodiscard]] base::Result<std::optional<Shard>> next_shard();
  // Fills the gradient of the shard that next_shard() returned last, instead of the caller. Each
  // element is its value times the weight, rounded once; it is 0 where no part is. It costs less
  // than filling Shard::gradient, since it adds this member's sums of the shards before in the same
  // pass. Shard::gradient is undefined afterwards; no values may be in it. Does not block.
  // With Options::memory kDevice the values are in memory of the device, aligned to an element, and
  // read by work on the stream; a part of another weight than the part before begins at a multiple
  // of 16 bytes. May wait there for a leaf before.
  // kInvalidArgument: no shard is to be filled, or it has been; the parts overlap, do not ascend or
  // end after Options::elements, or are aligned otherwise. Nothing has changed then. kUnavailable:
  // this build, or the driver, has no kernels for the device.
  [[nodiscard]] base::Status fill_gradient(std::span<const GradientPart> parts);
  // With Options::memory kDevice: from now on `stream` takes the place of Options::stream. Its work
  // from now on begins after what the session has put on the stream before it. Tensors of the state
  // keep the stream of TrackedState::track_device(): write them on that one. Does not block.
  // kInvalidArgument: gradients are in memory of the host.
  [[nodiscard]] base::Status change_stream(void* stream);
  // Reports which samples the caller takes for the shard that next_shard() returned last, if not
  // Shard::samples: for the ledger (--ledger), which names them. Does nothing without a ledger.
  // kInvalidArgument: no shard is being computed, or fill_gradient() has filled it.
  [[nodiscard]] base::Status record_samples(std::span<const std::uint64_t> samples);
  // Returns the shards of `step` that this member is to compute if its World stays as it is, by
  // leaf and without their gradients, so that the caller can load data in advance. Of the open
  // step: those that are not sealed yet, which include the one that next_shard() returned last. A
  // regroup changes them. Empty without a sampler, for a step that is over, after the last epoch
  // and for a learner. Does not block.
  [[nodiscard]] std::vector<Shard> planned_shards(proto::Step step) const;
  // Returns samples and seed of a shard, whichever member computes it, without its gradient. Does
  // not block. `leaf` < WorldInfo::shards, and a sampler.
  [[nodiscard]] Shard shard_of(proto::Step step, std::uint32_t leaf) const;
  // Hands out the sum of all leaves of the committed step, Options::elements values of
  // Options::dtype, equal bit for bit on all members. Changes nothing: the step was committed when
  // next_shard() returned nullopt, and counts as applied from the next call of next_step(),
  // collective() or finish() on. Read-only, valid until next_step(). Blocks only for the copy to a
  // device, with Options::memory kDevice.
  // kInvalidArgument: next_shard() has not returned nullopt yet.
  [[nodiscard]] base::Result<std::span<const std::byte>> commit();
  // Returns memory for this member's share of a checkpoint if one of the state after this step is
  // due; otherwise empty. To be called after next_shard() returned nullopt and before the sum is
  // applied. Until the next call an optimizer may write its results there (the copies of
  // regroup/optimizer.h). saved(i) then reports that target i holds the tensor's new values. The
  // session copies all other tensors.
  [[nodiscard]] base::Result<std::vector<SaveTarget>> save_targets();
  // Reports that target `target` of the last save_targets() has been written. Ignores an index out
  // of range.
  void saved(std::size_t target);
  // What copies of the state for checkpoints have cost this member since join().
  [[nodiscard]] SaveCounts save_counts() const;
  // Sets the loss that `regroup status` shows for the step just applied.
  void report_loss(double loss);
  // For `regroup --timeline`: a span of the caller begins, within the one that is open; returns
  // what ends it. Spans that are open when their step or shard ends are ended then. Nothing without
  // a timeline.
  [[nodiscard]] int begin_span(std::string_view name);
  // Ends the span that begin_span() returned as `span`, and those that began within it.
  void end_span(int span);

  // A collective section: runs `body` on every member of the World with a communicator, and again
  // after a regroup, so it must have no side effects until it returns OK. Call between steps, after
  // the last sum was applied. The communicator is valid during the call of `body`, which returns
  // the first error of its operations. If it returns an error other than kRevoked, this call
  // returns that error and the session is unusable. A member that joined after the last step runs
  // it alone. kInvalidArgument: a step is open, or more than 255 sections between two steps.
  [[nodiscard]] base::Status collective(
      const std::function<base::Status(collective::Communicator&)>& body);
  // Deprecated name of collective(), kept for one release.
  [[nodiscard]] base::Status region(
      const std::function<base::Status(collective::Communicator&)>& body) {
    return collective(body);
  }
  // Ends the loop early, before next_step() has returned nullopt; the last sum must have been
  // applied. Copies the state for the checkpoint of the last step. Afterwards the caller may change
  // the state, as after the last epoch; without this call finish() would compare the changed state
  // between members. next_step() may still follow.
  [[nodiscard]] base::Status leave_loop();
  // All members agree that training is over: exit status 0 means success only after this call. With
  // --checkpoint the state after the last step is saved, whatever the interval; the job's exit
  // status is 0 only if that checkpoint is on disk. kLeft: this member joined after the last step;
  // end the process with exit status 0.
  [[nodiscard]] base::Status finish();

  // The World of this member as the last call found it. Does not block.
  [[nodiscard]] WorldInfo world() const;
  // The last step whose sum commit() has returned or may return; 0 before the first. While shards
  // of a step are computed: the step before it.
  [[nodiscard]] proto::Step last_step() const;
  // The seed of the job (--seed), equal on all members.
  [[nodiscard]] std::uint64_t job_seed() const;

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Describes what decides the bits of this process's arithmetic, as text: instruction set, threads
// per member, version of libc, and a digest of the executable, which it reads as a whole. A
// language binding adds its framework's version. Any thread.
[[nodiscard]] std::string default_fingerprint();

}  // namespace regroup::elastic

namespace regroup {

using elastic::default_fingerprint, elastic::GradientPart, elastic::Memory, elastic::Session,
    elastic::Shard, elastic::StepEvent, elastic::StepInfo, elastic::WorldInfo;
using SessionOptions = elastic::Options;

}  // namespace regroup
