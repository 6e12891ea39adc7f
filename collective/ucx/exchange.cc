// Allreduce and reduce between hosts by recursive halving over lists of partial sums, then doubling. Few
// hosts with little data use recursive doubling alone: as many bytes or little more, in half as many steps.
#include "collective/ucx/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "collective/reduce/half.h"

namespace regroup::collective {

Arithmetic Arithmetic::of(Dtype dtype, Op op) {
  const bool half = dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16;
  return {dtype, op, half ? Dtype::kFloat32 : dtype, op == Op::kAvg ? Op::kSum : op};
}

MatchKey Exchange::key_of(int from, MessageTag tag) const {
  return {id_, MessageKind::kData, number_, tag.pack(), ranks_[static_cast<std::size_t>(from)]};
}

namespace {

// Largest message of recursive doubling between two hosts, and between more. A larger one would need two TCP
// segments (64 KiB at most), between which a paced sender waits, as BBR does.
constexpr std::size_t kMaxDoublingOfTwo = 48 << 10;
constexpr std::size_t kMaxDoublingOfMany = 16 << 10;

MatchKey ack_key_of(MatchKey key) {
  key.kind = MessageKind::kAck;
  return key;
}

}  // namespace

// The arrival of a message with this key. One of another operation is a mismatch.
class Exchange::Arrival final : public Waiter {
 public:
  Arrival(Exchange& exchange, const MatchKey& key)
      : Waiter(exchange.engine_, key.from), signature_(exchange.signature_), key_(key) {}

  [[nodiscard]] bool ready() override {
    message_ = engine_.mesh().find(key_);
    if (message_ == nullptr) return static_cast<void>(engine_.mesh().connect(key_.from)), false;
    if (message_->header.signature == signature_) return true;
    engine_.fail_mismatch(signature_, key_.from, message_->header.signature);
    return false;
  }
  [[nodiscard]] ActiveMessage& await_resume() const { return *message_; }

