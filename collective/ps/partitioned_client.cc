// Splits calls by the stores that have their keys, and joins what the stores answer.
#include "collective/ps/partitioned_client.h"

#include <fmt/format.h>

#include <algorithm>
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
  // A step must be applied at all stores or at none, on which hosts do not agree.
  if (first.consistency.mode == Mode::kSync) {
    return invalid_argument(
        fmt::format("mode=\"sync\": it needs all parameter servers on one host, and this job has "
                    "them on {}; expected mode=\"ssp\" or mode=\"async\"",
                    stores.size()));
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
  REGROUP_RETURN_IF_ERROR(first_error(sent));
  pushes_[next_ticket_] = std::move(pushed);
  return Ticket{next_ticket_++};
}

base::Result<Ticket> Client::Partitioned::push(Table table, std::span<const std::int64_t> ids,
                                               Input gradients, const Scalars& scalars) {
  const TimePoint until = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, "push"));
  REGROUP_ASSIGN_OR_RETURN(const OpenedTable* const opened, table_at(table, true));
  REGROUP_RETURN_IF_ERROR(check_push_rows(opened->spec(), ids.size(), gradients, scalars));
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

// attach() refuses mode sync.
base::Result<std::optional<Leaf>> Client::Partitioned::next_leaf() {
  return check_next_leaf(consistency_.mode);
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
  return first_error(at(stores, [&](std::size_t store) -> Status {
    const TablePartition::Part& part = parts[store];
    std::vector<std::byte>& own = stores_[store].rows;
    own.resize(part.ids.size() * row);
    REGROUP_RETURN_IF_ERROR(stores_[store].backend->pull(opened->in_store[store], part.ids, own));
    for (std::size_t i = 0; i < part.ids.size(); ++i)
      std::memcpy(rows.data() + part.places[i] * row, own.data() + i * row, row);
    return {};
  }));
}

Status Client::Partitioned::pull_dense(Table table, Output values) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(deadline(), "pull"));
  REGROUP_ASSIGN_OR_RETURN(const OpenedTable* const opened, table_at(table, false));
  REGROUP_RETURN_IF_ERROR(check_pull_dense(opened->spec(), values));
  const std::size_t element = size_of(opened->spec().dtype);
  const std::vector<std::size_t>& stores = opened->partition.stores();
  return first_error(at(stores, [&](std::size_t store) -> Status {
    Store& from = stores_[store];
    if (stores.size() == 1) return from.backend->pull_dense(opened->in_store[store], values);
    from.rows.resize(dense_elements(opened->partition.part(store)) * element);
    REGROUP_RETURN_IF_ERROR(from.backend->pull_dense(opened->in_store[store], from.rows));
    opened->partition.scatter(store, element, from.rows, values);
    return {};
  }));
}

}  // namespace regroup::collective::ps
