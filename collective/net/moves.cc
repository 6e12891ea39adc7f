// Operations that only move data: broadcast, allgather, gather, scatter, alltoall. Each block
// crosses between two hosts once, straight to its destination; within a host the local communicator
// distributes it.
#include "collective/net/moves.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

namespace regroup::collective::net {
namespace {

constexpr std::size_t kPieceBytes = 1 << 20;
constexpr std::size_t kPieceDepth = 2;  // number of pieces in flight between hosts

// The part of `all` with the blocks of this host's ranks if these are contiguous; else empty.
Output blocks_here(const Layout& layout, Output all, std::size_t block) {
  const auto& here = layout.here();
  const bool together = here.back() - here.front() + 1 == static_cast<int>(here.size());
  if (!together) return {};
  return all.subspan(static_cast<std::size_t>(here.front()) * block, here.size() * block);
}

}  // namespace

Task gather(Exchange& x, Operation o) {
  const Layout& layout = x.layout();
  const std::size_t n = o.in.size();
  const bool root_is_here = layout.host_of(o.root) == layout.host;
  if (!root_is_here) {
    co_await x.send(o.root, {}, o.in);
    co_return;
  }
  std::vector<Task> tasks;
  for (int r = 0; layout.rank == o.root && r < layout.size; ++r) {
    if (layout.is_here(r)) continue;
    tasks.push_back(x.receive(r, {}, o.out.subspan(static_cast<std::size_t>(r) * n, n)));
  }
  if (layout.local_size() == 1) {
    std::byte* const to = o.out.data() + static_cast<std::size_t>(layout.rank) * n;
    if (to != o.in.data()) std::memcpy(to, o.in.data(), n);
  } else {
    Output here = layout.rank == o.root ? blocks_here(layout, o.out, n) : Output();
    Scratch::Buffer room;
    const bool apart = layout.rank == o.root && here.empty();
    if (apart) {
      room = x.scratch().get(layout.local_size() * n);
      here = {room.data(), layout.local_size() * n};
    }
    co_await x.run_locally(Operation::gather(o.in, here, layout.local_rank_of(o.root)));
    for (std::size_t local_rank = 0; apart && local_rank < layout.local_size(); ++local_rank) {
      std::memcpy(o.out.data() + static_cast<std::size_t>(layout.here()[local_rank]) * n,
                  here.data() + local_rank * n, n);
    }
  }
  for (Task& task : tasks) co_await task;
}

Task scatter(Exchange& x, Operation o) {
  const Layout& layout = x.layout();
  const std::size_t n = o.out.size();
  const bool root_is_here = layout.host_of(o.root) == layout.host;
  if (!root_is_here) {
    co_await x.receive(o.root, {}, o.out);
    co_return;
  }
  const auto block = [&](int r) { return o.in.subspan(static_cast<std::size_t>(r) * n, n); };
  std::vector<Task> tasks;
  for (int r = 0; layout.rank == o.root && r < layout.size; ++r) {
    if (!layout.is_here(r)) tasks.push_back(x.send(r, {}, block(r)));
  }
  if (layout.local_size() == 1) {
    if (o.out.data() != block(layout.rank).data())
      std::memcpy(o.out.data(), block(layout.rank).data(), n);
  } else {
    Input here;
    Scratch::Buffer room;
    if (layout.rank == o.root) {
      Output all(const_cast<std::byte*>(o.in.data()), o.in.size());  // only read from
      here = blocks_here(layout, all, n);
    }
    if (layout.rank == o.root && here.empty()) {
      room = x.scratch().get(layout.local_size() * n);
      for (std::size_t local_rank = 0; local_rank < layout.local_size(); ++local_rank)
        std::memcpy(room.data() + local_rank * n, block(layout.here()[local_rank]).data(), n);
      here = {room.data(), layout.local_size() * n};
    }
    co_await x.run_locally(Operation::scatter(here, o.out, layout.local_rank_of(o.root)));
  }
  for (Task& task : tasks) co_await task;
}

Task alltoall(Exchange& x, Operation o) {
  const Layout& layout = x.layout();
  const std::size_t n = o.block(layout.size);
  Scratch::Buffer copy;
  Input in = o.in;
  if (o.in.data() == o.out.data()) {
    copy = x.scratch().get(o.in.size());
    std::memcpy(copy.data(), o.in.data(), o.in.size());
    in = {copy.data(), o.in.size()};
  }
  std::vector<Task> tasks;
  for (int k = 1; k < layout.size; ++k) {  // starts at different ranks, so that not all send to one
    const int to = (layout.rank + k) % layout.size;
    const int from = (layout.rank + layout.size - k) % layout.size;
    if (!layout.is_here(to)) {
      tasks.push_back(x.send(to, {}, in.subspan(static_cast<std::size_t>(to) * n, n)));
    }
    if (!layout.is_here(from)) {
      tasks.push_back(x.receive(from, {}, o.out.subspan(static_cast<std::size_t>(from) * n, n)));
    }
  }
  const Scratch::Buffer to_send = x.scratch().get(layout.local_size() * n);
  const Scratch::Buffer received = x.scratch().get(layout.local_size() * n);
  for (std::size_t local_rank = 0; local_rank < layout.local_size(); ++local_rank) {
    std::memcpy(to_send.data() + local_rank * n,
                in.data() + static_cast<std::size_t>(layout.here()[local_rank]) * n, n);
  }
  co_await x.run_locally(Operation::alltoall({to_send.data(), layout.local_size() * n},
                                             {received.data(), layout.local_size() * n}));
  for (std::size_t local_rank = 0; local_rank < layout.local_size(); ++local_rank) {
    std::memcpy(o.out.data() + static_cast<std::size_t>(layout.here()[local_rank]) * n,
                received.data() + local_rank * n, n);
  }
  for (Task& task : tasks) co_await task;
}

// Each rank sends its block to one rank of each other host; then the ranks of a host exchange the
// blocks that they have received.
Task allgather(Exchange& x, Operation o) {
  const Layout& layout = x.layout();
  const std::size_t n = o.in.size();
  const auto out = [&](int r) { return o.out.subspan(static_cast<std::size_t>(r) * n, n); };
  std::vector<Task> tasks;
  for (std::size_t host = 0; host < layout.hosts.size(); ++host) {
    if (host != layout.host)
      tasks.push_back(x.send(layout.hosts[host][layout.proxy_for(host, layout.rank)], {}, o.in));
  }
  const Layout::ProxiedRanks proxied = layout.ranks_proxied_by(layout.local_rank);
  for (const int r : proxied.mine) tasks.push_back(x.receive(r, {}, out(r)));
  if (out(layout.rank).data() != o.in.data()) std::memcpy(out(layout.rank).data(), o.in.data(), n);
  for (Task& task : tasks) co_await task;
  if (layout.local_size() == 1) co_return;
  // Local allgathers of one block of each proxied rank and our own, piece by piece.
  const std::size_t blocks = proxied.maximum + 1;
  const std::size_t step =
      std::max<std::size_t>(4096, kPieceBytes / (blocks * layout.local_size()));
  for (std::size_t at = 0; at < n; at += step) {
    const std::size_t bytes = std::min(step, n - at);
    const Scratch::Buffer bundle = x.scratch().get(blocks * bytes);
    const Scratch::Buffer all = x.scratch().get(blocks * bytes * layout.local_size());
    std::memcpy(bundle.data(), out(layout.rank).data() + at, bytes);
    for (std::size_t k = 0; k < proxied.mine.size(); ++k) {
      std::memcpy(bundle.data() + (k + 1) * bytes, out(proxied.mine[k]).data() + at, bytes);
    }
    co_await x.run_locally(Operation::allgather(
        {bundle.data(), blocks * bytes}, {all.data(), blocks * bytes * layout.local_size()}));
    for (std::size_t local_rank = 0; local_rank < layout.local_size(); ++local_rank) {
      const std::byte* const from = all.data() + local_rank * blocks * bytes;
      const Layout::ProxiedRanks theirs = layout.ranks_proxied_by(local_rank);
      if (local_rank == layout.local_rank) continue;
      std::memcpy(out(layout.here()[local_rank]).data() + at, from, bytes);
      for (std::size_t k = 0; k < theirs.mine.size(); ++k) {
        std::memcpy(out(theirs.mine[k]).data() + at, from + (k + 1) * bytes, bytes);
      }
    }
  }
}

namespace {

// One piece of a broadcast in flight.
struct BroadcastPiece {
  const Operation& o;
  const std::uint32_t index;
  const Output data;
  Scratch::Buffer room{};
  std::byte* mine = nullptr;  // our slice
  std::optional<Task> task{};
};

// Forwards a segment down a binomial tree of hosts, whose root is the host of the broadcast's root.
Task forward(Exchange& x, Segment segment, Output data, std::uint32_t index,
             std::size_t root_host) {
  const Layout& layout = x.layout();
  const std::size_t hosts = layout.hosts.size();
  const std::size_t me = (layout.host + hosts - root_host) % hosts;
  const MessageTag tag{MessageTag::kBlock, index, segment.index, 0};
  const auto owner = [&](std::size_t relative) {
    return segment.owners[(relative + root_host) % hosts];
  };
  std::size_t distance = 1;
  while (distance < hosts && (me & distance) == 0) distance *= 2;
  if (me != 0) co_await x.receive(owner(me - distance), tag, data);
  std::vector<Task> sends;
  while (distance > 1) {
    distance /= 2;
    if (me + distance < hosts) sends.push_back(x.send(owner(me + distance), tag, data));
  }
  for (Task& task : sends) co_await task;
}

Task forward_slice(Exchange& x, BroadcastPiece& piece) {
  const Layout& layout = x.layout();
  const std::size_t root_host = layout.host_of(piece.o.root);
  const std::size_t first =
      slice_of_local_rank(piece.data.size(), layout.local_size(), layout.local_rank).begin;
  std::vector<Task> tasks;
  for (const Segment& segment : segments_of(layout, piece.data.size())) {
    std::byte* const at = piece.mine + (segment.range.begin - first);
    tasks.push_back(forward(x, segment, {at, segment.range.size()}, piece.index, root_host));
  }
  for (Task& task : tasks) co_await task;
}

Task share_piece(Exchange& x, BroadcastPiece& piece) {
  const Layout& layout = x.layout();
  const std::size_t width = slice_width(piece.data.size(), layout.local_size());
  const bool fits = width * layout.local_size() == piece.data.size();
  Scratch::Buffer room;
  if (!fits) room = x.scratch().get(width * layout.local_size());
  const Output all{fits ? piece.data.data() : room.data(), width * layout.local_size()};
  co_await x.run_locally(Operation::allgather({piece.mine, width}, all));
  if (!fits) std::memcpy(piece.data.data(), all.data(), piece.data.size());
}

}  // namespace

Task broadcast(Exchange& x, Operation o) {
  const Layout& layout = x.layout();
  const bool from_here = layout.host_of(o.root) == layout.host;
  const std::size_t pieces = (o.out.size() + kPieceBytes - 1) / kPieceBytes;
  std::deque<BroadcastPiece> flight;
  for (std::size_t i = 0; i < pieces + kPieceDepth; ++i) {
    if (i < pieces) {
      const std::size_t at = i * kPieceBytes;
      BroadcastPiece& piece = flight.emplace_back(
          BroadcastPiece{o, static_cast<std::uint32_t>(i),
                         o.out.subspan(at, std::min(kPieceBytes, o.out.size() - at))});
      if (from_here && layout.local_size() > 1)
        co_await x.run_locally(Operation::broadcast(piece.data, layout.local_rank_of(o.root)));
      const bool in_place = from_here || layout.local_size() == 1;
      if (!in_place)
        piece.room = x.scratch().get(slice_width(piece.data.size(), layout.local_size()));
      piece.mine =
          in_place ? piece.data.data() + slice_of_local_rank(piece.data.size(), layout.local_size(),
                                                             layout.local_rank)
                                             .begin
                   : piece.room.data();
      piece.task.emplace(forward_slice(x, piece));
    }
    if (i < kPieceDepth || flight.empty()) continue;
    Task& first = *flight.front().task;
    co_await first;
    if (!from_here && layout.local_size() > 1) co_await share_piece(x, flight.front());
    flight.pop_front();
  }
}

}  // namespace regroup::collective::net
