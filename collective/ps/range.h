// One range of a table in a store: pushes are appended to the log, then applied, each at most once.
// Every order of the words below matters: a push's rows, then its client's number, then `applied`.
// A successor applies again whatever the log has after `applied`; a row with the entry's LSN, or a
// later one, is left alone. Only the holder of the ShardLock calls anything here.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "collective/ps/index.h"
#include "collective/ps/reader.h"
#include "collective/ps/ring.h"
#include "collective/ps/slices.h"
#include "collective/ps/slots.h"
#include "collective/ps/update.h"

namespace regroup::collective::ps {

// A push, as far as it concerns one range.
struct Push {
  std::uint64_t client = 0;    // a MemberId
  std::uint64_t number = 0;    // grows in its client, over all ranges; from 1
  std::uint64_t previous = 0;  // the number of the client's push before in this range; 0: none
  std::uint64_t epoch = 0;     // of the range, as the client knows it
  std::span<const std::uint64_t> positions;  // ascending; empty for a dense range
  std::span<const std::byte> gradients;  // of the compute dtype: a row each; dense: all elements
  Scalars scalars;
};
// The client of the sums of steps in mode sync; a push's number is the step + 1.
inline constexpr std::uint64_t kStepClient = ~std::uint64_t{0} - 1;
// Rows as a checkpoint has them. Of a dense range: all elements; `positions` is empty, `updates`
// has one number.
struct RowsView {
  std::span<const std::uint64_t> positions;
  std::span<const std::uint32_t> updates;
  std::span<const std::byte> values;  // value_bytes() each
  std::span<const std::byte>
      state;  // state_bytes() each; dense: one word of all elements, the next
};
struct Appended {
  enum class Outcome {
    kAppended,    // as LSN `lsn`
    kDuplicate,   // it was appended before: acknowledge it again once `lsn` is applied
    kAfterGap,    // the client's push before it is not there yet: hold it
    kOtherEpoch,  // the range has epoch `epoch`: the client needs a newer view
  };
  Outcome outcome = Outcome::kAppended;
  std::uint64_t lsn = 0;
  std::uint64_t epoch = 0;
};

template <class P>
class BasicRange {
 public:
  // `block` has the header of a range; `spec` is spec_of() it.
  BasicRange(BasicBlocks<P>& blocks, BasicRing<P>& ring, std::uint64_t block, TableSpec spec)
      : blocks_(&blocks),
        ring_(&ring),
        header_(reinterpret_cast<RangeHeader*>(blocks.memory().at(block * kBlockBytes))),
        spec_(std::move(spec)),
        row_(spec_),
        slice_(spec_, elements()),
        initial_(reinterpret_cast<const StoreHeader*>(blocks.memory().at(0))->job_seed, spec_),
        updater_(spec_),
        index_(blocks, header_->root, header_->id),
        slots_(blocks, row_, header_->id),
        slices_(blocks, *header_, slice_) {
    for (std::size_t i = 0; i < kMaxClients; ++i) {
      const std::uint64_t id = client_words()[i].id.load(std::memory_order_acquire);
      if (id == 0) continue;
      clients_[id - 1] = {i, client_words()[i].last.load(std::memory_order_acquire)};
    }
  }
  BasicRange(const BasicRange&) = delete;
  BasicRange& operator=(const BasicRange&) = delete;

  [[nodiscard]] std::uint32_t id() const { return header_->id; }
  [[nodiscard]] const TableSpec& spec() const { return spec_; }
  [[nodiscard]] const RangeHeader& header() const { return *header_; }
  [[nodiscard]] std::uint64_t epoch() const { return header_->epoch.load(); }
  [[nodiscard]] std::uint64_t applied() const {
    return header_->applied.load(std::memory_order_acquire);
  }
  // The LSN of the newest push in the log, applied or not.
  [[nodiscard]] std::uint64_t newest() const {
    return pending_.empty() ? applied() : pending_.back().entry.fields.lsn;
  }
  // True if its oldest push that is not applied is the sum of a step.
  [[nodiscard]] bool waits_for_step() const {
    return !pending_.empty() && pending_.front().entry.fields.client == kStepClient;
  }
  // The number of a client's newest push in the log or applied; 0: none.
  [[nodiscard]] std::uint64_t last_of(std::uint64_t client) const {
    const auto found = clients_.find(client);
    return found == clients_.end() ? 0 : found->second.newest;
  }

