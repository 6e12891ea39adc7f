// Splits calls by the stores that have their keys, and joins what the stores answer.
#include "collective/ps/partitioned_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "collective/ps/consistency.h"
#include "collective/ps/link.h"
#include "shmem/doorbell.h"

namespace regroup::collective::ps {
namespace {

using base::invalid_argument;
using base::Status;
using base::TimePoint;
using shmem::RealPolicy;

// Pushes whose parts are known by number. A store ends with a client that has 1024 failed pushes.
constexpr std::size_t kMostPushes = 1000;
// How long a client waits for one store before it looks at all of them again.
constexpr std::chrono::milliseconds kLookAtSteps{100};
// The same for whether a store is lost: at first, and at most.
constexpr std::chrono::milliseconds kAskFirst{1}, kAskAgain{50};
constexpr std::chrono::milliseconds kAnswerWithin{500};
// For which an attempt to attach waits for one store if others can say whether it is lost.
constexpr std::chrono::seconds kAttachWithin{2};
// Tables with replicas are cut for so many shards of each store, whatever there are: a client that
// attaches after a loss cannot ask the lost store.
constexpr std::uint32_t kReplicatedShards = 2;
constexpr std::size_t kSettled = kMostPushes / 4;  // of them at once: the oldest, most likely done

base::Result<std::string> host_of(const ClientOptions& store) {
  if (!is_gateway_address(store.memory)) return this_host();
  REGROUP_ASSIGN_OR_RETURN(GatewayAddress gateway, parse_gateway_address(store.memory));
  return std::move(gateway.host);
}

bool is_late(const Status& status) { return status.code() == base::Code::kDeadlineExceeded; }
// The store's, or the lane's: nobody knows whether what is pushed there counts.
bool is_lost(const Status& status) {
  return status.code() == base::Code::kPeerLost || status.code() == base::Code::kDataLoss;
}

// A store that is lost may answer an attempt to attach so, or one with a short deadline.
bool may_be_lost(const Status& status) {
  return status.code() == base::Code::kUnavailable || status.code() == base::Code::kPeerLost ||
         status.code() == base::Code::kDeadlineExceeded ||
         status.code() == base::Code::kResourceExhausted;
}
Status not_said_lost(const Status& why) {
  return base::deadline_exceeded(
      fmt::format("{}; other stores have replicas of its ranges, but the launcher has not declared "
                  "this store lost before the deadline",
                  why.message()));
}

// The error that a call returns. Calls that were late may be made again, so they come last.
Status first_error(std::span<const Status> statuses) {
  for (const Status& status : statuses) {
    if (!status.ok() && !is_late(status)) return status;
  }
  const auto late = std::ranges::find_if(statuses, [](const Status& s) { return !s.ok(); });
  return late == statuses.end() ? Status() : *late;
}

}  // namespace

// ---- stores

base::Result<std::unique_ptr<Client>> Client::attach(std::span<const ClientOptions> stores,
                                                     std::uint32_t replicas) {
  if (stores.empty()) return invalid_argument("client: expected stores, got none");
  if (replicas < 1 || replicas > stores.size()) {
    return invalid_argument(fmt::format("client: expected 1 to {} replicas in {} stores, got {}",
                                        stores.size(), stores.size(), replicas));
  }
  if (stores.size() == 1) return attach(stores.front());
  const base::TimePoint deadline = base::deadline_after(RealPolicy::now(), stores.front().deadline);
  REGROUP_ASSIGN_OR_RETURN(std::unique_ptr<Partitioned> backend,
                           Partitioned::attach(stores, deadline, replicas));
  return std::unique_ptr<Client>(new Client(std::move(backend)));
}

base::Result<std::unique_ptr<Client::Partitioned>> Client::Partitioned::attach(
    std::span<const ClientOptions> stores, TimePoint deadline, std::uint32_t replicas) {
  const ClientOptions& first = stores.front();
  REGROUP_RETURN_IF_ERROR(check(first.consistency));
  if (stores.size() > kMaxStores) {
    return invalid_argument(
        fmt::format("client: expected at most {} stores, got {}", kMaxStores, stores.size()));
  }
  std::unique_ptr<Partitioned> client;
  try {
    client.reset(new Partitioned(first, stores.size(), replicas));
  } catch (const std::system_error& error) {
    return no_thread(error);
  }
  REGROUP_RETURN_IF_ERROR(client->attach_stores(stores, deadline));
  if (first.consistency.mode == Mode::kSsp)
    REGROUP_RETURN_IF_ERROR(client->begin_at_highest(deadline));
  if (client->is_sync()) {
    REGROUP_ASSIGN_OR_RETURN(const Steps steps, client->look_at_steps(0, deadline));
    client->clock_.store(steps.applied(), std::memory_order_relaxed);
  }
  return client;
}

Client::Partitioned::Partitioned(const ClientOptions& first, std::size_t stores,
                                 std::uint32_t replicas)
    : Backend(first),
      consistency_(first.consistency),
      replicas_(replicas),
      all_(stores),
      stores_(stores),
      threads_(stores) {
  std::iota(all_.begin(), all_.end(), 0);
}

Status Client::Partitioned::attach_stores(std::span<const ClientOptions> stores,
                                          TimePoint deadline) {
  for (const std::size_t store : all_) {
    REGROUP_ASSIGN_OR_RETURN(stores_[store].host, host_of(stores[store]));
  }
  for (std::vector<std::size_t> wanted = all_;;) {
    const TimePoint now = RealPolicy::now();
    Status why;
    REGROUP_ASSIGN_OR_RETURN(wanted, try_stores(stores, wanted, deadline, why));
    std::ranges::sort(living_);
    note_losses();
    std::erase_if(wanted, [&](std::size_t store) { return is_lost_store(store); });
    if (wanted.empty()) return living_.empty() ? why : Status();
    if (now >= deadline) return not_said_lost(why);
    std::this_thread::sleep_for(kAskAgain);
    static_cast<void>(at(living_, deadline, [&](std::size_t store) {
      return stores_[store].backend->ask_lost_stores(RealPolicy::now() + kAnswerWithin).status();
    }));
  }
}

// One after the other: of clients that exclude each other, one gets the first store, and goes on.
base::Result<std::vector<std::size_t>> Client::Partitioned::try_stores(
    std::span<const ClientOptions> stores, std::span<const std::size_t> wanted, TimePoint deadline,
    Status& why) {
  std::vector<std::size_t> out;
  for (const std::size_t store : wanted) {
    note_losses();
    if (is_lost_store(store)) continue;
    ClientOptions options = stores[store];
    options.deadline = stores.front().deadline;
    options.consistency = stores.front().consistency;
    const TimePoint most = RealPolicy::now() + kAttachWithin;
    auto backend =
        StoreBackend::attach(options, replicas_ == 1 ? deadline : std::min(deadline, most));
    if (backend.ok()) {
      stores_[store].backend = std::move(*backend);
      living_.push_back(store);
      continue;
    }
    const Status failed = named(store, backend.status());
    if (replicas_ == 1 || !may_be_lost(failed)) return failed;
    if (why.ok()) why = failed;
    out.push_back(store);
  }
  return out;
}

// Each may wait until its host has all pushes.
Client::Partitioned::~Partitioned() {
  threads_.run(all_, [this](std::size_t store) { stores_[store].backend.reset(); });
}

Status Client::Partitioned::named(std::size_t store, const Status& status) const {
  if (status.ok()) return status;
  return Status(status.code(), fmt::format("store {} of {} on host {}: {}", store, stores_.size(),
                                           stores_[store].host, status.message()));
}

std::vector<Status> Client::Partitioned::at(std::span<const std::size_t> stores, TimePoint until,
                                            const StoreCall& call) {
  std::vector<Status> out(stores_.size());
  std::vector<std::size_t> living;
  std::ranges::copy_if(stores, std::back_inserter(living),
                       [&](std::size_t store) { return !is_lost_store(store); });
  threads_.run(living, [&](std::size_t store) { out[store] = named(store, call(store)); });
  if (replicas_ == 1) return out;
  if (std::ranges::any_of(living, [&](std::size_t store) { return is_late(out[store]); }))
    ask_others(out);
  note_losses();
  for (const std::size_t store : living) {
    if (out[store].code() == base::Code::kPeerLost && !is_lost_store(store))
      out[store] = await_loss(store, out[store], until);
  }
  for (const std::size_t store : living) {
    if (is_lost_store(store)) out[store] = {};
  }
  return out;
}

Status Client::Partitioned::at_all(TimePoint until, const StoreCall& call) {
  return first_error(at(std::vector(living_), until, call));
}

// ---- replicas

void Client::Partitioned::note_losses() {
  if (replicas_ == 1) return;
  StoreSet lost = 0;
  for (const std::size_t store : living_) lost |= stores_[store].backend->known_lost_stores();
  for (const std::size_t store : all_) {
    if (contains(lost, store) && !is_lost_store(store)) note_loss(store);
  }
}

// What is pushed there needs no answer: the other replicas have it, under its number.
void Client::Partitioned::note_loss(std::size_t store) {
  lost_stores_ |= set_of(store);
  std::erase(living_, store);
  for (auto& [number, pushed] : pushes_) {
    Part& part = pushed.parts[store];
    part.ticket.reset();
    if (is_lost(part.error)) part.error = {};
  }
}

void Client::Partitioned::ask_others(std::span<const Status> answers) {
  std::vector<std::size_t> others;
  std::ranges::copy_if(living_, std::back_inserter(others), [&](std::size_t store) {
    return !is_late(answers[store]) && answers[store].code() != base::Code::kPeerLost;
  });
  const TimePoint answered = RealPolicy::now() + kAnswerWithin;
  threads_.run(others, [&](std::size_t other) {
    static_cast<void>(stores_[other].backend->ask_lost_stores(answered));
  });
}

Status Client::Partitioned::await_loss(std::size_t store, const Status& why, TimePoint until) {
  for (base::Duration pause = kAskFirst;; pause = std::min<base::Duration>(2 * pause, kAskAgain)) {
    std::vector<std::size_t> others = living_;
    std::erase(others, store);
    std::vector<base::Code> codes(stores_.size());
    const TimePoint answered = std::min(until, RealPolicy::now() + kAnswerWithin);
    threads_.run(others, [&](std::size_t other) {
      codes[other] = stores_[other].backend->ask_lost_stores(answered).code();
    });
    note_losses();
    if (is_lost_store(store)) return {};
    // Broken connections are not made again.
    if (std::ranges::all_of(others, [&](std::size_t other) {
          return is_lost_store(other) || codes[other] == base::Code::kPeerLost;
        }))
      return why;
    const TimePoint now = RealPolicy::now();
    if (now >= until) return not_said_lost(why);
    std::this_thread::sleep_for(std::min<base::Duration>(pause, until - now));
  }
}

std::size_t Client::Partitioned::first_replica(std::size_t home) const {
  std::size_t store = home;
  while (is_lost_store(store)) store = (store + 1) % stores_.size();
  return store;
}

Status Client::Partitioned::check_replicas(StoreSet homes, const std::string& what) const {
  if (lost_stores_ == 0) return {};
  StoreSet without = 0;
  for (const std::size_t home : all_) {
    if (contains(homes, home) && living_replicas(home) == 0)
      without |= replicas_of(home, stores_.size(), replicas_);
  }
  if (without == 0) return {};
  std::string names;
  for (const std::size_t store : all_) {
    if (!contains(without, store)) continue;
    names += fmt::format("{}store {} of {} on host {}", names.empty() ? "" : ", ", store,
                         stores_.size(), stores_[store].host);
  }
  return base::peer_lost(fmt::format("{}: all replicas of some ranges are lost: {}", what, names));
}

base::Result<Client::Partitioned::Lock> Client::Partitioned::turn(TimePoint until,
                                                                  const std::string& what) {
  REGROUP_RETURN_IF_ERROR(check_process());
  Lock lock(turn_, std::defer_lock);
  // Not until TimePoint::max(), which try_lock_until() cannot convert.
  const TimePoint most = RealPolicy::now() + std::chrono::hours(24 * 365);
  if (!lock.try_lock_until(std::min(until, most)))
    return base::deadline_exceeded(fmt::format("{}: another thread's call has not ended", what));
  note_losses();
  return lock;
}

std::uint32_t Client::Partitioned::shards() const {
  std::uint32_t out = 0;
  if (replicas_ > 1) return kReplicatedShards * static_cast<std::uint32_t>(stores_.size());
  for (const Store& store : stores_) out += store.backend->shards();
  return out;
}

// ---- tables

base::Result<Table> Client::Partitioned::open(const TableSpec& spec) {
  REGROUP_RETURN_IF_ERROR(check_open(spec));
  const std::string what = fmt::format("open table {}", spec.name);
  const TimePoint until = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, what));
  OpenedTable table{
      TablePartition(spec, static_cast<std::uint32_t>(stores_.size()), shards(), replicas_),
      std::vector<Table>(stores_.size())};
  const StoreCall open_at = [&](std::size_t store) -> Status {
    REGROUP_ASSIGN_OR_RETURN(table.in_store[store],
                             stores_[store].backend->open(table.partition.part(store)));
    return {};
  };
  // Store 0 first, or the first one that lives: of two processes that open the table with different
  // specs, the later one is refused before it has made anything.
  const std::vector<std::size_t> living = living_;
  const std::span<const std::size_t> numbers = living;
  if (living.empty()) return check_replicas_of_all(what);
  REGROUP_RETURN_IF_ERROR(first_error(at(numbers.first(1), until, open_at)));
  REGROUP_RETURN_IF_ERROR(first_error(at(numbers.subspan(1), until, open_at)));
  const std::lock_guard tables(tables_mutex_);
  tables_.push_back(std::move(table));
  return Table{static_cast<std::uint32_t>(tables_.size() - 1)};
}

