// Pushes through lanes, pulls from stores.
#include "collective/ps/client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/deadline.h"
#include "collective/ps/consistency.h"
#include "collective/ps/link.h"
#include "collective/ps/remote_client.h"
#include "collective/ps/signals_blocked.h"

namespace regroup::collective::ps {
namespace {

using base::invalid_argument;
using base::Status;
using shmem::RealPolicy;

// How often a client that found no free lane looks again.
constexpr std::chrono::milliseconds kLookForLane{1};
// A thread that waits for an answer looks itself after this time, whatever the bell says.
constexpr std::chrono::seconds kLookAgain{1};
Status other_processes_attach(std::uint64_t client, const Lanes& lanes) {
  return base::deadline_exceeded(
      fmt::format("client {}: other processes take and free lanes of shard {}; expected a turn",
                  client, lanes.spec().shard));
}
Status caller_is_gone() { return base::revoked("the process that called has gone"); }

}  // namespace

// ---- LaneHolder

base::Result<std::unique_ptr<LaneHolder>> LaneHolder::take(const std::vector<MappedShard>& shards,
                                                           const ClientOptions& options,
                                                           const Caller& caller,
                                                           base::TimePoint deadline) {
  std::unique_ptr<LaneHolder> holder(new LaneHolder(shards, options, caller));
  try {
    const SignalsBlocked blocked;
    holder->thread_ = std::thread(&LaneHolder::run, holder.get(), deadline);
  } catch (const std::system_error& error) {
    return no_thread(error);
  }
  std::unique_lock lock(holder->mutex_);
  holder->changed_.wait(lock, [&] { return holder->taken_.has_value(); });
  const Status status = *holder->taken_;
  lock.unlock();
  if (!status.ok()) return status;
  return holder;
}

LaneHolder::~LaneHolder() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LaneHolder::run(base::TimePoint deadline) {
  const Status status = take_all(deadline);
  std::unique_lock lock(mutex_);
  taken_ = status;
  changed_.notify_all();
  if (status.ok()) changed_.wait(lock, [&] { return ending_; });
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const Lanes& lanes = (*shards_)[i].lanes;
    ::pthread_mutex_unlock(&lanes.lane(lanes_[i]).holder);
    shmem::ring_if_asleep(lanes.header().server);
  }
}

Status LaneHolder::take_all(base::TimePoint deadline) {
  for (const MappedShard& shard : *shards_)
    REGROUP_RETURN_IF_ERROR(take_one(shard.lanes, deadline));
  return {};
}

Status LaneHolder::take_one(const Lanes& lanes, base::TimePoint deadline) {
  Status why;
  while (true) {
    const Outcome outcome = try_take(lanes, why);
    if (outcome == Outcome::kTaken) return {};
    if (outcome == Outcome::kSameClient || outcome == Outcome::kOtherMode) return why;
    if (caller_.is_gone()) return caller_is_gone();
    if (RealPolicy::now() >= deadline) {
      if (outcome == Outcome::kEnding) {
        return base::deadline_exceeded(fmt::format(
            "client {}: the server has not freed the lane of an ended process with this number",
            client_));
      }
      if (outcome == Outcome::kBusy) return other_processes_attach(client_, lanes);
      return base::resource_exhausted(
          fmt::format("client {}: all {} lanes of shard {} are taken; expected one to become free",
                      client_, lanes.spec().lanes, lanes.spec().shard));
    }
    std::this_thread::sleep_for(kLookForLane);
  }
}

LaneHolder::Outcome LaneHolder::try_take(const Lanes& lanes, Status& why) {
  // Only one process at a time takes a lane, so that two with one number, or in two modes, see each
  // other.
  if (!try_lock_robust(lanes.header().attaching)) return Outcome::kBusy;
  std::optional<std::uint32_t> found;
  Outcome outcome = Outcome::kAllTaken;
  for (std::uint32_t i = 0; i < lanes.spec().lanes && outcome == Outcome::kAllTaken; ++i) {
    Lane& lane = lanes.lane(i);
    const std::uint64_t client = lane.client.load(std::memory_order_acquire);
    if (client != 0) {
      outcome = look_at_taken(lane, client - 1, why);
    } else if (!found && try_lock_robust(lane.holder)) {
      // A damaged one is not free before a server has said so.
      if (lane.client.load(std::memory_order_acquire) == 0 &&
          lane.damaged.load(std::memory_order_acquire) == 0) {
        found = i;
      } else {
        ::pthread_mutex_unlock(&lane.holder);
      }
    }
  }
  if (found && outcome != Outcome::kAllTaken) {
    ::pthread_mutex_unlock(&lanes.lane(*found).holder);
  } else if (found) {
    Lane& lane = lanes.lane(*found);
    lane.process.store(caller_.process, std::memory_order_relaxed);
    lane.name = fixed_text<sizeof lane.name>(name_);
    lane.host = fixed_text<sizeof lane.host>(caller_.host);
    lane.consistency.store(to_word(mode_), std::memory_order_relaxed);
    lane.client.store(client_ + 1, std::memory_order_release);
    lanes_.push_back(*found);
    outcome = Outcome::kTaken;
  }
  ::pthread_mutex_unlock(&lanes.header().attaching);
  return outcome;
}

LaneHolder::Outcome LaneHolder::look_at_taken(Lane& lane, std::uint64_t client, Status& why) const {
  const bool same = client == client_;
  if (!same) {
    why = check_same(mode_, from_word(lane.consistency.load(std::memory_order_relaxed)),
                     name_of_client(lane));
    if (why.ok()) return Outcome::kAllTaken;
  }
  // A server holds `attaching`, too, while it frees lanes: so the holder is a living client, or a
  // dead one whose lane no server has freed yet.
  if (try_lock_robust(lane.holder)) {
    ::pthread_mutex_unlock(&lane.holder);
    return same ? Outcome::kEnding : Outcome::kAllTaken;
  }
  if (!same) return Outcome::kOtherMode;
  why = invalid_argument(
      fmt::format("client {}: process {} is attached under this number; give each process of the "
                  "job its own",
                  client_, lane.process.load(std::memory_order_relaxed)));
  return Outcome::kSameClient;
}

// ---- Client::Impl

std::size_t Client::Impl::OpenedTable::range_of(std::uint64_t position) const {
  const auto after = std::ranges::upper_bound(
      ranges, position, {}, [](const RangeOf& range) { return range.reader.positions().first; });
  if (after == ranges.begin()) return ranges.size();
  const auto found = after - 1;
  return found->reader.positions().has(position) ? static_cast<std::size_t>(found - ranges.begin())
                                                 : ranges.size();
}
Status Client::Impl::OpenedTable::lies_elsewhere(std::uint64_t position) const {
  return invalid_argument(
      fmt::format("table {}: id {} lies in another store; this one has part {} of {}", spec.name,
                  id_at(spec.kind, position), spec.part.number, spec.part.of));
}
bool Client::Impl::Pushed::done() const {
  return !sending && std::ranges::all_of(messages, [](std::uint32_t count) { return count == 0; });
}