  // Takes over the range with this epoch; an older one changes nothing. Call discard_after() first:
  // a successor takes what the log has for pushes of the range's epoch.
  void adopt_epoch(std::uint64_t epoch) {
    if (epoch > this->epoch()) P::publish(header_->epoch, epoch);
  }
  // Forgets a client that the range's view does not have any more. Its pushes in the log are still
  // applied if they are committed. A successor knows their client again until it is dropped there.
  void drop_client(std::uint64_t client) {
    const auto found = clients_.find(client);
    if (found == clients_.end()) return;
    if (found->second.at != kNowhere) P::publish(client_words()[found->second.at].id, 0);
    clients_.erase(found);
  }

  // False: no log ring of this size ever has room for the push.
  [[nodiscard]] bool can_ever_log(const Push& push) const {
    return ring_->can_ever_fit(push.positions.size(), push.gradients.size());
  }
  // Refuses a push that append() would refuse whatever the store has.
  [[nodiscard]] base::Status check_content(const Push& push) const {
    if (push.client == ~0ULL)
      return base::invalid_argument("push: expected a client below 18446744073709551615");
    const bool dense = spec_.kind == TableKind::kDense;
    const std::size_t rows = dense ? elements() : push.positions.size();
    const std::size_t bytes = rows * spec_.dim * size_of(spec_.compute_dtype());
    if (push.gradients.size() != bytes || (dense && !push.positions.empty())) {
      return base::invalid_argument(
          fmt::format("push to table {}: expected {} bytes for {} rows of range {}, got {}",
                      spec_.name, bytes, rows, id(), push.gradients.size()));
    }
    if (!can_ever_log(push)) {
      return base::invalid_argument(
          fmt::format("push to table {}: {} rows do not fit into half of the log ring; push less "
                      "at a time",
                      spec_.name, rows));
    }
    for (std::size_t i = 0; i < push.positions.size(); ++i) {
      const std::uint64_t position = push.positions[i];
      if (header_->positions.has(position) && (i == 0 || push.positions[i - 1] < position))
        continue;
      return base::invalid_argument(
          fmt::format("push to table {}: expected ascending positions from {} to {} in range {}, "
                      "got {} after {}",
                      spec_.name, header_->positions.first, header_->positions.last, id(), position,
                      i == 0 ? std::string("nothing") : std::to_string(push.positions[i - 1])));
    }
    return {};
  }

  // Appends a push to the log unless the outcome says otherwise. kInvalidArgument: it does not fit
  // the range. kResourceExhausted: memory of the store, room in the range's index or a client's
  // word; no push is logged. kUnavailable: the log ring is full until pushes are applied. Applying
  // the push needs no more memory.
  [[nodiscard]] base::Result<Appended> append(const Push& push) {
    using Outcome = Appended::Outcome;
    if (push.epoch != epoch()) return Appended{Outcome::kOtherEpoch, 0, epoch()};
    const std::uint64_t last = last_of(push.client);
    if (push.number <= last) return Appended{Outcome::kDuplicate, newest(), epoch()};
    if (push.previous > last) return Appended{Outcome::kAfterGap, 0, epoch()};
    REGROUP_RETURN_IF_ERROR(check_content(push));
    REGROUP_ASSIGN_OR_RETURN(const std::size_t promises, reserve(push));
    const std::uint64_t lsn = newest() + 1;
    const base::Result<LogEntry> entry =
        ring_->append({id(), lsn, epoch(), push.client, push.number, push.scalars.lr},
                      push.positions, push.gradients);
    if (!entry.ok()) {
      index_.drop_newest(promises);
      return entry.status();
    }
    add_pending(*entry, promises);
    return Appended{Outcome::kAppended, lsn, epoch()};
  }

