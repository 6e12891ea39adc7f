// Recursive halving and doubling over lists of partial sums, and what it is made of. Few hosts with little
// swap all they have instead: as many bytes or not many more, in half the messages one after the other.
#include "collective/ucx/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "collective/ucx/half.h"

namespace regroup::collective {

Arithmetic Arithmetic::of(Dtype dtype, Op op) {
  const bool half = dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16;
  return {dtype, op, half ? Dtype::kFloat32 : dtype, op == Op::kAvg ? Op::kSum : op};
}

MatchKey Exchange::key_of(int from, Piece piece) const {
  return {id_, MessageKind::kData, number_, piece.pack(), ranks_[static_cast<std::size_t>(from)]};
}

namespace {

// Of a message that goes whole: between two hosts, and between more of them. What takes two packets of TCP,
// which have 64 KiB at most, waits between them where the sender is paced, as by BBR.
constexpr std::size_t kMaxDoublingOfTwo = 48 << 10;
constexpr std::size_t kMaxDoublingOfMany = 16 << 10;

MatchKey ack_key_of(MatchKey key) {
  key.kind = MessageKind::kAck;
  return key;
}

}  // namespace

// A message of ours; one of another call with our number is a disagreement.
class Exchange::Arrival final : public Waiter {
 public:
  Arrival(Exchange& exchange, const MatchKey& key)
      : Waiter(exchange.engine_, key.from), call_(exchange.call_), key_(key) {}

  [[nodiscard]] bool ready() override {
    message_ = engine_.mesh().find(key_);
    if (message_ == nullptr) return static_cast<void>(engine_.mesh().connect(key_.from)), false;
    if (message_->header.call == call_) return true;
    engine_.fail_mismatch(call_, key_.from, message_->header.call);
    return false;
  }
  [[nodiscard]] ActiveMessage& await_resume() const { return *message_; }

