// By which stores a member fills its stage. How long plain ones take depends on how far its core is from
// those that read the same lines last (docs/design/stages.md: 64 KiB in 2 us or in 27), of which a virtual
// machine is not told and which changes while it runs. So a member measures both from time to time.
#pragma once

#include <x86intrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "collective/operation.h"
#include "collective/shm/publish.h"

namespace regroup::collective {

// Owned and used by one thread. Members that run the same operations try at the same time.
class Pace {
 public:
  // For the next chunk.
  [[nodiscard]] Stores next() {
    if (left_ == 0) go_on();
    left_ -= 1;
    return streams_ != (state_ == State::kOther) ? Stores::kStream : Stores::kPlain;
  }
  // What was found to be better the last time.
  [[nodiscard]] Stores settled() const { return streams_ ? Stores::kStream : Stores::kPlain; }

  // A chunk of `bytes` > 0, no more than kLag behind the latest, took so long with these stores, on whatever
  // steady clock. `much`: only if plain ones take so many times as long the others are better.
  void took(Stores stores, std::uint64_t ticks, std::size_t bytes, double much) {
    if (state_ == State::kRest) return;
    double& best = best_[stores == Stores::kStream ? 1 : 0];
    best = std::min(best, static_cast<double>(ticks) / static_cast<double>(bytes));
    much_ = much;
  }

  static constexpr unsigned kTrial =
      4;  // chunks each way, of which the fastest counts: others were disturbed
  static constexpr unsigned kLag = 3;
  static constexpr unsigned kLeastRest = 16;  // chunks between trials
  static constexpr unsigned kMostRest = 1024;

 private:
  enum class State : std::uint8_t { kRest, kOther, kOwn };
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
      const bool better = best_[0] > much_ * best_[1];
      rest_ = better == streams_ ? std::min(2 * rest_, kMostRest) : kLeastRest;
      streams_ = better;
      state_ = State::kRest;
      left_ = rest_;
    }
  }

  State state_ = State::kRest;  // or a trial: the other way, then that of before
  bool streams_ = false;
  unsigned left_ = kLeastRest;  // chunks in this state
  unsigned rest_ = kLeastRest;
  double much_ = 1;
  double best_[2] = {kNever, kNever};  // ticks for a byte: plain, past the cache
};

// Of all that a member stages: the pace of each kind of operation, for small chunks and for larger ones, and
// the clock of the chunks on their way.
class Paces {
  static constexpr std::size_t kLeast = 8 << 10;  // bytes: for less the clock would cost too much
  static constexpr std::size_t kMostSmall = 32 << 10;
  static constexpr std::size_t kOnTheirWay = 3;  // Turns

 public:
  // Chunk `time` of `placed` bytes begins. Returns how to store it.
  [[nodiscard]] Stores begin(Kind kind, std::size_t placed, std::uint64_t time) {
    if (placed < kLeast) return Stores::kPlain;
    Chunk& chunk = chunks_[time % kOnTheirWay];
    chunk = {__rdtsc(), of(kind, placed).next()};
    return chunk.stores;
  }
  // It is where it should be; again, or for one that did not begin: nothing. `bytes`, `much`: as of took().
  void end(Kind kind, std::size_t placed, std::uint64_t time, std::size_t bytes, double much) {
    Chunk& chunk = chunks_[time % kOnTheirWay];
    if (chunk.began != 0) of(kind, placed).took(chunk.stores, __rdtsc() - chunk.began, bytes, much);
    chunk.began = 0;
  }
  [[nodiscard]] Stores settled(Kind kind, std::size_t placed) { return of(kind, placed).settled(); }

 private:
  struct Chunk {
    std::uint64_t began = 0;
    Stores stores = Stores::kPlain;
  };

  Pace& of(Kind kind, std::size_t placed) {
    return paces_[static_cast<std::size_t>(kind)][placed <= kMostSmall ? 0 : 1];
  }

  std::array<std::array<Pace, 2>, static_cast<std::size_t>(Kind::kSumPartials) + 1> paces_;
  std::array<Chunk, kOnTheirWay> chunks_;
};

}  // namespace regroup::collective
