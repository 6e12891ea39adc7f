// The loop of a shard's thread, and the threads of a server.
#include "collective/ps/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "collective/ps/consistency.h"
#include "collective/ps/placement.h"
#include "collective/ps/shard_pause.h"

namespace regroup::collective::ps {
namespace {

using shmem::RealPolicy;

// How often a server looks for clients that have ended.
constexpr std::chrono::milliseconds kLookForEnded{100};
// Bytes of messages of one lane that are answered before the next lane has its turn.
constexpr std::uint64_t kTurnBytes = 8 << 20;

void beat(const MappedShard& shard) {
  shard.lanes.header().beats.fetch_add(1, std::memory_order_relaxed);
}
// Where a table's spec comes from, for messages.
std::string holder_of(std::span<const MappedShard> shards, const std::string& table) {
  for (const MappedShard& shard : shards) {
    const auto headers = ranges_in(shard.store);
    if (!headers.ok()) continue;
    for (const RangeHeader* const header : *headers) {
      const std::uint64_t step = header->restored.load(std::memory_order_relaxed);
      if (step != 0 && table == header->name.data())
        return fmt::format("the checkpoint of step {}", step);
    }
  }
  return "the server";
}
void wake_servers(std::span<const MappedShard> shards) {
  std::atomic<std::uint32_t>& views = header_of(shards.front().store).views;
  views.fetch_add(1, std::memory_order_seq_cst);
  RealPolicy::wake(views);
  for (const MappedShard& shard : shards) shmem::ring(shard.lanes.header().server);
}

}  // namespace

void assign_shards(std::span<const MappedShard> shards, std::span<const std::uint32_t> server_of) {
  for (std::size_t i = 0; i < shards.size(); ++i)
    header_of(shards[i].store).server.store(server_of[i], std::memory_order_seq_cst);
  wake_servers(shards);
}

void note_lost_stores(std::span<const MappedShard> shards, std::uint64_t lost) {
  header_of(shards.front().store).lost_stores.fetch_or(lost, std::memory_order_seq_cst);
}

base::Result<StepHold> StepHold::take(std::span<const MappedShard> shards,
                                      base::TimePoint deadline) {
  if (!lock_robust_until(shards.front().lanes.header().steps.hold, deadline))
    return base::deadline_exceeded("steps: another process holds them; expected one at a time");
  StepHold hold(shards);
  REGROUP_RETURN_IF_ERROR(hold.await_applied(deadline));
  return hold;
}

base::Status StepHold::await_applied(base::TimePoint deadline) const {
  const std::uint64_t step = this->step();
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    const StepWords& words = shards_[shard].lanes.header().steps;
    while (words.applied.load(std::memory_order_seq_cst) < step) {
      const base::TimePoint now = RealPolicy::now();
      if (now >= deadline) {
        return base::deadline_exceeded(
            fmt::format("steps: shard {} does not apply step {}", shard, step - 1));
      }
      // At the end of a job there is no next server. attach() applies what all have logged.
      const auto attached = ShardServer::attach(shards_, shard, now + kLookForEnded);
      if (!attached.ok() && attached.code() != base::Code::kDeadlineExceeded)
        return attached.status();
    }
  }
  return {};
}

StepHold::~StepHold() {
  if (shards_.empty()) return;
  ::pthread_mutex_unlock(&shards_.front().lanes.header().steps.hold);
  shmem::ring(shards_.front().lanes.header().server);
}

std::uint64_t StepHold::step() const { return agreed_steps(shards_.front().lanes.header().steps); }

std::uint64_t StepHold::logged() const {
  return shards_.front().lanes.header().steps.logged.load(std::memory_order_seq_cst);
}

base::Status StepHold::agree(std::uint64_t steps, base::TimePoint deadline) const {
  StepWords& words = shards_.front().lanes.header().steps;
  if (words.agreed.load(std::memory_order_relaxed) < steps) {
    words.agreed.store(steps, std::memory_order_seq_cst);
    for (const MappedShard& shard : shards_) shmem::ring_if_asleep(shard.lanes.header().server);
  }
  return await_applied(deadline);
}

