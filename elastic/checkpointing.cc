// The state of a session is a list of pieces of memory: named pieces become tensors, the others are
// padding. The tensor `regroup.pieces` has their lengths in order, negative for padding. Parts that
// an optimizer has already written into the save area are not copied.
#include "elastic/checkpointing.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "elastic/save_layout.h"
#include "shmem/arena.h"
#include "shmem/save_mark.h"

namespace regroup::elastic {
namespace {

using base::Status;
using shmem::SaveMark;
using shmem::SaveProgress;
using Json = nlohmann::json;
using Parts = std::vector<const SavePlan::Part*>;

constexpr std::size_t kLine = 64;
constexpr std::size_t kSmall = 1 << 20;  // bytes of a tensor that is sampled more densely
constexpr std::size_t kPrefetchDistance = 16;
constexpr proto::Generation kNoGeneration = 0;  // Worlds begin with 1

// False: the area has no room.
bool put_description(std::span<std::byte> area, std::uint64_t at, const std::string& text) {
  if (at > area.size() || text.size() > area.size() - at) return false;
  std::memcpy(area.data() + at, text.data(), text.size());
  shmem::SaveHeader& header = shmem::save_header(area);
  header.offset = at, header.bytes = text.size();
  return true;
}

// Makes this checkpoint fail, but not the training; the agent reports it.
void put_error(std::span<std::byte> area, proto::Step step, const char* what) {
  const Json error = {{"step", step}, {"error", what}};
  (void)put_description(area, sizeof(shmem::SaveHeader), error.dump());
}

// Copies the part of `bytes`, which belong at offset `at` of the area, that lies within `range`.
void copy_part(std::span<std::byte> area, ShareRange range, std::uint64_t at,
               std::span<const std::byte> bytes, SaveCounts* counts) {
  const std::uint64_t from = std::max(range.begin, at), to = std::min(range.end, at + bytes.size());
  if (from >= to) return;
  std::memcpy(area.data() + from, bytes.data() + (from - at), to - from);
  counts->copied += to - from;
}

// True if `copy` still equals the tensor at sampled places: a change after the step mostly changes
// much of a tensor.
bool samples_equal(std::span<const std::byte> tensor, std::span<const std::byte> copy) {
  // Each sample is a cache miss in both.
  const std::size_t every = tensor.size() <= kSmall ? 4 << 10 : 16 << 10;
  if (tensor.size() <= every) return std::memcmp(tensor.data(), copy.data(), tensor.size()) == 0;
  for (std::size_t at = 0; at < tensor.size(); at += every) {
    const std::size_t count = std::min(kLine, tensor.size() - at);
    // Hardware prefetchers do not follow such strides.
    if (const std::size_t ahead = at + kPrefetchDistance * every; ahead < tensor.size()) {
      __builtin_prefetch(tensor.data() + ahead);
      __builtin_prefetch(copy.data() + ahead);
    }
    if (std::memcmp(tensor.data() + at, copy.data() + at, count) != 0) return false;
  }
  return true;
}

// True if a tensor's place in the area differs from the plan that steps have used, here or on
// another member.
bool moved(const SavePlan& plan, const SaveLayout& layout, const std::vector<TensorInfo>& infos,
           const Pieces& pieces) {
  std::map<std::string_view, const SavePlan::Place*> by_name;
  for (const SavePlan::Place& place : plan.places) by_name.emplace(place.name, &place);
  std::size_t found = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto at = by_name.find(infos[i].name);
    if (at == by_name.end()) continue;
    if (at->second->at == layout.at[i] && at->second->bytes == pieces[i].size()) ++found;
  }
  return found != plan.places.size();
}

// For each piece the part of it that this member's step may have written.
Parts match(const SavePlan& plan, const std::vector<TensorInfo>& infos, std::size_t pieces) {
  std::map<std::string_view, const SavePlan::Part*> by_name;
  for (const SavePlan::Part& part : plan.parts) by_name.emplace(part.target.name, &part);
  Parts out(pieces);
  for (std::size_t i = 0; i < pieces; ++i) {
    if (const auto at = by_name.find(infos[i].name); at != by_name.end()) out[i] = at->second;
  }
  return out;
}

// Copies this member's share of the piece at `at`, less `part` if the step has written that.
void copy_piece(std::span<std::byte> area, ShareRange range, std::uint64_t at,
                std::span<const std::byte> piece, const SavePlan::Part* part, SaveCounts* counts) {
  const bool fused = part != nullptr && part->saved && part->tensor.data() == piece.data() &&
                     samples_equal(piece.subspan(part->target.begin, part->target.memory.size()),
                                   part->target.memory);
  if (!fused) return copy_part(area, range, at, piece, counts);
  const std::uint64_t begin = at + part->target.begin, end = begin + part->target.memory.size();
  counts->fused += end - begin;
  copy_part(area, {range.begin, std::min(range.end, begin)}, at, piece, counts);
  copy_part(area, {std::max(range.begin, end), range.end}, at, piece, counts);
}

// The members on this host in rank order.
std::vector<proto::SlotId> sharers(Participant& self) {
  std::vector<proto::SlotId> out;
  for (const proto::WorldMember& member : self.world().members) {
    if (member.slot_id.node == self.slot_id().node) out.push_back(member.slot_id);
  }
  return out;
}

bool is_alive(const shmem::Arena& arena, proto::SlotIndex slot) {
  return slot < arena.spec().slots &&
         arena.member_slot(slot).dead.load(std::memory_order_acquire) == 0;
}

void mark_ready(shmem::Arena& arena, proto::Step step) {
  shmem::SaveHeader& header = shmem::save_header(arena.save_area());
  arena.save_word().store(SaveMark{SaveMark::Phase::kReady, step}.pack(),
                          std::memory_order_release);
  shmem::ring(header.bell);
  // Leaving members wait for the last save, so no other is requested.
  const auto last = shmem::SaveRequest::unpack(header.asked.load(std::memory_order_acquire));
  if (last.what != shmem::SaveRequest::What::kNone) shmem::ring_all(arena);
}

void count_share(shmem::Arena& arena, proto::Generation generation, proto::Step step) {
  auto& progress = shmem::save_header(arena.save_area()).progress;
  std::uint64_t seen = progress.load(std::memory_order_acquire);
  for (;;) {
    auto next = SaveProgress::unpack(seen);
    if (next.generation != generation || next.missing == 0) return;
    next.missing -= 1;
    if (!progress.compare_exchange_weak(seen, next.pack(), std::memory_order_acq_rel)) continue;
    if (next.missing == 0) mark_ready(arena, step);
    return;
  }
}

struct SavedPart {
  std::size_t mine = 0, all = 1;
  proto::Generation generation = kNoGeneration;
  proto::Step step = 0;
};

// This member's share of a requested save of the state after `step`, if there is one.
std::optional<SavedPart> saved_part_of(Participant& self, proto::Step step,
                                       const Checkpointing& options) {
  shmem::Arena& arena = self.arena();
  const std::span<std::byte> area = arena.save_area();
  if (options.every == 0 || area.empty()) return std::nullopt;
  const SaveMark mark = SaveMark::unpack(arena.save_word().load(std::memory_order_acquire));
  if (mark != SaveMark{SaveMark::Phase::kWanted, step}) return std::nullopt;
  const proto::Generation generation = self.world().generation;
  const auto progress = shmem::save_header(area).progress.load(std::memory_order_acquire);
  if (SaveProgress::unpack(progress).generation != generation) return std::nullopt;
  const std::vector<proto::SlotId> slot_ids = sharers(self);
  const auto mine =
      static_cast<std::size_t>(std::ranges::find(slot_ids, self.slot_id()) - slot_ids.begin());
  if (mine == slot_ids.size()) return std::nullopt;
  return SavedPart{mine, slot_ids.size(), generation, step};
}

// The first share includes the description, or the error, for all shares, since the states are
// equal.
Status copy_state(shmem::Arena& arena, State& state, const SavedPart& share,
                  const Checkpointing& options, SavePlan& plan) {
  const std::span<std::byte> area = arena.save_area();
  REGROUP_ASSIGN_OR_RETURN(const auto pieces, state.save());
  const std::vector<TensorInfo> infos = infos_of(state, pieces);
  const SaveLayout layout = lay_out(pieces, infos);
  if (plan.step != share.step) plan.parts.clear(), plan.places.clear();
  const char* wrong = nullptr;
  if (layout.used > area.size())
    wrong = "checkpoint: the state outgrew the save area";
  else if (moved(plan, layout, infos, pieces))
    wrong =
        "checkpoint: the layout of the state changed in the step that wrote it into the save area";
  if (wrong != nullptr) {
    if (share.mine != 0) return {};
    put_error(area, share.step, wrong);
    mark_ready(arena, share.step);
    return {};
  }
  const Parts parts = match(plan, infos, pieces.size());
  const ShareRange range = share_range(layout, share.mine, share.all);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (!infos[i].name.empty())
      copy_piece(area, range, layout.at[i], pieces[i], parts[i], &plan.counts);
  }
  copy_part(area, range, layout.lengths_at, std::as_bytes(std::span(layout.lengths)), &plan.counts);
  ++plan.counts.snapshots;
  if (share.mine == 0) {
    const std::uint64_t base = arena.offset_of(area.first(1)).value();
    const std::string text =
        describe(layout, infos, base, {share.step, options.model, options.fingerprint});
    if (!put_description(area, layout.next(text.size()), text))
      put_error(area, share.step,
                "checkpoint: the names of the state's tensors outgrew the save area");
  }
  count_share(arena, share.generation, share.step);
  return {};
}

}  // namespace