base::Result<Client::Impl::Shards> Client::Impl::map(const ServerMemory& memory) {
  std::vector<MappedShard> shards;
  for (const ShardMemory& shard : memory.shards) {
    REGROUP_ASSIGN_OR_RETURN(MappedShard mapped,
                             MappedShard::open(shard, StoreMemory::Mode::kRead));
    if (mapped.lanes.spec().shard != shards.size() ||
        mapped.lanes.spec().shards != memory.shards.size()) {
      return invalid_argument(
          fmt::format("memory of a parameter server: expected shard {} of {}, got shard {} of {}",
                      shards.size(), memory.shards.size(), mapped.lanes.spec().shard,
                      mapped.lanes.spec().shards));
    }
    shards.push_back(std::move(mapped));
  }
  return std::make_shared<const std::vector<MappedShard>>(std::move(shards));
}

base::Result<std::unique_ptr<Client::Impl>> Client::Impl::attach(const ClientOptions& options,
                                                                 const ServerMemory& memory,
                                                                 Shards shards, Caller caller,
                                                                 base::TimePoint deadline) {
  if (options.client >= kStepClient)
    return invalid_argument("client: expected a number below 2^64 - 2");
  REGROUP_RETURN_IF_ERROR(check(options.consistency));
  std::unique_ptr<Impl> impl(new Impl(std::move(shards), options, std::move(caller)));
  REGROUP_ASSIGN_OR_RETURN(impl->holder_,
                           LaneHolder::take(impl->shards_, options, impl->caller_, deadline));
  for (std::size_t i = 0; i < impl->shards_.size(); ++i) {
    const Lanes& lanes = impl->shards_[i].lanes;
    Link& link = impl->links_[i];
    link.lane = impl->holder_->lane(i);
    link.written = lanes.lane(link.lane).written.load(std::memory_order_acquire);
    link.taken = link.written;
    // Memory that cannot be had is an error now, not a SIGBUS later.
    const std::uint64_t at = static_cast<std::uint64_t>(
        lanes.at(link.lane, 0) - reinterpret_cast<const std::byte*>(&lanes.header()));
    int error = EINTR;
    while (error == EINTR) {
      error = ::posix_fallocate(memory.shards[i].lanes, static_cast<off_t>(at),
                                static_cast<off_t>(lanes.spec().lane_bytes));
    }
    if (error != 0) {
      return base::resource_exhausted(
          fmt::format("client {}: cannot reserve a lane of {} bytes: fallocate: {}", options.client,
                      lanes.spec().lane_bytes, std::strerror(error)));
    }
  }
  if (options.consistency.mode == Mode::kSsp)
    REGROUP_RETURN_IF_ERROR(impl->begin_at_highest(deadline));
  if (impl->is_sync()) impl->clock_ = impl->least_applied();
  return impl;
}

Status Client::Impl::begin_at_highest(base::TimePoint until) {
  const Lanes& lanes = clock_lanes();
  pthread_mutex_t& attaching = lanes.header().attaching;
  while (!try_lock_robust(attaching)) {
    if (RealPolicy::now() >= until) return other_processes_attach(options_.client, lanes);
    if (caller_.is_gone()) return caller_is_gone();
    std::this_thread::sleep_for(kLookForLane);
  }
  clock_ = begin_clock<RealPolicy>(lanes.clock_words(), lanes.spec().lanes, links_[0].lane);
  ::pthread_mutex_unlock(&attaching);
  // Others may have seen this client at clock 0.
  wake_clock_waiters<RealPolicy>(lanes.clock_bells(), lanes.spec().lanes);
  return {};
}

Client::Impl::~Impl() {
  if (options_.consistency.mode != Mode::kSsp || holder_ == nullptr) return;
  const Lanes& lanes = clock_lanes();
  end_clock<RealPolicy>(lanes.clock_words(), lanes.clock_bells(), lanes.spec().lanes,
                        links_[0].lane);
}

base::TimePoint Client::Impl::look_again(base::TimePoint now) const {
  return caller_.gone == nullptr ? now + kLookAgain : now + Caller::kLookForGone;
}

std::string Client::Impl::server_of(std::size_t shard) const {
  const Lanes& lanes = shards_[shard].lanes;
  const std::uint64_t process = lanes.header().process.load(std::memory_order_relaxed);
  if (process == 0) return fmt::format("the server of shard {} (none has started yet)", shard);
  return fmt::format("the server of shard {} (the last one is process {})", shard, process);
}

base::Result<const Client::Impl::OpenedTable*> Client::Impl::table_at(Table table,
                                                                      bool rows) const {
  const std::lock_guard lock(mutex_);
  REGROUP_RETURN_IF_ERROR(check_number(table, tables_.size()));
  const OpenedTable& found = tables_[table.number];
  REGROUP_RETURN_IF_ERROR(check_kind(found.spec, rows));
  return &found;
}

const TableSpec& Client::Impl::spec_of(Table table) const {
  const std::lock_guard lock(mutex_);
  return tables_.at(table.number).spec;
}

template <class Ready>
Status Client::Impl::wait_until(Lock& lock, std::size_t shard, Ready ready, base::TimePoint until,
                                const std::string& what) {
  Link& link = links_[shard];
  Lane& lane = shards_[shard].lanes.lane(link.lane);
  while (true) {
    REGROUP_RETURN_IF_ERROR(take_answers(shard));
    if (ready()) return {};
    if (caller_.is_gone()) return caller_is_gone();
    const base::TimePoint now = RealPolicy::now();
    if (now >= until) {
      return base::deadline_exceeded(
          fmt::format("{}: {} has not answered in time; what is pushed stays in the lane, and "
                      "counts once a server has read it",
                      what, server_of(shard)));
    }
    if (link.sleeping) {  // one thread at a time sleeps on a bell; it tells the others
      progress_.wait_until(lock, until);
      continue;
    }
    link.sleeping = true;
    // Not a new look at lane.read: an answer that came after take_answers() would be slept over.
    const std::uint64_t seen = link.taken;
    lock.unlock();
    static_cast<void>(shmem::wait_until(
        lane.bell,
        [&] {
          return lane.read.load(std::memory_order_seq_cst) != seen ||
                 lane.damaged.load(std::memory_order_seq_cst) != 0;
        },
        std::min(until, look_again(now))));
    lock.lock();
    link.sleeping = false;
    progress_.notify_all();
  }
}

Status Client::Impl::take_answers(std::size_t shard) {
  Link& link = links_[shard];
  const Lanes& lanes = shards_[shard].lanes;
  Lane& lane = lanes.lane(link.lane);
  if (lane.damaged.load(std::memory_order_acquire) != 0) {
    lane.why.back() = 0;
    return base::data_loss(fmt::format("client {}: {} reads this client's lane no more: {}",
                                       options_.client, server_of(shard), lane.why.data()));
  }
  const std::uint64_t read = lane.read.load(std::memory_order_acquire);
  while (!link.unanswered.empty() && link.unanswered.front().end <= read) {
    const Unanswered message = link.unanswered.front();
    link.unanswered.pop_front();
    const auto found = pushes_.find(message.ticket);
    if (found == pushes_.end()) continue;
    Pushed& push = found->second;
    --push.messages[shard];
    const std::byte* const at = lanes.at(link.lane, message.place);
    MessageHeader header;
    std::memcpy(&header, at, sizeof header);
    if (header.answer != 0 && push.status.ok()) {
      const auto* const text = reinterpret_cast<const char*>(at + sizeof header);
      const auto code = std::min(header.answer, static_cast<std::uint32_t>(base::Code::kInternal));
      push.status =
          Status(static_cast<base::Code>(code), std::string(text, ::strnlen(text, kAnswerBytes)));
    }
    if (push.done()) finish(found);
  }
  link.taken = read;
  return {};
}