base::Result<const Client::Partitioned::OpenedTable*> Client::Partitioned::table_at(
    Table table, bool rows) const {
  const std::lock_guard lock(tables_mutex_);
  REGROUP_RETURN_IF_ERROR(check_number(table, tables_.size()));
  REGROUP_RETURN_IF_ERROR(check_kind(tables_[table.number].spec(), rows));
  return &tables_[table.number];
}

const TableSpec& Client::Partitioned::spec_of(Table table) const {
  const std::lock_guard lock(tables_mutex_);
  return tables_.at(table.number).spec();
}

// ---- pushes

bool Client::Partitioned::Pushed::answered() const {
  return std::ranges::none_of(parts, [](const Part& part) { return part.ticket.has_value(); });
}

base::Result<Ticket> Client::Partitioned::push_at(
    const std::string& table, StoreSet homes, std::span<const std::size_t> stores, TimePoint until,
    const std::function<base::Result<Ticket>(std::size_t store)>& push) {
  if (pushes_.size() >= kMostPushes) REGROUP_RETURN_IF_ERROR(settle(until));
  if (failed_.size() >= kMaxFailed) {
    return base::resource_exhausted(
        fmt::format("push to table {}: {} pushes have failed since the last flush(); the first: {}",
                    table, failed_.size(), failed_.begin()->second.message()));
  }
  Pushed pushed{.parts = std::vector<Part>(stores_.size()), .homes = homes};
  const std::vector<Status> sent = at(stores, until, [&](std::size_t store) -> Status {
    REGROUP_ASSIGN_OR_RETURN(pushed.parts[store].ticket, push(store));
    return {};
  });
  Status failed = first_error(sent);
  for (const std::size_t store : stores) {
    if (is_lost_store(store)) pushed.parts[store].ticket.reset();
  }
  if (failed.ok()) failed = check_replicas(homes, fmt::format("push to table {}", table));
  // Parts that are sent count, and their stores' flush() waits for them.
  if (!failed.ok()) {
    if (leaf_failed_.ok()) leaf_failed_ = failed;
    return failed;
  }
  pushes_[next_ticket_] = std::move(pushed);
  return Ticket{next_ticket_++};
}

