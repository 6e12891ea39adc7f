// Splits calls by the stores that have their keys, and joins what the stores answer.
#include "collective/ps/partitioned_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <numeric>
#include <system_error>
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

base::Result<std::unique_ptr<Client>> Client::attach(std::span<const ClientOptions> stores) {
  if (stores.empty()) return invalid_argument("client: expected stores, got none");
  if (stores.size() == 1) return attach(stores.front());
  const base::TimePoint deadline = base::deadline_after(RealPolicy::now(), stores.front().deadline);
  REGROUP_ASSIGN_OR_RETURN(std::unique_ptr<Partitioned> backend,
                           Partitioned::attach(stores, deadline));
  return std::unique_ptr<Client>(new Client(std::move(backend)));
}

base::Result<std::unique_ptr<Client::Partitioned>> Client::Partitioned::attach(
    std::span<const ClientOptions> stores, TimePoint deadline) {
  const ClientOptions& first = stores.front();
  REGROUP_RETURN_IF_ERROR(check(first.consistency));
  if (stores.size() > kMaxStores) {
    return invalid_argument(
        fmt::format("client: expected at most {} stores, got {}", kMaxStores, stores.size()));
  }
  std::unique_ptr<Partitioned> client;
  try {
    client.reset(new Partitioned(first, stores.size()));
  } catch (const std::system_error& error) {
    return no_thread(error);
  }
  // One after the other: of clients that exclude each other, one gets the first store, and goes on.
  for (std::size_t i = 0; i < stores.size(); ++i) {
    REGROUP_ASSIGN_OR_RETURN(client->stores_[i].host, host_of(stores[i]));
    ClientOptions options = stores[i];
    options.deadline = first.deadline;
    options.consistency = first.consistency;
    auto backend = StoreBackend::attach(options, deadline);
    if (!backend.ok()) return client->named(i, backend.status());
    client->stores_[i].backend = std::move(*backend);
  }
  if (first.consistency.mode == Mode::kSsp)
    REGROUP_RETURN_IF_ERROR(client->begin_at_highest(deadline));
  if (client->is_sync()) {
    REGROUP_ASSIGN_OR_RETURN(const Steps steps, client->look_at_steps(0));
    client->clock_.store(steps.applied(), std::memory_order_relaxed);
  }
  return client;
}