bool StepHold::has_steps() const {
  const Lanes& lanes = shards_.front().lanes;
  if (logged() != 0) return true;
  for (std::uint32_t i = 0; i < lanes.spec().lanes; ++i) {
    const Lane& lane = lanes.lane(i);
    if (lane.client.load(std::memory_order_acquire) != 0 &&
        from_word(lane.consistency.load(std::memory_order_relaxed)).mode == Mode::kSync)
      return true;
  }
  return false;
}

void restore_step(std::span<const MappedShard> shards, std::uint64_t step) {
  for (const MappedShard& shard : shards) {
    shard.lanes.header().steps.logged.store(step, std::memory_order_seq_cst);
    shard.lanes.header().steps.applied.store(step, std::memory_order_seq_cst);
    shard.lanes.header().steps.proposed.store(step, std::memory_order_seq_cst);
    shard.lanes.header().steps.agreed.store(step, std::memory_order_seq_cst);
  }
}

base::Result<MappedShard> MappedShard::open(const ShardMemory& memory, StoreMemory::Mode mode) {
  REGROUP_ASSIGN_OR_RETURN(Lanes lanes, Lanes::open(memory.lanes));
  if (memory.segments.empty()) return base::invalid_argument("shard: expected segments, got none");
  REGROUP_ASSIGN_OR_RETURN(StoreMemory store,
                           StoreMemory::open(memory.segments[0], lanes.spec().most_segments, mode));
  for (std::size_t i = 1; i < memory.segments.size(); ++i)
    REGROUP_RETURN_IF_ERROR(store.add(memory.segments[i]));
  REGROUP_RETURN_IF_ERROR(check_store(store));
  return MappedShard{std::move(store), std::move(lanes)};
}

ShardServer::ShardServer(std::span<const MappedShard> shards, std::size_t shard, ShardLock lock,
                         std::unique_ptr<Store> store)
    : shards_(shards),
      shard_(&shards[shard]),
      lock_(std::move(lock)),
      store_(std::move(store)),
      owners_(shard_->lanes.spec().lanes),
      open_leaves_(shard_->lanes.spec().lanes) {}

base::Result<std::unique_ptr<ShardServer>> ShardServer::attach(std::span<const MappedShard> shards,
                                                               std::size_t number,
                                                               base::TimePoint deadline) {
  const MappedShard& shard = shards[number];
  REGROUP_ASSIGN_OR_RETURN(ShardLock lock, ShardLock::acquire(shard.store, deadline));
  WriteTurn turn(shard.store);
  REGROUP_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, Store::attach(shard.store));
  std::unique_ptr<ShardServer> server(
      new ShardServer(shards, number, std::move(lock), std::move(store)));
  // One replica: what is in the log is committed, except the sum of a step that another shard has
  // not logged yet.
  base::Status status;
  server->store_->each([&](Range& range) {
    if (!range.waits_for_step()) {
      if (base::Status applied = range.apply(range.newest()); !applied.ok()) status = applied;
    }
    range.adopt_epoch(range.epoch() + 1);
  });
  REGROUP_RETURN_IF_ERROR(status);
  if (server->may_apply_step()) REGROUP_RETURN_IF_ERROR(server->apply_step());
  server->store_->release_log();
  turn.settle();
  // The leaves were in the memory of the server that has died.
  clear_leaves(server->steps());
  server->wake_clients();
  LanesHeader& header = shard.lanes.header();
  header.process.store(static_cast<std::uint64_t>(::getpid()), std::memory_order_relaxed);
  header.served_times.fetch_add(1, std::memory_order_release);
  return server;
}