base::Result<Ticket> Client::Partitioned::push(Table table, std::span<const std::int64_t> ids,
                                               Input gradients, const Scalars& scalars) {
  const TimePoint until = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, "push"));
  REGROUP_ASSIGN_OR_RETURN(const OpenedTable* const opened, table_at(table, true));
  REGROUP_RETURN_IF_ERROR(check_push_rows(opened->spec(), ids.size(), gradients, scalars));
  if (is_sync()) REGROUP_RETURN_IF_ERROR(check_sync_push(opened->spec(), leaf_.has_value()));
  // Before anything is sent: a store sees only its own keys.
  REGROUP_RETURN_IF_ERROR(check_keys(opened->spec(), ids));
  std::vector<StoreSet> replicas;
  for (const std::size_t home : all_) replicas.push_back(living_replicas(home));
  REGROUP_ASSIGN_OR_RETURN(const TablePartition::Split split,
                           opened->partition.split(ids, replicas));
  const std::size_t row = opened->spec().dim * size_of(opened->spec().compute_dtype());
  std::vector<std::size_t> stores;
  for (const std::size_t store : all_) {
    if (!split.parts[store].ids.empty()) stores.push_back(store);
  }
  return push_at(opened->spec().name, split.homes, stores, until, [&](std::size_t store) {
    const TablePartition::Part& part = split.parts[store];
    std::vector<std::byte>& rows = stores_[store].rows;
    rows.resize(part.ids.size() * row);
    for (std::size_t i = 0; i < part.ids.size(); ++i)
      std::memcpy(rows.data() + i * row, gradients.data() + part.places[i] * row, row);
    return stores_[store].backend->push(opened->in_store[store], part.ids, rows, scalars);
  });
}