 private:
  const CollectiveSignature signature_;
  const MatchKey key_;
  ActiveMessage* message_ = nullptr;
};

Task Exchange::send(int to, MessageTag tag, Input data) {
  co_await post(to, tag, data);
  if (tag.needs_ack()) co_await await_ack(to, tag);
}

Task Exchange::post(int to, MessageTag tag, Input data) {
  const int peer = ranks_[static_cast<std::size_t>(to)];
  co_await Until(
      engine_, [this, peer] { return engine_.mesh().connect(peer); }, peer);
  const MessageHeader header{key_of(to, tag), signature_};
  const Transfer transfer = engine_.mesh().send(peer, header, data);
  if (!tag.needs_ack()) engine_.mesh().expect_ack(peer);
  co_await Until(
      engine_, [&transfer] { return transfer.done(); }, peer);
}

Task Exchange::await_ack(int to, MessageTag tag) {
  const MatchKey ack = ack_key_of(key_of(to, tag));
  co_await Until(
      engine_, [&] { return engine_.mesh().find(ack) != nullptr; }, ack.from);
  engine_.mesh().drop(ack);
}

Task Exchange::send_ack(MatchKey key) {
  const Transfer ack = engine_.mesh().send(key.from, {ack_key_of(key), signature_}, {});
  co_await Until(
      engine_, [&ack] { return ack.done(); }, key.from);
}

Task Exchange::receive(int from, MessageTag tag, Output data) {
  const MatchKey key = key_of(from, tag);
  const ActiveMessage& message = co_await Arrival(*this, key);
  if (message.bytes != data.size()) {
    engine_.fail(base::internal_error("message size differs from the size of its operation"));
    co_await Until(engine_, [] { return false; });
  }
  co_await take(key, tag, data);
}

Task Exchange::receive(int from, MessageTag tag, std::vector<std::byte>* data, std::size_t limit) {
  const MatchKey key = key_of(from, tag);
  const ActiveMessage& message = co_await Arrival(*this, key);
  if (message.bytes > limit) {
    engine_.fail(base::internal_error(
        fmt::format("message of {} bytes exceeds the maximum of {}", message.bytes, limit)));
    co_await Until(engine_, [] { return false; });
  }
  data->resize(message.bytes);
  co_await take(key, tag, *data);
}

Task Exchange::take(MatchKey key, MessageTag tag, Output data) {
  const Transfer transfer = engine_.mesh().take(key, data.data());
  co_await Until(
      engine_, [&transfer] { return transfer.done(); }, key.from);
  if (tag.needs_ack()) co_await send_ack(key);
  if (!tag.needs_ack()) engine_.mesh().queue_ack(key.from);
}

// Dissemination: after round k, each host has heard of the 2^k hosts before it. A power of two of hosts
// exchanges in the pairs of a reduction instead: as many rounds on half as many connections.
Task Exchange::barrier_between_hosts() {
  const std::size_t hosts = layout_.hosts.size();
  const bool in_pairs = std::has_single_bit(hosts);
  std::vector<Task> sends;
  std::uint32_t round = 0;
  for (std::size_t distance = 1; distance < hosts; distance *= 2, ++round) {
    const MessageTag tag{MessageTag::kBarrier, round};
    const std::size_t pair = layout_.host ^ distance;
    const std::size_t to = in_pairs ? pair : (layout_.host + distance) % hosts;
    const std::size_t from = in_pairs ? pair : (layout_.host + hosts - distance) % hosts;
    sends.push_back(send(layout_.hosts[to][0], tag, {}));
    co_await receive(layout_.hosts[from][0], tag, Output());
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
  PartialSums held;  // of the elements `at`, relative to the segment
  const Arithmetic arithmetic;
  std::byte* const out;
  const std::uint32_t chunk;
  const int to;

  Range at{0, segment.range.size()};
  std::vector<Range> before{};  // the values of `at` before each step
  std::vector<Task> sends{};
  std::vector<Scratch::Buffer> keep{};
  std::vector<MatchKey> borrowed{};  // messages in whose data `held` points; dropped at the end

  [[nodiscard]] MessageTag tag(std::uint8_t phase) const { return {phase, chunk, segment.index, 0}; }
  [[nodiscard]] Output result(Range range) const {
    return {out + range.begin * arithmetic.size(), range.size() * arithmetic.size()};
  }
  // Elements `range` of held[n].
  [[nodiscard]] Input part(std::size_t n, Range range) const {
    return {held[n] + (range.begin - at.begin) * arithmetic.work_size(),
            range.size() * arithmetic.work_size()};
  }
};

// Adds the partial sums of the elements `at` that `host` sends to `held`. Their data stays in the memory of
// UCX where it has arrived there.
Task Exchange::receive_nodes(Reduction& r, std::size_t host, MessageTag tag, std::size_t nodes) {
  const std::size_t bytes = r.at.size() * r.arithmetic.work_size();
  for (std::uint32_t n = 0; n < nodes; ++n) {
    tag.node = n;
    const MatchKey key = key_of(r.segment.owners[host], tag);
    const ActiveMessage& message = co_await Arrival(*this, key);
    if (message.bytes != bytes) {
      engine_.fail(base::internal_error("partial sum size differs from the size of its segment"));
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
    if (!tag.needs_ack()) engine_.mesh().queue_ack(key.from);
  }
}

bool Exchange::uses_doubling(const Reduction& r) const {
  const std::size_t bytes = r.at.size() * r.arithmetic.work_size();
  const bool is_power_of_two = r.plan.base == layout_.hosts.size();  // a power of two of hosts
  return r.to < 0 && is_power_of_two && bytes <= (r.plan.base == 2 ? kMaxDoublingOfTwo : kMaxDoublingOfMany);
}

// Recursive doubling: every host computes the whole result.
Task Exchange::reduce_by_doubling(Reduction& r) {
  for (std::size_t k = 0; k < r.plan.steps.size(); ++k) {
    const Halving::Step& step = r.plan.steps[k];
    const int partner = r.segment.owners[step.partner];
    MessageTag tag = r.tag(static_cast<std::uint8_t>(MessageTag::kDoubling + k));
    for (std::uint32_t n = 0; n < r.held.size(); ++n) {
      tag.node = n;
      r.sends.push_back(post(partner, tag, r.part(n, r.at)));
    }
    co_await receive_nodes(r, step.partner, tag, step.gets);
    if (k + 1 < r.plan.steps.size()) r.held = merged(step.merge, r.held, r.at.size(), r.arithmetic, &r.keep);
  }
  for (Task& task : r.sends) co_await task;  // before the result overwrites data that is being sent
  write_result(r.plan.last, r.held, r.at.size(), r.arithmetic, r.out);
  for (const MatchKey& key : r.borrowed) engine_.mesh().drop(key);
}

Task Exchange::reduce_by_halving(Reduction& r) {
  for (std::size_t k = 0; k < r.plan.steps.size(); ++k) {
    const Halving::Step& step = r.plan.steps[k];
    const auto [low, high] = halves_of(r.at);
    const Range mine = step.keeps_low ? low : high;
    const Range theirs = step.keeps_low ? high : low;
    MessageTag tag = r.tag(static_cast<std::uint8_t>(MessageTag::kHalving + k));
    for (std::uint32_t n = 0; theirs.size() > 0 && n < r.held.size(); ++n) {
      tag.node = n;
      r.sends.push_back(send(r.segment.owners[step.partner], tag, r.part(n, theirs)));
    }
    for (std::size_t n = 0; n < r.held.size(); ++n) r.held[n] = r.part(n, mine).data();
    r.before.push_back(std::exchange(r.at, mine));
    if (mine.size() > 0) co_await receive_nodes(r, step.partner, tag, step.gets);
    if (mine.size() > 0 && k + 1 < r.plan.steps.size())
      r.held = merged(step.merge, r.held, mine.size(), r.arithmetic, &r.keep);
  }
  for (std::size_t i = 0; r.at.size() > 0 && i < r.plan.extra_nodes.size(); ++i) {
    co_await receive_nodes(r, r.plan.base + i, r.tag(MessageTag::kExtra), r.plan.extra_nodes[i]);
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

// Recursive doubling: results travel back over the pairs of the halving.
Task Exchange::allgather_results(Reduction& r) {
  const Range final = r.at;
  for (std::size_t k = r.plan.steps.size(); k-- > 0;) {
    const int partner = r.segment.owners[r.plan.steps[k].partner];
    MessageTag tag = r.tag(MessageTag::kResult);
    tag.node = static_cast<std::uint32_t>(k);
    const Range mine = r.at;
    const Range whole = r.before[k];
    const Range theirs =
        r.plan.steps[k].keeps_low ? Range{mine.end, whole.end} : Range{whole.begin, mine.begin};
    if (mine.size() > 0) r.sends.push_back(send(partner, tag, r.result(mine)));
    if (theirs.size() > 0) co_await receive(partner, tag, r.result(theirs));
    r.at = whole;
  }
  for (std::size_t host = r.plan.base; final.size() > 0 && host < layout_.hosts.size(); ++host) {
    r.sends.push_back(send(r.segment.owners[host], r.tag(MessageTag::kResult), r.result(final)));
  }
}

// Receives the results of all hosts of the base.
Task Exchange::receive_results(Reduction& r) {
  std::vector<Task> results;
  for (std::size_t host = 0; host < r.plan.base; ++host) {
    const Range share = share_of_host({0, r.segment.range.size()}, host, r.plan.base);
    if (share.size() == 0 || host == layout_.host) continue;
    results.push_back(receive(r.segment.owners[host], r.tag(MessageTag::kResult), r.result(share)));
  }
  for (Task& task : results) co_await task;
}

// A host beyond the base sends its partial sums to the hosts that finish them, and receives the results.
Task Exchange::delegate_to_base(Reduction& r) {
  for (std::size_t host = 0; host < r.plan.base; ++host) {
    const Range share = share_of_host(r.at, host, r.plan.base);
    MessageTag tag = r.tag(MessageTag::kExtra);
    for (std::uint32_t n = 0; share.size() > 0 && n < r.held.size(); ++n) {
      tag.node = n;
      r.sends.push_back(send(r.segment.owners[host], tag, r.part(n, share)));
    }
  }
  for (Task& task : r.sends) co_await task;
  if (r.to < 0 || r.to == static_cast<int>(layout_.host)) co_await receive_results(r);
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
  for (Task& task : r.sends) co_await task;  // before results overwrite data that is being sent
  r.sends.clear();
  for (const MatchKey& key : r.borrowed)
    engine_.mesh().drop(key);  // after the sends, which may read its data
  if (to < 0) co_await allgather_results(r);
  if (to == static_cast<int>(layout_.host)) co_await receive_results(r);
  if (to >= 0 && to != static_cast<int>(layout_.host) && r.at.size() > 0) {
    r.sends.push_back(
        send(r.segment.owners[static_cast<std::size_t>(to)], r.tag(MessageTag::kResult), r.result(r.at)));
  }
  for (Task& task : r.sends) co_await task;
}

}  // namespace regroup::collective
