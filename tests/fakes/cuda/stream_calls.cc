// Work: copies, streams, events, modules and launches.
#include <algorithm>
#include <cstring>
#include <memory>

#include "tests/fakes/cuda/exports.h"
#include "tests/fakes/cuda/kernels.h"
#include "tests/fakes/cuda/memory.h"

namespace regroup::fakes::cuda {
namespace {

constexpr int kCapturing = 1, kInvalidated = 2;

struct RecordedEvent {
  Point point;  // no stream: never recorded
  bool captured = false;
  Stamp* stamp = nullptr;
};

// Never freed, so that a stale handle is refused instead of read.
class EventState {
 public:
  EventState(ContextState& of, unsigned event_flags) : context(of), flags(event_flags) {}

  ContextState& context;  // NOLINT(readability-identifier-naming)
  const unsigned flags;
  std::atomic<bool> alive = true;

  [[nodiscard]] bool has_time() const { return (flags & kDisableTiming) == 0; }
  RecordedEvent last() {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  void record(StreamState& stream);

 private:
  Stamp* free_stamp();

  std::mutex mutex_;
  RecordedEvent last_;
  std::vector<std::pair<Point, std::unique_ptr<Stamp>>> stamps_;  // with whose work each is
};

// All events, for LeakSanitizer.
EventState* add_event(ContextState& context, unsigned flags) {
  static std::mutex mutex;
  static auto* all = new std::vector<EventState*>;
  const std::lock_guard lock(mutex);
  return all->emplace_back(new EventState(context, flags));
}

// An earlier record whose work is still to be done has a stamp of its own.
Stamp* EventState::free_stamp() {
  for (auto& [point, stamp] : stamps_)
    if (point.stream->timeline.reached(point.position)) return stamp.get();
  stamps_.emplace_back(Point{}, std::make_unique<Stamp>(0));
  return stamps_.back().second.get();
}

void EventState::record(StreamState& stream) {
  const std::lock_guard lock(mutex_);
  last_ = {{&stream, 0}, stream.capture != 0, nullptr};
  if (last_.captured) return;
  if (has_time()) last_.stamp = free_stamp();
  last_.point.position = stream.context.submit(stream, {.stamp = last_.stamp});
  for (auto& [point, stamp] : stamps_)
    if (stamp.get() == last_.stamp) point = last_.point;
}

// Entered for work on a stream.
struct Submission {
  ContextState* context = nullptr;
  StreamState* stream = nullptr;
  bool captured = false;  // accepted, never done
};

DriverResult begin(Stream handle, Submission& out) {
  Machine* machine = nullptr;
  const DriverResult result = enter(machine, out.context);
  if (result != kSuccess) return result;
  out.stream = stream_of(handle, *out.context);
  if (out.stream == nullptr || &out.stream->context != out.context) return kInvalidHandle;
  if (out.stream->kind == StreamKind::kDefault && out.context->default_stream_is_refused())
    return kCaptureImplicit;
  if (out.stream->capture == kInvalidated) return kCaptureInvalidated;
  out.captured = out.stream->capture == kCapturing;
  return kSuccess;
}

// Submits a launch or a copy.
std::uint32_t submit(const Submission& to, std::function<void()> run, bool allowed = true) {
  Fault fault = Machine::running().next_work();
  if (!allowed) fault.kind = FaultKind::kIllegal;
  return to.context->submit(*to.stream,
                            {.run = std::move(run), .fault = fault, .takes_time = true});
}

DriverResult enter_event(DriverEvent handle, EventState*& event) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  if (result != kSuccess) return result;
  event = reinterpret_cast<EventState*>(handle);
  return event != nullptr && event->alive ? kSuccess : kInvalidHandle;
}

// For a call that asks for, or waits for, the end of a stream's work.
DriverResult enter_stream(Stream handle, StreamState*& stream) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  if (result != kSuccess) return result;
  stream = stream_of(handle, *context);
  if (stream == nullptr) return kInvalidHandle;
  if (stream->kind == StreamKind::kDefault && context->default_stream_is_refused())
    return kCaptureImplicit;
  int capturing = kCapturing;
  if (stream->capture.compare_exchange_strong(capturing, kInvalidated)) return kCaptureUnsupported;
  return capturing == kInvalidated ? kCaptureInvalidated : kSuccess;
}

void* pointer(DevicePointer at) { return reinterpret_cast<void*>(at); }

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
DriverResult cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, std::size_t bytes, Stream handle) {
  Submission submission;
  const DriverResult result = begin(handle, submission);
  if (result != kSuccess || bytes == 0) return result;
  const DeviceIndex device = submission.context->device;
  const Range source = memory().range_of(from, bytes, device);
  const Range target = memory().range_of(reinterpret_cast<DevicePointer>(to), bytes, device);
  if (source.kind != Range::Kind::kDevice || to == nullptr || target.kind == Range::Kind::kDevice ||
      target.kind == Range::Kind::kInvalid)
    return kInvalidValue;
  if (submission.captured) return kSuccess;
  const std::uint32_t position = submit(
      submission, [=] { std::memcpy(to, pointer(from), bytes); }, source.access != 0);
  // To memory that is not pinned the driver copies itself.
  return target.kind == Range::Kind::kPageable ? submission.stream->wait(position) : kSuccess;
}