  // Makes pushes of the log with an LSN above `lsn` void, for ever: they were never committed, and
  // the range's new epoch does not have them. Nothing above `lsn` is applied. kUnavailable: the log
  // ring is full; nothing was changed.
  [[nodiscard]] base::Status discard_after(std::uint64_t lsn) {
    assert(lsn >= applied());
    if (newest() <= lsn) return {};
    REGROUP_RETURN_IF_ERROR(
        ring_
            ->append({.range = id(), .lsn = lsn, .epoch = epoch(), .kind = EntryKind::kDiscard}, {},
                     {})
            .status());
    drop_pending(lsn);
    return {};
  }
  // False once the log need not keep the entry. Asked for the oldest entries of the ring only.
  [[nodiscard]] bool needs(const LogEntry& entry) const {
    return entry.fields.kind == EntryKind::kPush && !pending_.empty() &&
           pending_.front().entry.gradients.data() == entry.gradients.data();
  }

  // An entry that a successor has found in the log; in the order of the log.
  void add_found(const LogEntry& entry) {
    if (entry.fields.kind == EntryKind::kDiscard) return drop_pending(entry.fields.lsn);
    if (entry.fields.lsn > newest()) add_pending(entry, std::nullopt);
  }

  // Applies, in order, the pushes of the log up to LSN `committed`. kResourceExhausted: the store
  // of a successor has fewer segments than that of its predecessor had; what is applied already is
  // skipped by the next call.
  [[nodiscard]] base::Status apply(std::uint64_t committed) {
    while (!pending_.empty() && pending_.front().entry.fields.lsn <= committed) {
      const LogEntry& entry = pending_.front().entry;
      REGROUP_RETURN_IF_ERROR(spec_.kind == TableKind::kDense ? apply_slice(entry)
                                                              : apply_rows(entry));
      REGROUP_RETURN_IF_ERROR(set_client(entry.fields.client, entry.fields.number));
      P::publish(header_->applied, entry.fields.lsn);
      const std::optional<std::size_t> promises = pending_.front().promises;
      promises ? index_.drop_oldest(*promises) : void(--uncounted_);
      pending_.pop_front();
    }
    return {};
  }

  // Puts rows of the checkpoint of step `step` into a range that has none of them, before any push.
  // Not for a store in which a writer may have died. kInvalidArgument: they do not fit the range,
  // or are there. kResourceExhausted: no memory is left.
  [[nodiscard]] base::Status restore(const RowsView& rows, std::uint64_t step) {
    const bool dense = spec_.kind == TableKind::kDense;
    const std::size_t count = dense ? elements() : rows.positions.size();
    if (rows.updates.size() != (dense ? 1 : count) ||
        rows.values.size() != count * spec_.value_bytes() ||
        rows.state.size() != count * spec_.state_bytes() || (dense && !rows.positions.empty()) ||
        newest() != 0) {
      return base::invalid_argument(
          fmt::format("table {}: the checkpoint's rows do not fit range {} with {} of them",
                      spec_.name, id(), count));
    }
    if (!rebuilt_) rebuild();
    REGROUP_RETURN_IF_ERROR(dense ? restore_slice(rows) : restore_rows(rows));
    P::publish(header_->restored, step);
    return {};
  }

  [[nodiscard]] base::Result<RangeReader> reader() const {
    return RangeReader::open(blocks_->memory(), *header_);
  }
  // Rows that the index has. Reads the whole index.
  [[nodiscard]] std::uint64_t rows() {
    rebuild();
    return rows_;
  }

 private:
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  static constexpr std::size_t kGroup = 32;  // rows on their way into the cache at a time
  struct Client {
    std::size_t at = kNowhere;  // of its words
    std::uint64_t newest = 0;
  };

  // A push in the log that is not applied.
  struct Pending {
    LogEntry entry;
    // Of the index, for its new rows; none: of a predecessor, not counted yet.
    std::optional<std::size_t> promises;
  };

  void add_pending(const LogEntry& entry, std::optional<std::size_t> promises) {
    pending_.push_back({entry, promises});
    if (!promises) ++uncounted_;
    Client& client = clients_[entry.fields.client];
    client.newest = std::max(client.newest, entry.fields.number);
  }
  void drop_pending(std::uint64_t lsn) {
    while (!pending_.empty() && pending_.back().entry.fields.lsn > lsn) {
      const std::optional<std::size_t> promises = pending_.back().promises;
      promises ? index_.drop_newest(*promises) : void(--uncounted_);
      pending_.pop_back();
    }
    for (auto& [id, client] : clients_)
      client.newest = client.at == kNowhere ? 0 : client_words()[client.at].last.load();
    for (const Pending& one : pending_) {
      const auto found = clients_.find(one.entry.fields.client);
      if (found == clients_.end()) continue;  // it was dropped
      found->second.newest = std::max(found->second.newest, one.entry.fields.number);
    }
    std::erase_if(clients_, [](const auto& one) { return one.second.newest == 0; });
  }

