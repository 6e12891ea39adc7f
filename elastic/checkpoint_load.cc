// Loads a checkpoint into the state of one member; the others copy the state from that member.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/detached_call.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/directory.h"
#include "checkpoint/file_io.h"
#include "elastic/byte_queue.h"
#include "elastic/checkpointing.h"
#include "elastic/save_layout.h"
#include "elastic/training_difference.h"
#include "shmem/arena.h"
#include "shmem/save_mark.h"

namespace regroup::elastic {
namespace {

using base::Code;
using base::Status;
using checkpoint::Checkpoint;
using shmem::SaveMark;

constexpr std::uint64_t kMostManifest = 1ULL << 30;
constexpr std::chrono::seconds kAnswerLimit(10);  // for a local directory to respond
constexpr std::size_t kGatherBytes = 1 << 20;     // small tensors are gathered up to this size
constexpr std::chrono::milliseconds kOwnerRetry(20);
constexpr int kMaxOwnerRetries = 100;

// The lengths of the pieces; negative for padding.
base::Result<std::vector<std::int64_t>> lengths_in(const Checkpoint& from) {
  const auto index = from.find(kPiecesName);
  if (!index || from.manifest().tensors[*index].dtype != "int64")
    return base::invalid_argument(
        fmt::format("checkpoint {}: not the state of a session", from.path()));
  std::vector<std::int64_t> out(checkpoint::bytes_of(from.manifest().tensors[*index]) /
                                sizeof(std::int64_t));
  REGROUP_RETURN_IF_ERROR(from.read(*index, std::as_writable_bytes(std::span(out))));
  return out;
}

// A checkpoint's description of its state.
struct Contents {
  checkpoint::Manifest manifest;
  std::vector<std::int64_t> lengths;
};
base::Result<Contents> contents_of(const Checkpoint& from) {
  REGROUP_ASSIGN_OR_RETURN(auto lengths, lengths_in(from));
  return Contents{from.manifest(), std::move(lengths)};
}

using ReadNext = std::function<Status(std::span<std::byte>)>;  // the next tensor's bytes

// Reads all pieces into `into`: the caller's own memory, or parts of one buffer.
Status read_pieces(const ReadNext& read_next, const std::vector<std::int64_t>& lengths,
                   const std::vector<std::span<std::byte>>& into) {
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0)
      std::ranges::fill(into[i], std::byte{0});
    else
      REGROUP_RETURN_IF_ERROR(read_next(into[i]));
  }
  return {};
}

std::uint64_t magnitude(std::int64_t length) {
  return static_cast<std::uint64_t>(length < 0 ? -length : length);
}

Status check_lengths(const std::string& path, const Contents& contents, std::uint64_t most) {
  const std::vector<std::int64_t>& lengths = contents.lengths;
  const std::vector<checkpoint::Tensor>& tensors = contents.manifest.tensors;
  const auto named =
      static_cast<std::size_t>(std::ranges::count_if(lengths, [](auto l) { return l >= 0; }));
  std::uint64_t total = 0;
  bool fit = named + 1 == tensors.size();
  for (std::size_t i = 0, tensor = 0; fit && i < lengths.size(); ++i) {
    fit = magnitude(lengths[i]) <= most - total &&
          (lengths[i] < 0 || checkpoint::bytes_of(tensors[tensor++]) == magnitude(lengths[i]));
    total += fit ? magnitude(lengths[i]) : 0;
  }
  if (fit) return {};
  return base::invalid_argument(fmt::format(
      "checkpoint {}: its state takes more than the {} bytes that this program has reserved", path,
      most));
}

Status fill_state(const ReadNext& read_next, const std::vector<std::int64_t>& lengths,
                  State& state) {
  std::uint64_t total = 0;
  for (const std::int64_t length : lengths) total += magnitude(length);
  if (auto own = state.memory_of(total)) {
    const bool alike = std::ranges::equal(
        *own, lengths,
        [](const auto& piece, std::int64_t length) { return piece.size() == magnitude(length); });
    if (alike) return read_pieces(read_next, lengths, *own);
  }
  std::vector<std::byte> buffer(total);
  std::vector<std::span<std::byte>> into;
  std::uint64_t at = 0;
  for (const std::int64_t length : lengths) {
    into.push_back(std::span(buffer).subspan(at, magnitude(length)));
    at += magnitude(length);
  }
  REGROUP_RETURN_IF_ERROR(read_pieces(read_next, lengths, into));
  return state.load(buffer);
}

// True if `saved`, from a manifest, is the same training as `own`, which members declare now. Until
// 0.1.0 it also had the number of epochs, in jobs of regroup.torch twice: "..., 3 epochs samples=90
// batch=9 epochs=3".
bool same_training(std::string_view saved, std::string_view own) {
  constexpr std::string_view kOfTorch = " epochs";
  if (saved == own) return true;
  const std::size_t samples = saved.rfind(" samples="), epochs = saved.rfind(" epochs=");
  if (samples == saved.npos || epochs == saved.npos || epochs < samples) return false;
  const std::string_view data = saved.substr(samples, epochs - samples);
  std::string_view model = saved.substr(0, samples);
  if (!own.ends_with(data)) return false;
  own.remove_suffix(data.size());
  if (own == model) return true;
  if (!model.ends_with(kOfTorch)) return false;
  model.remove_suffix(kOfTorch.size());
  model = model.substr(0, model.find_last_not_of("0123456789") + 1);
  return model.ends_with(", ") && own == model.substr(0, model.size() - 2);
}

