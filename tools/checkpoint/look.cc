// ls, show, verify, prune.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/status.h"
#include "checkpoint/chain.h"
#include "checkpoint/mapped.h"
#include "checkpoint/parallel.h"
#include "tools/checkpoint/command.h"
#include "tools/checkpoint/progress.h"

namespace regroup::checkpoint_tool {
namespace {

using base::Result;
using base::Status;
using checkpoint::Checkpoint;
using checkpoint::Entry;
using checkpoint::Manifest;
using OrderedJson = nlohmann::ordered_json;

// Reads only the manifest.
OrderedJson row_of(const Entry& entry) {
  auto opened = Checkpoint::open(entry.path);
  if (!opened.ok())
    return {{"step", entry.step}, {"path", entry.path}, {"damaged", opened.status().message()}};
  const Manifest& m = opened->manifest();
  OrderedJson out{{"step", entry.step},
                  {"path", entry.path},
                  {"job", m.job},
                  {"tensors", m.tensors.size()},
                  {"files", m.files.size()},
                  {"bytes", checkpoint::bytes_of_files(m)}};
  if (m.content == checkpoint::Content::kTableChanges) out["base"] = m.base;
  return out;
}

std::string line_of(const OrderedJson& row) {
  if (row.contains("damaged")) {
    return fmt::format("{:>12}  damaged: {}", row["step"].get<proto::Step>(),
                       base::escaped(row["damaged"].get<std::string>()));
  }
  return fmt::format("{:>12}  {:>10}  {:>7} tensors  job {}{}", row["step"].get<proto::Step>(),
                     human(row["bytes"].get<std::uint64_t>()), row["tensors"].get<std::size_t>(),
                     base::escaped(row["job"].get<std::string>()),
                     row.contains("base")
                         ? fmt::format(", changes since step {}", row["base"].get<proto::Step>())
                         : "");
}

OrderedJson describe(const Manifest& m) {
  OrderedJson tensors = OrderedJson::array(), files = OrderedJson::array();
  for (const auto& tensor : m.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"bytes", checkpoint::bytes_of(tensor)},
                       {"pieces", tensor.pieces.size()}});
  }
  for (const auto& file : m.files) files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  OrderedJson out{{"step", m.step},
                  {"job", m.job},
                  {"seed", m.seed},
                  {"shards", m.shards},
                  {"model", m.model},
                  {"fingerprint", m.fingerprint},
                  {"bytes", checkpoint::bytes_of_files(m)},
                  {"files", files},
                  {"tensors", tensors}};
  if (m.content == checkpoint::Content::kTableChanges) out["base"] = m.base;
  return out;
}

void print_text(const std::string& path, const Manifest& m) {
  fmt::print(
      "{}\nstep         {}\njob          {}\nseed         {}\nshards       {}\nfingerprint  "
      "{}\nmodel        "
      "{}\n",
      base::escaped(path), m.step, base::escaped(m.job), m.seed, m.shards,
      base::escaped(m.fingerprint), base::escaped(m.model));
  if (m.content == checkpoint::Content::kTableChanges)
    fmt::print("base         {}: has only what changed since that step\n", m.base);
  for (const auto& file : m.files)
    fmt::print("file         {}  {}\n", base::escaped(file.name), human(file.bytes));
  for (const auto& tensor : m.tensors) {
    fmt::print("tensor       {}  {}  [{}]  {}{}\n", base::escaped(tensor.name), tensor.dtype,
               fmt::join(tensor.shape, ", "), human(checkpoint::bytes_of(tensor)),
               tensor.pieces.size() > 1 ? fmt::format("  in {} pieces", tensor.pieces.size()) : "");
  }
}

Status verify_one(const std::string& path) {
  ProgressBar bar(base::escaped(std::filesystem::path(path).filename().string()));
  const auto show = [&](const checkpoint::Progress& p) { bar.show(p.done, p.total); };
  const checkpoint::SigbusGuard guard;
  const auto mapped = [&](int fd, std::uint64_t offset, std::uint64_t bytes) {
    return checkpoint::sum_mapped(guard, fd, offset, bytes);
  };
  return checkpoint::verify(path, show, checkpoint::usable_cores(), mapped);
}

// Verifies checkpoints and those that they need, each once.
class ChainVerifier {
 public:
  Status verify(const std::string& path) {
    REGROUP_RETURN_IF_ERROR(verified(path));
    const auto base = checkpoint::base_of(path);
    if (!base.ok())
      return base::data_loss(fmt::format("{} cannot be read: {}", path, base.status().message()));
    if (!base->has_value()) return {};
    REGROUP_ASSIGN_OR_RETURN(const auto chain, checkpoint::open_chain(path));
    for (const Checkpoint& one : chain) {
      if (one.path() == path) continue;
      const Status& status = verified(one.path());
      if (status.ok()) continue;
      return Status(status.code(),
                    fmt::format("{} needs {}: {}", path, one.path(), status.message()));
    }
    return {};
  }

