// Allreduce and reduce between hosts by recursive halving over lists of partial sums, then
// doubling. Few hosts with little data use recursive doubling alone: as many bytes or little more,
// in half as many steps.
#include "collective/net/exchange.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "collective/reduce/half.h"

namespace regroup::collective::net {

using base::Result;

Arithmetic Arithmetic::of(Dtype dtype, Op op) {
  const bool half = dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16;
  return {dtype, op, half ? Dtype::kFloat32 : dtype, op == Op::kAvg ? Op::kSum : op};
}

Result<RankSums> RankSums::of(const Layout& layout) {
  const auto leaves = static_cast<std::uint32_t>(layout.size);
  RankSums out;
  TreeNodes here;
  for (std::size_t host = 0; host < layout.hosts.size(); ++host) {
    TreeNodes ranks;
    for (const int r : layout.hosts[host])
      ranks.push_back({static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(r) + 1});
    if (host == layout.host) here = ranks;
    REGROUP_ASSIGN_OR_RETURN(auto largest, largest_tree_nodes(std::move(ranks), leaves));
    out.by_host.push_back(std::move(largest));
  }
  auto local = plan_merge(std::span(&here, 1), leaves);
  auto between = plan_halving(layout.host, out.by_host, leaves);
  auto whole = plan_merge(out.by_host, leaves, true);
  if (!local.ok() || !between.ok() || !whole.ok())
    return base::internal_error("the ranks do not form a canonical tree");
  out.local = std::move(*local);
  out.between = std::move(*between);
  out.whole = std::move(*whole);
  return out;
}

namespace {

// Largest message of recursive doubling between two hosts, and between more. A larger one needs two
// TCP segments (at most 64 KiB each), between which a paced sender (BBR) waits.
constexpr std::size_t kMaxDoublingOfTwo = 48 << 10;
constexpr std::size_t kMaxDoublingOfMany = 16 << 10;

}  // namespace

// Dissemination barrier: after round k, each host knows that the 2^k hosts before it have arrived.
// If the number of hosts is a power of two, they exchange in the pairs of a reduction instead: as
// many rounds on half as many connections.
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

PartialSums Exchange::widened(PartialSums leaves, std::size_t count, Arithmetic arithmetic,
                              std::vector<Scratch::Buffer>* keep) {
  if (arithmetic.work == arithmetic.stored) return leaves;
  for (const std::byte*& leaf : leaves) {
    keep->push_back(scratch_.get(count * arithmetic.work_size()));
    reduce::widen(keep->back().data(), leaf, count, arithmetic.stored);
    leaf = keep->back().data();
  }
  return leaves;
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
                     reduce::Stores::kPlain);
    out.push_back(keep->back().data());
  }
  return out;
}

struct Exchange::Reduction {
  const Segment segment;
  const Halving& plan;
  PartialSums held;  // partial sums of the elements `at` (relative to the segment)
  const Arithmetic arithmetic;
  std::byte* const out;
  const std::uint32_t chunk;
  const int to;

  Range at{0, segment.range.size()};
  std::vector<Range> before{};  // the values of `at` before each step
  std::vector<Task> sends{};
  std::vector<Scratch::Buffer> keep{};
  std::vector<std::pair<int, MessageTag>> borrowed{};  // messages into whose data `held` points

  [[nodiscard]] MessageTag tag(std::uint8_t phase) const {
    return {phase, chunk, segment.index, 0};
  }
  [[nodiscard]] Output result(Range range) const {
    return {out + range.begin * arithmetic.size(), range.size() * arithmetic.size()};
  }
  // Elements `range` of held[n].
  [[nodiscard]] Input part(std::size_t n, Range range) const {
    return {held[n] + (range.begin - at.begin) * arithmetic.work_size(),
            range.size() * arithmetic.work_size()};
  }
};

// Receives from `host` its partial sums of the elements `at` and appends them to `held`; without a
// copy if possible.
Task Exchange::receive_tree_nodes(Reduction& r, std::size_t host, MessageTag tag,
                                  std::size_t nodes) {
  const std::size_t bytes = r.at.size() * r.arithmetic.work_size();
  const int from = r.segment.owners[host];
  for (std::uint32_t n = 0; n < nodes; ++n) {
    tag.tree_node = n;
    Received message;
    co_await messenger_.receive_in_place(from, tag, bytes, &message);
    r.held.push_back(message.data);
    if (message.borrowed) {
      r.borrowed.emplace_back(from, tag);
    } else {
      r.keep.push_back(std::move(message.room));
    }
  }
}

void Exchange::release_borrowed(Reduction& r) {
  for (const auto& [from, tag] : r.borrowed) messenger_.release(from, tag);
}

bool Exchange::uses_doubling(const Reduction& r) const {
  const std::size_t bytes = r.at.size() * r.arithmetic.work_size();
  const bool is_power_of_two = r.plan.base == layout_.hosts.size();  // a power of two of hosts
  return r.to < 0 && is_power_of_two &&
         bytes <= (r.plan.base == 2 ? kMaxDoublingOfTwo : kMaxDoublingOfMany);
}