base::Result<Ticket> Client::Partitioned::push_dense(Table table, Input gradients,
                                                     const Scalars& scalars) {
  const TimePoint until = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, "push"));
  REGROUP_ASSIGN_OR_RETURN(const OpenedTable* const opened, table_at(table, false));
  REGROUP_RETURN_IF_ERROR(check_push_dense(opened->spec(), gradients, scalars));
  if (is_sync()) REGROUP_RETURN_IF_ERROR(check_sync_push(opened->spec(), leaf_.has_value()));
  const std::size_t element = size_of(opened->spec().compute_dtype());
  StoreSet homes = 0, replicas = 0;
  for (const std::size_t home : opened->partition.homes()) {
    homes |= set_of(home);
    replicas |= living_replicas(home);
  }
  std::vector<std::size_t> stores;
  for (const std::size_t store : all_) {
    if (contains(replicas, store)) stores.push_back(store);
  }
  return push_at(opened->spec().name, homes, stores, until, [&](std::size_t store) {
    Store& to = stores_[store];
    const bool whole = opened->partition.is_whole(store);
    if (!whole) opened->partition.gather(store, element, gradients, to.rows);
    return to.backend->push_dense(opened->in_store[store], whole ? gradients : Input(to.rows),
                                  scalars);
  });
}

