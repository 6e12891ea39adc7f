// One step of one fiber.
#include "tests/model/execution.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "shmem/state_word.h"

namespace regroup::model {
namespace {

// Atomics of shipped code have no parameter for "the execution I belong to".
thread_local Execution* g_current = nullptr;

}  // namespace

struct Execution::Plainly {
  Plainly() : saved(std::exchange(g_current, nullptr)) {}
  ~Plainly() { g_current = saved; }
  Execution* saved;
};

Execution::Execution(std::span<std::byte> memory, std::vector<Fiber>& fibers, std::size_t self,
                     bool tso, bool tell)
    : memory_(memory), fibers_(fibers), self_(self), tso_(tso), tell_(tell) {
  g_current = this;
}

Execution::~Execution() { g_current = nullptr; }

Execution* Execution::current() { return g_current; }

std::uint64_t Execution::access(Access kind, const void* cell, std::uint32_t size,
                                std::uint64_t value, std::uint64_t expected,
                                std::memory_order order) {
  constexpr unsigned kTurn = 2;  // the wait, and the store that says "awake"
  if (is_wait_loop_ && since_wait_ == kTurn) {
    me().results.clear();
    throw Yield{};
  }
  if (since_wait_ > 0 || kind == Access::kWait) ++since_wait_;
  if (next_ < me().results.size()) return me().results[next_++];
  if (std::exchange(moved_, true)) throw Yield{};
  const auto offset =
      static_cast<std::uint32_t>(static_cast<const std::byte*>(cell) - memory_.data());
  const std::uint64_t result = perform(kind, offset, size, value, expected, order);
  me().results.push_back(result);
  ++next_;
  return result;
}

std::uint64_t Execution::perform(Access kind, std::uint32_t offset, std::uint32_t size,
                                 std::uint64_t value, std::uint64_t expected,
                                 std::memory_order order) {
  const bool buffered = tso_ && kind == Access::kStore && order != std::memory_order_seq_cst;
  if (kind != Access::kLoad && !buffered) drain();
  const std::uint64_t before = read(offset, size);
  constexpr const char* kNames[] = {"load", "store", "compare-and-swap", "add", "wait", "wake"};
  if (tell_) label = fmt::format("{} +{}", kNames[static_cast<int>(kind)], offset);
  const auto say = [&](const std::string& text) { label += tell_ ? ": " + text : ""; };
  switch (kind) {
    case Access::kLoad:
      say(show(size, before));
      break;
    case Access::kStore:
      say(show(size, value) + (buffered ? ", not visible yet" : ""));
      buffered ? me().stores.push_back({offset, size, value}) : write({offset, size, value});
      break;
    case Access::kSwap:
      say(before == expected ? show(size, value) : "fails, there is " + show(size, before));
      if (before == expected) write({offset, size, value});
      break;
    case Access::kAdd:
      say(show(size, before + value));
      write({offset, size, before + value});
      break;
    case Access::kWait:
      say(before == expected ? "sleeps" : "does not sleep");
      if (before != expected) break;
      me().asleep_on = offset;
      throw Yield{};
    case Access::kWake:
      for (Fiber& fiber : fibers_) {
        if (fiber.asleep_on != offset) continue;
        fiber.asleep_on = kAwake;
        fiber.results.push_back(0);  // its wait returns
      }
      break;
  }
  return before;
}

void Execution::await(const std::function<bool()>& fact) {
  if (next_ < me().results.size()) return void(++next_);
  if (moved_) throw Yield{};
  {
    const Plainly plainly;
    if (!fact()) throw Blocked{};
  }
  moved_ = true;
  if (tell_) label = "sees the event it waits for";
  me().results.push_back(0);
  ++next_;
}

void Execution::note(const std::function<void()>& ghost) {
  if (next_ < me().results.size()) return void(++next_);
  const Plainly plainly;
  ghost();
  me().results.push_back(0);
  ++next_;
}

// Reads as the fiber itself does: its own newest store, otherwise memory.
std::uint64_t Execution::read(std::uint32_t offset, std::uint32_t size) const {
  for (auto it = me().stores.rbegin(); it != me().stores.rend(); ++it) {
    if (it->offset == offset) return it->value;
  }
  std::uint64_t value = 0;
  std::memcpy(&value, memory_.data() + offset, size);
  return value;
}

void Execution::write(const BufferedStore& store) {
  std::memcpy(memory_.data() + store.offset, &store.value, store.size);
}

void Execution::drain() {
  while (!me().stores.empty()) drain_one();
}

void Execution::drain_one() {
  const BufferedStore store = me().stores.front();
  if (tell_)
    label += fmt::format("+{} becomes visible: {}; ", store.offset, show(store.size, store.value));
  write(store);
  me().stores.erase(me().stores.begin());
}

std::string show(std::uint32_t size, std::uint64_t value) {
  if (size != sizeof(std::uint64_t)) return fmt::format("{}", value);
  constexpr const char* kPhases[] = {"none", "open", "committed", "closed"};
  const proto::StateWord word = proto::StateWord::unpack(value);
  return fmt::format("{}(g{}, {}.{}){}", kPhases[static_cast<int>(word.phase)], word.generation,
                     word.position.step(), word.position.section(), word.revoked ? "+revoked" : "");
}

}  // namespace regroup::model
