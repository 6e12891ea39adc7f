// Order of a sum: all have gathered the sum before -> slice overwritten -> event -> slice word ->
// all slice words there -> copies -> event -> gathered word. A rank that returns has seen all
// slices, so nobody reads its partials any more; others may still read its slice, hence the first
// wait.
#include "collective/cuda/device_reducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "base/cpu.h"
#include "collective/reduce/tree_fold.h"
#include "collective/spin_limit.h"

namespace regroup::collective::cuda {
namespace {

using base::Status;

constexpr int kPositionBits = 40;
constexpr std::chrono::milliseconds kLookAtHosts(50);
constexpr std::size_t kAlignment = 16;  // of a thread's loads

bool is_aligned(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % kAlignment == 0; }
DevicePointer pointer_of(const void* at) { return reinterpret_cast<DevicePointer>(at); }

}  // namespace

DeviceReducer::DeviceReducer(const Driver& driver, const DeviceKernels& kernels, Watcher& watcher,
                             DeviceScratch& scratch, DeviceReducerSpec spec)
    : driver_(driver),
      kernels_(kernels),
      watcher_(watcher),
      scratch_(scratch),
      spec_(std::move(spec)),
      all_ranks_(spec_.ranks.size()) {
  std::iota(all_ranks_.begin(), all_ranks_.end(), 0);
  for (const int rank : all_ranks_) {
    const bool first = std::ranges::none_of(adders_, [&](int adder) {
      return spec_.ranks[std::size_t(adder)].gpu == spec_.ranks[std::size_t(rank)].gpu;
    });
    const bool enough = spec_.hosts != nullptr && int(adders_.size()) == spec_.hosts->slices();
    if (!first || enough) continue;
    if (rank == spec_.rank) slice_ = int(adders_.size());
    adders_.push_back(rank);
  }
  const std::uint64_t seen = own_words().gathered.load(std::memory_order_relaxed);
  if (seen >> kPositionBits == spec_.generation) last_ = seen;
}

DeviceReducer::~DeviceReducer() {
  if (!answers_) return;  // these calls would wait for the device
  for (const DriverEvent event : {event_, drained_})
    if (event != nullptr) static_cast<void>(driver_.event_destroy(event));
}

Status DeviceReducer::status(DriverResult result, const char* call) const {
  if (result == DriverResult::kSuccess) return {};
  return driver_.status(result, fmt::format("sum of gradients: {}", call));
}

Status DeviceReducer::write_result_after(Stream stream) {
  if (event_ == nullptr)
    REGROUP_RETURN_IF_ERROR(status(driver_.event_create(&event_, kDisableTiming), "cuEventCreate"));
  REGROUP_RETURN_IF_ERROR(status(driver_.event_record(event_, stream), "cuEventRecord"));
  result_is_read_ = true;
  return {};
}

Status DeviceReducer::reduce(std::span<const Partial> partials, std::uint32_t leaf_count,
                             Output result, Dtype dtype, base::TimePoint deadline,
                             const SumBlocks& /*blocks*/) {
  if (!failed_.ok()) return failed_;
  const std::uint64_t first = std::uint64_t{spec_.generation} << kPositionBits;
  const Sum sum{(last_ == 0 ? first : last_) + 1, partials, leaf_count, result, dtype, deadline};
  REGROUP_RETURN_IF_ERROR(check_partials(partials, result, dtype));
  REGROUP_RETURN_IF_ERROR(check_memory(sum));
  if (spec_.hosts == nullptr) REGROUP_RETURN_IF_ERROR(plan(partials, leaf_count));
  if (drained_ == nullptr)  // before there is work to drain
    REGROUP_RETURN_IF_ERROR(
        status(driver_.event_create(&drained_, kDisableTiming), "cuEventCreate"));
  failed_ = run(sum);
  if (failed_.ok())
    last_ = sum.number;
  else
    end_work();
  return failed_;
}

// Work that waits for other hosts would go on for ever.
void DeviceReducer::end_work() {
  const Status stopped = spec_.hosts == nullptr ? Status() : spec_.hosts->stop();
  std::string why = stopped.message();
  if (stopped.ok() && drain()) return;
  if (stopped.ok())
    why = fmt::format("its work on the GPU was not done {} s later", kDrainLimit.count());
  answers_ = false;
  failed_ = Status(failed_.code(), fmt::format("{}; {}", failed_.message(), why));
}

Status DeviceReducer::check_memory(const Sum& sum) const {
  if (sum.dtype != Dtype::kFloat32 && sum.dtype != Dtype::kFloat64 &&
      sum.dtype != Dtype::kFloat16 && sum.dtype != Dtype::kBfloat16)
    return base::invalid_argument(
        fmt::format("sum of gradients: expected floats, got {}", name_of(sum.dtype)));
  const auto odd = std::ranges::find_if_not(
      sum.partials, [](const Partial& partial) { return is_aligned(partial.data.data()); });
  if (odd != sum.partials.end() || !is_aligned(sum.result.data()))
    return base::invalid_argument(fmt::format(
        "sum of gradients: expected memory at multiples of {} bytes, got {}", kAlignment,
        fmt::ptr(odd != sum.partials.end() ? odd->data.data() : sum.result.data())));
  if (all_ranks_.size() == 1 && spec_.hosts == nullptr) return {};
  for (std::size_t i = 0; i < adders_.size(); ++i) {
    const auto range = reduce::slice_of(sum.result.size(), int(i), int(adders_.size()));
    const std::uint64_t room = spec_.ranks[std::size_t(adders_[i])].slice_area_bytes;
    if (range.size() > room)
      return base::invalid_argument(
          fmt::format("sum of gradients: a slice has {} bytes, the slice area of rank {} {}",
                      range.size(), adders_[i], room));
  }
  return {};
}

// Most steps have the nodes of the step before.
Status DeviceReducer::plan(std::span<const Partial> partials, std::uint32_t leaf_count) {
  const auto leaves = [](const Partial& partial) { return partial.leaves; };
  if (planned_leaves_ == leaf_count && std::ranges::equal(partials, planned_, {}, leaves))
    return {};
  planned_leaves_ = 0;
  planned_.clear();
  std::ranges::transform(partials, std::back_inserter(planned_), leaves);
  REGROUP_ASSIGN_OR_RETURN(plan_, TreePlan::compile(planned_, leaf_count));
  planned_leaves_ = leaf_count;
  return {};
}

Status DeviceReducer::run(const Sum& sum) {
  if (all_ranks_.size() == 1 && spec_.hosts == nullptr) {
    const DevicePointer result = pointer_of(sum.result.data());
    if (std::exchange(result_is_read_, false))
      REGROUP_RETURN_IF_ERROR(
          status(driver_.stream_wait_event(spec_.stream, event_, 0), "cuStreamWaitEvent"));
    REGROUP_RETURN_IF_ERROR(launch(sum, 0, result, sum.result.size()));
  } else {
    REGROUP_RETURN_IF_ERROR(sum_slice(sum));
    REGROUP_RETURN_IF_ERROR(wait_for(adders_, &ReduceWords::slice, sum.number,
                                     "has not summed its slice", sum.deadline));
    REGROUP_RETURN_IF_ERROR(gather(sum));
  }
  REGROUP_RETURN_IF_ERROR(watcher_.store_when_done(
      {&own_words().gathered, sum.number, "copy of the sum of gradients", sum.deadline},
      spec_.stream));
  REGROUP_RETURN_IF_ERROR(wait_for(std::span(&spec_.rank, 1), &ReduceWords::gathered, sum.number,
                                   "has not copied the sum", sum.deadline));
  // Once the generation is over, others may have overwritten their slices before they were copied.
  return spec_.ranks.size() == 1 && spec_.hosts == nullptr ? Status() : spec_.check();
}

Status DeviceReducer::sum_slice(const Sum& sum) {
  if (!slice_) return {};
  if (last_ != 0)
    REGROUP_RETURN_IF_ERROR(wait_for(all_ranks_, &ReduceWords::gathered, last_,
                                     "has not copied the sum before", sum.deadline));
  const auto range = reduce::slice_of(sum.result.size(), *slice_, int(adders_.size()));
  const DevicePointer to = spec_.ranks[std::size_t(spec_.rank)].slice_area;
  return watcher_.overwrite({&own_words().slice, sum.number, "sum of gradients", sum.deadline},
                            spec_.stream,
                            [&] { return sum_range(sum, range.begin, to, range.size()); });
}

Status DeviceReducer::sum_range(const Sum& sum, std::size_t begin, DevicePointer to,
                                std::size_t bytes) {
  if (spec_.hosts == nullptr) return launch(sum, begin, to, bytes);
  return spec_.hosts->sum({sum.partials, sum.leaves, begin, bytes, to, sum.dtype, spec_.stream,
                           sum.deadline, spec_.check});
}

// Sums bytes begin .. begin + bytes of the partials.
Status DeviceReducer::launch(const Sum& sum, std::size_t begin, DevicePointer to,
                             std::size_t bytes) {
  const std::size_t count = bytes / size_of(sum.dtype);
  const std::size_t each =
      (count * TreePlan::partial_size(sum.dtype) + kAlignment - 1) / kAlignment * kAlignment;
  REGROUP_ASSIGN_OR_RETURN(const DevicePointer scratch,
                           scratch_.reserve(each * plan_.partial_count()));
  std::vector<const void*> inputs;
  for (const Partial& partial : sum.partials) inputs.push_back(partial.data.data() + begin);
  std::vector<void*> partials;
  for (std::size_t i = 0; i < plan_.partial_count(); ++i)
    partials.push_back(reinterpret_cast<void*>(scratch + i * each));
  return kernels_.sum(plan_, {inputs, partials, reinterpret_cast<void*>(to), count}, sum.dtype,
                      Op::kSum, spec_.stream);
}

Status DeviceReducer::gather(const Sum& sum) {
  if (std::exchange(result_is_read_, false))
    REGROUP_RETURN_IF_ERROR(
        status(driver_.stream_wait_event(spec_.stream, event_, 0), "cuStreamWaitEvent"));
  for (std::size_t i = 0; i < adders_.size(); ++i) {
    const auto range = reduce::slice_of(sum.result.size(), int(i), int(adders_.size()));
    if (range.size() == 0) continue;
    const DevicePointer from = spec_.ranks[std::size_t(adders_[i])].slice_area;
    REGROUP_RETURN_IF_ERROR(
        status(driver_.copy_on_device(pointer_of(sum.result.data() + range.begin), from,
                                      range.size(), spec_.stream),
               "cuMemcpyDtoDAsync"));
  }
  return {};
}

// Waits until the words of all `ranks` have the number.
Status DeviceReducer::wait_for(std::span<const int> ranks,
                               std::atomic<std::uint64_t> ReduceWords::*word, std::uint64_t number,
                               const char* what, base::TimePoint deadline) {
  const base::SystemClock clock;
  const auto missing = [&] {
    return std::ranges::find_if(ranks, [&](int rank) {
      const ReduceWords& words = *spec_.ranks[std::size_t(rank)].words;
      return (words.*word).load(std::memory_order_acquire) != number;
    });
  };
  Status stop;
  const auto is_over = [&] {
    if (missing() == ranks.end()) return true;
    stop = spec_.check();
    if (stop.ok()) stop = watcher_.status();
    if (stop.ok() && spec_.hosts != nullptr) stop = spec_.hosts->status();
    return !stop.ok();
  };
  SpinLimit limit;
  while (limit.allows(std::uint64_t(missing() - ranks.begin()), clock.now())) {
    if (is_over()) return stop;
    base::cpu_relax();
  }
  // Failures of other hosts ring no bell.
  while (spec_.hosts != nullptr && clock.now() + kLookAtHosts < deadline)
    if (shmem::wait_until(*spec_.bell, is_over, clock.now() + kLookAtHosts)) return stop;
  if (shmem::wait_until(*spec_.bell, is_over, deadline)) return stop;
  const auto late = missing();
  if (late == ranks.end()) return {};
  return base::deadline_exceeded(fmt::format("sum of gradients: rank {} of {} {} in generation {}",
                                             *late, spec_.ranks.size(), what, spec_.generation));
}

// True once the stream's work is done, or can never be since the device has failed.
bool DeviceReducer::drain() {
  if (driver_.event_record(drained_, spec_.stream) != DriverResult::kSuccess) return true;
  const base::SystemClock clock;
  const base::TimePoint limit = clock.now() + kDrainLimit;
  while (driver_.event_query(drained_) == DriverResult::kNotReady) {
    if (clock.now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

}  // namespace regroup::collective::cuda