Status Client::Partitioned::wait(Ticket ticket, TimePoint deadline) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(deadline, "wait for a push"));
  if (ticket.number == 0 || ticket.number >= next_ticket_) {
    return invalid_argument(
        fmt::format("push {}: this client has begun {} pushes", ticket.number, next_ticket_ - 1));
  }
  Status late;
  const auto found = pushes_.find(ticket.number);
  if (found != pushes_.end()) late = await_pushes(found, std::next(found), deadline);
  const auto lost = lost_.find(ticket.number);
  if (lost != lost_.end()) return lost->second;
  REGROUP_RETURN_IF_ERROR(late);
  auto failed = failed_.extract(ticket.number);
  return failed.empty() ? Status() : std::move(failed.mapped());
}

Status Client::Partitioned::await_pushes(Pushes::iterator first, Pushes::iterator end,
                                         TimePoint until) {
  std::vector<std::size_t> stores;
  for (const std::size_t store : all_) {
    if (std::any_of(first, end, [&](const auto& p) { return p.second.parts[store].ticket; }))
      stores.push_back(store);
  }
  // Of stores that cannot be reached. Those that are lost then have no say.
  std::vector<Status> broken(stores_.size());
  const std::vector<Status> late = at(stores, until, [&](std::size_t store) -> Status {
    for (auto push = first; push != end; ++push) {
      Part& part = push->second.parts[store];
      if (!part.ticket) continue;
      Status answer = stores_[store].backend->wait(*part.ticket, until);
      if (is_late(answer)) return answer;
      if (replicas_ > 1 && answer.code() == base::Code::kPeerLost) return broken[store] = answer;
      // The store says it once: it must not be lost here, by an exception either.
      part.error = std::move(answer);
      part.ticket.reset();
    }
    return {};
  });
  for (const std::size_t store : stores) {
    if (late[store].code() != base::Code::kPeerLost) continue;
    for (auto push = first; push != end; ++push) {
      Part& part = push->second.parts[store];
      if (part.ticket) part = {.ticket = {}, .error = broken[store]};
    }
  }
  while (first != end) finish(first++);
  const auto is_other = [](const Status& status) { return !is_late(status); };
  std::vector<Status> only_late = late;
  std::ranges::replace_if(only_late, is_other, Status());
  return first_error(only_late);
}

void Client::Partitioned::finish(Pushes::iterator push) {
  const auto& [number, pushed] = *push;
  std::optional<std::size_t> failed;
  for (const std::size_t store : all_) {
    const Status& error = pushed.parts[store].error;
    if (error.ok()) continue;
    if (!failed || (is_lost(error) && !is_lost(pushed.parts[*failed].error))) failed = store;
  }
  Status error = failed ? named(*failed, pushed.parts[*failed].error) : Status();
  if (const Status lost = check_replicas(pushed.homes, "push"); !lost.ok()) error = lost;
  if (is_lost(error)) {
    lost_[number] = error;
  } else if (!pushed.answered()) {
    return;
  } else if (!error.ok()) {
    failed_[number] = error;
  }
  pushes_.erase(push);
}

Status Client::Partitioned::settle(TimePoint until) {
  return await_pushes(pushes_.begin(), std::next(pushes_.begin(), kSettled), until);
}

Status Client::Partitioned::flush_locked(TimePoint until) {
  std::vector<Status> answers(stores_.size());
  const std::vector<std::size_t> living = living_;
  const std::vector<Status> errors = at(living, until, [&](std::size_t store) {
    return answers[store] = stores_[store].backend->flush(until);
  });
  std::vector<bool> kept(stores_.size());
  for (auto push = pushes_.begin(); push != pushes_.end();) {
    for (const std::size_t store : living_) {
      Part& part = push->second.parts[store];
      if (!part.ticket || is_late(errors[store])) continue;
      // A store does not say of which push its error is. If this call is late, each wait() for one
      // of them returns it, since that for the push that has failed must not succeed.
      part.error = answers[store];
      part.ticket.reset();
      kept[store] = true;
    }
    finish(push++);
  }
  Status late;
  for (const std::size_t store : living_) {
    const Status& error = errors[store];
    if (is_late(error)) {
      if (late.ok()) late = error;
    } else if (!is_lost(error) && !kept[store] && unreported_.ok()) {
      unreported_ = error;
    }
  }
  REGROUP_RETURN_IF_ERROR(late);
  Status first = failed_.empty() ? unreported_ : failed_.begin()->second;
  failed_.clear();
  unreported_ = {};
  if (first.ok()) first = first_error(errors);
  return first.ok() ? check_replicas_of_all("flush") : first;
}

Status Client::Partitioned::flush(TimePoint deadline) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(deadline, "flush"));
  return flush_locked(deadline);
}

// ---- clocks