void request_save(Participant& self, proto::Step applied, const Checkpointing& options,
                  bool next_is_last) {
  if (options.every == 0 || self.rank() != 0 || self.arena().save_area().empty()) return;
  shmem::SaveHeader& header = shmem::save_header(self.arena().save_area());
  auto& progress = header.progress;
  // The last save has precedence over all others, whose shares would overwrite it.
  const auto last = shmem::SaveRequest::unpack(header.asked.load(std::memory_order_acquire));
  const bool claimed = last.what == shmem::SaveRequest::What::kClaimed;
  if (last.open() || (claimed && is_alive(self.arena(), last.by))) return;
  auto& word = self.arena().save_word();
  std::uint64_t seen = word.load(std::memory_order_acquire);
  const SaveMark mark = SaveMark::unpack(seen);
  const proto::Step next = applied + 1;
  const proto::Generation now = self.world().generation;
  bool due = mark.phase == SaveMark::Phase::kIdle && next > mark.step &&
             (next_is_last || next / options.every > mark.step / options.every);
  // Requested in an earlier generation: some member will not copy its share.
  due |= mark.phase == SaveMark::Phase::kWanted &&
         SaveProgress::unpack(progress.load(std::memory_order_acquire)).generation != now;
  if (!due) return;
  const auto parts = static_cast<std::uint32_t>(sharers(self).size()) + (options.compared ? 1 : 0);
  progress.store(SaveProgress{now, parts}.pack(), std::memory_order_release);
  word.compare_exchange_strong(seen, SaveMark{SaveMark::Phase::kWanted, next}.pack(),
                               std::memory_order_acq_rel);
}

