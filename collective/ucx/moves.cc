// Operations that only move data: broadcast, allgather, gather, scatter, alltoall. Between hosts each block
// goes once, straight to where it is wanted; inside a host the local communicator hands it on.
#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "collective/ucx/communicator.h"

namespace regroup::collective {
namespace {

constexpr std::size_t kPieceBytes = 1 << 20;
constexpr std::size_t kPieceDepth = 2;  // pieces between hosts at a time

}  // namespace

std::size_t UcxCommunicator::seat_for(std::size_t host, int rank) const {
  const auto& ranks = layout_.hosts[host];
  const auto before = std::ranges::lower_bound(ranks, rank) - ranks.begin();
  return static_cast<std::size_t>(rank - static_cast<int>(before)) % ranks.size();
}

UcxCommunicator::Duties UcxCommunicator::duties_of(std::size_t seat) const {
  Duties out;
  const auto& here = layout_.here();
  for (int r = 0; r < size(); ++r) {
    if (!std::ranges::binary_search(here, r) && seat_for(layout_.host, r) == seat) out.mine.push_back(r);
  }
  out.most = (ranks_.size() - here.size() + here.size() - 1) / here.size();
  return out;
}

// The blocks of this host's members out of all; one after the other if they lie so, else nothing.
Output UcxCommunicator::blocks_here(Output all, std::size_t block) const {
  const auto& here = layout_.here();
  const bool together = here.back() - here.front() + 1 == static_cast<int>(here.size());
  if (!together) return {};
  return all.subspan(static_cast<std::size_t>(here.front()) * block, here.size() * block);
}

Task UcxCommunicator::gather(Exchange& x, Operation o) {
  const std::size_t n = o.in.size();
  const bool root_is_here = layout_.host_of(o.root) == layout_.host;
  if (!root_is_here) {
    co_await x.send(o.root, {}, o.in);
    co_return;
  }
  std::vector<Task> tasks;
  for (int r = 0; rank_ == o.root && r < size(); ++r) {
    if (std::ranges::binary_search(layout_.here(), r)) continue;
    tasks.push_back(x.receive(r, {}, o.out.subspan(static_cast<std::size_t>(r) * n, n)));
  }
  if (seats() == 1) {
    std::byte* const to = o.out.data() + static_cast<std::size_t>(rank_) * n;
    if (to != o.in.data()) std::memcpy(to, o.in.data(), n);
  } else {
    Output here = rank_ == o.root ? blocks_here(o.out, n) : Output();
    Scratch::Buffer room;
    const bool apart = rank_ == o.root && here.empty();
    if (apart) {
      room = scratch_.get(seats() * n);
      here = {room.data(), seats() * n};
    }
    co_await local(Operation::gather(o.in, here, seat_of(o.root)));
    for (std::size_t seat = 0; apart && seat < seats(); ++seat) {
      std::memcpy(o.out.data() + static_cast<std::size_t>(layout_.here()[seat]) * n, here.data() + seat * n,
                  n);
    }
  }
  for (Task& task : tasks) co_await task;
}

Task UcxCommunicator::scatter(Exchange& x, Operation o) {
  const std::size_t n = o.out.size();
  const bool root_is_here = layout_.host_of(o.root) == layout_.host;
  if (!root_is_here) {
    co_await x.receive(o.root, {}, o.out);
    co_return;
  }
  const auto block = [&](int r) { return o.in.subspan(static_cast<std::size_t>(r) * n, n); };
  std::vector<Task> tasks;
  for (int r = 0; rank_ == o.root && r < size(); ++r) {
    if (!std::ranges::binary_search(layout_.here(), r)) tasks.push_back(x.send(r, {}, block(r)));
  }
  if (seats() == 1) {
    if (o.out.data() != block(rank_).data()) std::memcpy(o.out.data(), block(rank_).data(), n);
  } else {
    Input here;
    Scratch::Buffer room;
    if (rank_ == o.root) {
      Output all(const_cast<std::byte*>(o.in.data()), o.in.size());  // only read
      here = blocks_here(all, n);
    }
    if (rank_ == o.root && here.empty()) {
      room = scratch_.get(seats() * n);
      for (std::size_t seat = 0; seat < seats(); ++seat)
        std::memcpy(room.data() + seat * n, block(layout_.here()[seat]).data(), n);
      here = {room.data(), seats() * n};
    }
    co_await local(Operation::scatter(here, o.out, seat_of(o.root)));
  }
  for (Task& task : tasks) co_await task;
}

Task UcxCommunicator::alltoall(Exchange& x, Operation o) {
  const std::size_t n = o.block(size());
  Scratch::Buffer copy;
  Input in = o.in;
  if (o.in.data() == o.out.data()) {
    copy = scratch_.get(o.in.size());
    std::memcpy(copy.data(), o.in.data(), o.in.size());
    in = {copy.data(), o.in.size()};
  }
  std::vector<Task> tasks;
  for (int k = 1; k < size(); ++k) {  // not all to the same rank at first
    const int to = (rank_ + k) % size();
    const int from = (rank_ + size() - k) % size();
    if (!std::ranges::binary_search(layout_.here(), to)) {
      tasks.push_back(x.send(to, {}, in.subspan(static_cast<std::size_t>(to) * n, n)));
    }
    if (!std::ranges::binary_search(layout_.here(), from)) {
      tasks.push_back(x.receive(from, {}, o.out.subspan(static_cast<std::size_t>(from) * n, n)));
    }
  }
  const Scratch::Buffer there = scratch_.get(seats() * n);
  const Scratch::Buffer back = scratch_.get(seats() * n);
  for (std::size_t seat = 0; seat < seats(); ++seat) {
    std::memcpy(there.data() + seat * n, in.data() + static_cast<std::size_t>(layout_.here()[seat]) * n, n);
  }
  co_await local(Operation::alltoall({there.data(), seats() * n}, {back.data(), seats() * n}));
  for (std::size_t seat = 0; seat < seats(); ++seat) {
    std::memcpy(o.out.data() + static_cast<std::size_t>(layout_.here()[seat]) * n, back.data() + seat * n, n);
  }
  for (Task& task : tasks) co_await task;
}

// Each rank's block goes to one member of each other host. What the members of a host have then, they share.
Task UcxCommunicator::allgather(Exchange& x, Operation o) {
  const std::size_t n = o.in.size();
  const auto out = [&](int r) { return o.out.subspan(static_cast<std::size_t>(r) * n, n); };
  std::vector<Task> tasks;
  for (std::size_t host = 0; host < layout_.hosts.size(); ++host) {
    if (host != layout_.host) tasks.push_back(x.send(layout_.hosts[host][seat_for(host, rank_)], {}, o.in));
  }
  const Duties duties = duties_of(layout_.seat);
  for (const int r : duties.mine) tasks.push_back(x.receive(r, {}, out(r)));
  if (out(rank_).data() != o.in.data()) std::memcpy(out(rank_).data(), o.in.data(), n);
  for (Task& task : tasks) co_await task;
  if (seats() == 1) co_return;
  // Bundles of one block of each duty and our own, piece by piece.
  const std::size_t blocks = duties.most + 1;
  const std::size_t step = std::max<std::size_t>(4096, kPieceBytes / (blocks * seats()));
  for (std::size_t at = 0; at < n; at += step) {
    const std::size_t bytes = std::min(step, n - at);
    const Scratch::Buffer bundle = scratch_.get(blocks * bytes);
    const Scratch::Buffer all = scratch_.get(blocks * bytes * seats());
    std::memcpy(bundle.data(), out(rank_).data() + at, bytes);
    for (std::size_t k = 0; k < duties.mine.size(); ++k) {
      std::memcpy(bundle.data() + (k + 1) * bytes, out(duties.mine[k]).data() + at, bytes);
    }
    co_await local(
        Operation::allgather({bundle.data(), blocks * bytes}, {all.data(), blocks * bytes * seats()}));
    for (std::size_t seat = 0; seat < seats(); ++seat) {
      const std::byte* const from = all.data() + seat * blocks * bytes;
      const Duties theirs = duties_of(seat);
      if (seat == layout_.seat) continue;
      std::memcpy(out(layout_.here()[seat]).data() + at, from, bytes);
      for (std::size_t k = 0; k < theirs.mine.size(); ++k) {
        std::memcpy(out(theirs.mine[k]).data() + at, from + (k + 1) * bytes, bytes);
      }
    }
  }
}

// One piece of a broadcast, on its way.
struct UcxCommunicator::Wave {
  const Operation& o;
  const std::uint32_t index;
  const Output data;
  Scratch::Buffer room{};
  std::byte* mine = nullptr;  // our slice
  std::optional<Task> task{};
};

// Down a binomial tree of hosts whose first is the root's.
Task UcxCommunicator::pass_on(Exchange& x, Segment segment, Output data, std::uint32_t index,
                              std::size_t root_host) {
  const std::size_t hosts = layout_.hosts.size();
  const std::size_t me = (layout_.host + hosts - root_host) % hosts;
  const Piece piece{Piece::kBlock, index, segment.index, 0};
  const auto owner = [&](std::size_t relative) { return segment.owners[(relative + root_host) % hosts]; };
  std::size_t distance = 1;
  while (distance < hosts && (me & distance) == 0) distance *= 2;
  if (me != 0) co_await x.receive(owner(me - distance), piece, data);
  std::vector<Task> sends;
  while (distance > 1) {
    distance /= 2;
    if (me + distance < hosts) sends.push_back(x.send(owner(me + distance), piece, data));
  }
  for (Task& task : sends) co_await task;
}

Task UcxCommunicator::pass_on_slice(Exchange& x, Wave& wave) {
  const std::size_t root_host = layout_.host_of(wave.o.root);
  const std::size_t first = slice_of_seat(wave.data.size(), seats(), layout_.seat).begin;
  std::vector<Task> tasks;
  for (const Segment& segment : segments_of(layout_, wave.data.size())) {
    std::byte* const at = wave.mine + (segment.range.begin - first);
    tasks.push_back(pass_on(x, segment, {at, segment.range.size()}, wave.index, root_host));
  }
  for (Task& task : tasks) co_await task;
}

Task UcxCommunicator::share_wave(Wave& wave) {
  const std::size_t width = slice_width(wave.data.size(), seats());
  const bool fits = width * seats() == wave.data.size();
  Scratch::Buffer room;
  if (!fits) room = scratch_.get(width * seats());
  const Output all{fits ? wave.data.data() : room.data(), width * seats()};
  co_await local(Operation::allgather({wave.mine, width}, all));
  if (!fits) std::memcpy(wave.data.data(), all.data(), wave.data.size());
}

Task UcxCommunicator::broadcast(Exchange& x, Operation o) {
  const bool from_here = layout_.host_of(o.root) == layout_.host;
  const std::size_t pieces = (o.out.size() + kPieceBytes - 1) / kPieceBytes;
  std::deque<Wave> flight;
  for (std::size_t i = 0; i < pieces + kPieceDepth; ++i) {
    if (i < pieces) {
      const std::size_t at = i * kPieceBytes;
      Wave& wave = flight.emplace_back(Wave{o, static_cast<std::uint32_t>(i),
                                            o.out.subspan(at, std::min(kPieceBytes, o.out.size() - at))});
      if (from_here && seats() > 1) co_await local(Operation::broadcast(wave.data, seat_of(o.root)));
      const bool in_place = from_here || seats() == 1;
      if (!in_place) wave.room = scratch_.get(slice_width(wave.data.size(), seats()));
      wave.mine = in_place ? wave.data.data() + slice_of_seat(wave.data.size(), seats(), layout_.seat).begin
                           : wave.room.data();
      wave.task.emplace(pass_on_slice(x, wave));
    }
    if (i < kPieceDepth || flight.empty()) continue;
    Task& first = *flight.front().task;
    co_await first;
    if (!from_here && seats() > 1) co_await share_wave(flight.front());
    flight.pop_front();
  }
}

}  // namespace regroup::collective