base::Status ShardServer::serve(const std::atomic<bool>& stop, std::uint32_t server) {
  const Lanes& lanes = shard_->lanes;
  const auto ending = [&] {
    return stop.load(std::memory_order_seq_cst) || server_of(shard_->store) != server;
  };
  const auto ready = [&] {
    if (ending() || may_log_step() || may_agree() || may_apply_step()) return true;
    for (std::uint32_t i = 0; i < lanes.spec().lanes; ++i) {
      const Lane& lane = lanes.lane(i);
      if (lane.client.load(std::memory_order_seq_cst) != 0 &&
          lane.damaged.load(std::memory_order_relaxed) == 0 &&
          lane.written.load(std::memory_order_seq_cst) != lane.read.load(std::memory_order_relaxed))
        return true;
    }
    return false;
  };
  while (!ending()) {
    beat(*shard_);
    REGROUP_ASSIGN_OR_RETURN(const std::size_t answered, poll());
    if (const base::TimePoint now = RealPolicy::now(); now - lanes_freed_ >= kLookForEnded) {
      free_lanes();
      lanes_freed_ = now;
    }
    if (answered == 0) {
      // Without a message it wakes up anyway, to look for clients that have ended.
      static_cast<void>(
          shmem::wait_until(lanes.header().server, ready, RealPolicy::now() + kLookForEnded));
    }
  }
  return {};
}

base::Result<std::size_t> ShardServer::poll() {
  std::size_t answered = 0;
  for (std::uint32_t i = 0; i < shard_->lanes.spec().lanes; ++i) {
    REGROUP_ASSIGN_OR_RETURN(const std::size_t of_lane, poll_lane(i));
    answered += of_lane;
  }
  if (may_agree()) agree();
  if (may_log_step() || may_apply_step()) {
    WriteTurn changing(shard_->store);
    if (may_log_step()) log_step();
    if (may_apply_step()) REGROUP_RETURN_IF_ERROR(apply_step());
    changing.settle();
  }
  return answered;
}

base::Result<std::size_t> ShardServer::poll_lane(std::uint32_t number) {
  Lane& lane = shard_->lanes.lane(number);
  if (lane.damaged.load(std::memory_order_relaxed) != 0) return std::size_t{0};
  if (const base::Status owner = know_owner(number); !owner.ok()) {
    refuse_lane(lane, owner);
    return std::size_t{1};
  }
  if (owners_[number] == 0) return std::size_t{0};
  std::uint64_t place = lane.read.load(std::memory_order_relaxed);
  const std::uint64_t written = lane.written.load(std::memory_order_acquire);
  if (place == written) return std::size_t{0};
  std::size_t answered = 0;
  WriteTurn changing(shard_->store);
  for (std::uint64_t turn = 0; place != written && turn < kTurnBytes; ++answered) {
    const auto header = shard_->lanes.check_message(number, place, written - place);
    const base::Status status = header.ok() ? answer(number, place, *header) : header.status();
    if (!header.ok() || status.code() == base::Code::kDataLoss) {
      refuse_lane(lane, status);
      ++answered;
      break;
    }
    beat(*shard_);
    place += header->bytes;
    turn += header->bytes;
    // The answer before `read`: a client looks at answers up to `read` only.
    lane.read.store(place, std::memory_order_seq_cst);
    shmem::ring_if_asleep(lane.bell);
  }
  changing.settle();
  return answered;
}

// Returns kDataLoss if the message is damaged; other errors are the answer.
base::Status ShardServer::answer(std::uint32_t number, std::uint64_t place,
                                 const MessageHeader& header) {
  if (header.kind == MessageKind::kPad) return {};
  std::byte* const message = shard_->lanes.at(number, place);
  base::Status status;
  if (header.kind == MessageKind::kOpen) {
    OpenContent content;
    std::memcpy(&content, message + kContentAt, sizeof content);
    const base::Result<TableSpec> spec = spec_in(content);
    status = spec.ok() ? open_table(*spec) : spec.status();
  } else if (header.kind == MessageKind::kLeafEnd) {
    status = end_leaf(number, header);
  } else if (header.leaves != 0) {
    status = take_push(number, message, header);
  } else {
    status = push(owners_[number] - 1, message, header);
  }
  if (status.code() == base::Code::kDataLoss) return status;
  const auto code = static_cast<std::uint32_t>(status.code());
  if (!status.ok()) {
    const std::string& text = status.message();
    const std::size_t size = std::min<std::size_t>(text.size(), kAnswerBytes - 1);
    std::memcpy(message + sizeof(MessageHeader), text.data(), size);
    message[sizeof(MessageHeader) + size] = std::byte{0};
  }
  std::memcpy(message + offsetof(MessageHeader, answer), &code, sizeof code);
  return {};
}