Client::Partitioned::Partitioned(const ClientOptions& first, std::size_t stores)
    : Backend(first),
      consistency_(first.consistency),
      all_(stores),
      stores_(stores),
      threads_(stores) {
  std::iota(all_.begin(), all_.end(), 0);
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

std::vector<Status> Client::Partitioned::at(std::span<const std::size_t> stores,
                                            const StoreCall& call) {
  std::vector<Status> out(stores_.size());
  threads_.run(stores, [&](std::size_t store) { out[store] = named(store, call(store)); });
  return out;
}

Status Client::Partitioned::at_all(const StoreCall& call) { return first_error(at(all_, call)); }

base::Result<Client::Partitioned::Lock> Client::Partitioned::turn(TimePoint until,
                                                                  const std::string& what) {
  REGROUP_RETURN_IF_ERROR(check_process());
  Lock lock(turn_, std::defer_lock);
  // Not until TimePoint::max(), which try_lock_until() cannot convert.
  const TimePoint most = RealPolicy::now() + std::chrono::hours(24 * 365);
  if (!lock.try_lock_until(std::min(until, most)))
    return base::deadline_exceeded(fmt::format("{}: another thread's call has not ended", what));
  return lock;
}

std::uint32_t Client::Partitioned::shards() const {
  std::uint32_t out = 0;
  for (const Store& store : stores_) out += store.backend->shards();
  return out;
}

// ---- tables

base::Result<Table> Client::Partitioned::open(const TableSpec& spec) {
  REGROUP_RETURN_IF_ERROR(check_open(spec));
  REGROUP_ASSIGN_OR_RETURN(const Lock lock,
                           turn(deadline(), fmt::format("open table {}", spec.name)));
  OpenedTable table{TablePartition(spec, static_cast<std::uint32_t>(stores_.size()), shards()),
                    std::vector<Table>(stores_.size())};
  const StoreCall open_at = [&](std::size_t store) -> Status {
    REGROUP_ASSIGN_OR_RETURN(table.in_store[store],
                             stores_[store].backend->open(table.partition.part(store)));
    return {};
  };
  // Store 0 first: of two processes that open the table with different specs, the later one is
  // refused before it has made anything.
  const std::span<const std::size_t> numbers = all_;
  REGROUP_RETURN_IF_ERROR(first_error(at(numbers.first(1), open_at)));
  REGROUP_RETURN_IF_ERROR(first_error(at(numbers.subspan(1), open_at)));
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
    const std::string& table, std::span<const std::size_t> stores, TimePoint until,
    const std::function<base::Result<Ticket>(std::size_t store)>& push) {
  if (pushes_.size() >= kMostPushes) REGROUP_RETURN_IF_ERROR(settle(until));
  if (failed_.size() >= kMaxFailed) {
    return base::resource_exhausted(
        fmt::format("push to table {}: {} pushes have failed since the last flush(); the first: {}",
                    table, failed_.size(), failed_.begin()->second.message()));
  }
  Pushed pushed{.parts = std::vector<Part>(stores_.size())};
  const std::vector<Status> sent = at(stores, [&](std::size_t store) -> Status {
    REGROUP_ASSIGN_OR_RETURN(pushed.parts[store].ticket, push(store));
    return {};
  });
  // Parts that are sent count, and their stores' flush() waits for them.
  if (Status failed = first_error(sent); !failed.ok()) {
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
  REGROUP_ASSIGN_OR_RETURN(const std::vector<TablePartition::Part> parts,
                           opened->partition.split(ids));
  const std::size_t row = opened->spec().dim * size_of(opened->spec().compute_dtype());
  std::vector<std::size_t> stores;
  for (const std::size_t store : all_) {
    if (!parts[store].ids.empty()) stores.push_back(store);
  }
  return push_at(opened->spec().name, stores, until, [&](std::size_t store) {
    const TablePartition::Part& part = parts[store];
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
  const std::vector<std::size_t>& stores = opened->partition.stores();
  return push_at(opened->spec().name, stores, until, [&](std::size_t store) {
    Store& to = stores_[store];
    if (stores.size() > 1) opened->partition.gather(store, element, gradients, to.rows);
    return to.backend->push_dense(opened->in_store[store],
                                  stores.size() > 1 ? Input(to.rows) : gradients, scalars);
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
  const std::vector<Status> late = at(stores, [&](std::size_t store) -> Status {
    for (auto push = first; push != end; ++push) {
      Part& part = push->second.parts[store];
      if (!part.ticket) continue;
      Status answer = stores_[store].backend->wait(*part.ticket, until);
      if (is_late(answer)) return answer;
      // The store says it once: it must not be lost here, by an exception either.
      part.error = std::move(answer);
      part.ticket.reset();
    }
    return {};
  });
  while (first != end) finish(first++);
  return first_error(late);
}

void Client::Partitioned::finish(Pushes::iterator push) {
  const auto& [number, pushed] = *push;
  std::optional<std::size_t> failed;
  for (const std::size_t store : all_) {
    const Status& error = pushed.parts[store].error;
    if (error.ok()) continue;
    if (!failed || (is_lost(error) && !is_lost(pushed.parts[*failed].error))) failed = store;
  }
  const Status error = failed ? named(*failed, pushed.parts[*failed].error) : Status();
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
  const std::vector<Status> errors = at(all_, [&](std::size_t store) {
    return answers[store] = stores_[store].backend->flush(until);
  });
  std::vector<bool> kept(stores_.size());
  for (auto push = pushes_.begin(); push != pushes_.end();) {
    for (const std::size_t store : all_) {
      Part& part = push->second.parts[store];
      if (!part.ticket || is_late(answers[store])) continue;
      // A store does not say of which push its error is. If this call is late, each wait() for one
      // of them returns it, since that for the push that has failed must not succeed.
      part.error = answers[store];
      part.ticket.reset();
      kept[store] = true;
    }
    finish(push++);
  }
  Status late;
  for (const std::size_t store : all_) {
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
  return first.ok() ? first_error(errors) : first;
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
  for (const Store& store : stores_) highest = std::max(highest, store.backend->clock());
  std::vector<std::size_t> behind;
  for (const std::size_t store : all_) {
    if (stores_[store].backend->clock() < highest) behind.push_back(store);
  }
  REGROUP_RETURN_IF_ERROR(first_error(at(behind, [&](std::size_t store) {
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
    REGROUP_RETURN_IF_ERROR(at_all(
        [&](std::size_t store) { return stores_[store].backend->raise_clock(next, until); }));
  }
  clock_.store(next, std::memory_order_relaxed);
  return next;
}

Status Client::Partitioned::raise_clock(std::uint64_t clock, TimePoint deadline) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(deadline, "end of a turn"));
  REGROUP_RETURN_IF_ERROR(at_all(
      [&](std::size_t store) { return stores_[store].backend->raise_clock(clock, deadline); }));
  clock_.store(std::max(clock, this->clock()), std::memory_order_relaxed);
  return {};
}

// ---- steps

std::uint64_t Client::Partitioned::Steps::logged() const {
  return std::ranges::min(stores, {}, &StepState::logged).logged;
}
std::uint64_t Client::Partitioned::Steps::applied() const {
  return std::ranges::min(stores, {}, &StepState::applied).applied;
}

base::Result<Client::Partitioned::Steps> Client::Partitioned::look_at_steps(std::uint64_t step) {
  Steps steps{.stores = std::vector<StepState>(stores_.size())};
  REGROUP_RETURN_IF_ERROR(at_all([&](std::size_t store) -> Status {
    REGROUP_ASSIGN_OR_RETURN(steps.stores[store],
                             stores_[store].backend->step_state(step, std::nullopt, {}));
    return {};
  }));
  const std::uint64_t logged = steps.logged();
  std::vector<std::size_t> unaware;
  for (const std::size_t store : all_) {
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
  REGROUP_RETURN_IF_ERROR(first_error(
      at(unaware, [&](std::size_t store) { return stores_[store].backend->propose(logged); })));
  return steps;
}

Status Client::Partitioned::await_change(std::size_t store, const StepState& seen,
                                         std::uint64_t step, TimePoint until) {
  const std::array<std::size_t, 1> one{store};
  return first_error(at(one, [&](std::size_t) {
    return stores_[store]
        .backend->step_state(step, seen.changes, std::min(until, RealPolicy::now() + kLookAtSteps))
        .status();
  }));
}

// A leaf is computed as long as any store lacks it. Store 0 has the claims.
base::Result<std::optional<Leaf>> Client::Partitioned::begin_leaf(const Steps& steps,
                                                                  bool of_others) {
  LeafSet lacking;
  for (const StepState& store : steps.stores) lacking.insert(store.lacking);
  if (lacking.empty()) return std::optional<Leaf>();
  const std::uint64_t step = clock();
  std::optional<std::uint32_t> claimed;
  REGROUP_RETURN_IF_ERROR(
      first_error(at(std::span(all_).first(1), [&](std::size_t store) -> Status {
        REGROUP_ASSIGN_OR_RETURN(claimed,
                                 stores_[store].backend->claim_leaf(step, lacking, of_others));
        return {};
      })));
  if (!claimed) return std::optional<Leaf>();
  const Leaf leaf{step, *claimed};
  REGROUP_RETURN_IF_ERROR(
      at_all([&](std::size_t store) { return stores_[store].backend->begin_leaf(leaf); }));
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
  return at_all([&](std::size_t store) { return stores_[store].backend->end_leaf(until); });
}

Status Client::Partitioned::step_is_late(const Steps& steps) const {
  const std::uint64_t step = clock();
  for (const std::size_t store : all_) {
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
  const auto begin = steps.stores.begin(), end = steps.stores.end();
  auto found = std::find_if(begin, end, [&](const StepState& s) { return s.logged <= step; });
  if (found == end)
    found = std::find_if(begin, end, [&](const StepState& s) { return s.applied <= step; });
  return found == end ? 0 : static_cast<std::size_t>(found - begin);
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
    REGROUP_ASSIGN_OR_RETURN(const Steps steps, look_at_steps(step));
    if (const std::uint64_t applied = steps.applied(); applied > step) {
      clock_.store(applied, std::memory_order_relaxed);
      return std::optional<Leaf>();
    }
    const TimePoint now = RealPolicy::now();
    REGROUP_ASSIGN_OR_RETURN(const std::optional<Leaf> leaf, begin_leaf(steps, now >= help));
    if (leaf) return leaf;
    if (now >= until) return step_is_late(steps);
    // The stores get on without this client, so it may wait for one after the other.
    const std::size_t store = slowest(steps, step);
    REGROUP_RETURN_IF_ERROR(
        await_change(store, steps.stores[store], step, std::min(until, now < help ? help : until)));
  }
}

// ---- pulls

Status Client::Partitioned::pull(Table table, std::span<const std::int64_t> ids, Output rows) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(deadline(), "pull"));
  REGROUP_ASSIGN_OR_RETURN(const OpenedTable* const opened, table_at(table, true));
  REGROUP_RETURN_IF_ERROR(check_pull_rows(opened->spec(), ids.size(), rows));
  REGROUP_ASSIGN_OR_RETURN(const std::vector<TablePartition::Part> parts,
                           opened->partition.split(ids));
  const std::size_t row = opened->spec().value_bytes();
  std::vector<std::size_t> stores;
  for (const std::size_t store : all_) {
    if (!parts[store].ids.empty()) stores.push_back(store);
  }
  const auto pull = [&](std::size_t store) -> base::Result<std::uint64_t> {
    const TablePartition::Part& part = parts[store];
    std::vector<std::byte>& own = stores_[store].rows;
    own.resize(part.ids.size() * row);
    auto step = stores_[store].backend->pull_of_step(opened->in_store[store], part.ids, own);
    for (std::size_t i = 0; step.ok() && i < part.ids.size(); ++i)
      std::memcpy(rows.data() + part.places[i] * row, own.data() + i * row, row);
    return step;
  };
  return pull_of_one_step(opened->spec().name, std::move(stores), pull);
}

Status Client::Partitioned::pull_of_one_step(
    const std::string& table, std::vector<std::size_t> stores,
    const std::function<base::Result<std::uint64_t>(std::size_t store)>& pull) {
  const TimePoint until = deadline();
  std::vector<std::uint64_t> steps(stores_.size());
  const std::vector<std::size_t> all = stores;
  while (true) {
    REGROUP_RETURN_IF_ERROR(first_error(at(stores, [&](std::size_t store) -> Status {
      REGROUP_ASSIGN_OR_RETURN(steps[store], pull(store));
      return {};
    })));
    const std::uint64_t newest = std::ranges::max(steps);
    stores.clear();  // but for those that are behind
    std::ranges::copy_if(all, std::back_inserter(stores),
                         [&](std::size_t store) { return steps[store] < newest; });
    if (stores.empty()) return {};
    const std::size_t behind = stores.front();
    if (RealPolicy::now() >= until) {
      return named(behind, base::deadline_exceeded(fmt::format(
                               "pull of table {}: step {} is not applied in time, which other "
                               "stores have",
                               table, newest - 1)));
    }
    // All stores have logged it, and this one may not know so.
    REGROUP_ASSIGN_OR_RETURN(const Steps now, look_at_steps(newest));
    if (now.stores[behind].applied < newest)
      REGROUP_RETURN_IF_ERROR(await_change(behind, now.stores[behind], newest, until));
  }
}

Status Client::Partitioned::pull_dense(Table table, Output values) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(deadline(), "pull"));
  REGROUP_ASSIGN_OR_RETURN(const OpenedTable* const opened, table_at(table, false));
  REGROUP_RETURN_IF_ERROR(check_pull_dense(opened->spec(), values));
  const std::size_t element = size_of(opened->spec().dtype);
  const std::vector<std::size_t>& stores = opened->partition.stores();
  const auto pull = [&](std::size_t store) -> base::Result<std::uint64_t> {
    Store& from = stores_[store];
    const Table table_there = opened->in_store[store];
    if (stores.size() == 1) return from.backend->pull_dense_of_step(table_there, values);
    from.rows.resize(dense_elements(opened->partition.part(store)) * element);
    auto step = from.backend->pull_dense_of_step(table_there, from.rows);
    if (step.ok()) opened->partition.scatter(store, element, from.rows, values);
    return step;
  };
  return pull_of_one_step(opened->spec().name, stores, pull);
}

}  // namespace regroup::collective::ps