Status of_another(const std::string& path, const std::string& difference) {
  return base::invalid_argument(fmt::format(
      "checkpoint {} belongs to another training: {}. Start the program that made it, or give "
      "another directory with --checkpoint",
      path, difference));
}

// Names the tensors that differ, since users know layers, not digests.
Status of_another(const std::string& path, const checkpoint::Manifest& manifest, State& state,
                  const std::string& model) {
  std::vector<TensorInfo> saved, own;
  for (const checkpoint::Tensor& tensor : manifest.tensors)
    saved.push_back({tensor.name, tensor.dtype, {tensor.shape.begin(), tensor.shape.end()}});
  if (const auto pieces = state.save(); pieces.ok()) own = infos_of(state, *pieces);
  return of_another(path, difference_of({manifest.model, saved}, {model, own}));
}

Status load_contents(const std::string& path, const Contents& contents, const ReadNext& read_next,
                     State& state, proto::Step step, const Checkpointing& options) {
  const checkpoint::Manifest& manifest = contents.manifest;
  if (manifest.step != step)
    return base::invalid_argument(fmt::format(
        "checkpoint {}: of step {}, but the job resumes after step {}", path, manifest.step, step));
  if (!same_training(manifest.model, options.model))
    return of_another(path, manifest, state, options.model);
  REGROUP_RETURN_IF_ERROR(check_lengths(path, contents, state.capacity()));
  const Status filled = fill_state(read_next, contents.lengths, state);
  return filled.code() == base::Code::kInvalidArgument ? of_another(path, filled.message())
                                                       : filled;
}

Status load_from(const std::string& path, State& state, proto::Step step,
                 const Checkpointing& options) {
  REGROUP_ASSIGN_OR_RETURN(const auto from, Checkpoint::open(path));
  REGROUP_ASSIGN_OR_RETURN(const auto contents, contents_of(from));
  std::size_t tensor = 0;
  const auto read_next = [&](std::span<std::byte> into) { return from.read(tensor++, into); };
  return load_contents(path, contents, read_next, state, step, options);
}

// The data that a detached thread reads from a directory that may hang. The thread never touches
// the caller's state, so the caller can abandon it.
struct PendingRead {
  std::promise<base::Result<Contents>> contents;
  ByteQueue bytes;
};

// Small tensors share a buffer, since each push wakes the consumer.
Status push_all(const Checkpoint& from, ByteQueue& bytes) {
  std::vector<std::byte> together;
  const auto push = [&bytes](std::vector<std::byte>& part) {
    return bytes.push(part) ? Status() : base::unavailable("the reader was cancelled");
  };
  const auto push_or_gather = [&](std::vector<std::byte>& part) {
    if (together.size() + part.size() <= kGatherBytes) {
      together.insert(together.end(), part.begin(), part.end());
      return Status();
    }
    Status given = together.empty() ? Status() : push(together);
    together.clear();
    return given.ok() ? push(part) : given;
  };
  for (std::size_t tensor = 0; tensor < from.manifest().tensors.size(); ++tensor) {
    if (from.manifest().tensors[tensor].name != kPiecesName)
      REGROUP_RETURN_IF_ERROR(from.read_parts(tensor, push_or_gather));
  }
  return together.empty() ? Status() : push(together);
}

Status read_into(PendingRead& pending, const std::string& path) {
  const auto from = Checkpoint::open(path);
  auto contents = from.ok() ? contents_of(*from) : base::Result<Contents>(from.status());
  const Status status = contents.status();
  pending.contents.set_value(std::move(contents));
  return status.ok() ? push_all(*from, pending.bytes) : status;
}

// As load_from(), for a directory that may hang: then abandons the reading thread and returns
// kDeadlineExceeded.
Status load_with_deadline(const std::string& path, State& state, proto::Step step,
                          const Checkpointing& options) {
  const auto pending = std::make_shared<PendingRead>();
  std::future<base::Result<Contents>> answer = pending->contents.get_future();
  (void)base::call_detached([path, pending, caller = std::this_thread::get_id()] {
    if (std::this_thread::get_id() == caller) {
      Status none(Code::kResourceExhausted, path + ": cannot start a thread to read it");
      pending->contents.set_value(none);
      return none;
    }
    pending->bytes.close(read_into(*pending, path));
    return Status();
  });
  const auto silent = [&path] {
    return base::deadline_exceeded(
        fmt::format("{}: no data received for {} s", path, kAnswerLimit.count()));
  };
  if (answer.wait_for(kAnswerLimit) != std::future_status::ready)
    return pending->bytes.cancel(), silent();
  REGROUP_ASSIGN_OR_RETURN(const auto contents, answer.get());
  const auto read_next = [&](std::span<std::byte> into) {
    return pending->bytes.pop(into, kAnswerLimit);
  };
  const Status loaded = load_contents(path, contents, read_next, state, step, options);
  pending->bytes.cancel();
  return loaded.code() == Code::kDeadlineExceeded ? silent() : loaded;
}

