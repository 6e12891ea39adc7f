// The state of a session is a list of pieces of memory: those with a name become tensors, those without are
// padding. The tensor `regroup.pieces` tells how they follow each other: their lengths, negative for padding.
#include "elastic/checkpointing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/dtype.h"
#include "core/arena.h"
#include "core/save_mark.h"

namespace regroup::elastic {
namespace {

using checkpoint::Checkpoint;
using core::Code;
using core::SaveMark;
using core::Status;
using Json = nlohmann::json;
using Pieces = std::vector<std::span<const std::byte>>;

constexpr const char* kPiecesName = "regroup.pieces";
constexpr std::size_t kAlignment = 4096;  // of large pieces, as O_DIRECT likes it
constexpr std::size_t kSmallAlignment = 64;

// Puts one piece after the other into the save area.
class Area {
 public:
  explicit Area(core::Arena& arena) : arena_(arena), area_(arena.save_area()) {}

  // Where it is in the arena; nothing if there is no room.
  std::optional<std::uint64_t> put(std::span<const std::byte> bytes) {
    const std::size_t alignment = bytes.size() >= kAlignment ? kAlignment : kSmallAlignment;
    const std::size_t at = (used_ + alignment - 1) / alignment * alignment;
    if (at > area_.size() || bytes.size() > area_.size() - at) return std::nullopt;
    if (!bytes.empty()) std::memcpy(area_.data() + at, bytes.data(), bytes.size());
    used_ = at + bytes.size();
    return arena_.offset_of(area_.first(1)).value() + at;
  }
  bool finish(const std::string& description) {
    const auto at = put(std::as_bytes(std::span(description)));
    if (!at) return false;
    const core::SaveHeader header{used_ - description.size(), description.size()};
    std::memcpy(area_.data(), &header, sizeof header);
    return true;
  }

 private:
  core::Arena& arena_;
  std::span<std::byte> area_;
  std::size_t used_ = sizeof(core::SaveHeader);
};

// Of each piece; those that the state does not describe are bytes.
std::vector<TensorInfo> infos_of(State& state, const Pieces& pieces) {
  std::vector<TensorInfo> out = state.tensors();
  for (std::size_t i = out.size(); i < pieces.size(); ++i)
    out.push_back({fmt::format("state.{}", i), "uint8", {pieces[i].size()}});
  return out;
}

Status put_all(Area& area, State& state, const Pieces& pieces, Json* tensors) {
  const Status full(Code::kResourceExhausted, "checkpoint: the state and its names outgrew the save area");
  const std::vector<TensorInfo> infos = infos_of(state, pieces);
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(pieces[i].size());
    lengths.push_back(infos[i].name.empty() ? -bytes : bytes);
    if (infos[i].name.empty()) continue;
    const auto at = area.put(pieces[i]);
    if (!at) return full;
    tensors->push_back(
        {{"name", infos[i].name}, {"dtype", infos[i].dtype}, {"shape", infos[i].shape}, {"offset", *at}});
  }
  const auto at = area.put(std::as_bytes(std::span(lengths)));
  if (!at) return full;
  tensors->push_back(
      {{"name", kPiecesName}, {"dtype", "int64"}, {"shape", {lengths.size()}}, {"offset", *at}});
  return {};
}

Status copy_state(core::Arena& arena, State& state, core::Step step, const Checkpointing& options) {
  auto pieces = state.save();
  if (!pieces.ok()) return pieces.status();
  Area area(arena);
  Json tensors = Json::array();
  REGROUP_RETURN_IF_ERROR(put_all(area, state, *pieces, &tensors));
  const Json description = {{"step", step},
                            {"model", options.model},
                            {"fingerprint", options.fingerprint},
                            {"tensors", std::move(tensors)}};
  if (area.finish(description.dump(-1, ' ', false, Json::error_handler_t::replace))) return {};
  return {Code::kResourceExhausted, "checkpoint: the names of the state's tensors outgrew the save area"};
}

// The pieces' lengths, and where each begins in the state's bytes.
core::Result<std::vector<std::int64_t>> lengths_in(const Checkpoint& from) {
  const auto index = from.find(kPiecesName);
  if (!index || from.manifest().tensors[*index].dtype != "int64")
    return core::invalid_argument(fmt::format("checkpoint {}: not the state of a session", from.path()));
  std::vector<std::int64_t> out(checkpoint::bytes_of(from.manifest().tensors[*index]) / sizeof(std::int64_t));
  REGROUP_RETURN_IF_ERROR(from.read(*index, std::as_writable_bytes(std::span(out))));
  return out;
}

// Into memory that is one piece after another: the caller's own, or one buffer.
Status read_pieces(const Checkpoint& from, const std::vector<std::int64_t>& lengths,
                   const std::vector<std::span<std::byte>>& into) {
  std::size_t tensor = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0) {
      std::ranges::fill(into[i], std::byte{0});
      continue;
    }
    REGROUP_RETURN_IF_ERROR(from.read(tensor++, into[i]));
  }
  return {};
}