// Recursive doubling: every host computes the whole result.
Task Exchange::reduce_by_doubling(Reduction& r) {
  for (std::size_t k = 0; k < r.plan.steps.size(); ++k) {
    const Halving::Step& step = r.plan.steps[k];
    const int partner = r.segment.owners[step.partner];
    MessageTag tag = r.tag(static_cast<std::uint8_t>(MessageTag::kDoubling + k));
    for (std::uint32_t n = 0; n < r.held.size(); ++n) {
      tag.tree_node = n;
      r.sends.push_back(send(partner, tag, r.part(n, r.at)));
    }
    co_await receive_tree_nodes(r, step.partner, tag, step.gets);
    if (k + 1 < r.plan.steps.size())
      r.held = merged(step.merge, r.held, r.at.size(), r.arithmetic, &r.keep);
  }
  for (Task& task : r.sends) co_await task;  // before the result overwrites data that is being sent
  write_result(r.plan.last, r.held, r.at.size(), r.arithmetic, r.out);
  release_borrowed(r);
}

Task Exchange::reduce_by_halving(Reduction& r) {
  for (std::size_t k = 0; k < r.plan.steps.size(); ++k) {
    const Halving::Step& step = r.plan.steps[k];
    const auto [low, high] = halves_of(r.at);
    const Range mine = step.keeps_low ? low : high;
    const Range theirs = step.keeps_low ? high : low;
    MessageTag tag = r.tag(static_cast<std::uint8_t>(MessageTag::kHalving + k));
    for (std::uint32_t n = 0; theirs.size() > 0 && n < r.held.size(); ++n) {
      tag.tree_node = n;
      r.sends.push_back(send(r.segment.owners[step.partner], tag, r.part(n, theirs)));
    }
    for (std::size_t n = 0; n < r.held.size(); ++n) r.held[n] = r.part(n, mine).data();
    r.before.push_back(std::exchange(r.at, mine));
    if (mine.size() > 0) co_await receive_tree_nodes(r, step.partner, tag, step.gets);
    if (mine.size() > 0 && k + 1 < r.plan.steps.size())
      r.held = merged(step.merge, r.held, mine.size(), r.arithmetic, &r.keep);
  }
  for (std::size_t i = 0; r.at.size() > 0 && i < r.plan.extra_tree_nodes.size(); ++i) {
    co_await receive_tree_nodes(r, r.plan.base + i, r.tag(MessageTag::kExtra),
                                r.plan.extra_tree_nodes[i]);
  }
}

void Exchange::write_result(const Merge& whole, const PartialSums& inputs, std::size_t count,
                            Arithmetic arithmetic, std::byte* out) {
  const Merge::Output& last = whole.outputs[0];
  PartialSums parts;
  for (const std::uint32_t input : last.inputs) parts.push_back(inputs[input]);
  const reduce::ByteRange bytes{0, count * arithmetic.work_size()};
  if (arithmetic.work == arithmetic.stored) {
    last.fold->run(parts, bytes, out, arithmetic.work, arithmetic.op, reduce::Stores::kPlain);
    return;
  }
  const Scratch::Buffer wide = scratch_.get(bytes.size());
  last.fold->run(parts, bytes, wide.data(), arithmetic.work, arithmetic.op, reduce::Stores::kPlain);
  reduce::narrow(out, wide.data(), count, arithmetic.stored);
}

// Recursive doubling: results travel back over the pairs of the halving.
Task Exchange::allgather_results(Reduction& r) {
  const Range final = r.at;
  for (std::size_t k = r.plan.steps.size(); k-- > 0;) {
    const int partner = r.segment.owners[r.plan.steps[k].partner];
    MessageTag tag = r.tag(MessageTag::kResult);
    tag.tree_node = static_cast<std::uint32_t>(k);
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

// A host beyond the base sends its partial sums to the hosts of the base that complete the sums,
// and receives the results.
Task Exchange::delegate_to_base(Reduction& r) {
  for (std::size_t host = 0; host < r.plan.base; ++host) {
    const Range share = share_of_host(r.at, host, r.plan.base);
    MessageTag tag = r.tag(MessageTag::kExtra);
    for (std::uint32_t n = 0; share.size() > 0 && n < r.held.size(); ++n) {
      tag.tree_node = n;
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
  if (r.at.size() > 0)
    write_result(plan.last, r.held, r.at.size(), arithmetic, r.result(r.at).data());
  for (Task& task : r.sends) co_await task;  // before results overwrite data that is being sent
  r.sends.clear();
  release_borrowed(r);  // after the sends, which may read that data
  if (to < 0) co_await allgather_results(r);
  if (to == static_cast<int>(layout_.host)) co_await receive_results(r);
  if (to >= 0 && to != static_cast<int>(layout_.host) && r.at.size() > 0) {
    r.sends.push_back(send(r.segment.owners[static_cast<std::size_t>(to)],
                           r.tag(MessageTag::kResult), r.result(r.at)));
  }
  for (Task& task : r.sends) co_await task;
}

}  // namespace regroup::collective::net
