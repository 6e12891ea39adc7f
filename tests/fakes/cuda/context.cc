// Contexts and the rule of the default stream.
#include "tests/fakes/cuda/context.h"

#include <algorithm>

#include "tests/fakes/cuda/memory.h"

namespace regroup::fakes::cuda {
namespace {

struct Primary {
  ContextState* context = nullptr;
  std::uint32_t retained = 0;
};

struct Primaries {
  std::mutex mutex;
  Primary of[kMostDevices];
  std::vector<ContextState*> destroyed;
};

Primaries& primaries() {
  static auto* all = new Primaries;  // threads of the fake outlive static objects
  return *all;
}

}  // namespace

DriverResult ContextState::result() const {
  const int error = error_.load(std::memory_order_relaxed);
  if (error != 0) return DriverResult(error);
  return Machine::running().lost(device) ? kUnknown : kSuccess;
}

void ContextState::fail(DriverResult error) {
  int none = 0;
  error_.compare_exchange_strong(none, int(error), std::memory_order_relaxed);
}

StreamState* ContextState::add_stream(StreamKind kind) {
  const std::lock_guard lock(ordering_);
  return streams_.emplace_back(new StreamState(*this, kind));
}

StreamState& ContextState::default_stream() {
  const std::lock_guard lock(ordering_);
  if (default_ == nullptr)
    default_ = streams_.emplace_back(new StreamState(*this, StreamKind::kDefault));
  return *default_;
}

std::uint32_t ContextState::submit(StreamState& stream, Work work, std::vector<Point> after) {
  if (stream.kind == StreamKind::kNonBlocking)
    return stream.submit(std::move(work), std::move(after));
  const std::lock_guard lock(ordering_);
  if (stream.kind == StreamKind::kDefault) {
    for (StreamState* other : streams_)
      if (other->kind == StreamKind::kBlocking) after.push_back(other->last());
  } else if (default_ != nullptr) {
    after.push_back(default_->last());
  }
  return stream.submit(std::move(work), std::move(after));
}

std::vector<Point> ContextState::ends_of(StreamState& stream) {
  if (stream.kind != StreamKind::kDefault) return {stream.last()};
  const std::lock_guard lock(ordering_);
  std::vector<Point> ends;
  for (StreamState* other : streams_)
    if (other->kind != StreamKind::kNonBlocking) ends.push_back(other->last());
  return ends;
}

bool ContextState::default_stream_is_refused() {
  const std::lock_guard lock(ordering_);
  return std::ranges::any_of(streams_, [](const StreamState* stream) {
    return stream->kind == StreamKind::kBlocking && stream->capture != 0;
  });
}

DriverResult ContextState::wait_for_all() {
  std::vector<StreamState*> all;
  {
    const std::lock_guard lock(ordering_);
    all = streams_;
  }
  for (StreamState* stream : all) (void)stream->wait(stream->last().position);
  return result();
}

void ContextState::destroy() {
  error_.store(int(kContextIsDestroyed), std::memory_order_relaxed);
  const std::lock_guard lock(ordering_);
  for (StreamState* stream : streams_) {
    if (stream->alive.exchange(false)) stream->close();
    const std::uint32_t end = stream->last().position;
    while (!stream->timeline.reached(end) && !stream->hung) stream->timeline.sleep_before(end);
  }
}

DriverResult retain_primary(DeviceIndex device, ContextState*& out) {
  Primaries& all = primaries();
  const std::lock_guard lock(all.mutex);
  Primary& primary = all.of[device];
  if (primary.retained == 0) primary.context = new ContextState(device);
  if (!primary.context->works()) return primary.context->result();
  ++primary.retained;
  out = primary.context;
  return kSuccess;
}

DriverResult release_primary(DeviceIndex device) {
  Primaries& all = primaries();
  const std::lock_guard lock(all.mutex);
  Primary& primary = all.of[device];
  if (primary.retained == 0) return kInvalidContext;
  if (--primary.retained == 0) {
    primary.context->destroy();
    memory().forget(*primary.context);
    all.destroyed.push_back(primary.context);
  }
  return kSuccess;
}

void wait_for_all_contexts() {
  for (auto& primary : primaries().of) {
    ContextState* context = nullptr;
    {
      const std::lock_guard lock(primaries().mutex);
      if (primary.retained != 0) context = primary.context;
    }
    if (context != nullptr) (void)context->wait_for_all();
  }
}

ContextState*& current_context() {
  thread_local ContextState* context = nullptr;
  return context;
}

DriverResult enter(Machine*& machine) {
  DriverResult why = kSuccess;
  machine = Machine::get(why);
  if (machine == nullptr) return why;
  const ContextState* context = current_context();
  return context == nullptr ? kSuccess : context->result();
}

DriverResult enter(Machine*& machine, ContextState*& context) {
  const DriverResult result = enter(machine);
  if (result != kSuccess) return result;
  context = current_context();
  return context == nullptr ? kInvalidContext : kSuccess;
}

StreamState* stream_of(Stream handle, ContextState& current) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  constexpr std::uintptr_t kLegacy = 1, kPerThread = 2;
  if (value <= kLegacy) return &current.default_stream();
  if (value == kPerThread) return nullptr;  // nobody uses it
  auto* stream = reinterpret_cast<StreamState*>(handle);
  return stream->alive ? stream : nullptr;
}

}  // namespace regroup::fakes::cuda