// A push without an error is forgotten.
void Client::Impl::finish(std::map<std::uint64_t, Pushed>::iterator push) {
  if (push->second.status.ok()) {
    pushes_.erase(push);
  } else {
    ++failed_;
  }
}

base::Result<std::byte*> Client::Impl::reserve(Lock& lock, std::size_t shard, std::uint64_t bytes,
                                               const std::string& what) {
  Link& link = links_[shard];
  const Lanes& lanes = shards_[shard].lanes;
  // Only memory whose answers are taken is written again.
  const auto room = [&] { return lanes.spec().lane_bytes - (link.written - link.taken); };
  while (true) {
    REGROUP_RETURN_IF_ERROR(take_answers(shard));
    // The lock is given up while it waits: another thread may have written meanwhile.
    const std::uint64_t to_end = lanes.to_end(link.written);
    const std::uint64_t wanted = to_end < bytes ? to_end : bytes;
    if (room() >= wanted) {
      std::byte* const at = lanes.at(link.lane, link.written);
      if (wanted == bytes) return at;
      publish(shard, {.bytes = to_end, .kind = MessageKind::kPad}, 0);
      continue;
    }
    const std::uint64_t before = link.written;
    REGROUP_RETURN_IF_ERROR(wait_until(
        lock, shard, [&] { return link.written != before || room() >= wanted; }, deadline(), what));
  }
}

void Client::Impl::publish(std::size_t shard, const MessageHeader& header, std::uint64_t ticket) {
  Link& link = links_[shard];
  const Lanes& lanes = shards_[shard].lanes;
  std::memcpy(lanes.at(link.lane, link.written), &header, sizeof header);
  if (header.kind == MessageKind::kPush && header.leaves != 0) ++leaf_pushes_[shard];
  if (header.kind != MessageKind::kPad) {
    link.unanswered.push_back({link.written + header.bytes, link.written, ticket});
    ++pushes_.at(ticket).messages[shard];
  }
  link.written += header.bytes;
  // The server may read the message from here on.
  lanes.lane(link.lane).written.store(link.written, std::memory_order_seq_cst);
  shmem::ring_if_asleep(lanes.header().server);
}

base::Result<std::uint64_t> Client::Impl::begin_push(const OpenedTable& table) {
  if (failed_ >= kMaxFailed) {
    const auto first =
        std::ranges::find_if(pushes_, [](const auto& p) { return !p.second.status.ok(); });
    return base::resource_exhausted(
        fmt::format("push to table {}: {} pushes have failed since the last flush(); the first: {}",
                    table.spec.name, failed_, first->second.status.message()));
  }
  if (is_sync()) REGROUP_RETURN_IF_ERROR(check_sync_push(table.spec, leaf_.has_value()));
  const std::uint64_t ticket = next_ticket_++;
  pushes_[ticket] = {.table = table.spec.name,
                     .messages = std::vector<std::uint32_t>(shards_.size()),
                     .status = {},
                     .attempt = attempt_};
  return ticket;
}

base::Result<Ticket> Client::Impl::end_push(std::uint64_t ticket, const Status& sent) {
  const auto push = pushes_.find(ticket);
  if (!sent.ok()) {
    // Servers may have a part of it.
    if (is_sync() && push->second.attempt == attempt_ && leaf_failed_.ok()) leaf_failed_ = sent;
    pushes_.erase(push);
    return sent;
  }
  push->second.sending = false;
  if (push->second.done()) finish(push);
  return Ticket{ticket};
}

Status Client::Impl::wait_locked(Lock& lock, std::uint64_t ticket, base::TimePoint until) {
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    const auto answered = [&] {
      const auto found = pushes_.find(ticket);
      return found == pushes_.end() || found->second.messages[shard] == 0;
    };
    REGROUP_RETURN_IF_ERROR(take_answers(shard));
    if (answered()) continue;
    const std::string what = fmt::format("table {}", pushes_.at(ticket).table);
    REGROUP_RETURN_IF_ERROR(wait_until(lock, shard, answered, until, what));
  }
  return {};
}

Status Client::Impl::wait(Ticket ticket, base::TimePoint deadline) {
  Lock lock(mutex_);
  if (ticket.number == 0 || ticket.number >= next_ticket_) {
    return invalid_argument(
        fmt::format("push {}: this client has begun {} pushes", ticket.number, next_ticket_ - 1));
  }
  REGROUP_RETURN_IF_ERROR(wait_locked(lock, ticket.number, deadline));
  const auto found = pushes_.find(ticket.number);
  if (found == pushes_.end()) return {};
  Status status = std::move(found->second.status);
  pushes_.erase(found);
  --failed_;
  return status;
}

Status Client::Impl::flush(base::TimePoint until) {
  Lock lock(mutex_);
  std::vector<std::uint64_t> tickets;
  for (const auto& [ticket, push] : pushes_) {
    // A push that is not all written begins after this; open() returns its own error.
    if (!push.sending && !push.opening) tickets.push_back(ticket);
  }
  for (const std::uint64_t ticket : tickets)
    REGROUP_RETURN_IF_ERROR(wait_locked(lock, ticket, until));
  Status first;
  for (const std::uint64_t ticket : tickets) {
    const auto failed = pushes_.find(ticket);
    if (failed == pushes_.end()) continue;
    if (first.ok()) first = std::move(failed->second.status);
    pushes_.erase(failed);
    --failed_;
  }
  return first;
}

Status Client::Impl::wait_for_all(Lock& lock, base::TimePoint until, const std::string& what) {
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    const std::uint64_t written = links_[shard].written;
    REGROUP_RETURN_IF_ERROR(wait_until(
        lock, shard, [&] { return links_[shard].taken >= written; }, until, what));
  }
  return {};
}

// ---- clocks

std::uint64_t Client::Impl::clock() const {
  const std::lock_guard lock(mutex_);
  return clock_;
}

base::Result<std::uint64_t> Client::Impl::advance() {
  REGROUP_RETURN_IF_ERROR(check_advance(options_.consistency.mode));
  if (options_.consistency.mode != Mode::kSsp) {
    const std::lock_guard lock(mutex_);
    return ++clock_;
  }
  Lock lock(mutex_, std::defer_lock);
  REGROUP_RETURN_IF_ERROR(end_turn(lock, deadline()));
  count_turns(clock_ + 1);
  return clock_;
}

Status Client::Impl::raise_clock(std::uint64_t clock, base::TimePoint until) {
  REGROUP_RETURN_IF_ERROR(check_raise_clock(options_.consistency.mode));
  Lock lock(mutex_, std::defer_lock);
  REGROUP_RETURN_IF_ERROR(end_turn(lock, until));
  if (clock > clock_) count_turns(clock);
  return {};
}