base::Status ShardServer::open_table(const TableSpec& spec) {
  std::uint32_t next = 1;
  base::Status differs;
  store_->each([&](const Range& range) {
    next = std::max(next, range.id() + 1);
    if (range.spec().name == spec.name && differs.ok())
      differs = check_same(spec, range.spec(), holder_of(shards_, spec.name));
  });
  REGROUP_RETURN_IF_ERROR(differs);
  const LaneSpec& here = shard_->lanes.spec();
  std::vector<PositionRange> missing;
  const std::vector<PositionRange> ranges = ranges_of(spec, here.shards);
  REGROUP_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> placed, place(spec, ranges));
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (placed[i] != here.shard) continue;
    // A server that died may have made some of them.
    bool there = false;
    store_->each([&](const Range& range) {
      there |= range.spec().name == spec.name && range.header().positions == ranges[i];
    });
    if (!there) missing.push_back(ranges[i]);
  }
  // All or none: ranges that are made stay.
  REGROUP_RETURN_IF_ERROR(store_->check_room(spec, missing.size()));
  for (const PositionRange& range : missing)
    REGROUP_RETURN_IF_ERROR(store_->open_range(next++, spec, range).status());
  return {};
}

base::Result<std::vector<std::uint32_t>> ShardServer::place(const TableSpec& spec,
                                                            std::span<const PositionRange> ranges) {
  const LaneSpec& here = shard_->lanes.spec();
  REGROUP_ASSIGN_OR_RETURN(const std::vector<PlacedTable> tables, tables_in(shards_.front().store));
  std::vector<ShardUse> used(here.shards);
  for (const PlacedTable& table : tables) {
    const std::vector<PositionRange> cuts = ranges_of(table.spec, here.shards);
    if (cuts.size() != table.shard_of.size() ||
        std::ranges::any_of(table.shard_of, [&](auto shard) { return shard >= here.shards; })) {
      return base::internal_error(
          fmt::format("store: the places of table {} are damaged", table.spec.name));
    }
    if (table.spec.name == spec.name) {
      REGROUP_RETURN_IF_ERROR(check_same(spec, table.spec, holder_of(shards_, spec.name)));
      return table.shard_of;
    }
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      used[table.shard_of[i]].bytes += expected_bytes(table.spec, cuts[i]);
      ++used[table.shard_of[i]].ranges;
    }
  }
  // Nothing is to be decided for a whole table. Of a part there may be no range that says so.
  if (here.shards == 1 && spec.part.of == 1) return std::vector<std::uint32_t>(ranges.size());
  if (here.shard != 0) {
    return base::invalid_argument(fmt::format(
        "table {}: shard {} is asked before shard 0, which places it", spec.name, here.shard));
  }
  std::vector<std::uint64_t> bytes;
  for (const PositionRange& range : ranges) bytes.push_back(expected_bytes(spec, range));
  std::vector<std::uint32_t> placed = place_ranges(bytes, std::move(used));
  REGROUP_RETURN_IF_ERROR(check_room(spec, placed));
  REGROUP_RETURN_IF_ERROR(store_->place_table(spec, placed));
  return placed;
}

// A table that is placed stays, so each shard must have room for its part first. Pushes
// to another shard may take its room meanwhile: then that shard refuses open().
base::Status ShardServer::check_room(const TableSpec& spec, std::span<const std::uint32_t> placed) {
  const auto ranges_in_shard = [&](std::uint32_t shard) {
    return static_cast<std::size_t>(std::ranges::count(placed, shard));
  };
  REGROUP_RETURN_IF_ERROR(store_->check_room(spec, 1 + ranges_in_shard(0)));  // and its own block
  for (std::uint32_t shard = 1; shard < shards_.size(); ++shard) {
    const std::uint64_t needed = ranges_in_shard(shard) * kBlockBytes;
    const std::uint64_t free = free_bytes(shards_[shard].store);
    if (needed <= free) continue;
    return base::resource_exhausted(
        fmt::format("table {}: {} ranges need {} bytes in shard {}, and {} are free there "
                    "(--ps-memory is the limit)",
                    spec.name, ranges_in_shard(shard), needed, shard, free));
  }
  return {};
}