// Each store counts clocks, and a pull waits at the stores from which it reads. So the promise
// holds at each store, and it is that of the whole if clients begin at one clock in all of them.
Status Client::Partitioned::begin_at_highest(TimePoint until) {
  std::uint64_t highest = 0;
  for (const std::size_t store : living_)
    highest = std::max(highest, stores_[store].backend->clock());
  std::vector<std::size_t> behind;
  for (const std::size_t store : living_) {
    if (stores_[store].backend->clock() < highest) behind.push_back(store);
  }
  REGROUP_RETURN_IF_ERROR(first_error(at(behind, until, [&](std::size_t store) {
    return stores_[store].backend->raise_clock(highest, until);
  })));
  clock_.store(highest, std::memory_order_relaxed);
  return {};
}

std::uint64_t Client::Partitioned::clock() const { return clock_.load(std::memory_order_relaxed); }

base::Result<std::uint64_t> Client::Partitioned::advance() {
  REGROUP_RETURN_IF_ERROR(check_advance(consistency_.mode));
  const TimePoint until = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, "end of a turn"));
  const std::uint64_t next = clock() + 1;
  if (consistency_.mode == Mode::kSsp) {
    // All pushes first: a store whose clock is raised takes further ones for the next turn's.
    REGROUP_RETURN_IF_ERROR(flush_locked(until));
    // By number, since a store may have raised it before one that was late.
    REGROUP_RETURN_IF_ERROR(at_all(until, [&](std::size_t store) {
      return stores_[store].backend->raise_clock(next, until);
    }));
  }
  clock_.store(next, std::memory_order_relaxed);
  return next;
}

Status Client::Partitioned::raise_clock(std::uint64_t clock, TimePoint deadline) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(deadline, "end of a turn"));
  REGROUP_RETURN_IF_ERROR(at_all(deadline, [&](std::size_t store) {
    return stores_[store].backend->raise_clock(clock, deadline);
  }));
  clock_.store(std::max(clock, this->clock()), std::memory_order_relaxed);
  return {};
}

// ---- steps

std::uint64_t Client::Partitioned::Steps::logged() const {
  std::uint64_t least = ~std::uint64_t{0};
  for (const std::size_t store : living) least = std::min(least, stores[store].logged);
  return least;
}
std::uint64_t Client::Partitioned::Steps::applied() const {
  std::uint64_t least = ~std::uint64_t{0};
  for (const std::size_t store : living) least = std::min(least, stores[store].applied);
  return least;
}

base::Result<Client::Partitioned::Steps> Client::Partitioned::look_at_steps(std::uint64_t step,
                                                                            TimePoint until) {
  Steps steps{.stores = std::vector<StepState>(stores_.size()), .living = {}};
  REGROUP_RETURN_IF_ERROR(at_all(until, [&](std::size_t store) -> Status {
    REGROUP_ASSIGN_OR_RETURN(steps.stores[store],
                             stores_[store].backend->step_state(step, std::nullopt, {}));
    return {};
  }));
  REGROUP_RETURN_IF_ERROR(check_replicas_of_all(fmt::format("step {}", step)));
  steps.living = living_;
  const std::uint64_t logged = steps.logged();
  std::vector<std::size_t> unaware;
  for (const std::size_t store : steps.living) {
    const StepState& state = steps.stores[store];
    if (state.proposed < logged) unaware.push_back(store);
    // Of clients that have all ended, after some stores had logged their step.
    if (state.logged > logged && state.leaves != static_cast<std::uint64_t>(*consistency_.leaves)) {
      return named(store, invalid_argument(fmt::format(
                              "step {}: its sum is of {} leaves of earlier clients, and other "
                              "stores lack it; expected leaves={}, got {}",
                              logged, state.leaves, state.leaves, *consistency_.leaves)));
    }
  }
  REGROUP_RETURN_IF_ERROR(first_error(at(
      unaware, until, [&](std::size_t store) { return stores_[store].backend->propose(logged); })));
  return steps;
}

Status Client::Partitioned::await_change(std::size_t store, const StepState& seen,
                                         std::uint64_t step, TimePoint most, TimePoint until) {
  const std::array<std::size_t, 1> one{store};
  return first_error(at(one, until, [&](std::size_t) {
    return stores_[store]
        .backend->step_state(step, seen.changes, std::min(most, RealPolicy::now() + kLookAtSteps))
        .status();
  }));
}

