// The two sides of a message. A side that publishes a count rings the other; each side polls the
// counts of the other.
#include "collective/shm/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "collective/reduce/publish.h"

namespace regroup::collective::shm {
namespace {

std::size_t chunks_of(std::size_t bytes) {  // an empty message is one empty chunk
  return std::max<std::size_t>(1, (bytes + kMessageChunk - 1) / kMessageChunk);
}

template <class T>
std::span<T> chunk_of(std::span<T> data, std::uint64_t index) {
  const std::size_t begin = index * kMessageChunk;
  return data.subspan(begin, std::min(kMessageChunk, data.size() - begin));
}

}  // namespace

Messages::Messages(const shmem::Arena& arena, proto::Generation generation,
                   proto::Position instance, proto::SlotIndex self)
    : arena_(arena),
      instance_(static_cast<std::uint64_t>(generation) << 40 | instance.value),
      self_(self) {}

const Message* Messages::find(std::uint64_t ticket) const {
  const auto found = std::ranges::find(messages_, ticket, &Message::ticket);
  return found == messages_.end() ? nullptr : &*found;
}

bool Messages::has_any_of(const void* communicator) const {
  return std::ranges::find(messages_, communicator, &Message::communicator) != messages_.end();
}

base::Status Messages::advance() {
  // A message that completes frees the chunks for another, which may be earlier in the list. The
  // receiver of that one rang long ago and will not ring again, so start over.
  for (bool again = true; std::exchange(again, false);) {
    for (std::size_t i = 0; i < messages_.size();) {
      REGROUP_ASSIGN_OR_RETURN(
          auto done, is_first(messages_[i]) ? advance(messages_[i]) : base::Result<bool>(false));
      if (done) messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(i));
      if (!done) ++i;
      again = again || done;
    }
  }
  return {};
}

bool Messages::is_first(const Message& message) const {
  const auto same = [&](const Message& m) {
    return m.peer == message.peer && m.operation.kind == message.operation.kind;
  };
  return &*std::ranges::find_if(messages_, same) == &message;
}

base::Status Messages::open(PairCounters& counters) const {
  const std::uint64_t before = counters.instance.load(std::memory_order_relaxed);
  if (before == instance_) return {};
  if (before > instance_) {
    return base::invalid_argument(
        "communicator: a later communicator of this generation has already exchanged messages");
  }
  for (auto* word :
       {&counters.posted, &counters.taken, &counters.sent, &counters.offered, &counters.wanted}) {
    word->store(0, std::memory_order_relaxed);
  }
  counters.instance.store(instance_, std::memory_order_seq_cst);
  return {};
}

base::Result<bool> Messages::advance(Message& message) {
  REGROUP_RETURN_IF_ERROR(open(mine(message.peer)));
  const bool sends = message.operation.kind == Kind::kSend;
  auto done = sends ? send(message) : receive(message);
  if (sends && (!done.ok() || *done)) sender_ = 0;
  return done;
}

base::Status Messages::mismatch(const Message& message, std::uint64_t bytes) const {
  const Operation& o = message.operation;
  const bool sends = o.kind == Kind::kSend;
  return base::invalid_argument(fmt::format("{}: {} bytes, rank {} {} {}", name_of(o.kind),
                                            (sends ? o.in.size() : o.out.size()), o.root,
                                            sends ? "expects" : "sends", bytes));
}

base::Result<bool> Messages::send(Message& message) {
  PairCounters& counters = mine(message.peer);
  const PairCounters& other = theirs(message.peer);
  const std::uint64_t instance = other.instance.load(std::memory_order_seq_cst);
  if (instance < instance_ || (sender_ != 0 && sender_ != message.ticket)) return false;
  const std::size_t chunks = chunks_of(message.operation.in.size());
  if (!message.begun) {
    if (other.posted.load(std::memory_order_seq_cst) <= sends_[message.peer]) return false;
    sends_[message.peer] += 1;
    message.begun = true;
    message.first = counters.sent.load(std::memory_order_relaxed);
    sender_ = message.ticket;
    counters.offered.store(message.operation.in.size(), std::memory_order_relaxed);
    // Checked before the first chunk: after the last one the receiver may have stored the size of
    // its next receive.
    const std::uint64_t wanted = other.wanted.load(std::memory_order_relaxed);
    if (wanted != message.operation.in.size()) {
      reduce::publish(counters.sent, message.first + 1);  // so that the receiver sees `offered`
      shmem::ring(arena_.member_slot(message.peer).bell);
      return mismatch(message, wanted);
    }
  }
  const std::uint64_t taken =
      instance > instance_ ? message.first + chunks : other.taken.load(std::memory_order_seq_cst);
  for (; message.chunks < chunks && message.first + message.chunks < taken + 2; ++message.chunks) {
    const auto chunk = chunk_of(message.operation.in, message.chunks);
    std::byte* to = bounce_buffer_of(arena_, self_).message_chunk(message.first + message.chunks);
    if (!chunk.empty()) std::memcpy(to, chunk.data(), chunk.size());
    reduce::publish(counters.sent, message.first + message.chunks + 1);
    progress_ += 1;
    shmem::ring(arena_.member_slot(message.peer).bell);
  }
  return taken >= message.first + chunks;
}

base::Result<bool> Messages::receive(Message& message) {
  PairCounters& counters = mine(message.peer);
  const PairCounters& other = theirs(message.peer);
  if (!message.begun) {
    message.begun = true;
    message.first = counters.taken.load(std::memory_order_relaxed);
    counters.wanted.store(message.operation.out.size(), std::memory_order_relaxed);
    reduce::publish(counters.posted, counters.posted.load(std::memory_order_relaxed) + 1);
    shmem::ring(arena_.member_slot(message.peer).bell);
  }
  if (other.instance.load(std::memory_order_seq_cst) != instance_) return false;
  const std::size_t chunks = chunks_of(message.operation.out.size());
  while (message.chunks < chunks) {
    const std::uint64_t number = message.first + message.chunks;
    if (other.sent.load(std::memory_order_seq_cst) <= number) return false;
    const std::uint64_t offered = other.offered.load(std::memory_order_relaxed);
    if (offered != message.operation.out.size()) return mismatch(message, offered);
    const auto chunk = chunk_of(message.operation.out, message.chunks);
    const std::byte* from = bounce_buffer_of(arena_, message.peer).message_chunk(number);
    if (!chunk.empty()) std::memcpy(chunk.data(), from, chunk.size());
    message.chunks += 1;
    reduce::publish(counters.taken, number + 1);
    progress_ += 1;
    shmem::ring(arena_.member_slot(message.peer).bell);
  }
  return true;
}

std::string Messages::describe_wait(const Message& message) const {
  const bool dead = arena_.member_slot(message.peer).dead.load(std::memory_order_acquire) != 0;
  return fmt::format("{}: rank {}{} did not {}", name_of(message.operation.kind),
                     message.operation.root, dead ? " (dead)" : "",
                     message.operation.kind == Kind::kSend ? "receive" : "send");
}

}  // namespace regroup::collective::shm
