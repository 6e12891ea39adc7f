// Contexts: the primary one of each device, and which one a thread uses.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/stream.h"

namespace regroup::fakes::cuda {

// Never freed, so that a thread whose context has been destroyed is told so.
struct ContextState {
  explicit ContextState(DeviceIndex of) : device(of) {}

  const DeviceIndex device;

  // Its first error, or that of its device. Orders nothing.
  [[nodiscard]] DriverResult result() const;
  [[nodiscard]] bool works() const { return result() == kSuccess; }
  // Keeps the first.
  void fail(DriverResult error);

  StreamState* add_stream(StreamKind kind);
  StreamState& default_stream();
  // Submits under the rule of the default stream: it waits for all blocking streams, they for it.
  std::uint32_t submit(StreamState& stream, Work work, std::vector<Point> after = {});
  // What is to be done before `stream` is at its end: for the default stream, all blocking streams.
  [[nodiscard]] std::vector<Point> ends_of(StreamState& stream);
  // True if a blocking stream captures, so that work of the default stream is refused.
  [[nodiscard]] bool default_stream_is_refused();
  // Waits for all work of all streams.
  DriverResult wait_for_all();
  // Drops what its streams have not begun and waits for what they have, unless that hangs.
  void destroy();

 private:
  std::atomic<int> error_ = 0;
  std::mutex ordering_;                // of submissions to blocking streams
  std::vector<StreamState*> streams_;  // under ordering_
  StreamState* default_ = nullptr;     // under ordering_
};

// The primary context of a device. release: kInvalidContext if it is not retained.
DriverResult retain_primary(DeviceIndex device, ContextState*& out);
DriverResult release_primary(DeviceIndex device);
// Waits for all work of the process.
void wait_for_all_contexts();

// Of the calling thread; may be null.
ContextState*& current_context();

// What a call needs that names a device or memory: the driver, and no error of the thread's
// context.
DriverResult enter(Machine*& machine);
// What a call needs that uses the thread's context.
DriverResult enter(Machine*& machine, ContextState*& context);

// The stream behind a handle: null if it is none. `current` has the default stream.
StreamState* stream_of(Stream handle, ContextState& current);

}  // namespace regroup::fakes::cuda