base::Status ShardServer::push(std::uint64_t client, std::byte* message,
                               const MessageHeader& header) {
  REGROUP_ASSIGN_OR_RETURN(const PushView view, read_push(message, header));
  base::Status first;
  for (const PushView::Part& part : view.parts) {
    Range* const range = store_->range(part.range);
    if (range == nullptr) {
      first = base::invalid_argument(
          fmt::format("push: shard {} has no range {}", shard_->lanes.spec().shard, part.range));
      continue;
    }
    // Copied, so that a client cannot change positions after they were checked.
    positions_.assign(part.positions.begin(), part.positions.end());
    // Messages of a lane are in order and none can be lost, so `previous` need not be checked.
    const base::Status status = push_part({.client = client,
                                           .number = header.number,
                                           .epoch = range->epoch(),
                                           .positions = positions_,
                                           .gradients = part.gradients,
                                           .scalars = {.lr = header.lr}},
                                          *range);
    if (first.ok()) first = status;
  }
  store_->release_log();
  return first;
}

base::Status ShardServer::push_part(const Push& push, Range& range) {
  const std::size_t rows = push.positions.size();
  if (range.waits_for_step()) {
    return base::invalid_argument(fmt::format(
        "push to table {}: a step of mode sync is not complete; expected clients in mode "
        "sync that complete it",
        range.spec().name));
  }
  REGROUP_RETURN_IF_ERROR(
      check_push(range.spec(), rows, rows, range.spec().compute_dtype(), push.scalars));
  base::Result<Appended> appended = range.append(push);
  if (appended.code() == base::Code::kUnavailable) {  // parts before it fill the log
    store_->release_log();
    appended = range.append(push);
  }
  REGROUP_RETURN_IF_ERROR(appended.status());
  return range.apply(range.newest());
}

// ---- mode sync

base::Result<bool> ShardServer::takes_step(const MessageHeader& header) {
  StepWords& words = steps();
  // Nobody computes a leaf of a step before all shards have applied the one before it.
  const std::uint64_t step = words.applied.load(std::memory_order_relaxed);
  if (words.logged.load(std::memory_order_relaxed) != step || header.step != step) return false;
  if (!sums_) {
    sums_.emplace(header.leaves);
    words.of_several.store(header.of_several, std::memory_order_seq_cst);
    words.leaves.store(header.leaves, std::memory_order_relaxed);
  }
  if (sums_->leaves() == header.leaves) return true;
  return base::invalid_argument(
      fmt::format("step {}: expected {} leaves as other clients have, got "
                  "{}",
                  step, sums_->leaves(), header.leaves));
}

base::Status ShardServer::take_push(std::uint32_t number, std::byte* message,
                                    const MessageHeader& header) {
  REGROUP_ASSIGN_OR_RETURN(const PushView view, read_push(message, header));
  REGROUP_ASSIGN_OR_RETURN(const bool counts, takes_step(header));
  if (!counts || sums_->has(header.leaf)) return {};
  OpenLeaf& leaf = open_leaves_[number];
  if (leaf.attempt != header.attempt) leaf = {.attempt = header.attempt};
  for (const PushView::Part& part : view.parts) {
    const Range* const range = store_->range(part.range);
    if (range == nullptr) {
      return base::invalid_argument(
          fmt::format("push: shard {} has no range {}", shard_->lanes.spec().shard, part.range));
    }
    // Copied, so that a client cannot change them after they were checked.
    RangeGradients gradients{.dtype = range->spec().compute_dtype(),
                             .dim = range->spec().dim,
                             .lr = header.lr,
                             .positions = {part.positions.begin(), part.positions.end()},
                             .values = {part.gradients.begin(), part.gradients.end()}};
    const std::size_t rows = gradients.positions.size();
    const Scalars scalars{.lr = header.lr};
    REGROUP_RETURN_IF_ERROR(check_push(range->spec(), rows, rows, gradients.dtype, scalars));
    REGROUP_RETURN_IF_ERROR(
        range->check_content({.positions = gradients.positions, .gradients = gradients.values}));
    REGROUP_RETURN_IF_ERROR(sums_->check_scalars_of(part.range, scalars));
    add_push(leaf.gradients, part.range, std::move(gradients));
  }
  ++leaf.pushes;
  return {};
}

