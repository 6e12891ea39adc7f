// Chooses the stores by which a member fills its bounce buffer, or its slices of a result that
// others copy. The cost of stores through the cache depends on the distance between the member's
// core and the cores that read the same lines last (docs/design/bounce_buffers.md: 2 or 27 us for
// 64 KiB). A virtual machine does not know that distance, and it changes at run time, so each
// member measures both kinds of stores from time to time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/cpu.h"
#include "collective/reduce/publish.h"
#include "collective/shm/bounce_buffer.h"
#include "collective/shm/factory.h"
#include "regroup/operation.h"

namespace regroup::collective::shm {

// Used by one thread. When a trial begins depends only on the number of chunks, so members that run
// the same operations try at the same time.
class StoreTuner {
 public:
  // The stores to use for the next chunk, measured or not.
  [[nodiscard]] reduce::Stores next() {
    if (left_ == 0) next_state();
    left_ -= 1;
    return streams_ != (state_ == State::kTryOther) ? reduce::Stores::kStream
                                                    : reduce::Stores::kPlain;
  }
  // The better stores, as of the last trial.
  [[nodiscard]] reduce::Stores choice() const {
    return streams_ ? reduce::Stores::kStream : reduce::Stores::kPlain;
  }

  // Records that a chunk of `bytes` > 0, at most kLag chunks ago, took `ticks` of a steady clock
  // with `stores`.
  void record(reduce::Stores stores, std::uint64_t ticks, std::size_t bytes) {
    if (state_ == State::kIdle) return;
    double& best = best_[stores == reduce::Stores::kStream ? 1 : 0];
    best = std::min(best, static_cast<double>(ticks) / static_cast<double>(bytes));
  }

  // Chunks that a trial fills with each kind of stores. The fastest one counts, since interrupts
  // delay others.
  static constexpr unsigned kTrial = 4;
  static constexpr unsigned kLag = kEpochsInFlight;
  static constexpr unsigned kMinIdle = 16;  // chunks between trials; doubles each time
  static constexpr unsigned kMaxIdle = 1024;

 private:
  enum class State : std::uint8_t { kIdle, kTryOther, kTryCurrent };
  // Streaming must be this much faster, since it moves a part of the cost to the readers.
  static constexpr double kMinGain = 2;
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  void next_state() {
    if (state_ == State::kIdle) {
      best_[0] = best_[1] = kNever;
      state_ = State::kTryOther;
      left_ = kTrial;
    } else if (state_ == State::kTryOther) {
      state_ = State::kTryCurrent;
      left_ = kTrial + kLag;
    } else {
      if (best_[0] < kNever && best_[1] < kNever) streams_ = best_[0] > kMinGain * best_[1];
      idle_chunks_ = std::min(2 * idle_chunks_, kMaxIdle);
      state_ = State::kIdle;
      left_ = idle_chunks_;
    }
  }

  State state_ = State::kIdle;  // a trial uses the other stores first, then the current ones
  bool streams_ = false;
  unsigned left_ = kMinIdle;  // chunks left in this state
  unsigned idle_chunks_ = kMinIdle;
  double best_[2] = {kNever, kNever};  // ticks per byte: plain, streaming
};

// What a tuner measures: filling the chunks of one kind of operation; or, for an operation that
// uses no bounce buffer, filling the slices of results that others copy.
class TunerKey {
 public:
  constexpr TunerKey(Kind kind)
      : index_(static_cast<std::size_t>(kind)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] static constexpr TunerKey slices_of_results() { return TunerKey(kKinds); }
  [[nodiscard]] constexpr std::size_t index() const { return index_; }

  static constexpr std::size_t kKinds = static_cast<std::size_t>(Kind::kReceive) + 1;
  static constexpr std::size_t kCount = kKinds + 1;

 private:
  constexpr explicit TunerKey(std::size_t index) : index_(index) {}

  std::size_t index_;
};

// A tuner for each key and each size class of chunks, and the time that this member itself has
// worked (not waited) on the chunks in flight.
class StoreTuners {
  // Smallest chunk that is measured; for less, reading the clock costs too much.
  static constexpr std::size_t kMin = 8 << 10;
  static constexpr std::size_t kSizes = 5;  // size classes, one per power of two

 public:
  explicit StoreTuners(StorePolicy how) : how_(how) {}

  // Begins the chunk of `epoch`, of `placed` bytes. Returns the stores to use.
  [[nodiscard]] reduce::Stores begin(TunerKey key, std::size_t placed, std::uint64_t epoch) {
    const bool is_measured = how_ == StorePolicy::kTuned && placed >= kMin;
    const reduce::Stores stores = is_measured ? of(key, placed).next() : choice(key, placed);
    chunks_[epoch % kEpochsInFlight] = {.stores = stores, .is_measured = is_measured};
    return stores;
  }
  // Begins a chunk in which other members copy data in, but this one does not.
  void skip(TunerKey key, std::size_t placed, std::uint64_t epoch) {
    if (placed >= kMin) static_cast<void>(of(key, placed).next());
    chunks_[epoch % kEpochsInFlight] = {};
  }
  [[nodiscard]] reduce::Stores stores_of(std::uint64_t epoch) const {
    return chunks_[epoch % kEpochsInFlight].stores;
  }
  // Runs `work`, a part of the work on the chunk of `epoch`, and adds its time to that chunk's.
  template <class Work>
  void measure(std::uint64_t epoch, const Work& work) {
    Chunk& chunk = chunks_[epoch % kEpochsInFlight];
    const std::uint64_t began = chunk.is_measured ? base::cpu_ticks() : 0;
    work();
    if (chunk.is_measured) chunk.ticks += base::cpu_ticks() - began;
  }
  // Ends the chunk of `epoch` and records its time for `bytes` bytes; 0: does not record it.
  void end(TunerKey key, std::size_t placed, std::uint64_t epoch, std::size_t bytes) {
    Chunk& chunk = chunks_[epoch % kEpochsInFlight];
    if (chunk.is_measured && bytes > 0) of(key, placed).record(chunk.stores, chunk.ticks, bytes);
    chunk.is_measured = false;
  }
  [[nodiscard]] reduce::Stores choice(TunerKey key, std::size_t placed) const {
    if (how_ != StorePolicy::kTuned)
      return how_ == StorePolicy::kStream ? reduce::Stores::kStream : reduce::Stores::kPlain;
    return placed < kMin ? reduce::Stores::kPlain : tuners_[key.index()][size_of(placed)].choice();
  }

 private:
  struct Chunk {
    std::uint64_t ticks = 0;
    reduce::Stores stores = reduce::Stores::kPlain;
    bool is_measured = false;
  };

  static std::size_t size_of(std::size_t placed) {
    static_assert(kMin << (kSizes - 1) >= kChunk);
    return static_cast<std::size_t>(std::bit_width((placed - 1) / kMin));
  }
  StoreTuner& of(TunerKey key, std::size_t placed) { return tuners_[key.index()][size_of(placed)]; }

  const StorePolicy how_;
  std::array<std::array<StoreTuner, kSizes>, TunerKey::kCount> tuners_;
  std::array<Chunk, kEpochsInFlight> chunks_;
};

}  // namespace regroup::collective::shm