Status Client::Impl::end_turn(Lock& lock, base::TimePoint until) {
  REGROUP_RETURN_IF_ERROR(flush(until));
  lock.lock();
  // A push that has failed may have left parts in the lanes, which flush() does not know.
  return wait_for_all(lock, until, "end of a turn");
}

void Client::Impl::count_turns(std::uint64_t clock) {
  const Lanes& lanes = clock_lanes();
  clock_ = clock;
  count_clock<RealPolicy>(lanes.clock_words(), lanes.clock_bells(), lanes.spec().lanes,
                          links_[0].lane, clock);
}

std::optional<SlowClient> Client::Impl::held_up_by(std::uint64_t clock) const {
  const Lanes& lanes = clock_lanes();
  const auto slow =
      slowest_other<RealPolicy>(lanes.clock_words(), lanes.spec().lanes, links_[0].lane);
  const auto staleness = static_cast<std::uint64_t>(options_.consistency.staleness.value_or(0));
  return slow && is_too_far_ahead(clock, slow->clock, staleness) ? slow : std::nullopt;
}

Status Client::Impl::await_clocks(const std::string& table) {
  if (options_.consistency.mode != Mode::kSsp) return {};
  REGROUP_RETURN_IF_ERROR(check_process());
  Lock lock(mutex_);
  const base::TimePoint until = deadline();
  REGROUP_RETURN_IF_ERROR(wait_for_all(lock, until, fmt::format("pull of table {}", table)));
  const std::uint64_t clock = clock_;
  // Once for each clock: clocks only grow, and a client that begins later begins at this one.
  while (may_pull_at_ <= clock) {
    const std::optional<SlowClient> slow = held_up_by(clock);
    if (!slow) {
      note_staleness(clock);
      may_pull_at_ = clock + 1;
    } else if (caller_.is_gone()) {
      return caller_is_gone();
    } else if (RealPolicy::now() >= until) {
      return base::deadline_exceeded(pull_is_late(table, clock, *slow));
    } else {
      sleep_until_clocks_change(lock, clock, *slow, until);
    }
  }
  return {};
}

void Client::Impl::sleep_until_clocks_change(Lock& lock, std::uint64_t clock,
                                             const SlowClient& slow, base::TimePoint until) {
  if (waits_for_clock_) {  // one thread at a time sleeps on a bell; it tells the others
    progress_.wait_until(lock, until);
    return;
  }
  waits_for_clock_ = true;
  Lane& own = own_clock_lane();
  Lane& other = clock_lanes().lane(slow.lane);
  own.waits_for.store(slow.lane + 1, std::memory_order_relaxed);
  lock.unlock();
  const base::TimePoint begin = RealPolicy::now();
  static_cast<void>(shmem::wait_until(
      own.clock_bell, [&] { return !held_up_by(clock); }, std::min(until, look_again(begin))));
  other.held_up_others.fetch_add(static_cast<std::uint64_t>((RealPolicy::now() - begin).count()),
                                 std::memory_order_relaxed);
  lock.lock();
  own.waits_for.store(0, std::memory_order_relaxed);
  waits_for_clock_ = false;
  progress_.notify_all();
}

std::string Client::Impl::pull_is_late(const std::string& table, std::uint64_t clock,
                                       const SlowClient& slow) const {
  const Lane& lane = clock_lanes().lane(slow.lane);
  const std::int64_t staleness = options_.consistency.staleness.value_or(0);
  return fmt::format(
      "pull of table {} at clock {}: {} (process {} on host {}) has clock {}; staleness={} needs "
      "clock {} of it. If it hangs, end it, and the others go on without it",
      table, clock, name_of_client(lane), lane.process.load(std::memory_order_relaxed),
      host_of_client(lane), slow.clock, staleness, clock - static_cast<std::uint64_t>(staleness));
}

void Client::Impl::note_staleness(std::uint64_t clock) {
  const Lanes& lanes = clock_lanes();
  const auto slow =
      slowest_other<RealPolicy>(lanes.clock_words(), lanes.spec().lanes, links_[0].lane);
  if (!slow) return;
  auto& turns = lanes.header().turns_by_staleness;
  const std::uint64_t behind = clock > slow->clock ? clock - slow->clock : 0;
  turns[std::min<std::uint64_t>(behind, turns.size() - 1)].fetch_add(1, std::memory_order_relaxed);
}

// ---- steps

std::uint64_t Client::Impl::least_applied() const {
  std::uint64_t least = ~std::uint64_t{0};
  for (const MappedShard& shard : shards_)
    least = std::min(least, shard.lanes.header().steps.applied.load(std::memory_order_seq_cst));
  return least;
}

std::optional<std::uint64_t> Client::Impl::steady_step() const {
  const std::uint64_t step = least_applied();
  // A shard applies a step once all have logged it.
  bool may_apply = true;
  for (const MappedShard& shard : shards_) {
    const StepWords& words = shard.lanes.header().steps;
    if (words.applied.load(std::memory_order_seq_cst) != step) return std::nullopt;
    may_apply &= words.logged.load(std::memory_order_seq_cst) > step;
  }
  may_apply &= agreed_steps(step_words()) > step;
  return may_apply ? std::nullopt : std::optional(step);
}

template <class Read>
base::Result<std::uint64_t> Client::Impl::pull_of_one_step(const std::string& table, Read read) {
  if (!is_sync()) {
    REGROUP_RETURN_IF_ERROR(read());
    return std::uint64_t{0};
  }
  const base::TimePoint until = deadline();
  while (true) {
    const std::uint64_t changes = step_words().changes.load(std::memory_order_seq_cst);
    const std::optional<std::uint64_t> before = steady_step();
    if (before) {
      // Rows that change while they are read may be of the next step.
      const Status status = read();
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (steady_step() == before) {
        REGROUP_RETURN_IF_ERROR(status);
        return *before;
      }
    }
    if (RealPolicy::now() >= until) {
      return base::deadline_exceeded(
          fmt::format("pull of table {}: a step is not applied in all shards in time", table));
    }
    if (caller_.is_gone()) return caller_is_gone();
    Lock lock(mutex_);
    sleep_until_step_changes(lock, changes, until);
  }
}

MessageHeader Client::Impl::header_of(MessageKind kind, std::uint64_t bytes,
                                      const std::optional<Leaf>& leaf) const {
  MessageHeader out{.bytes = bytes, .kind = kind};
  if (!leaf) return out;
  out.leaves = static_cast<std::uint32_t>(*options_.consistency.leaves);
  out.step = leaf->step;
  out.leaf = leaf->number;
  out.attempt = attempt_;
  out.of_several = of_several_ ? 1 : 0;
  return out;
}

Status Client::Impl::check_leaf_of(std::uint64_t ticket) const {
  const Pushed& push = pushes_.at(ticket);
  if (!is_sync() || (leaf_ && push.attempt == attempt_)) return {};
  return invalid_argument(
      fmt::format("push to table {}: next_leaf() has ended its leaf while it was sent; expected "
                  "next_leaf() after the leaf's pushes",
                  push.table));
}