base::Status ShardServer::end_leaf(std::uint32_t number, const MessageHeader& header) {
  OpenLeaf leaf = std::exchange(open_leaves_[number], {});
  REGROUP_ASSIGN_OR_RETURN(const bool counts, takes_step(header));
  if (!counts || sums_->has(header.leaf)) return {};
  if (leaf.attempt != header.attempt) leaf = {};
  // Some may have been refused, or taken by a server that has died: the client sees that the leaf
  // lacks.
  if (leaf.pushes != header.number) return {};
  sums_->add_leaf(header.leaf, std::move(leaf.gradients));
  set_leaf(steps(), header.leaf);
  return {};
}

bool ShardServer::may_log_step() const {
  if (!sums_ || !sums_->is_complete()) return false;
  const std::uint64_t step = steps().logged.load(std::memory_order_relaxed);
  return shard_->lanes.spec().shard != 0 ||
         std::ranges::all_of(shards_.subspan(1), [&](const MappedShard& shard) {
           return shard.lanes.header().steps.logged.load(std::memory_order_seq_cst) > step;
         });
}

void ShardServer::log_step() {
  StepWords& words = steps();
  const bool is_last = shard_->lanes.spec().shard == 0;
  if (is_last && !try_lock_robust(words.hold)) return;
  const std::uint64_t step = words.logged.load(std::memory_order_relaxed);
  const base::Status status = append_sums(sums_->sums(), step);
  sums_.reset();
  if (status.ok()) {
    // From here on the step is a successor's, too. The bits are of the next step afterwards.
    words.logged.store(step + 1, std::memory_order_seq_cst);
  } else {
    const std::size_t size = std::min(status.message().size(), words.why.size() - 1);
    std::copy_n(status.message().begin(), size, words.why.begin());
    words.why[size] = 0;
    words.code.store(static_cast<std::uint32_t>(status.code()), std::memory_order_relaxed);
    words.failed.store(step + 1, std::memory_order_seq_cst);
  }
  if (is_last) ::pthread_mutex_unlock(&words.hold);
  clear_leaves(words);
  for (const MappedShard& shard : shards_) shmem::ring_if_asleep(shard.lanes.header().server);
  wake_clients();
}

base::Status ShardServer::append_sums(const ShardGradients& sums, std::uint64_t step) {
  for (const auto& [number, gradients] : sums) {
    Range& range = *store_->range(number);
    // A predecessor may have logged it: then it is the same, and a duplicate here.
    const Push push{.client = kStepClient,
                    .number = step + 1,
                    .epoch = range.epoch(),
                    .positions = gradients.positions,
                    .gradients = gradients.values,
                    .scalars = {.lr = gradients.lr}};
    if (range.can_ever_log(push)) {
      const base::Result<Appended> appended = range.append(push);
      if (appended.ok()) continue;
      if (appended.code() != base::Code::kUnavailable) return appended.status();
    }
    return base::resource_exhausted(fmt::format(
        "step {}: its gradients do not fit into the log of shard {}, {} bytes; expected "
        "more servers or smaller tables",
        step, shard_->lanes.spec().shard, header_of(shard_->store).ring_bytes));
  }
  return {};
}

bool ShardServer::may_agree() const {
  return shard_->lanes.spec().shard == 0 && steps().proposed.load(std::memory_order_seq_cst) >
                                                steps().agreed.load(std::memory_order_relaxed);
}