// A leaf is computed as long as any store lacks it. Store 0 has the claims, or the first one that
// lives: claims that are lost make clients compute leaves twice, no more.
base::Result<std::optional<Leaf>> Client::Partitioned::begin_leaf(const Steps& steps,
                                                                  bool of_others, TimePoint until) {
  LeafSet lacking;
  for (const std::size_t store : steps.living) lacking.insert(steps.stores[store].lacking);
  if (lacking.empty()) return std::optional<Leaf>();
  const std::uint64_t step = clock();
  std::optional<std::uint32_t> claimed;
  const std::array<std::size_t, 1> claims{steps.living.front()};
  REGROUP_RETURN_IF_ERROR(first_error(at(claims, until, [&](std::size_t store) -> Status {
    REGROUP_ASSIGN_OR_RETURN(claimed, stores_[store].backend->claim_leaf(step, lacking, of_others));
    return {};
  })));
  if (!claimed) return std::optional<Leaf>();
  const Leaf leaf{step, *claimed};
  REGROUP_RETURN_IF_ERROR(
      at_all(until, [&](std::size_t store) { return stores_[store].backend->begin_leaf(leaf); }));
  leaf_ = leaf;
  leaf_begun_ = RealPolicy::now();
  leaf_failed_ = {};
  // Of a leaf that was abandoned: its errors are none of this one.
  pushes_.clear();
  failed_.clear();
  unreported_ = {};
  return leaf_;
}

// A client that dies here leaves a leaf that some stores have and others lack. Whoever computes it
// again pushes the same, and those that have it take nothing twice.
Status Client::Partitioned::end_leaf(TimePoint until) {
  Status pushed = flush_locked(until);
  if (pushed.ok()) pushed = leaf_failed_;
  leaf_.reset();
  leaf_failed_ = {};
  REGROUP_RETURN_IF_ERROR(pushed);
  return at_all(until, [&](std::size_t store) { return stores_[store].backend->end_leaf(until); });
}

Status Client::Partitioned::step_is_late(const Steps& steps) const {
  const std::uint64_t step = clock();
  for (const std::size_t store : steps.living) {
    const StepState& state = steps.stores[store];
    for (std::uint32_t leaf = 0; leaf < *consistency_.leaves; ++leaf) {
      if (!state.lacking.has(leaf)) continue;
      return named(store, base::deadline_exceeded(
                              fmt::format("step {}: leaf {} has not come in time", step, leaf)));
    }
  }
  const std::size_t store = slowest(steps, step);
  return named(store, base::deadline_exceeded(fmt::format(
                          "step {}: all leaves are there, and it is not {} in time", step,
                          steps.stores[store].logged > step ? "applied" : "logged")));
}

// The first store that has not logged the step, or, if all have, not applied it.
std::size_t Client::Partitioned::slowest(const Steps& steps, std::uint64_t step) {
  const auto begin = steps.living.begin(), end = steps.living.end();
  const auto state = [&](std::size_t store) -> const StepState& { return steps.stores[store]; };
  auto found = std::find_if(begin, end, [&](std::size_t s) { return state(s).logged <= step; });
  if (found == end)
    found = std::find_if(begin, end, [&](std::size_t s) { return state(s).applied <= step; });
  return found == end ? steps.living.front() : *found;
}

base::Result<std::optional<Leaf>> Client::Partitioned::next_leaf() {
  REGROUP_RETURN_IF_ERROR(check_next_leaf(consistency_.mode));
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(deadline(), "next leaf"));
  if (leaf_) {
    REGROUP_RETURN_IF_ERROR(end_leaf(deadline()));
    leaf_time_ = RealPolicy::now() - leaf_begun_;
  }
  const TimePoint until = deadline();
  const TimePoint help = RealPolicy::now() + wait_before_help(leaf_time_);
  const std::uint64_t step = clock();
  while (true) {
    REGROUP_ASSIGN_OR_RETURN(const Steps steps, look_at_steps(step, until));
    if (const std::uint64_t applied = steps.applied(); applied > step) {
      clock_.store(applied, std::memory_order_relaxed);
      return std::optional<Leaf>();
    }
    const TimePoint now = RealPolicy::now();
    REGROUP_ASSIGN_OR_RETURN(const std::optional<Leaf> leaf, begin_leaf(steps, now >= help, until));
    if (leaf) return leaf;
    if (now >= until) return step_is_late(steps);
    // The stores get on without this client, so it may wait for one after the other.
    const std::size_t store = slowest(steps, step);
    REGROUP_RETURN_IF_ERROR(await_change(store, steps.stores[store], step,
                                         std::min(until, now < help ? help : until), until));
  }
}

// ---- pulls

Status Client::Partitioned::pull(Table table, std::span<const std::int64_t> ids, Output rows) {
  const TimePoint until = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, "pull"));
  REGROUP_ASSIGN_OR_RETURN(const OpenedTable* const opened, table_at(table, true));
  REGROUP_RETURN_IF_ERROR(check_pull_rows(opened->spec(), ids.size(), rows));
  for (bool whole = false; !whole;) {
    REGROUP_ASSIGN_OR_RETURN(whole, try_pull(*opened, ids, rows, until));
  }
  return {};
}