DriverResult cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, std::size_t bytes,
                                  Stream handle) {
  Submission submission;
  const DriverResult result = begin(handle, submission);
  if (result != kSuccess || bytes == 0) return result;
  const DeviceIndex device = submission.context->device;
  const Range source = memory().range_of(reinterpret_cast<DevicePointer>(from), bytes, device);
  const Range target = memory().range_of(to, bytes, device);
  if (target.kind != Range::Kind::kDevice || from == nullptr ||
      source.kind == Range::Kind::kDevice || source.kind == Range::Kind::kInvalid)
    return kInvalidValue;
  if (submission.captured) return kSuccess;
  const bool allowed = target.access == kReadWrite;
  if (source.kind == Range::Kind::kPageable) {  // staged now; the caller may change it
    const auto* first = static_cast<const char*>(from);
    submit(
        submission,
        [to, staged = std::vector<char>(first, first + bytes)] {
          std::memcpy(pointer(to), staged.data(), staged.size());
        },
        allowed);
  } else {
    submit(
        submission, [=] { std::memcpy(pointer(to), from, bytes); }, allowed);
  }
  return kSuccess;
}

DriverResult cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, std::size_t bytes,
                                  Stream handle) {
  Submission submission;
  const DriverResult result = begin(handle, submission);
  if (result != kSuccess || bytes == 0) return result;
  const DeviceIndex device = submission.context->device;
  const Range source = memory().range_of(from, bytes, device);
  const Range target = memory().range_of(to, bytes, device);
  if (source.kind != Range::Kind::kDevice || target.kind != Range::Kind::kDevice)
    return kInvalidValue;
  if (submission.captured) return kSuccess;
  submit(
      submission, [=] { std::memmove(pointer(to), pointer(from), bytes); },
      source.access != 0 && target.access == kReadWrite);
  return kSuccess;
}

DriverResult cuMemsetD8Async(DevicePointer to, unsigned char byte, std::size_t bytes,
                             Stream handle) {
  Submission submission;
  const DriverResult result = begin(handle, submission);
  if (result != kSuccess || bytes == 0) return result;
  const Range target = memory().range_of(to, bytes, submission.context->device);
  if (target.kind != Range::Kind::kDevice) return kInvalidValue;
  if (submission.captured) return kSuccess;
  submit(
      submission, [=] { std::memset(pointer(to), byte, bytes); }, target.access == kReadWrite);
  return kSuccess;
}

DriverResult cuStreamCreateWithPriority(Stream* out, unsigned flags, int) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  if (result != kSuccess) return result;
  if (out == nullptr || (flags & ~kNonBlockingStream) != 0) return kInvalidValue;
  *out = reinterpret_cast<Stream>(
      context->add_stream(flags == 0 ? StreamKind::kBlocking : StreamKind::kNonBlocking));
  return kSuccess;
}

// Pending work is still done.
DriverResult cuStreamDestroy_v2(Stream handle) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  if (result != kSuccess) return result;
  StreamState* stream = stream_of(handle, *context);
  if (stream == nullptr || stream->kind == StreamKind::kDefault) return kInvalidHandle;
  if (!stream->alive.exchange(false)) return kInvalidHandle;
  stream->close();
  return kSuccess;
}

DriverResult cuStreamQuery(Stream handle) {
  StreamState* stream = nullptr;
  const DriverResult result = enter_stream(handle, stream);
  if (result != kSuccess) return result;
  const bool reached = std::ranges::all_of(stream->context.ends_of(*stream), [](const Point& end) {
    return end.stream->timeline.reached(end.position);
  });
  const DriverResult state = stream->context.result();
  return state == kSuccess && !reached ? kNotReady : state;
}

DriverResult cuStreamSynchronize(Stream handle) {
  StreamState* stream = nullptr;
  const DriverResult result = enter_stream(handle, stream);
  if (result != kSuccess) return result;
  for (const Point& end : stream->context.ends_of(*stream)) (void)end.stream->wait(end.position);
  return stream->context.result();
}

DriverResult cuStreamWaitEvent(Stream handle, DriverEvent event_handle, unsigned flags) {
  Submission submission;
  EventState* event = nullptr;
  DriverResult result = begin(handle, submission);
  if (result == kSuccess) result = enter_event(event_handle, event);
  if (result != kSuccess) return result;
  if (flags > 1) return kInvalidValue;
  const RecordedEvent last = event->last();
  if (submission.captured || last.captured || last.point.stream == nullptr) return kSuccess;
  submission.context->submit(*submission.stream, {}, {last.point});
  return kSuccess;
}

DriverResult cuStreamIsCapturing(Stream handle, int* status) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  if (result != kSuccess) return result;
  if (status == nullptr) return kInvalidValue;
  const StreamState* stream = stream_of(handle, *context);
  if (stream == nullptr) return kInvalidHandle;
  if (stream->kind == StreamKind::kDefault && context->default_stream_is_refused())
    return kCaptureImplicit;
  *status = stream->capture;
  return kSuccess;
}