 private:
  const Status& verified(const std::string& path) {
    const auto found = done_.find(path);
    return found != done_.end() ? found->second
                                : done_.emplace(path, verify_one(path)).first->second;
  }
  std::map<std::string, Status> done_;
};

}  // namespace

Result<std::string> checkpoint_at(const std::string& word, const std::optional<proto::Step>& step) {
  std::error_code error;
  if (!step && std::filesystem::exists(word + "/" + checkpoint::kManifestName, error)) return word;
  REGROUP_ASSIGN_OR_RETURN(const auto entries, checkpoint::list(word));
  const auto found = step ? std::ranges::find(entries, *step, &Entry::step) : entries.begin();
  if (found != entries.end()) return found->path;
  return base::not_found(
      step ? fmt::format("{}: no checkpoint of step {}", word, *step)
           : fmt::format("{}: neither a checkpoint nor a directory of checkpoints", word));
}

Answer ls(const Arguments& arguments) {
  REGROUP_ASSIGN_OR_RETURN(const auto entries, checkpoint::list(arguments.words[0]));
  OrderedJson rows = OrderedJson::array();
  for (const Entry& entry : entries) rows.push_back(row_of(entry));
  if (arguments.json) {
    fmt::print("{}\n", rows.dump(2, ' ', /*ensure_ascii=*/true));
    return 0;
  }
  // Scripts count lines, so only a terminal gets the heads.
  if (!rows.empty() && ::isatty(STDOUT_FILENO) == 1)
    fmt::print("{:>12}  {:>10}  {:>15}  {}\n", "STEP", "SIZE", "TENSORS", "JOB");
  for (const OrderedJson& row : rows) fmt::print("{}\n", line_of(row));
  return 0;
}

Answer show(const Arguments& arguments) {
  REGROUP_ASSIGN_OR_RETURN(const auto path, checkpoint_at(arguments.words[0], arguments.step));
  REGROUP_ASSIGN_OR_RETURN(auto opened, Checkpoint::open(path));
  if (arguments.json) {
    fmt::print("{}\n", describe(opened.manifest()).dump(2, ' ', /*ensure_ascii=*/true));
  } else {
    print_text(path, opened.manifest());
  }
  return 0;
}

Answer verify(const Arguments& arguments) {
  const std::string& word = arguments.words[0];
  std::vector<std::string> paths;
  std::error_code error;
  const bool one = std::filesystem::exists(word + "/" + checkpoint::kManifestName, error);
  if (one || arguments.step) {
    REGROUP_ASSIGN_OR_RETURN(const auto path, checkpoint_at(word, arguments.step));
    paths.push_back(path);
  } else {
    REGROUP_ASSIGN_OR_RETURN(const auto entries, checkpoint::list(word));
    // If the folder has the name of a checkpoint but no manifest, it is a damaged checkpoint.
    const std::string name = std::filesystem::path(word).filename().string();
    if (entries.empty() && checkpoint::step_of_name(name)) paths.push_back(word);
    for (const Entry& entry : entries) paths.push_back(entry.path);
    if (paths.empty()) return base::not_found(fmt::format("{}: no checkpoints", word));
  }
  ChainVerifier verifier;
  int bad = 0;
  for (const std::string& path : paths) {
    const Status status = verifier.verify(path);
    if (!status.ok() && status.code() != base::Code::kDataLoss) return status;
    bad |= status.ok() ? 0 : 1;
    fmt::print("{}: {}\n", base::escaped(path),
               status.ok() ? "good" : "damaged\n" + base::escaped(status.message()));
  }
  return bad;
}

Answer prune(const Arguments& arguments) {
  const std::string& directory = arguments.words[0];
  REGROUP_ASSIGN_OR_RETURN(const auto lock,
                           checkpoint::DirectoryLock::take(directory, "regroup checkpoint prune"));
  REGROUP_RETURN_IF_ERROR(checkpoint::clean(directory));
  REGROUP_ASSIGN_OR_RETURN(const auto removed, checkpoint::prune(directory, arguments.retention));
  for (const proto::Step step : removed) fmt::print("{} removed\n", checkpoint::name_of_step(step));
  REGROUP_ASSIGN_OR_RETURN(const auto aside,
                           checkpoint::prune_aside(directory, arguments.retention));
  for (const std::string& path : aside) fmt::print("{} removed\n", base::escaped(path));
  return 0;
}

}  // namespace regroup::checkpoint_tool