void ShardServer::agree() {
  StepWords& words = steps();
  if (!try_lock_robust(words.hold)) return;
  words.agreed.store(words.proposed.load(std::memory_order_seq_cst), std::memory_order_seq_cst);
  ::pthread_mutex_unlock(&words.hold);
  for (const MappedShard& shard : shards_) shmem::ring_if_asleep(shard.lanes.header().server);
  wake_clients();
}

bool ShardServer::may_apply_step() const {
  const std::uint64_t applied = steps().applied.load(std::memory_order_relaxed);
  if (agreed_steps(shards_.front().lanes.header().steps) <= applied) return false;
  return std::ranges::all_of(shards_, [&](const MappedShard& shard) {
    return shard.lanes.header().steps.logged.load(std::memory_order_seq_cst) > applied;
  });
}

base::Status ShardServer::apply_step() {
  base::Status status;
  store_->each([&](Range& range) {
    if (base::Status applied = range.apply(range.newest()); !applied.ok()) status = applied;
  });
  REGROUP_RETURN_IF_ERROR(status);
  store_->release_log();
  steps().applied.fetch_add(1, std::memory_order_seq_cst);
  wake_clients();
  return {};
}

void ShardServer::wake_clients() const {
  const Lanes& lanes = shards_.front().lanes;
  lanes.header().steps.changes.fetch_add(1, std::memory_order_seq_cst);
  wake_clock_waiters<RealPolicy>(lanes.clock_bells(), lanes.spec().lanes);
}

base::Status ShardServer::know_owner(std::uint32_t number) {
  const auto text = [](std::uint64_t client) {
    return client == 0 ? std::string("no client") : fmt::format("client {}", client - 1);
  };
  const std::uint64_t client = shard_->lanes.lane(number).client.load(std::memory_order_acquire);
  std::uint64_t& owner = owners_[number];
  if (client == owner) return {};
  if (owner != 0) {
    return base::data_loss(
        fmt::format("lane {}: {} has taken it, and it names {}; a process has written it", number,
                    text(owner), text(client)));
  }
  if (std::ranges::find(owners_, client) != owners_.end()) {
    return base::data_loss(
        fmt::format("lane {}: it names {}, which has another lane", number, text(client)));
  }
  owner = client;
  return {};
}

// The client reads `why` and gives up; its other messages are not read.
void ShardServer::refuse_lane(Lane& lane, const base::Status& why) {
  const std::string& text = why.message();
  const std::size_t size = std::min(text.size(), lane.why.size() - 1);
  std::copy_n(text.begin(), size, lane.why.begin());
  lane.why[size] = 0;
  lane.damaged.store(1, std::memory_order_seq_cst);
  shmem::ring_if_asleep(lane.bell);
}

void ShardServer::free_lanes() {
  pthread_mutex_t& attaching = shard_->lanes.header().attaching;
  if (!try_lock_robust(attaching)) return;
  for (std::uint32_t i = 0; i < shard_->lanes.spec().lanes; ++i) {
    Lane& lane = shard_->lanes.lane(i);
    const bool used = lane.client.load(std::memory_order_acquire) != 0 || owners_[i] != 0 ||
                      lane.damaged.load(std::memory_order_relaxed) != 0;
    if (!used || !try_lock_robust(lane.holder)) continue;
    free_lane(i);
    ::pthread_mutex_unlock(&lane.holder);
  }
  ::pthread_mutex_unlock(&attaching);
}