DriverResult cuEventCreate(DriverEvent* out, unsigned flags) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  if (result != kSuccess) return result;
  constexpr unsigned kKnown = kBlockingSync | kDisableTiming;
  if (out == nullptr || (flags & ~kKnown) != 0) return kInvalidValue;
  *out = reinterpret_cast<DriverEvent>(add_event(*context, flags));
  return kSuccess;
}

DriverResult cuEventDestroy_v2(DriverEvent handle) {
  EventState* event = nullptr;
  const DriverResult result = enter_event(handle, event);
  if (result != kSuccess) return result;
  return event->alive.exchange(false) ? kSuccess : kInvalidHandle;
}

DriverResult cuEventRecord(DriverEvent event_handle, Stream handle) {
  Submission submission;
  EventState* event = nullptr;
  DriverResult result = begin(handle, submission);
  if (result == kSuccess) result = enter_event(event_handle, event);
  if (result != kSuccess) return result;
  if (&event->context != submission.context) return kInvalidHandle;
  event->record(*submission.stream);
  return kSuccess;
}

DriverResult cuEventQuery(DriverEvent handle) {
  EventState* event = nullptr;
  const DriverResult result = enter_event(handle, event);
  if (result != kSuccess) return result;
  const RecordedEvent last = event->last();
  if (last.captured) return kCapturedEvent;
  const bool reached =
      last.point.stream == nullptr || last.point.stream->timeline.reached(last.point.position);
  const DriverResult state = event->context.result();
  return state == kSuccess && !reached ? kNotReady : state;
}

DriverResult cuEventSynchronize(DriverEvent handle) {
  EventState* event = nullptr;
  const DriverResult result = enter_event(handle, event);
  if (result != kSuccess) return result;
  const RecordedEvent last = event->last();
  if (last.captured) return kCapturedEvent;
  if (last.point.stream == nullptr) return event->context.result();
  return last.point.stream->wait(last.point.position);
}

DriverResult cuEventElapsedTime(float* milliseconds, DriverEvent first, DriverEvent second) {
  EventState* events[2] = {};
  DriverResult result = enter_event(first, events[0]);
  if (result == kSuccess) result = enter_event(second, events[1]);
  if (result != kSuccess) return result;
  if (milliseconds == nullptr) return kInvalidValue;
  std::int64_t times[2] = {};
  for (int i = 0; i < 2; ++i) {
    const RecordedEvent last = events[i]->last();
    if (last.stamp == nullptr) return kInvalidHandle;  // without times, never recorded or captured
    if (!last.point.stream->timeline.reached(last.point.position)) return kNotReady;
    times[i] = *last.stamp;
  }
  *milliseconds = float(double(times[1] - times[0]) / 1e6);
  return kSuccess;
}

DriverResult cuModuleLoadData(Module* out, const void* image) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  if (result != kSuccess) return result;
  if (out == nullptr || image == nullptr) return kInvalidValue;
  *out = reinterpret_cast<Module>(add_module(*context));
  return kSuccess;
}

DriverResult cuModuleGetFunction(Function* out, Module module, const char* name) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  if (result != kSuccess) return result;
  if (out == nullptr || name == nullptr) return kInvalidValue;
  if (module == nullptr) return kInvalidHandle;
  const FunctionState* function = find_function(*reinterpret_cast<ModuleState*>(module), name);
  if (function == nullptr) return kNotFound;
  *out = reinterpret_cast<Function>(const_cast<FunctionState*>(function));
  return kSuccess;
}

DriverResult cuLaunchKernel(Function handle, unsigned blocks_x, unsigned blocks_y,
                            unsigned blocks_z, unsigned threads_x, unsigned threads_y,
                            unsigned threads_z, unsigned shared_bytes, Stream stream,
                            void** parameters, void** extra) {
  Submission submission;
  const DriverResult result = begin(stream, submission);
  if (result != kSuccess) return result;
  const auto* function = reinterpret_cast<const FunctionState*>(handle);
  if (function == nullptr || function->context != submission.context) return kInvalidHandle;
  if (extra != nullptr) return kNotSupported;
  const Grid grid{{blocks_x, blocks_y, blocks_z}, {threads_x, threads_y, threads_z}};
  const Kernel& kernel = *function->kernel;
  if (!fits(kernel, grid, shared_bytes) || (parameters == nullptr && kernel.parameter_count != 0))
    return kInvalidValue;
  if (submission.captured) return kSuccess;
  submit(submission, [launch = Launch(kernel, grid, parameters)] { launch.run(); });
  return kSuccess;
}

// Of fake.h: kSetCapture.
REGROUP_FAKE_EXPORT void regroup_fake_cuda_set_capture(Stream stream, int status) {
  reinterpret_cast<StreamState*>(stream)->capture = status;
}

// NOLINTEND(readability-identifier-naming)

}  // namespace regroup::fakes::cuda