// Each shard gets the end of the leaf behind its pushes, with their number.
Status Client::Impl::end_leaf_locked(Lock& lock, base::TimePoint until) {
  lock.unlock();
  Status pushed = flush(until);
  lock.lock();
  if (pushed.ok()) pushed = leaf_failed_;
  for (const auto& [ticket, push] : pushes_) {
    if (pushed.ok() && push.sending && push.attempt == attempt_) {
      pushed = invalid_argument(
          fmt::format("next_leaf: another thread still pushes to table {}; expected next_leaf() "
                      "after the leaf's pushes",
                      push.table));
    }
  }
  // From here on pushes that other threads have begun, or begin, are refused.
  const std::optional<Leaf> leaf = std::exchange(leaf_, {});
  if (!pushed.ok()) return pushed;
  const std::uint64_t ticket = next_ticket_++;
  const std::string what = fmt::format("leaf {} of step {}", leaf->number, leaf->step);
  pushes_[ticket] = {.table = what,
                     .messages = std::vector<std::uint32_t>(shards_.size()),
                     .status = {},
                     .opening = true};
  Status status;
  for (std::size_t shard = 0; shard < shards_.size() && status.ok(); ++shard) {
    status = reserve(lock, shard, kContentAt, what).status();
    if (!status.ok()) break;
    MessageHeader header = header_of(MessageKind::kLeafEnd, kContentAt, leaf);
    header.number = leaf_pushes_[shard];
    publish(shard, header, ticket);
  }
  pushes_.at(ticket).sending = false;
  if (pushes_.at(ticket).done()) finish(pushes_.find(ticket));
  if (status.ok()) status = wait_locked(lock, ticket, until);
  const auto found = pushes_.find(ticket);
  if (found == pushes_.end()) return status;
  if (status.ok()) status = std::move(found->second.status);
  if (found->second.done()) --failed_;
  pushes_.erase(found);
  return status;
}

bool Client::Impl::lacks(std::uint64_t step, std::uint32_t leaf) const {
  return std::ranges::any_of(shards_, [&](const MappedShard& shard) {
    return !has_leaf(shard.lanes.header().steps, step, leaf);
  });
}

template <class Lacks>
std::optional<std::uint32_t> Client::Impl::claim_where(std::uint64_t step, bool of_others,
                                                       Lacks lacks) {
  const std::uint32_t own = links_[0].lane;
  const auto leaves = static_cast<std::uint32_t>(*options_.consistency.leaves);
  const LeafClaim wanted{step, own};
  for (std::uint32_t i = 0; i < leaves; ++i) {
    // Clients that help begin at different leaves.
    const std::uint32_t leaf = of_others ? (i + own) % leaves : i;
    std::atomic<std::uint64_t>& claim = step_words().claims[leaf];
    std::uint64_t word = claim.load(std::memory_order_seq_cst);
    const bool taken = word != 0 && LeafClaim::of(word).step == step && word != wanted.word();
    if ((taken && !of_others) || !lacks(leaf)) continue;
    if (!claim.compare_exchange_strong(word, wanted.word())) continue;
    if (taken) step_words().taken_over.fetch_add(1, std::memory_order_relaxed);
    return leaf;
  }
  return std::nullopt;
}

Status Client::Impl::step_failure(std::uint64_t step) const {
  for (const MappedShard& shard : shards_) {
    const StepWords& words = shard.lanes.header().steps;
    if (words.failed.load(std::memory_order_seq_cst) != step + 1 ||
        words.logged.load(std::memory_order_seq_cst) != step)
      continue;
    const std::string why(words.why.data(), ::strnlen(words.why.data(), words.why.size()));
    const auto code = std::min(words.code.load(std::memory_order_relaxed),
                               static_cast<std::uint32_t>(base::Code::kInternal));
    return Status(static_cast<base::Code>(code), why);
  }
  return {};
}

std::string Client::Impl::step_is_late() const {
  for (std::uint32_t leaf = 0; leaf < *options_.consistency.leaves; ++leaf) {
    if (!lacks(clock_, leaf)) continue;
    return fmt::format("step {}: leaf {} has not come in time", clock_, leaf);
  }
  std::string shards;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].lanes.header().steps.applied.load(std::memory_order_relaxed) <= clock_)
      shards = server_of(i);
  }
  return fmt::format("step {}: all leaves are there, and {} has not applied it in time", clock_,
                     shards);
}

void Client::Impl::sleep_until_step_changes(Lock& lock, std::uint64_t changes,
                                            base::TimePoint until) {
  if (waits_for_clock_) {  // one thread at a time sleeps on a bell; it tells the others
    progress_.wait_until(lock, until);
    return;
  }
  waits_for_clock_ = true;
  lock.unlock();
  static_cast<void>(shmem::wait_until(
      own_clock_lane().clock_bell,
      [&] { return step_words().changes.load(std::memory_order_seq_cst) != changes; },
      std::min(until, look_again(RealPolicy::now()))));
  lock.lock();
  waits_for_clock_ = false;
  progress_.notify_all();
}

void Client::Impl::fail_leaf(const Status& why) {
  const Lock lock(mutex_);
  if (leaf_failed_.ok()) leaf_failed_ = why;
}

base::Result<std::optional<Leaf>> Client::Impl::next_leaf() {
  REGROUP_RETURN_IF_ERROR(check_next_leaf(options_.consistency.mode));
  Lock lock(mutex_);
  if (leaf_) {
    REGROUP_RETURN_IF_ERROR(end_leaf_locked(lock, deadline()));
    leaf_time_ = RealPolicy::now() - leaf_begun_;
  }
  const base::TimePoint until = deadline();
  for (const base::TimePoint help = RealPolicy::now() + wait_before_help(leaf_time_);;) {
    const std::uint64_t changes = step_words().changes.load(std::memory_order_seq_cst);
    if (const std::uint64_t applied = least_applied(); applied > clock_) {
      clock_ = applied;
      return std::optional<Leaf>();
    }
    REGROUP_RETURN_IF_ERROR(step_failure(clock_));
    const base::TimePoint now = RealPolicy::now();
    const auto leaf = claim_where(clock_, now >= help,
                                  [&](std::uint32_t number) { return lacks(clock_, number); });
    if (leaf) {
      // A step that has failed meanwhile lacks all its leaves; the server says that it has first.
      REGROUP_RETURN_IF_ERROR(step_failure(clock_));
      leaf_begun_ = now;
      begin({clock_, *leaf});
      return leaf_;
    }
    if (caller_.is_gone()) return caller_is_gone();
    if (now >= until) return base::deadline_exceeded(step_is_late());
    sleep_until_step_changes(lock, changes, std::min(until, now < help ? help : until));
  }
}

void Client::Impl::begin(const Leaf& leaf) {
  leaf_ = leaf;
  leaf_pushes_.assign(shards_.size(), 0);
  leaf_failed_ = {};
  ++attempt_;
}

// ---- steps of several stores