  [[nodiscard]] std::uint64_t elements() const {
    return spec_.kind == TableKind::kDense ? header_->positions.last - header_->positions.first + 1
                                           : 0;
  }
  [[nodiscard]] ClientWords* client_words() const {
    return reinterpret_cast<ClientWords*>(reinterpret_cast<std::byte*>(header_) + kPageBytes);
  }

  // All that a push needs, so that it is refused before it is logged. Returns the promises of the
  // index.
  [[nodiscard]] base::Result<std::size_t> reserve(const Push& push) {
    if (const auto found = clients_.find(push.client);
        found == clients_.end() && clients_.size() >= kMaxClients) {
      return base::resource_exhausted(fmt::format("push to table {}: range {} has its {} clients",
                                                  spec_.name, id(), kMaxClients));
    }
    if (spec_.kind == TableKind::kDense) {
      if (!rebuilt_) rebuild();
      REGROUP_RETURN_IF_ERROR(slices_.reserve());
      return std::size_t{0};
    }
    if (!rebuilt_ && index_.is_small()) rebuild();
    base::Result<std::size_t> promises = reserve_rows(push.positions);
    if (promises.code() != base::Code::kResourceExhausted || rebuilt_) return promises;
    rebuild();
    return reserve_rows(push.positions);
  }
  [[nodiscard]] base::Result<std::size_t> reserve_rows(std::span<const std::uint64_t> positions) {
    if (uncounted_ > 0) REGROUP_RETURN_IF_ERROR(count_found());
    REGROUP_ASSIGN_OR_RETURN(const std::size_t promises, promise(positions));
    // A row that is there gives its slot back after it has taken another one.
    if (base::Status status = slots_.reserve(index_.promised() + 1); !status.ok()) {
      index_.drop_newest(promises);
      return status;
    }
    return promises;
  }
  // Promises for the pushes that a predecessor has logged; its own were enough.
  [[nodiscard]] base::Status count_found() {
    for (Pending& one : pending_) {
      if (one.promises) continue;
      REGROUP_ASSIGN_OR_RETURN(one.promises, promise(one.entry.positions));
      --uncounted_;
    }
    return {};
  }
  // Room in the index for those of the positions that it does not have; returns their number.
  [[nodiscard]] base::Result<std::size_t> promise(std::span<const std::uint64_t> positions) {
    std::size_t made = 0;
    for (std::size_t first = 0; first < positions.size(); first += kGroup) {
      const auto group = positions.subspan(first, std::min(kGroup, positions.size() - first));
      for (const std::uint64_t position : group) index_.prefetch_word(position);
      for (const std::uint64_t position : group) index_.prefetch_row(position, row_.bytes);
      for (const std::uint64_t position : group) {
        if (index_.find(position).word != nullptr) continue;
        if (base::Status status = index_.promise(position); !status.ok()) {
          index_.drop_newest(made);
          return status;
        }
        ++made;
      }
    }
    return made;
  }

  // Finds the free slots and pages that a predecessor has left. Reads the whole index, so that of a
  // large one waits until the store has no block left.
  void rebuild() {
    if (spec_.kind == TableKind::kDense) {
      slices_.rebuild();
    } else {
      typename BasicSlots<P>::Live live;
      index_.rebuild([&](std::uint32_t slot) { live.insert(slot); });
      slots_.rebuild(live);
      rows_ = live.size();
    }
    rebuilt_ = true;
  }
  [[nodiscard]] base::Status reserve_slot() {
    base::Status status = slots_.reserve(1);
    if (status.ok() || rebuilt_) return status;
    rebuild();
    return slots_.reserve(1);
  }