// Checks that the copy has the same manifest as the original, and so the same bytes in every block.
// kNotFound: it is another checkpoint or does not exist. kDataLoss: its manifest is damaged or
// missing.
Status check_copy(const std::string& path, const std::string& of) {
  const std::string name = path + "/" + checkpoint::kManifestName;
  const auto one = checkpoint::read_file(name, kMostManifest);
  std::error_code error;
  if (one.code() == Code::kNotFound && std::filesystem::exists(path, error))
    return base::data_loss(one.status().message());
  if (!one.ok()) return one.status();
  const auto other = checkpoint::read_file(of + "/" + checkpoint::kManifestName, kMostManifest);
  if (!other.ok()) return base::not_found(other.status().message());
  if (*one == *other) return {};
  REGROUP_RETURN_IF_ERROR(
      checkpoint::parse_manifest(std::as_bytes(std::span(*one)), name).status());
  return base::not_found(name + ": belongs to another checkpoint");
}

// check_copy(); also reads the first and last byte of every file, to detect a file system that
// hangs.
Status probe_copy(const std::string& path, const std::string& of) {
  REGROUP_RETURN_IF_ERROR(check_copy(path, of));
  REGROUP_ASSIGN_OR_RETURN(const auto copy, Checkpoint::open(path));
  for (const checkpoint::File& file : copy.manifest().files) {
    const std::string name = path + "/" + file.name;
    REGROUP_ASSIGN_OR_RETURN(const auto fd,
                             checkpoint::open_file(name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW));
    std::byte byte{};
    for (const std::uint64_t at :
         {std::uint64_t{0}, file.bytes - std::min<std::uint64_t>(file.bytes, 1)}) {
      if (file.bytes > 0)
        REGROUP_RETURN_IF_ERROR(checkpoint::read_at(fd.get(), at, std::span(&byte, 1), name));
    }
  }
  return {};
}

// Runs `ask`, which reads `path`, with a deadline.
Status answer_of(const std::string& path, const std::function<Status()>& ask) {
  std::future<Status> answer = base::call_detached(ask);
  if (answer.wait_for(kAnswerLimit) == std::future_status::ready) return answer.get();
  return base::deadline_exceeded(fmt::format("{}: no answer for {} s", path, kAnswerLimit.count()));
}

// Moves a damaged copy aside, so that it is not used again. Retries while the agent is about to
// take the directory for this job; fails if another job owns it.
Status move_to_quarantine(const std::string& local, const std::string& job, proto::Step step,
                          const std::string& why) {
  const std::string directory = std::filesystem::path(local).parent_path().string();
  Status owner = checkpoint::check_owner(directory, job);
  for (int i = 0; i < kMaxOwnerRetries && owner.code() == Code::kUnavailable; ++i) {
    std::this_thread::sleep_for(kOwnerRetry);
    owner = checkpoint::check_owner(directory, job);
  }
  return owner.ok() ? checkpoint::set_aside({step, local}, why) : owner;
}

void quarantine_copy(const Checkpointing& options, proto::Step step, const Status& why) {
  const std::string& local = options.resume_local;
  const Status done = answer_of(local, [local, job = options.job, step, text = why.message()] {
    return move_to_quarantine(local, job, step, text);
  });
  fmt::print(
      stderr, "regroup: checkpoint {} of this host is {}\n", local,
      done.ok() ? "damaged and set aside" : "damaged, and cannot be set aside: " + done.message());
}

// Printed on this member's standard error, which the job's user sees.
void report_skipped_copy(const std::string& local, const Status& why, const std::string& instead) {
  fmt::print(stderr, "regroup: checkpoint {} of this host is not used; reading {}: {}\n", local,
             instead, why.message());
}

}  // namespace

Status load_checkpoint(Participant& self, State& state, proto::Step step,
                       const Checkpointing& options) {
  const std::string& local = options.resume_local;
  Status loaded(Code::kNotFound, "not here");
  if (!local.empty())
    loaded = answer_of(local, [local, of = options.resume_from] { return probe_copy(local, of); });
  if (!local.empty() && loaded.ok())
    loaded = local == options.resume_from ? load_from(local, state, step, options)
                                          : load_with_deadline(local, state, step, options);
  if (!loaded.ok() && loaded.code() != Code::kNotFound)
    report_skipped_copy(local, loaded, options.resume_from);
  const Status damage =
      loaded.code() == Code::kDataLoss && local != options.resume_from ? loaded : Status();
  if (!loaded.ok()) loaded = load_from(options.resume_from, state, step, options);
  if (!damage.ok()) quarantine_copy(options, step, damage);
  REGROUP_RETURN_IF_ERROR(loaded);
  self.arena().save_word().store(SaveMark{SaveMark::Phase::kIdle, step}.pack(),
                                 std::memory_order_release);
  return {};
}

}  // namespace regroup::elastic