base::Result<StepState> Client::Impl::step_state(std::uint64_t step,
                                                 std::optional<std::uint64_t> seen,
                                                 base::TimePoint until) {
  REGROUP_RETURN_IF_ERROR(check_next_leaf(options_.consistency.mode));
  const StepWords& words = step_words();
  Lock lock(mutex_);
  StepState out;
  while (true) {
    out.changes = words.changes.load(std::memory_order_seq_cst);
    if (!seen || out.changes != *seen || RealPolicy::now() >= until) break;
    if (caller_.is_gone()) return caller_is_gone();
    sleep_until_step_changes(lock, *seen, until);
  }
  REGROUP_RETURN_IF_ERROR(step_failure(step));
  out.applied = least_applied();
  out.logged = words.logged.load(std::memory_order_seq_cst);
  out.proposed = words.proposed.load(std::memory_order_seq_cst);
  out.leaves = words.leaves.load(std::memory_order_seq_cst);
  for (std::uint32_t leaf = 0; leaf < *options_.consistency.leaves; ++leaf) {
    if (lacks(step, leaf)) out.lacking.insert(leaf);
  }
  return out;
}

base::Result<std::optional<std::uint32_t>> Client::Impl::claim_leaf(std::uint64_t step,
                                                                    const LeafSet& lacking,
                                                                    bool of_others) {
  REGROUP_RETURN_IF_ERROR(check_next_leaf(options_.consistency.mode));
  return claim_where(step, of_others, [&](std::uint32_t leaf) { return lacking.has(leaf); });
}

Status Client::Impl::begin_leaf(const Leaf& leaf) {
  REGROUP_RETURN_IF_ERROR(check_next_leaf(options_.consistency.mode));
  if (leaf.number >= *options_.consistency.leaves) {
    return invalid_argument(fmt::format("leaf {}: expected one of {} leaves", leaf.number,
                                        *options_.consistency.leaves));
  }
  const Lock lock(mutex_);
  of_several_ = true;
  begin(leaf);
  return {};
}

Status Client::Impl::end_leaf(base::TimePoint until) {
  Lock lock(mutex_);
  if (!leaf_) return invalid_argument("end of a leaf: none is begun");
  return end_leaf_locked(lock, until);
}

Status Client::Impl::propose(std::uint64_t steps) {
  REGROUP_RETURN_IF_ERROR(check_next_leaf(options_.consistency.mode));
  std::atomic<std::uint64_t>& proposed = step_words().proposed;
  for (std::uint64_t seen = proposed.load(); seen < steps;) {
    if (!proposed.compare_exchange_weak(seen, steps, std::memory_order_seq_cst)) continue;
    shmem::ring_if_asleep(clock_lanes().header().server);
    break;
  }
  return {};
}

// ---- tables

Status Client::Impl::send_open(Lock& lock, std::size_t shard, const TableSpec& spec) {
  const std::uint64_t ticket = next_ticket_++;
  const std::string what = fmt::format("open table {}", spec.name);
  pushes_[ticket] = {.table = spec.name,
                     .messages = std::vector<std::uint32_t>(shards_.size()),
                     .status = {},
                     .opening = true};
  constexpr std::uint64_t kBytes =
      (kContentAt + sizeof(OpenContent) + kMessageUnit - 1) / kMessageUnit * kMessageUnit;
  const auto place = reserve(lock, shard, kBytes, what);
  if (!place.ok()) {
    pushes_.erase(ticket);
    return place.status();
  }
  const OpenContent content = content_of(spec);
  std::memcpy(*place + kContentAt, &content, sizeof content);
  publish(shard, {.bytes = kBytes, .kind = MessageKind::kOpen}, ticket);
  pushes_.at(ticket).sending = false;
  const Status waited = wait_locked(lock, ticket, deadline());
  const auto found = pushes_.find(ticket);
  if (found == pushes_.end()) return waited;
  Status status = waited.ok() ? std::move(found->second.status) : waited;
  if (found->second.done()) --failed_;
  pushes_.erase(found);
  return status;
}

base::Result<std::set<std::uint32_t>> Client::Impl::other_shards_of(const TableSpec& spec) const {
  std::set<std::uint32_t> out;
  if (shards_.size() == 1) return out;
  REGROUP_ASSIGN_OR_RETURN(const auto tables, tables_in(shards_[0].store));
  for (const PlacedTable& table : tables) {
    if (table.spec.name != spec.name) continue;
    for (const std::uint32_t shard : table.shard_of) {
      if (shard != 0 && shard < shards_.size()) out.insert(shard);
    }
  }
  return out;
}

base::Result<Client::Impl::OpenedTable> Client::Impl::find_ranges(const TableSpec& spec) const {
  OpenedTable table{.spec = spec, .ranges = {}};
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    REGROUP_ASSIGN_OR_RETURN(const auto headers, ranges_in(shards_[shard].store));
    for (const RangeHeader* const header : headers) {
      if (spec.name != header->name.data()) continue;
      REGROUP_ASSIGN_OR_RETURN(const TableSpec there, ps::spec_of(*header));
      REGROUP_RETURN_IF_ERROR(check_same(spec, there, "the server"));
      REGROUP_ASSIGN_OR_RETURN(RangeReader reader,
                               RangeReader::open(shards_[shard].store, *header));
      table.ranges.push_back({static_cast<std::uint32_t>(shard), header->id, std::move(reader)});
    }
  }
  std::ranges::sort(table.ranges, {},
                    [](const RangeOf& range) { return range.reader.positions().first; });
  std::vector<PositionRange> found;
  std::uint64_t elements = 0;
  for (RangeOf& range : table.ranges) {
    found.push_back(range.reader.positions());
    range.first = elements;
    elements += found.back().last - found.back().first + 1;
  }
  if (found != ranges_of(spec, static_cast<std::uint32_t>(shards_.size()))) {
    return base::data_loss(fmt::format(
        "open table {}: expected {} ranges in the stores, got {}, or others", spec.name,
        ranges_of(spec, static_cast<std::uint32_t>(shards_.size())).size(), found.size()));
  }
  return table;
}

base::Result<Table> Client::Impl::open(const TableSpec& spec) {
  REGROUP_RETURN_IF_ERROR(check_open(spec));
  const auto count = static_cast<std::uint32_t>(shards_.size());
  const std::vector<PositionRange> ranges = ranges_of(spec, count);
  std::uint64_t elements = spec.dim;  // of the largest range
  if (spec.kind == TableKind::kDense)
    elements = ranges.empty() ? 0 : ranges[0].last - ranges[0].first + 1;
  const std::array<PushPart, 1> largest{PushPart{0, 0, spec.kind == TableKind::kDense ? 0U : 1U,
                                                 elements * size_of(spec.compute_dtype())}};
  if (const LaneSpec& lanes = shards_[0].lanes.spec(); bytes_of_push(largest) > lanes.lane_bytes) {
    return invalid_argument(
        fmt::format("table {}: a push of {} bytes does not fit into a lane of {} bytes; make lanes "
                    "larger",
                    spec.name, bytes_of_push(largest), lanes.lane_bytes));
  }
  Lock lock(mutex_);
  // Shard 0 first, which places the ranges: of two processes that open the table with different
  // specs, the later one is refused before it has made anything.
  REGROUP_RETURN_IF_ERROR(send_open(lock, 0, spec));
  REGROUP_ASSIGN_OR_RETURN(const std::set<std::uint32_t> others, other_shards_of(spec));
  for (const std::uint32_t shard : others) REGROUP_RETURN_IF_ERROR(send_open(lock, shard, spec));
  REGROUP_ASSIGN_OR_RETURN(OpenedTable table, find_ranges(spec));
  tables_.push_back(std::move(table));
  return Table{static_cast<std::uint32_t>(tables_.size() - 1)};
}

