// Arrival words.
//
// Who rings: a member stores its arrival and fences, then looks at all others. Of all fences one is the last,
// and who looks behind that one sees everybody. Whoever sees everybody in its first look behind its fence, or
// somebody in another operation, rings everybody that sleeps; so the last does, and it finds who sleeps:
// nobody goes to sleep but by a fence and one more look (core/doorbell.h), and if that look missed an arrival
// it was before the fence of that arrival, hence before the last, as was the store that says "asleep". The
// others need not ring.
//
// A fence waits until the line of the arrival is back from who looked at it last; so a member that finds the
// others within a microsecond may look for them before it, take what they bring, and fence then (ring()).
// What it has seen does not go away: it is as if it had looked behind the fence. If it does not find them, it
// fences and looks once more before it waits. tests/model/doorbell_model_test.cc tries every order of a copy
// of this. Who announces and goes does not fence: it rings all that it sees asleep, and whom it does not see
// wakes up by itself (Family::wait()).
#include "collective/shm/arrivals.h"

#include <fmt/format.h>

#include <utility>

#include "collective/shm/publish.h"

namespace regroup::collective {
namespace {

constexpr unsigned kPositionBits = 40;

core::Generation generation_of(std::uint64_t instance) {
  return static_cast<core::Generation>(instance >> kPositionBits);
}

// Kind, dtype and op as they are, the rest mixed.
std::uint32_t digest(Call call) {
  const std::uint64_t exact = (call.what & 15) | (call.what >> 8 & 15) << 4 | (call.what >> 16 & 7) << 8;
  const std::uint64_t rest = (call.bytes ^ (call.what >> 32) << 40) * 0x9e3779b97f4a7c15ULL;
  return static_cast<std::uint32_t>(exact | rest >> 43 << 11);
}

}  // namespace

Call call_of(const Operation& o, int size) {
  return {static_cast<std::uint64_t>(o.kind) | static_cast<std::uint64_t>(o.dtype) << 8 |
              static_cast<std::uint64_t>(o.op) << 16 | static_cast<std::uint64_t>(o.root) << 32,
          o.block(size)};
}

bool is_call(Call call) {
  constexpr auto kMostKind = static_cast<std::uint64_t>(Kind::kSumPartials);
  constexpr auto kMostDtype = static_cast<std::uint64_t>(Dtype::kUint8);
  constexpr auto kMostOp = static_cast<std::uint64_t>(Op::kBor);
  return (call.what & 0xff) <= kMostKind && (call.what >> 8 & 0xff) <= kMostDtype &&
         (call.what >> 16 & 0xff) <= kMostOp;
}

std::string describe(Call call) {
  const auto kind = static_cast<Kind>(call.what & 0xff);
  const char* dtype = name_of(static_cast<Dtype>(call.what >> 8 & 0xff));
  const auto root = call.what >> 32;
  if (kind == Kind::kBarrier) return name_of(kind);
  std::string text = fmt::format("{} of {} bytes", name_of(kind), call.bytes);
  if (kind == Kind::kSumPartials) return text + fmt::format(" ({}, {} leaves)", dtype, root);
  if (kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter) {
    text += fmt::format(" ({}, {})", dtype, name_of(static_cast<Op>(call.what >> 16 & 0xff)));
  }
  const bool rooted =
      kind == Kind::kReduce || kind == Kind::kGather || kind == Kind::kScatter || kind == Kind::kBroadcast;
  return rooted ? text + fmt::format(" with root {}", root) : text;
}

Arrivals::Arrivals(core::Generation generation, core::Position position, std::vector<Peer> peers, int self)
    : generation_(generation),
      instance_(static_cast<std::uint64_t>(generation) << kPositionBits | position.value),
      peers_(std::move(peers)),
      self_(static_cast<std::size_t>(self)),
      stranger_(self_) {}

core::Status Arrivals::open() {
  if (mine().instance.load(std::memory_order_relaxed) >= instance_) {
    return core::invalid_argument(
        fmt::format("communicator: instance {} of generation {} was opened before, or a later one was",
                    instance_ & ((1ULL << kPositionBits) - 1), generation_));
  }
  for (auto& arrival : mine().arrivals) arrival.word.store(0, std::memory_order_seq_cst);
  for (const std::uint64_t rendezvous : {0, 1}) say(Call(), rendezvous);
  mine().instance.store(instance_, std::memory_order_seq_cst);
  opened_ = true;
  ring_others();  // who waits in an instance before this one waits in vain
  return {};
}

core::Status Arrivals::arrive(Call call, std::span<const std::byte> payload) {
  if (!opened_) REGROUP_RETURN_IF_ERROR(open());
  prepare(call, payload);
  publish(word(), word_);
  give_way();
  if (look_first() == Sight::kStranger) return core::invalid_argument(describe_stranger());
  return {};
}

// A line of its own, beside those that the others wait for, that need not move while the calls stay the same.
void Arrivals::say(const Call& call, std::uint64_t rendezvous) {
  said_[rendezvous % 2] = {call, digest(call)};
  auto& words = mine().calls[rendezvous % 2];
  words[0].store(call.what, std::memory_order_relaxed);
  words[1].store(call.bytes, std::memory_order_relaxed);
}

void Arrivals::announce_and_go(const Call& call, std::span<const std::byte> payload) {
  prepare(call, payload);
  announce();
  leads_ = false;
  ring_others();
}

Arrivals::Sight Arrivals::look_first() {
  const Sight seen = look(true);
  leads_ = seen == Sight::kAll;
  if (seen != Sight::kMissing) ring_others();
  return seen;
}

Arrivals::Sight Arrivals::look(bool thorough, std::size_t sure) {
  const auto is_here = [&](std::size_t i) { return i == self_ || i == sure || has_arrived(i); };
  while (first_late_ < peers_.size() && is_here(first_late_)) ++first_late_;
  for (std::size_t i = first_late_ + 1; thorough && i < peers_.size(); ++i) static_cast<void>(is_here(i));
  if (stranger_ != self_) return Sight::kStranger;
  return first_late_ == peers_.size() ? Sight::kAll : Sight::kMissing;
}

core::Result<bool> Arrivals::all_here(bool thorough) {
  const Sight seen = look(thorough);
  if (seen == Sight::kStranger) return core::invalid_argument(describe_stranger());
  return seen == Sight::kAll;
}

std::optional<Arrivals::Stranger> Arrivals::stranger() const {
  if (stranger_ == self_) return std::nullopt;
  const auto& words = peers_[stranger_].channel->calls[met_ % 2];
  return Stranger{stranger_,
                  {words[0].load(std::memory_order_relaxed), words[1].load(std::memory_order_relaxed)}};
}

std::string Arrivals::describe_stranger() const {
  const Stranger other = *stranger();
  return fmt::format("{}: rank {} is in {}, rank {} in {}", name_of(static_cast<Kind>(call().what & 0xff)),
                     self_, describe(call()), other.rank, describe(other.call));
}

// A member in a later instance was done with this one. One in a later generation was not, perhaps; but no
// generation begins before the one before it is over.
bool Arrivals::has_gone_on(std::size_t member) {
  const core::Channel& channel = *peers_[member].channel;
  const std::uint64_t instance = channel.instance.load(std::memory_order_seq_cst);
  if (instance != instance_) {
    over_ = over_ || generation_of(instance) > generation_;
    return instance > instance_;
  }
  // Of the same parity this member can have no later arrival, since that needs ours at the one between.
  const std::uint64_t word = channel.arrivals[met_ % 2].word.load(std::memory_order_seq_cst);
  if (word == word_) return true;
  if (word >> 32 != word_ >> 32) return false;
  // Unless the word is already one of a later instance.
  if (channel.instance.load(std::memory_order_seq_cst) == instance_) stranger_ = member;
  return true;
}

std::string Arrivals::list_missing() {
  std::string list;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (i == self_ || has_arrived(i)) continue;
    const bool dead = peers_[i].line->dead.load(std::memory_order_acquire) != 0;
    list += fmt::format("{}{}{}", list.empty() ? "" : ", ", i, dead ? " (dead)" : "");
  }
  return fmt::format("{}: rank {} of {} did not arrive", name_of(static_cast<Kind>(call().what & 0xff)), list,
                     peers_.size());
}

}  // namespace regroup::collective