std::uint64_t magnitude(std::int64_t length) {
  return static_cast<std::uint64_t>(length < 0 ? -length : length);
}

Status check_lengths(const Checkpoint& from, const std::vector<std::int64_t>& lengths, std::uint64_t most) {
  const auto named = static_cast<std::size_t>(std::ranges::count_if(lengths, [](auto l) { return l >= 0; }));
  std::uint64_t total = 0;
  bool fit = named + 1 == from.manifest().tensors.size();
  for (std::size_t i = 0, tensor = 0; fit && i < lengths.size(); ++i) {
    fit =
        magnitude(lengths[i]) <= most - total &&
        (lengths[i] < 0 || checkpoint::bytes_of(from.manifest().tensors[tensor++]) == magnitude(lengths[i]));
    total += fit ? magnitude(lengths[i]) : 0;
  }
  if (fit) return {};
  return core::invalid_argument(
      fmt::format("checkpoint {}: its state does not fit into {} bytes", from.path(), most));
}

Status fill_state(const Checkpoint& from, const std::vector<std::int64_t>& lengths, State& state) {
  std::uint64_t total = 0;
  for (const std::int64_t length : lengths) total += magnitude(length);
  if (auto own = state.memory_of(total)) {
    const bool alike = std::ranges::equal(*own, lengths, [](const auto& piece, std::int64_t length) {
      return piece.size() == magnitude(length);
    });
    if (alike) return read_pieces(from, lengths, *own);
  }
  std::vector<std::byte> buffer(total);
  std::vector<std::span<std::byte>> into;
  std::uint64_t at = 0;
  for (const std::int64_t length : lengths) {
    into.push_back(std::span(buffer).subspan(at, magnitude(length)));
    at += magnitude(length);
  }
  REGROUP_RETURN_IF_ERROR(read_pieces(from, lengths, into));
  return state.load(buffer);
}

}  // namespace

Status save_if_due(Participant& self, State& state, core::Step applied, const Checkpointing& options) {
  if (options.every == 0 || self.rank() != 0 || self.arena().save_area().empty()) return {};
  auto& word = self.arena().save_word();
  std::uint64_t seen = word.load(std::memory_order_acquire);
  const SaveMark mark = SaveMark::unpack(seen);
  // Who was rank 0 before and died while it copied left kWriting behind.
  const bool free = mark.phase == SaveMark::Phase::kIdle || mark.phase == SaveMark::Phase::kWriting;
  if (!free || applied <= mark.step || applied / options.every <= mark.step / options.every) return {};
  // The step of the last one stays in the mark: if this one is not completed, the next is still due.
  if (!word.compare_exchange_strong(seen, SaveMark{SaveMark::Phase::kWriting, mark.step}.pack(),
                                    std::memory_order_acq_rel))
    return {};
  const Status copied = copy_state(self.arena(), state, applied, options);
  if (copied.code() != Code::kResourceExhausted) REGROUP_RETURN_IF_ERROR(copied);
  if (!copied.ok())  // costs this checkpoint, not the training: the agent says so
    (void)Area(self.arena()).finish(Json{{"step", applied}, {"error", copied.message()}}.dump());
  word.store(SaveMark{SaveMark::Phase::kReady, applied}.pack(), std::memory_order_release);
  return {};
}

Status load_checkpoint(Participant& self, State& state, core::Step step, const Checkpointing& options) {
  const auto from = Checkpoint::open(options.resume_from);
  if (!from.ok()) return from.status();
  const checkpoint::Manifest& manifest = from->manifest();
  if (manifest.step != step)
    return core::invalid_argument(fmt::format("checkpoint {}: of step {}, the job goes on after step {}",
                                              from->path(), manifest.step, step));
  if (manifest.model != options.model)
    return core::invalid_argument(
        fmt::format("checkpoint {}: of another model: \"{}\", this program has \"{}\"", from->path(),
                    manifest.model, options.model));
  const auto lengths = lengths_in(*from);
  if (!lengths.ok()) return lengths.status();
  REGROUP_RETURN_IF_ERROR(check_lengths(*from, *lengths, state.capacity()));
  REGROUP_RETURN_IF_ERROR(fill_state(*from, *lengths, state));
  self.arena().save_word().store(SaveMark{SaveMark::Phase::kIdle, step}.pack(), std::memory_order_release);
  return {};
}

}  // namespace regroup::elastic