Status plan_save(Participant& self, State& state, proto::Step step, const Checkpointing& options,
                 SavePlan* plan) {
  plan->step = step;
  plan->parts.clear();
  plan->places.clear();
  const auto share = saved_part_of(self, step, options);
  if (!share) return {};
  const std::span<std::byte> area = self.arena().save_area();
  REGROUP_ASSIGN_OR_RETURN(const auto pieces, state.save());
  const std::vector<TensorInfo> infos = infos_of(state, pieces);
  const SaveLayout layout = lay_out(pieces, infos);
  if (layout.used > area.size()) return {};
  const ShareRange range = share_range(layout, share->mine, share->all);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (infos[i].name.empty() || infos[i].dtype == kBytes) continue;
    const std::uint64_t at = layout.at[i], bytes = pieces[i].size();
    plan->places.push_back({infos[i].name, at, bytes});
    const std::uint64_t from = std::max(range.begin, at), to = std::min(range.end, at + bytes);
    if (from < to)
      plan->parts.push_back({{infos[i].name, from - at, area.subspan(from, to - from)}, pieces[i]});
  }
  return {};
}

bool save_wanted(Participant& self, proto::Step step, const Checkpointing& options) {
  return saved_part_of(self, step, options).has_value();
}

// Counts one more share for the comparison: members that have voted for a later step have copied
// theirs.
void confirm_save(Participant& self, proto::Step applied, const Checkpointing& options) {
  if (!options.compared || self.rank() != 0 || !save_wanted(self, applied, options)) return;
  count_share(self.arena(), self.world().generation, applied);
}

Status save_share(Participant& self, State& state, proto::Step applied,
                  const Checkpointing& options, SavePlan* plan) {
  const auto share = saved_part_of(self, applied, options);
  SavePlan none;
  return share ? copy_state(self.arena(), state, *share, options, plan != nullptr ? *plan : none)
               : Status();
}

Status save_alone(Participant& self, State& state, proto::Step applied,
                  const Checkpointing& options, SavePlan* plan, std::uint64_t seen) {
  shmem::Arena& arena = self.arena();
  shmem::save_header(arena.save_area())
      .progress.store(SaveProgress{kNoGeneration, 1}.pack(), std::memory_order_release);
  if (!arena.save_word().compare_exchange_strong(
          seen, SaveMark{SaveMark::Phase::kWanted, applied}.pack(), std::memory_order_acq_rel))
    return {};
  SavePlan none;
  return copy_state(arena, state, {0, 1, kNoGeneration, applied}, options,
                    plan != nullptr ? *plan : none);
}

}  // namespace regroup::elastic
