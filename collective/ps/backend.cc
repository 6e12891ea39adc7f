// What both kinds of clients refuse, in the same words.
#include "collective/ps/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/deadline.h"
#include "collective/ps/consistency.h"
#include "collective/ps/table.h"
#include "shmem/doorbell.h"

namespace regroup::collective::ps {

using base::invalid_argument;

base::Status Client::Backend::check_process() const {
  if (!in_child()) return {};
  return invalid_argument(
      fmt::format("client {}: it belongs to process {}, and this is a child of it after fork(); "
                  "attach a client of its own here",
                  client_, process_));
}

base::TimePoint Client::Backend::deadline() const {
  return base::deadline_after(shmem::RealPolicy::now(), call_within_);
}

base::Duration wait_before_help(base::Duration own_leaf) {
  constexpr std::chrono::milliseconds kLeast{2}, kUnknown{50};
  if (own_leaf == base::Duration::zero()) return kUnknown;
  return std::max<base::Duration>(own_leaf * 3 / 2, kLeast);
}

base::Status no_thread(const std::system_error& error) {
  return base::unavailable(
      fmt::format("client: cannot start a thread: {}; expected room below the limits of processes "
                  "and memory",
                  error.what()));
}

std::string this_host() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return host.data();
}

base::Status check_push_rows(const TableSpec& spec, std::size_t ids, Input gradients,
                             const Scalars& scalars) {
  const std::size_t row = spec.dim * size_of(spec.compute_dtype());
  if (gradients.size() % row != 0) {
    return invalid_argument(fmt::format("push to table {}: expected rows of {} bytes, got {} bytes",
                                        spec.name, row, gradients.size()));
  }
  return check_push(spec, ids, gradients.size() / row, spec.compute_dtype(), scalars);
}

base::Status check_push_dense(const TableSpec& spec, Input gradients, const Scalars& scalars) {
  const std::size_t size = size_of(spec.compute_dtype());
  const std::uint64_t elements = dense_elements(spec);
  if (gradients.size() != elements * size) {
    return invalid_argument(
        fmt::format("push to table {}: expected {} bytes for {} elements, got {}", spec.name,
                    elements * size, elements, gradients.size()));
  }
  return check_push(spec, 1, 1, spec.compute_dtype(), scalars);
}

base::Status check_pull_rows(const TableSpec& spec, std::size_t ids, Output rows) {
  const std::size_t size = spec.value_bytes();
  if (rows.size() != ids * size) {
    return invalid_argument(fmt::format("pull of table {}: expected {} bytes for {} ids, got {}",
                                        spec.name, ids * size, ids, rows.size()));
  }
  if (ids <= ~std::uint32_t{0}) return {};
  return invalid_argument(
      fmt::format("pull of table {}: {} ids at a time are too many", spec.name, ids));
}

base::Status check_pull_dense(const TableSpec& spec, Output values) {
  const std::size_t size = size_of(spec.dtype);
  const std::uint64_t elements = dense_elements(spec);
  if (values.size() == elements * size) return {};
  return invalid_argument(fmt::format("pull of table {}: expected {} bytes for {} elements, got {}",
                                      spec.name, elements * size, elements, values.size()));
}

base::Status check_number(Table table, std::size_t tables) {
  if (table.number < tables) return {};
  return invalid_argument(
      fmt::format("table number {}: this client has opened {} tables", table.number, tables));
}

base::Status check_kind(const TableSpec& spec, bool rows) {
  if ((spec.kind != TableKind::kDense) == rows) return {};
  return invalid_argument(
      rows ? fmt::format("table {}: it is dense: push and pull it as a whole, without ids",
                         spec.name)
           : fmt::format("table {}: it has rows: expected ids", spec.name));
}

base::Status check_sync_push(const TableSpec& spec, bool has_leaf) {
  if (!has_leaf) {
    return invalid_argument(
        fmt::format("push to table {}: no leaf is begun; in mode sync pushes belong to the leaf "
                    "that next_leaf() has returned",
                    spec.name));
  }
  if (spec.optimizer.kind != OptimizerKind::kAssign) return {};
  return invalid_argument(fmt::format(
      "push to table {}: the gradients of a step's leaves are added up, and assign stores one; "
      "expected another optimizer in mode sync",
      spec.name));
}

base::Status check_next_leaf(Mode mode) {
  if (mode == Mode::kSync) return {};
  return invalid_argument(
      fmt::format("next_leaf: it is for mode=\"sync\", got mode=\"{}\"", name_of(mode)));
}

base::Status check_advance(Mode mode) {
  if (mode != Mode::kSync) return {};
  return invalid_argument(
      "advance: in mode sync a step ends once all its leaves are there; call next_leaf() until it "
      "returns nothing");
}

base::Status check_raise_clock(Mode mode) {
  if (mode == Mode::kSsp) return {};
  return invalid_argument(
      fmt::format("clock: only clients of mode=\"ssp\" have one, got mode=\"{}\"", name_of(mode)));
}

base::Status check_whole(const TableSpec& spec) {
  if (spec.part == TablePart{}) return {};
  return invalid_argument(fmt::format(
      "table {}: expected a whole table, got part {} of {}; a client of several stores cuts it",
      spec.name, spec.part.number, spec.part.of));
}

base::Status check_open(const TableSpec& spec) {
  REGROUP_RETURN_IF_ERROR(check(spec));
  if (spec.evict_after == 0) return {};
  return invalid_argument(
      fmt::format("table {}: rows are never forgotten yet: expected evict_after 0, got {}",
                  spec.name, spec.evict_after));
}

}  // namespace regroup::collective::ps