// The lane's holder has ended. What it had written whole counts: it is answered first.
void ShardServer::free_lane(std::uint32_t number) {
  Lane& lane = shard_->lanes.lane(number);
  if (lane.damaged.load(std::memory_order_relaxed) == 0) {
    if (const base::Status owner = know_owner(number); !owner.ok()) refuse_lane(lane, owner);
    if (lane.written.load(std::memory_order_acquire) != lane.read.load(std::memory_order_relaxed))
      return;
  }
  open_leaves_[number] = {};
  std::uint64_t client = std::exchange(owners_[number], 0);
  if (client == 0) client = lane.client.load(std::memory_order_relaxed);  // of a predecessor's time
  if (client != 0 && std::ranges::find(owners_, client) == owners_.end())
    store_->each([&](Range& range) { range.drop_client(client - 1); });
  if (shard_->lanes.spec().shard == 0) {
    const Lanes& lanes = shard_->lanes;
    end_clock<RealPolicy>(lanes.clock_words(), lanes.clock_bells(), lanes.spec().lanes, number);
    for (auto& claim : steps().claims) {
      std::uint64_t word = claim.load(std::memory_order_relaxed);
      if (word != 0 && LeafClaim::of(word).lane == number) claim.compare_exchange_strong(word, 0);
    }
    wake_clients();
    lane.held_up_others.store(0, std::memory_order_relaxed);
    lane.waits_for.store(0, std::memory_order_relaxed);
  }
  // Later clients may want another number of leaves.
  if (sums_ && std::ranges::all_of(owners_, [](std::uint64_t owner) { return owner == 0; })) {
    sums_.reset();
    clear_leaves(steps());
  }
  lane.written.store(0, std::memory_order_relaxed);
  lane.read.store(0, std::memory_order_relaxed);
  lane.damaged.store(0, std::memory_order_release);
  // Last: if this server dies before, its successor does it all again.
  lane.client.store(0, std::memory_order_release);
}

base::Result<std::unique_ptr<Server>> Server::start(const ServerMemory& memory,
                                                    std::chrono::seconds takeover,
                                                    std::uint32_t number) {
  if (memory.shards.empty()) return base::invalid_argument("server: expected shards, got none");
  std::vector<MappedShard> shards;
  for (const ShardMemory& shard : memory.shards) {
    REGROUP_ASSIGN_OR_RETURN(MappedShard mapped,
                             MappedShard::open(shard, StoreMemory::Mode::kWrite));
    shards.push_back(std::move(mapped));
  }
  std::unique_ptr<Server> server(new Server(std::move(shards), number));
  server->watch_ = std::thread(&Server::watch, server.get(), takeover);
  return server;
}

Server::~Server() {
  stop();
  static_cast<void>(wait());
}

void Server::stop() {
  // wait() locks last, so the owner unmaps nothing that this still rings.
  const std::lock_guard lock(mutex_);
  stop_.store(true, std::memory_order_seq_cst);
  wake_servers(shards_);
}

base::Status Server::wait() {
  if (watch_.joinable()) watch_.join();
  const std::lock_guard lock(mutex_);
  return first_error_;
}

void Server::watch(std::chrono::seconds takeover) {
  std::atomic<std::uint32_t>& views = header_of(shards_.front().store).views;
  std::vector<std::thread> threads(shards_.size());
  std::vector<std::atomic<bool>> running(shards_.size());
  while (!stop_.load(std::memory_order_seq_cst)) {
    const std::uint32_t seen = views.load(std::memory_order_seq_cst);
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      if (!has(i) || running[i].load(std::memory_order_acquire)) continue;
      if (threads[i].joinable()) threads[i].join();
      running[i].store(true, std::memory_order_relaxed);
      threads[i] = std::thread([this, i, takeover, &running] {
        run(i, takeover);
        running[i].store(false, std::memory_order_release);
      });
    }
    // It looks again anyway: a thread that ended while its shard came back is started then.
    RealPolicy::wait(views, seen, RealPolicy::now() + kLookForEnded);
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
}

void Server::run(std::size_t shard, std::chrono::seconds takeover) {
  const base::TimePoint end = RealPolicy::now() + takeover;
  base::Status status;
  while (!stop_.load(std::memory_order_seq_cst) && has(shard)) {
    beat(shards_[shard]);
    // In slices, so that stop() is noticed.
    const base::TimePoint slice = std::min(end, RealPolicy::now() + kLookForEnded);
    auto server = ShardServer::attach(shards_, shard, slice);
    if (server.code() == base::Code::kDeadlineExceeded && slice < end) continue;
    status = server.ok() ? (*server)->serve(stop_, number_) : server.status();
    break;
  }
  if (status.ok()) return;
  {
    const std::lock_guard lock(mutex_);
    if (first_error_.ok()) first_error_ = status;
  }
  stop();
}

}  // namespace regroup::collective::ps