base::Result<bool> Client::Partitioned::try_pull(const OpenedTable& opened,
                                                 std::span<const std::int64_t> ids, Output rows,
                                                 TimePoint until) {
  // Always the same one as long as it lives, so that no pull has older rows than one before.
  std::vector<StoreSet> readers(stores_.size());
  for (const std::size_t home : all_) {
    if (living_replicas(home) != 0) readers[home] = set_of(first_replica(home));
  }
  REGROUP_ASSIGN_OR_RETURN(const TablePartition::Split split, opened.partition.split(ids, readers));
  const std::string& name = opened.spec().name;
  REGROUP_RETURN_IF_ERROR(check_replicas(split.homes, fmt::format("pull of table {}", name)));
  const std::size_t row = opened.spec().value_bytes();
  std::vector<std::size_t> stores;
  for (const std::size_t store : all_) {
    if (!split.parts[store].ids.empty()) stores.push_back(store);
  }
  const auto pull = [&](std::size_t store) -> base::Result<std::uint64_t> {
    const TablePartition::Part& part = split.parts[store];
    std::vector<std::byte>& own = stores_[store].rows;
    own.resize(part.ids.size() * row);
    auto step = stores_[store].backend->pull_of_step(opened.in_store[store], part.ids, own);
    for (std::size_t i = 0; step.ok() && i < part.ids.size(); ++i)
      std::memcpy(rows.data() + part.places[i] * row, own.data() + i * row, row);
    return step;
  };
  return pull_of_one_step(name, std::move(stores), until, pull);
}

base::Result<bool> Client::Partitioned::pull_of_one_step(
    const std::string& table, std::vector<std::size_t> stores, TimePoint until,
    const std::function<base::Result<std::uint64_t>(std::size_t store)>& pull) {
  std::vector<std::uint64_t> steps(stores_.size());
  const std::vector<std::size_t> all = stores;
  const StoreSet lost = lost_stores_;
  while (true) {
    REGROUP_RETURN_IF_ERROR(first_error(at(stores, until, [&](std::size_t store) -> Status {
      REGROUP_ASSIGN_OR_RETURN(steps[store], pull(store));
      return {};
    })));
    if (lost_stores_ != lost) return false;
    const std::uint64_t newest = std::ranges::max(steps);
    stores.clear();  // but for those that are behind
    std::ranges::copy_if(all, std::back_inserter(stores),
                         [&](std::size_t store) { return steps[store] < newest; });
    if (stores.empty()) return true;
    const std::size_t behind = stores.front();
    if (RealPolicy::now() >= until) {
      return named(behind, base::deadline_exceeded(fmt::format(
                               "pull of table {}: step {} is not applied in time, which other "
                               "stores have",
                               table, newest - 1)));
    }
    // All stores have logged it, and this one may not know so.
    REGROUP_ASSIGN_OR_RETURN(const Steps now, look_at_steps(newest, until));
    if (now.stores[behind].applied < newest)
      REGROUP_RETURN_IF_ERROR(await_change(behind, now.stores[behind], newest, until, until));
  }
}

Status Client::Partitioned::pull_dense(Table table, Output values) {
  const TimePoint until = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, "pull"));
  REGROUP_ASSIGN_OR_RETURN(const OpenedTable* const opened, table_at(table, false));
  REGROUP_RETURN_IF_ERROR(check_pull_dense(opened->spec(), values));
  for (bool whole = false; !whole;) {
    REGROUP_ASSIGN_OR_RETURN(whole, try_pull_dense(*opened, values, until));
  }
  return {};
}

base::Result<bool> Client::Partitioned::try_pull_dense(const OpenedTable& opened, Output values,
                                                       TimePoint until) {
  const std::string& name = opened.spec().name;
  const std::size_t element = size_of(opened.spec().dtype);
  // A store answers with its whole part: the fewest are asked, and those that live always the same.
  std::vector<StoreSet> homes(stores_.size());
  std::vector<std::size_t> stores;
  for (const std::size_t home : opened.partition.homes()) {
    REGROUP_RETURN_IF_ERROR(check_replicas(set_of(home), fmt::format("pull of table {}", name)));
    const StoreSet replicas = living_replicas(home);
    const auto asked =
        std::ranges::find_if(stores, [&](std::size_t store) { return contains(replicas, store); });
    const std::size_t store = asked == stores.end() ? first_replica(home) : *asked;
    if (asked == stores.end()) stores.push_back(store);
    homes[store] |= set_of(home);
  }
  const auto pull = [&](std::size_t store) -> base::Result<std::uint64_t> {
    Store& from = stores_[store];
    const Table there = opened.in_store[store];
    if (opened.partition.is_whole(store)) return from.backend->pull_dense_of_step(there, values);
    from.rows.resize(dense_elements(opened.partition.part(store)) * element);
    auto step = from.backend->pull_dense_of_step(there, from.rows);
    if (step.ok()) opened.partition.scatter(store, homes[store], element, from.rows, values);
    return step;
  };
  return pull_of_one_step(name, std::move(stores), until, pull);
}

}  // namespace regroup::collective::ps
