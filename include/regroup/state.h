// State: everything that applying a step changes. A joining member must copy it to take part.
// A program whose state is a fixed list of buffers tracks them; others implement State.
//
//   regroup::TrackedState state;
//   state.track("weights", std::span(weights));  // a std::vector<float>: "float32"
//   state.track("momentum", std::span(momentum));
//   options.state = &state;                      // regroup::SessionOptions
//   options.model = state.describe();
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "regroup/status.h"

namespace regroup::elastic {

// The description of one piece of a state, for checkpoints.
struct TensorInfo {
  std::string name;   // empty: padding, which is zeros
  std::string dtype;  // "float32", "bfloat16" ...: a name of the format of checkpoints
  std::vector<std::uint64_t> shape;
};

// A part of the state that must be equal on all members: a tensor, or a plain value as text. The
// message about a difference names the part; for a plain value it also shows `bytes`.
struct StatePart {
  std::string name;
  std::span<const std::byte> bytes;
  bool is_value = false;
};

// Implemented by the caller. The session calls it on the training thread only, from inside its own
// calls. All members have the same layout: the same names, types and sizes in the same order. An
// error that a function returns ends the call of the session that needed it, with that error.
class State {
 public:
  virtual ~State() = default;
  // The most bytes that save() will ever return; equal on all members. Session::join() reserves
  // them in shared memory, so they must not grow afterwards.
  [[nodiscard]] virtual std::uint64_t capacity() const = 0;
  // Returns the state as pieces of memory, valid until the next call into State; load() takes their
  // concatenation. The pieces are equal, byte for byte, on all members that have applied the same
  // steps.
  [[nodiscard]] virtual base::Result<std::vector<std::span<const std::byte>>> save() = 0;
  // Replaces the state by that of another member. `bytes` is read-only.
  [[nodiscard]] virtual base::Status load(std::span<const std::byte> bytes) = 0;
  // For a state that is plain memory: returns the memory of the pieces of save(), `bytes` bytes in
  // all. The session then copies the state into it as the state arrives, before all of it is
  // verified, and does not call load(). After an error the memory holds a mixture of old and new
  // state (also after kRevoked; the copy then begins again). nullopt: the session verifies the
  // whole state, then calls load().
  [[nodiscard]] virtual std::optional<std::vector<std::span<std::byte>>> memory_of(
      std::uint64_t /*bytes*/) {
    return std::nullopt;
  }
  // Describes the pieces of the last save(), in their order. A piece without a description has type
  // "uint8" and is named by its number.
  [[nodiscard]] virtual std::vector<TensorInfo> tensors() { return {}; }
  // Calls take(part) for each part of the state that members compare with each other, in the same
  // order on all members. The default passes the pieces of save()
  // except padding. A part need be valid only during the call of take().
  [[nodiscard]] virtual base::Status replicated(const std::function<void(const StatePart&)>& take);
};

class DeviceTensor;  // of TrackedState

// A state that is a fixed list of buffers of the caller, which must outlive it.
class TrackedState final : public State {
 public:
  // Adds a named tensor, in one dimension. All members track the same names and sizes in the same
  // order, before Session::join(). `dtype` is as in TensorInfo; the
  // second form takes it from T.
  void track(std::string name, std::span<std::byte> bytes, std::string dtype = "uint8");
  template <class T>
  void track(std::string name, std::span<T> values) {
    track(std::move(name), std::as_writable_bytes(values), dtype_of<T>());
  }
  // Adds a named tensor of `bytes` bytes in memory of the CUDA device whose context is current in
  // the calling thread; if none is, the primary context of device 0 becomes so. save() copies it to
  // the host, and load() to the device, on `stream`, a CUstream of that context (null: its default
  // stream), whatever stream the caller uses elsewhere: write the tensor on this one, too. A
  // checkpoint of it can be loaded into memory of the host, and the other way round. kUnavailable:
  // there is no driver. kInvalidArgument: `address` is not memory of a device. kResourceExhausted:
  // no memory for the copy on the host.
  [[nodiscard]] base::Status track_device(std::string name, void* address, std::size_t bytes,
                                          std::string dtype, void* stream = nullptr);
  // The sum of the tracked lengths in bytes.
  [[nodiscard]] std::uint64_t capacity() const override;
  // The tracked buffers themselves, in the order of track(), and copies of those on a device. Fails
  // only for a device: kInternal with its error, or kDeadlineExceeded after 600 s.
  [[nodiscard]] base::Result<std::vector<std::span<const std::byte>>> save() override;
  // Copies `bytes` into the buffers. kInvalidArgument: not capacity() bytes. Errors of a device as
  // of save().
  [[nodiscard]] base::Status load(std::span<const std::byte> bytes) override;
  // The buffers, to be written. Nothing if one is on a device, or if `bytes` is not the tracked
  // length: load() then returns the error.
  [[nodiscard]] std::optional<std::vector<std::span<std::byte>>> memory_of(
      std::uint64_t bytes) override;
  // Name, type and number of elements of each tensor, in the order of track().
  [[nodiscard]] std::vector<TensorInfo> tensors() override;
  // Names and lengths in bytes, for Options::model: "weight:65536;bias:40".
  [[nodiscard]] std::string describe() const;

 private:
  struct Tensor {
    std::string name;
    std::span<std::byte> bytes;  // of the copy on the host if it is on a device
    std::string dtype;
    std::shared_ptr<DeviceTensor> device = {};
  };
  template <class T>
  static std::string dtype_of() {
    if constexpr (std::is_floating_point_v<T>) return "float" + std::to_string(8 * sizeof(T));
    if constexpr (std::is_same_v<T, bool>) return "bool";
    if constexpr (std::is_integral_v<T>)
      return (std::is_signed_v<T> ? "int" : "uint") + std::to_string(8 * sizeof(T));
    return "uint8";
  }
  std::vector<Tensor> tensors_;
};

// Part of a tensor, its bytes from `begin` on, and memory into which an optimizer writes them for a
// checkpoint, so that they need not be copied. `memory` belongs to the session:
// Session::save_targets() says how long it is valid.
struct SaveTarget {
  std::string name;  // as in State::tensors()
  std::uint64_t begin = 0;
  std::span<std::byte> memory;
};

// What one member has contributed to saves, copies of the state for checkpoints, since it joined.
struct SaveCounts {
  std::uint64_t snapshots = 0;  // number of them; the other counts are bytes
  std::uint64_t copied = 0;     // by the session, after the step
  std::uint64_t fused = 0;      // by the step
};

}  // namespace regroup::elastic

namespace regroup {

using elastic::SaveCounts, elastic::SaveTarget, elastic::State, elastic::StatePart,
    elastic::TensorInfo, elastic::TrackedState;

}  // namespace regroup