 private:
  const CollectiveSignature call_;
  const MatchKey key_;
  ActiveMessage* message_ = nullptr;
};

Task Exchange::send(int to, Piece piece, Input data) {
  co_await post(to, piece, data);
  if (piece.needs_ack()) co_await await_ack(to, piece);
}

Task Exchange::post(int to, Piece piece, Input data) {
  const int peer = ranks_[static_cast<std::size_t>(to)];
  co_await Until(
      engine_, [this, peer] { return engine_.mesh().connect(peer); }, peer);
  const MessageHeader header{key_of(to, piece), call_};
  const Transfer transfer = engine_.mesh().send(peer, header, data);
  if (!piece.needs_ack()) engine_.mesh().expect_ack(peer);
  co_await Until(
      engine_, [&transfer] { return transfer.done(); }, peer);
}

Task Exchange::await_ack(int to, Piece piece) {
  const MatchKey ack = ack_key_of(key_of(to, piece));
  co_await Until(
      engine_, [&] { return engine_.mesh().find(ack) != nullptr; }, ack.from);
  engine_.mesh().drop(ack);
}

Task Exchange::send_ack(MatchKey key) {
  const Transfer ack = engine_.mesh().send(key.from, {ack_key_of(key), call_}, {});
  co_await Until(
      engine_, [&ack] { return ack.done(); }, key.from);
}

Task Exchange::receive(int from, Piece piece, Output data) {
  const MatchKey key = key_of(from, piece);
  const ActiveMessage& message = co_await Arrival(*this, key);
  if (message.bytes != data.size()) {
    engine_.fail(core::internal_error("a message has another size than its call says"));
    co_await Until(engine_, [] { return false; });
  }
  co_await take(key, piece, data);
}

Task Exchange::receive(int from, Piece piece, std::vector<std::byte>* data, std::size_t most) {
  const MatchKey key = key_of(from, piece);
  const ActiveMessage& message = co_await Arrival(*this, key);
  if (message.bytes > most) {
    engine_.fail(core::internal_error(
        fmt::format("a message of {} bytes where {} are the most", message.bytes, most)));
    co_await Until(engine_, [] { return false; });
  }
  data->resize(message.bytes);
  co_await take(key, piece, *data);
}

Task Exchange::take(MatchKey key, Piece piece, Output data) {
  const Transfer transfer = engine_.mesh().take(key, data.data());
  co_await Until(
      engine_, [&transfer] { return transfer.done(); }, key.from);
  if (piece.needs_ack()) co_await send_ack(key);
  if (!piece.needs_ack()) engine_.mesh().queue_ack(key.from);
}

// Dissemination: behind round k each has heard of the 2^k hosts before it. A power of two of hosts meets in
// pairs, which are those of a reduction: as many rounds, on half of the connections.
Task Exchange::barrier_between_hosts() {
  const std::size_t hosts = layout_.hosts.size();
  const bool in_pairs = std::has_single_bit(hosts);
  std::vector<Task> sends;
  std::uint32_t round = 0;
  for (std::size_t distance = 1; distance < hosts; distance *= 2, ++round) {
    const Piece piece{Piece::kBarrier, round};
    const std::size_t pair = layout_.host ^ distance;
    const std::size_t to = in_pairs ? pair : (layout_.host + distance) % hosts;
    const std::size_t from = in_pairs ? pair : (layout_.host + hosts - distance) % hosts;
    sends.push_back(send(layout_.hosts[to][0], piece, {}));
    co_await receive(layout_.hosts[from][0], piece, Output());
  }
  for (Task& task : sends) co_await task;
}

PartialSums Exchange::merged(const Merge& merge, const PartialSums& inputs, std::size_t count,
                             Arithmetic arithmetic, std::vector<Scratch::Buffer>* keep) {
  PartialSums out;
  for (const Merge::Output& output : merge.outputs) {
    if (!output.fold) {
      out.push_back(inputs[output.inputs[0]]);
      continue;
    }
    PartialSums parts;
    for (const std::uint32_t input : output.inputs) parts.push_back(inputs[input]);
    const std::size_t bytes = count * arithmetic.work_size();
    keep->push_back(scratch_.get(bytes));
    output.fold->run(parts, {0, bytes}, keep->back().data(), arithmetic.work, arithmetic.partial,
                     Stores::kPlain);
    out.push_back(keep->back().data());
  }
  return out;
}

struct Exchange::Reduction {
  const Segment segment;
  const Halving& plan;
  PartialSums held;  // of the elements `at`
  const Arithmetic arithmetic;
  std::byte* const out;
  const std::uint32_t chunk;
  const int to;

  Range at{0, segment.range.size()};
  std::vector<Range> before{};  // `at`, step by step
  std::vector<Task> sends{};
  std::vector<Scratch::Buffer> keep{};
  std::vector<MatchKey> borrowed{};  // messages that `held` points into