// ---- pushes

base::Result<std::vector<Client::Impl::Key>> Client::Impl::sorted_keys(
    const TableSpec& spec, std::span<const std::int64_t> ids) {
  std::vector<Key> keys(ids.size());
  bool good = true;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    keys[i] = {position_of(spec.kind, ids[i]), i};
    good &= spec.kind == TableKind::kHash || keys[i].position < spec.rows;
  }
  std::ranges::sort(keys, {}, &Key::position);
  good &= std::ranges::adjacent_find(keys, {}, &Key::position) == keys.end();
  if (!good) return check_keys(spec, ids);
  return keys;
}

Status Client::Impl::send_batch(Lock& lock, std::size_t shard, const OpenedTable& table,
                                const Batch& batch, Input gradients, const Scalars& scalars,
                                std::uint64_t ticket) {
  const std::uint64_t bytes = bytes_of_push(batch.parts);
  REGROUP_ASSIGN_OR_RETURN(
      std::byte* const message,
      reserve(lock, shard, bytes, fmt::format("push to table {}", table.spec.name)));
  REGROUP_RETURN_IF_ERROR(check_leaf_of(ticket));
  const PushView view = lay_out_push(message, batch.parts);
  const std::size_t row = table.spec.dim * size_of(table.spec.compute_dtype());
  for (std::size_t p = 0; p < view.parts.size(); ++p) {
    const PushView::Part& part = view.parts[p];
    for (std::size_t k = 0; k < part.positions.size(); ++k) {
      const Key& key = batch.keys[p][k];
      part.positions[k] = key.position;
      std::memcpy(part.gradients.data() + k * row, gradients.data() + key.at * row, row);
    }
  }
  MessageHeader header = header_of(MessageKind::kPush, bytes, leaf_);
  header.parts = static_cast<std::uint32_t>(batch.parts.size());
  header.number = next_number_++;
  header.lr = scalars.lr;
  publish(shard, header, ticket);
  return {};
}

Status Client::Impl::push_shard(Lock& lock, std::size_t shard, const OpenedTable& table,
                                std::span<const std::span<const Key>> runs, Input gradients,
                                const Scalars& scalars, std::uint64_t ticket) {
  const auto& store = *reinterpret_cast<const StoreHeader*>(shards_[shard].store.at(0));
  // Several messages, so that the server begins while the next one is written.
  const std::uint64_t most =
      std::min(shards_[shard].lanes.spec().lane_bytes / 8, store.ring_bytes / 4);
  const std::uint64_t row = table.spec.dim * size_of(table.spec.compute_dtype());
  Batch batch;
  std::uint64_t bytes = 0;
  const auto send = [&]() -> Status {
    if (batch.parts.empty()) return {};
    REGROUP_RETURN_IF_ERROR(send_batch(lock, shard, table, batch, gradients, scalars, ticket));
    batch = {};
    bytes = 0;
    return {};
  };
  for (std::size_t range = 0; range < runs.size(); ++range) {
    for (std::span<const Key> run = runs[range]; !run.empty();) {
      const std::uint64_t room = bytes < most ? (most - bytes) / (row + sizeof(std::uint64_t)) : 0;
      if (room == 0 && !batch.parts.empty()) {
        REGROUP_RETURN_IF_ERROR(send());
        continue;
      }
      const std::size_t count = std::min<std::size_t>(run.size(), std::max<std::uint64_t>(room, 1));
      batch.parts.push_back({table.ranges[range].id, 0, count, count * row});
      batch.keys.push_back(run.first(count));
      bytes += count * (row + sizeof(std::uint64_t)) + sizeof(PushPart) + kMessageUnit;
      run = run.subspan(count);
    }
  }
  return send();
}

base::Result<Ticket> Client::Impl::push(Table table, std::span<const std::int64_t> ids,
                                        Input gradients, const Scalars& scalars) {
  REGROUP_ASSIGN_OR_RETURN(const OpenedTable* const opened, table_at(table, true));
  const TableSpec& spec = opened->spec;
  REGROUP_RETURN_IF_ERROR(check_push_rows(spec, ids.size(), gradients, scalars));
  REGROUP_ASSIGN_OR_RETURN(const std::vector<Key> keys, sorted_keys(spec, ids));
  // Runs of keys, by shard; runs[shard][range] is empty for ranges of other shards.
  std::vector<std::vector<std::span<const Key>>> runs(shards_.size());
  for (auto& of_shard : runs) of_shard.resize(opened->ranges.size());
  for (std::size_t at = 0; at < keys.size();) {
    const std::size_t range = opened->range_of(keys[at].position);
    if (range == opened->ranges.size()) return opened->lies_elsewhere(keys[at].position);
    const std::uint64_t last = opened->ranges[range].reader.positions().last;
    const std::size_t begin = at;
    while (at < keys.size() && keys[at].position <= last) ++at;
    runs[opened->ranges[range].shard][range] = std::span(keys).subspan(begin, at - begin);
  }
  Lock lock(mutex_);
  REGROUP_ASSIGN_OR_RETURN(const std::uint64_t ticket, begin_push(*opened));
  Status sent;
  for (std::size_t shard = 0; shard < shards_.size() && sent.ok(); ++shard)
    sent = push_shard(lock, shard, *opened, runs[shard], gradients, scalars, ticket);
  return end_push(ticket, sent);
}

base::Result<Ticket> Client::Impl::push_dense(Table table, Input gradients,
                                              const Scalars& scalars) {
  REGROUP_ASSIGN_OR_RETURN(const OpenedTable* const opened, table_at(table, false));
  REGROUP_RETURN_IF_ERROR(check_push_dense(opened->spec, gradients, scalars));
  Lock lock(mutex_);
  REGROUP_ASSIGN_OR_RETURN(const std::uint64_t ticket, begin_push(*opened));
  Status sent;
  for (std::size_t i = 0; i < opened->ranges.size() && sent.ok(); ++i)
    sent = send_slice(lock, *opened, opened->ranges[i], gradients, scalars, ticket);
  return end_push(ticket, sent);
}