  [[nodiscard]] base::Status apply_rows(const LogEntry& entry) {
    if (!rebuilt_ && index_.is_small()) rebuild();
    const std::size_t gradient_bytes = spec_.dim * size_of(spec_.compute_dtype());
    for (std::size_t first = 0; first < entry.positions.size(); first += kGroup) {
      const std::size_t end = std::min(first + kGroup, entry.positions.size());
      for (std::size_t i = first; i < end; ++i) index_.prefetch_word(entry.positions[i]);
      for (std::size_t i = first; i < end; ++i) index_.prefetch_row(entry.positions[i], row_.bytes);
      for (std::size_t i = first; i < end; ++i) {
        REGROUP_RETURN_IF_ERROR(apply_row(entry.positions[i], entry.fields,
                                          entry.gradients.data() + i * gradient_bytes));
      }
    }
    return {};
  }

  [[nodiscard]] base::Status apply_row(std::uint64_t position, const EntryFields& by,
                                       const std::byte* gradient) {
    const StoreMemory& memory = blocks_->memory();
    const IndexPlace place = index_.find(position);
    const RowHeader* const old =
        place.word == nullptr ? nullptr : row_at(memory, slot_of(place.value));
    // It was applied by a writer that died before `applied` said so.
    if (old != nullptr && old->lsn.load(std::memory_order_relaxed) >= by.lsn) return {};
    REGROUP_RETURN_IF_ERROR(reserve_slot());
    REGROUP_ASSIGN_OR_RETURN(const std::uint32_t slot, slots_.take(by.lsn));
    write_row(row_at(memory, slot), old, position, by, gradient);
    if (old == nullptr) {
      index_.insert(position, slot, by.lsn);
      return {};
    }
    index_.update(place, position, slot, by.lsn);
    slots_.give_back(slot_of(place.value));
    return {};
  }

  void write_row(RowHeader* row, const RowHeader* old, std::uint64_t position,
                 const EntryFields& by, const std::byte* gradient) {
    auto* const bytes = reinterpret_cast<std::byte*>(row);
    const auto* const from = reinterpret_cast<const std::byte*>(old);
    // It stays at its greatest value, where Adam's powers are zero.
    const std::uint32_t before = old == nullptr ? 0 : old->updates;
    const std::uint32_t updates = before == UINT32_MAX ? before : before + 1;
    P::write(&row->position, &position, sizeof position);
    P::write(&row->updates, &updates, sizeof updates);
    if (old != nullptr) {
      P::write(bytes + RowShape::kValueAt, from + RowShape::kValueAt, row_.value_bytes);
      P::write(bytes + row_.state_at, from + row_.state_at, row_.state_bytes);
    } else {
      P::point();
      initial_.fill(position, 0, {bytes + RowShape::kValueAt, row_.value_bytes});
      P::clear(bytes + row_.state_at, row_.state_bytes);
    }
    P::point();
    auto* const state = reinterpret_cast<float*>(bytes + row_.state_at);
    updater_.apply({bytes + RowShape::kValueAt, {state, state + spec_.dim}, gradient, spec_.dim},
                   updates, {by.lr});
    P::point();
  }

  [[nodiscard]] base::Status apply_slice(const LogEntry& entry) {
    if (!rebuilt_) rebuild();
    const SliceHeader* const old = slices_.current();
    if (old != nullptr && old->lsn >= entry.fields.lsn) return {};
    REGROUP_RETURN_IF_ERROR(slices_.reserve());
    SliceHeader* const next = slices_.other();
    const SliceHeader header{.lsn = entry.fields.lsn,
                             .updates = old == nullptr ? 1 : old->updates + 1};
    P::write(next, &header, sizeof header);
    auto* const to = reinterpret_cast<std::byte*>(next);
    const auto* const from = reinterpret_cast<const std::byte*>(old);
    const std::size_t size = size_of(spec_.dtype), words = spec_.state_bytes() / sizeof(float);
    const std::size_t wide = size_of(spec_.compute_dtype());
    constexpr std::size_t kRun = 1024;  // elements: stay in the L1 cache
    for (std::size_t at = 0; at < elements(); at += kRun) {
      const std::size_t count = std::min<std::size_t>(kRun, elements() - at);
      std::byte* const values = to + sizeof(SliceHeader) + at * size;
      P::point();
      if (old == nullptr) {
        for (std::size_t i = 0; i < count; ++i)
          initial_.fill(header_->positions.first + at + i, 0, {values + i * size, size});
      } else {
        P::write(values, from + sizeof(SliceHeader) + at * size, count * size);
      }
      float* states[2] = {};
      for (std::size_t word = 0; word < words; ++word) {
        const std::size_t offset = slice_.state_at + (word * elements() + at) * sizeof(float);
        states[word] = reinterpret_cast<float*>(to + offset);
        if (old == nullptr) {
          P::clear(to + offset, count * sizeof(float));
        } else {
          P::write(to + offset, from + offset, count * sizeof(float));
        }
      }
      updater_.apply({values, {states[0], states[1]}, entry.gradients.data() + at * wide, count},
                     header.updates, {entry.fields.lr});
    }
    slices_.publish(next);
    return {};
  }