  [[nodiscard]] Piece piece(std::uint8_t phase) const { return {phase, chunk, segment.index, 0}; }
  [[nodiscard]] Output result(Range range) const {
    return {out + range.begin * arithmetic.size(), range.size() * arithmetic.size()};
  }
  // Elements `range` of held[n].
  [[nodiscard]] Input part(std::size_t n, Range range) const {
    return {held[n] + (range.begin - at.begin) * arithmetic.work_size(),
            range.size() * arithmetic.work_size()};
  }
};

// Adds to `held` the elements `at` of the partial sums that `host` sends: where UCX has put them, if it has.
Task Exchange::receive_nodes(Reduction& r, std::size_t host, Piece piece, std::size_t nodes) {
  const std::size_t bytes = r.at.size() * r.arithmetic.work_size();
  for (std::uint32_t n = 0; n < nodes; ++n) {
    piece.node = n;
    const MatchKey key = key_of(r.segment.owners[host], piece);
    const ActiveMessage& message = co_await Arrival(*this, key);
    if (message.bytes != bytes) {
      engine_.fail(core::internal_error("a partial sum of another size"));
      co_await Until(engine_, [] { return false; });
    }
    if (!message.fetch) {
      r.held.push_back(static_cast<const std::byte*>(message.data));
      r.borrowed.push_back(key);
    } else {
      r.keep.push_back(scratch_.get(bytes));
      r.held.push_back(r.keep.back().data());
      const Transfer transfer = engine_.mesh().take(key, r.keep.back().data());
      co_await Until(
          engine_, [&transfer] { return transfer.done(); }, key.from);
    }
    if (!piece.needs_ack()) engine_.mesh().queue_ack(key.from);
  }
}

bool Exchange::uses_doubling(const Reduction& r) const {
  const std::size_t bytes = r.at.size() * r.arithmetic.work_size();
  const bool alike = r.plan.base == layout_.hosts.size();  // nobody hands over
  return r.to < 0 && alike && bytes <= (r.plan.base == 2 ? kMaxDoublingOfTwo : kMaxDoublingOfMany);
}

// The whole sum at every host.
Task Exchange::reduce_by_doubling(Reduction& r) {
  for (std::size_t k = 0; k < r.plan.steps.size(); ++k) {
    const Halving::Step& step = r.plan.steps[k];
    const int partner = r.segment.owners[step.partner];
    Piece piece = r.piece(static_cast<std::uint8_t>(Piece::kDoubling + k));
    for (std::uint32_t n = 0; n < r.held.size(); ++n) {
      piece.node = n;
      r.sends.push_back(post(partner, piece, r.part(n, r.at)));
    }
    co_await receive_nodes(r, step.partner, piece, step.gets);
    if (k + 1 < r.plan.steps.size()) r.held = merged(step.merge, r.held, r.at.size(), r.arithmetic, &r.keep);
  }
  for (Task& task : r.sends) co_await task;  // before the sum goes over what was sent
  write_result(r.plan.last, r.held, r.at.size(), r.arithmetic, r.out);
  for (const MatchKey& key : r.borrowed) engine_.mesh().drop(key);
}

Task Exchange::reduce_by_halving(Reduction& r) {
  for (std::size_t k = 0; k < r.plan.steps.size(); ++k) {
    const Halving::Step& step = r.plan.steps[k];
    const auto [low, high] = halves_of(r.at);
    const Range mine = step.keeps_low ? low : high;
    const Range theirs = step.keeps_low ? high : low;
    Piece piece = r.piece(static_cast<std::uint8_t>(Piece::kHalving + k));
    for (std::uint32_t n = 0; theirs.size() > 0 && n < r.held.size(); ++n) {
      piece.node = n;
      r.sends.push_back(send(r.segment.owners[step.partner], piece, r.part(n, theirs)));
    }
    for (std::size_t n = 0; n < r.held.size(); ++n) r.held[n] = r.part(n, mine).data();
    r.before.push_back(std::exchange(r.at, mine));
    if (mine.size() > 0) co_await receive_nodes(r, step.partner, piece, step.gets);
    if (mine.size() > 0 && k + 1 < r.plan.steps.size())
      r.held = merged(step.merge, r.held, mine.size(), r.arithmetic, &r.keep);
  }
  for (std::size_t i = 0; r.at.size() > 0 && i < r.plan.extra_nodes.size(); ++i) {
    co_await receive_nodes(r, r.plan.base + i, r.piece(Piece::kExtra), r.plan.extra_nodes[i]);
  }
}

void Exchange::write_result(const Merge& whole, const PartialSums& inputs, std::size_t count,
                            Arithmetic arithmetic, std::byte* out) {
  const Merge::Output& last = whole.outputs[0];
  PartialSums parts;
  for (const std::uint32_t input : last.inputs) parts.push_back(inputs[input]);
  const ByteRange bytes{0, count * arithmetic.work_size()};
  if (arithmetic.work == arithmetic.stored) {
    last.fold->run(parts, bytes, out, arithmetic.work, arithmetic.op, Stores::kPlain);
    return;
  }
  const Scratch::Buffer wide = scratch_.get(bytes.size());
  last.fold->run(parts, bytes, wide.data(), arithmetic.work, arithmetic.op, Stores::kPlain);
  narrow(out, wide.data(), count, arithmetic.stored);
}

// Doubling back: results go the way that the halves came.
Task Exchange::allgather_results(Reduction& r) {
  const Range final = r.at;
  for (std::size_t k = r.plan.steps.size(); k-- > 0;) {
    const int partner = r.segment.owners[r.plan.steps[k].partner];
    Piece piece = r.piece(Piece::kResult);
    piece.node = static_cast<std::uint32_t>(k);
    const Range mine = r.at;
    const Range whole = r.before[k];
    const Range theirs =
        r.plan.steps[k].keeps_low ? Range{mine.end, whole.end} : Range{whole.begin, mine.begin};
    if (mine.size() > 0) r.sends.push_back(send(partner, piece, r.result(mine)));
    if (theirs.size() > 0) co_await receive(partner, piece, r.result(theirs));
    r.at = whole;
  }
  for (std::size_t host = r.plan.base; final.size() > 0 && host < layout_.hosts.size(); ++host) {
    r.sends.push_back(send(r.segment.owners[host], r.piece(Piece::kResult), r.result(final)));
  }
}

// The results of all hosts of the base, to this one.
Task Exchange::collect(Reduction& r) {
  std::vector<Task> results;
  for (std::size_t host = 0; host < r.plan.base; ++host) {
    const Range share = share_of_host({0, r.segment.range.size()}, host, r.plan.base);
    if (share.size() == 0 || host == layout_.host) continue;
    results.push_back(receive(r.segment.owners[host], r.piece(Piece::kResult), r.result(share)));
  }
  for (Task& task : results) co_await task;
}

// A host beyond the base: its partial sums go to where the sums end, and those come back.
Task Exchange::delegate_to_base(Reduction& r) {
  for (std::size_t host = 0; host < r.plan.base; ++host) {
    const Range share = share_of_host(r.at, host, r.plan.base);
    Piece piece = r.piece(Piece::kExtra);
    for (std::uint32_t n = 0; share.size() > 0 && n < r.held.size(); ++n) {
      piece.node = n;
      r.sends.push_back(send(r.segment.owners[host], piece, r.part(n, share)));
    }
  }
  for (Task& task : r.sends) co_await task;
  if (r.to < 0 || r.to == static_cast<int>(layout_.host)) co_await collect(r);
}

Task Exchange::reduce(Segment segment, const Halving& plan, PartialSums held, Arithmetic arithmetic,
                      std::byte* out, std::uint32_t chunk, int to) {
  Reduction r{std::move(segment), plan, std::move(held), arithmetic, out, chunk, to};
  if (layout_.host >= plan.base) {
    co_await delegate_to_base(r);
    co_return;
  }
  if (uses_doubling(r)) {
    co_await reduce_by_doubling(r);
    co_return;
  }
  co_await reduce_by_halving(r);
  if (r.at.size() > 0) write_result(plan.last, r.held, r.at.size(), arithmetic, r.result(r.at).data());
  for (Task& task : r.sends) co_await task;  // before results go over what was sent
  r.sends.clear();
  for (const MatchKey& key : r.borrowed) engine_.mesh().drop(key);  // which may have been sent on
  if (to < 0) co_await allgather_results(r);
  if (to == static_cast<int>(layout_.host)) co_await collect(r);
  if (to >= 0 && to != static_cast<int>(layout_.host) && r.at.size() > 0) {
    r.sends.push_back(
        send(r.segment.owners[static_cast<std::size_t>(to)], r.piece(Piece::kResult), r.result(r.at)));
  }
  for (Task& task : r.sends) co_await task;
}

}  // namespace regroup::collective