Status Client::Impl::send_slice(Lock& lock, const OpenedTable& table, const RangeOf& range,
                                Input gradients, const Scalars& scalars, std::uint64_t ticket) {
  const std::size_t size = size_of(table.spec.compute_dtype());
  const PositionRange& positions = range.reader.positions();
  const Input part =
      gradients.subspan(range.first * size, (positions.last - positions.first + 1) * size);
  const std::array<PushPart, 1> parts{PushPart{range.id, 0, 0, part.size()}};
  const std::uint64_t bytes = bytes_of_push(parts);
  REGROUP_ASSIGN_OR_RETURN(
      std::byte* const message,
      reserve(lock, range.shard, bytes, fmt::format("push to table {}", table.spec.name)));
  REGROUP_RETURN_IF_ERROR(check_leaf_of(ticket));
  std::memcpy(lay_out_push(message, parts).parts[0].gradients.data(), part.data(), part.size());
  MessageHeader header = header_of(MessageKind::kPush, bytes, leaf_);
  header.parts = 1;
  header.number = next_number_++;
  header.lr = scalars.lr;
  publish(range.shard, header, ticket);
  return {};
}

// ---- pulls

base::Result<std::uint64_t> Client::Impl::pull_of_step(Table table,
                                                       std::span<const std::int64_t> ids,
                                                       Output rows) {
  REGROUP_ASSIGN_OR_RETURN(const OpenedTable* const opened, table_at(table, true));
  const TableSpec& spec = opened->spec;
  REGROUP_RETURN_IF_ERROR(check_pull_rows(spec, ids.size(), rows));
  REGROUP_RETURN_IF_ERROR(await_clocks(spec.name));
  return pull_of_one_step(spec.name, [&] { return read_rows(*opened, ids, rows); });
}

Status Client::Impl::read_rows(const OpenedTable& opened, std::span<const std::int64_t> ids,
                               Output rows) {
  const TableSpec& spec = opened.spec;
  constexpr std::size_t kBatch = 64;  // keys of a range that are read together
  struct Waiting {
    std::size_t count = 0;
    std::array<std::uint64_t, kBatch> positions;
    std::array<std::uint32_t, kBatch> places;
  };
  std::vector<Waiting> waiting(opened.ranges.size());
  const auto gather = [&](std::size_t range) -> Status {
    Waiting& w = waiting[range];
    const std::size_t count = std::exchange(w.count, 0);
    return opened.ranges[range].reader.gather_to({w.positions.data(), count},
                                                 {w.places.data(), count}, rows);
  };
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t position = position_of(spec.kind, ids[i]);
    if (spec.kind != TableKind::kHash && position >= spec.rows) {
      return invalid_argument(
          fmt::format("table {}: expected ids from 0 to {}, got {} (position {} of the batch)",
                      spec.name, spec.rows - 1, ids[i], i));
    }
    const std::size_t range = opened.range_of(position);
    if (range == opened.ranges.size()) return opened.lies_elsewhere(position);
    Waiting& w = waiting[range];
    w.positions[w.count] = position;
    w.places[w.count++] = static_cast<std::uint32_t>(i);
    if (w.count == kBatch) REGROUP_RETURN_IF_ERROR(gather(range));
  }
  for (std::size_t range = 0; range < waiting.size(); ++range) {
    if (waiting[range].count != 0) REGROUP_RETURN_IF_ERROR(gather(range));
  }
  return {};
}

base::Result<std::uint64_t> Client::Impl::pull_dense_of_step(Table table, Output values) {
  REGROUP_ASSIGN_OR_RETURN(const OpenedTable* const opened, table_at(table, false));
  const TableSpec& spec = opened->spec;
  const std::size_t size = size_of(spec.dtype);
  REGROUP_RETURN_IF_ERROR(check_pull_dense(spec, values));
  REGROUP_RETURN_IF_ERROR(await_clocks(spec.name));
  return pull_of_one_step(spec.name, [&]() -> Status {
    for (const RangeOf& range : opened->ranges) {
      const PositionRange& positions = range.reader.positions();
      const auto part =
          values.subspan(range.first * size, (positions.last - positions.first + 1) * size);
      REGROUP_RETURN_IF_ERROR(range.reader.copy_slice(part).status());
    }
    return {};
  });
}

// ---- Client

Client::Client(std::unique_ptr<Backend> backend) : impl_(std::move(backend)) {}
Client::~Client() {
  // A child after fork() has no thread of the LaneHolder to join, shares the connection to another
  // host, and its copies of mutexes and condition variables have waiters, so that destroying them
  // would wait for ever.
  if (impl_->in_child()) static_cast<void>(impl_.release());
}

base::Result<std::unique_ptr<Client::StoreBackend>> Client::StoreBackend::attach(
    const ClientOptions& options, base::TimePoint deadline) {
  std::unique_ptr<StoreBackend> backend;
  if (is_gateway_address(options.memory)) {
    REGROUP_ASSIGN_OR_RETURN(backend, Remote::connect(options, deadline));
  } else {
    REGROUP_ASSIGN_OR_RETURN(const ServerMemory memory, parse_server_memory(options.memory));
    REGROUP_ASSIGN_OR_RETURN(Impl::Shards shards, Impl::map(memory));
    REGROUP_ASSIGN_OR_RETURN(backend,
                             Impl::attach(options, memory, std::move(shards), Caller{}, deadline));
  }
  return backend;
}

base::Result<std::unique_ptr<Client>> Client::attach(const ClientOptions& options) {
  REGROUP_ASSIGN_OR_RETURN(
      std::unique_ptr<StoreBackend> backend,
      StoreBackend::attach(options, base::deadline_after(RealPolicy::now(), options.deadline)));
  return std::unique_ptr<Client>(new Client(std::move(backend)));
}
base::Result<Table> Client::open(const TableSpec& spec) {
  REGROUP_RETURN_IF_ERROR(impl_->check_process());
  REGROUP_RETURN_IF_ERROR(check_whole(spec));
  return impl_->open(spec);
}
const TableSpec& Client::spec_of(Table table) const { return impl_->spec_of(table); }
base::Result<Ticket> Client::push(Table table, std::span<const std::int64_t> ids, Input gradients,
                                  const Scalars& scalars) {
  REGROUP_RETURN_IF_ERROR(impl_->check_process());
  return impl_->push(table, ids, gradients, scalars);
}
base::Result<Ticket> Client::push(Table table, Input gradients, const Scalars& scalars) {
  REGROUP_RETURN_IF_ERROR(impl_->check_process());
  return impl_->push_dense(table, gradients, scalars);
}
Status Client::wait(Ticket ticket, std::chrono::nanoseconds at_most) {
  REGROUP_RETURN_IF_ERROR(impl_->check_process());
  return impl_->wait(ticket, base::deadline_after(RealPolicy::now(), at_most));
}
Status Client::flush() {
  REGROUP_RETURN_IF_ERROR(impl_->check_process());
  return impl_->flush(impl_->deadline());
}
std::uint64_t Client::clock() const { return impl_->clock(); }
base::Result<std::uint64_t> Client::advance() {
  REGROUP_RETURN_IF_ERROR(impl_->check_process());
  return impl_->advance();
}
base::Result<std::optional<Leaf>> Client::next_leaf() {
  REGROUP_RETURN_IF_ERROR(impl_->check_process());
  return impl_->next_leaf();
}
Status Client::pull(Table table, std::span<const std::int64_t> ids, Output rows) const {
  return impl_->pull(table, ids, rows);
}
Status Client::pull(Table table, Output values) const { return impl_->pull_dense(table, values); }

}  // namespace regroup::collective::ps