  [[nodiscard]] base::Status restore_rows(const RowsView& rows) {
    for (const std::uint64_t position : rows.positions) {
      if (header_->positions.has(position) && index_.find(position).word == nullptr) continue;
      return base::invalid_argument(
          fmt::format("table {}: the checkpoint has position {}, which range {} has or cannot have",
                      spec_.name, position, id()));
    }
    REGROUP_ASSIGN_OR_RETURN(const std::size_t promises, reserve_rows(rows.positions));
    for (std::size_t i = 0; i < rows.positions.size(); ++i) {
      REGROUP_ASSIGN_OR_RETURN(const std::uint32_t slot, slots_.take(0));
      RowHeader* const row = row_at(blocks_->memory(), slot);
      auto* const bytes = reinterpret_cast<std::byte*>(row);
      P::write(&row->position, &rows.positions[i], sizeof row->position);
      P::write(&row->updates, &rows.updates[i], sizeof row->updates);
      P::write(bytes + RowShape::kValueAt, rows.values.data() + i * row_.value_bytes,
               row_.value_bytes);
      P::write(bytes + row_.state_at, rows.state.data() + i * row_.state_bytes, row_.state_bytes);
      index_.insert(rows.positions[i], slot, 0);
    }
    index_.drop_newest(promises);
    return {};
  }

  [[nodiscard]] base::Status restore_slice(const RowsView& rows) {
    if (rows.updates[0] == 0) return {};  // it has its initial values
    REGROUP_RETURN_IF_ERROR(slices_.reserve());
    SliceHeader* const next = slices_.other();
    const SliceHeader header{.lsn = 0, .updates = rows.updates[0]};
    auto* const to = reinterpret_cast<std::byte*>(next);
    P::write(next, &header, sizeof header);
    P::write(to + sizeof header, rows.values.data(), rows.values.size());
    P::write(to + slice_.state_at, rows.state.data(), rows.state.size());
    slices_.publish(next);
    return {};
  }

  [[nodiscard]] base::Status set_client(std::uint64_t id, std::uint64_t number) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) return {};  // it was dropped: nobody asks for its numbers
    Client& client = found->second;
    if (client.at != kNowhere) {
      P::publish(client_words()[client.at].last, number);
      return {};
    }
    for (std::size_t i = 0; i < kMaxClients; ++i) {
      if (client_words()[i].id.load(std::memory_order_relaxed) != 0) continue;
      P::publish(client_words()[i].last, number);
      P::publish(client_words()[i].id, id + 1);
      client.at = i;
      return {};
    }
    return base::resource_exhausted(fmt::format("push to table {}: range {} has its {} clients",
                                                spec_.name, this->id(), kMaxClients));
  }

  BasicBlocks<P>* blocks_;
  BasicRing<P>* ring_;
  RangeHeader* header_;
  TableSpec spec_;
  RowShape row_;
  SliceShape slice_;
  InitialRows initial_;
  Updater updater_;
  BasicIndex<P> index_;
  BasicSlots<P> slots_;
  BasicSlices<P> slices_;
  std::unordered_map<std::uint64_t, Client> clients_;
  std::deque<Pending> pending_;
  std::size_t uncounted_ = 0;  // of pending_, without promises
  std::uint64_t rows_ = 0;     // at the last rebuild()
  bool rebuilt_ = false;
};

}  // namespace regroup::collective::ps
