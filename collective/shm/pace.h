// By which stores a member fills its stage, or its slices of a result that others copy. How long plain ones
// take depends on how far its core is from those that read the same lines last (docs/design/stages.md: 64 KiB
// in 2 us or in 27), of which a virtual machine is not told and which changes while it runs. So a member
// measures both from time to time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "collective/operation.h"
#include "collective/shm/factory.h"
#include "collective/shm/publish.h"
#include "collective/shm/stage.h"
#include "core/cpu.h"

namespace regroup::collective {

// Owned and used by one thread. When it tries depends on the number of chunks only, so members that run the
// same operations try at the same time.
class Pace {
 public:
  // For the next chunk, also one that is not measured.
  [[nodiscard]] Stores next() {
    if (left_ == 0) go_on();
    left_ -= 1;
    return streams_ != (state_ == State::kOther) ? Stores::kStream : Stores::kPlain;
  }
  // What was found to be better the last time.
  [[nodiscard]] Stores settled() const { return streams_ ? Stores::kStream : Stores::kPlain; }

  // A chunk of `bytes` > 0, no more than kLag behind the latest, took so long with these stores, on whatever
  // steady clock.
  void took(Stores stores, std::uint64_t ticks, std::size_t bytes) {
    if (state_ == State::kRest) return;
    double& best = best_[stores == Stores::kStream ? 1 : 0];
    best = std::min(best, static_cast<double>(ticks) / static_cast<double>(bytes));
  }

  static constexpr unsigned kTrial = 4;  // chunks each way; the fastest counts, as others were interrupted
  static constexpr unsigned kLag = kTurns;
  static constexpr unsigned kLeastRest = 16;  // chunks between trials, then more
  static constexpr unsigned kMostRest = 1024;

 private:
  enum class State : std::uint8_t { kRest, kOther, kOwn };
  static constexpr double kMuch = 2;  // who reads pays for a part of what others gain
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  void go_on() {
    if (state_ == State::kRest) {
      best_[0] = best_[1] = kNever;
      state_ = State::kOther;
      left_ = kTrial;
    } else if (state_ == State::kOther) {
      state_ = State::kOwn;
      left_ = kTrial + kLag;
    } else {
      if (best_[0] < kNever && best_[1] < kNever) streams_ = best_[0] > kMuch * best_[1];
      rest_ = std::min(2 * rest_, kMostRest);
      state_ = State::kRest;
      left_ = rest_;
    }
  }

  State state_ = State::kRest;  // or a trial: the other way, then that of before
  bool streams_ = false;
  unsigned left_ = kLeastRest;  // chunks in this state
  unsigned rest_ = kLeastRest;
  double best_[2] = {kNever, kNever};  // ticks for a byte: plain, past the cache
};

// Of all that a member stages: the pace of each kind of operation and size of chunk, and what this member has
// spent on the chunks on their way: its own part of the work, not that of waiting for others.
class Paces {
  static constexpr std::size_t kLeast = 8 << 10;  // bytes that are placed: for less the clock costs too much
  static constexpr std::size_t kSizes = 5;        // to the next powers of two

 public:
  explicit Paces(Staging how) : how_(how) {}

  // Chunk `time` of `placed` bytes begins. Returns how to store it.
  [[nodiscard]] Stores begin(Kind kind, std::size_t placed, std::uint64_t time) {
    const bool counts = how_ == Staging::kMeasured && placed >= kLeast;
    const Stores stores = counts ? of(kind, placed).next() : settled(kind, placed);
    chunks_[time % kTurns] = {.stores = stores, .counts = counts};
    return stores;
  }
  // One of which this member stages nothing, as others do.
  void pass(Kind kind, std::size_t placed, std::uint64_t time) {
    if (placed >= kLeast) static_cast<void>(of(kind, placed).next());
    chunks_[time % kTurns] = {};
  }
  [[nodiscard]] Stores stores_of(std::uint64_t time) const { return chunks_[time % kTurns].stores; }
  // Does something that is a part of the work on it.
  template <class Work>
  void spend(std::uint64_t time, const Work& work) {
    Chunk& chunk = chunks_[time % kTurns];
    const std::uint64_t began = chunk.counts ? core::cpu_ticks() : 0;
    work();
    if (chunk.counts) chunk.ticks += core::cpu_ticks() - began;
  }
  // That was all of it, of `bytes`; 0: not worth measuring.
  void end(Kind kind, std::size_t placed, std::uint64_t time, std::size_t bytes) {
    Chunk& chunk = chunks_[time % kTurns];
    if (chunk.counts && bytes > 0) of(kind, placed).took(chunk.stores, chunk.ticks, bytes);
    chunk.counts = false;
  }
  [[nodiscard]] Stores settled(Kind kind, std::size_t placed) const {
    if (how_ != Staging::kMeasured) return how_ == Staging::kPast ? Stores::kStream : Stores::kPlain;
    return placed < kLeast ? Stores::kPlain
                           : paces_[static_cast<std::size_t>(kind)][size_of(placed)].settled();
  }

 private:
  struct Chunk {
    std::uint64_t ticks = 0;
    Stores stores = Stores::kPlain;
    bool counts = false;
  };

  static std::size_t size_of(std::size_t placed) {
    static_assert(kLeast << (kSizes - 1) >= kChunk);
    return static_cast<std::size_t>(std::bit_width((placed - 1) / kLeast));
  }
  Pace& of(Kind kind, std::size_t placed) { return paces_[static_cast<std::size_t>(kind)][size_of(placed)]; }

  const Staging how_;
  std::array<std::array<Pace, kSizes>, static_cast<std::size_t>(Kind::kSumPartials) + 1> paces_;
  std::array<Chunk, kTurns> chunks_;
};

}  // namespace regroup::collective
