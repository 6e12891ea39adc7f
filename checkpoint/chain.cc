// Finds the bases of a checkpoint by the steps that manifests name; reads no tensors.
#include "checkpoint/chain.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <utility>

#include "checkpoint/file_io.h"

namespace regroup::checkpoint {
namespace {

using base::Code;
using base::Result;
using base::Status;

std::string beside(const std::string& path, proto::Step step) {
  std::filesystem::path own = std::filesystem::path(path).lexically_normal();
  if (!own.has_filename()) own = own.parent_path();  // it ended with a slash
  return (own.parent_path() / name_of_step(step)).string();
}

Status broken(const std::string& path, const Checkpoint& after, const Status& why) {
  if (why.code() != Code::kNotFound && why.code() != Code::kDataLoss) return why;
  return base::data_loss(fmt::format("{} has what changed since step {}, which cannot be read: {}",
                                     path, after.manifest().base, why.message()));
}

}  // namespace

Result<std::vector<Checkpoint>> open_chain(const std::string& path) {
  std::vector<Checkpoint> out;
  REGROUP_ASSIGN_OR_RETURN(auto newest, Checkpoint::open(path));
  out.push_back(std::move(newest));
  while (out.back().manifest().content == Content::kTableChanges) {
    const Checkpoint& after = out.back();
    if (out.size() == kLongestChain)
      return base::data_loss(fmt::format("{}: needs more than {} others", path, kLongestChain - 1));
    auto base = Checkpoint::open(beside(after.path(), after.manifest().base));
    if (!base.ok()) return broken(path, after, base.status());
    const Manifest &ours = after.manifest(), &theirs = base->manifest();
    if (theirs.step != ours.base || theirs.job != ours.job || !has_tables(theirs)) {
      return broken(path, after,
                    base::data_loss(fmt::format("{} has step {} of job {}, expected job {}",
                                                base->path(), theirs.step, theirs.job, ours.job)));
    }
    out.push_back(std::move(*base));
  }
  std::ranges::reverse(out);
  return out;
}

Status verify_chain(const std::string& path, const OnProgress& on_progress) {
  REGROUP_RETURN_IF_ERROR(verify(path, on_progress));
  REGROUP_ASSIGN_OR_RETURN(const auto base, base_of(path));
  if (!base) return {};
  REGROUP_ASSIGN_OR_RETURN(const auto chain, open_chain(path));
  for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
    if (const Status status = verify(chain[i].path(), on_progress); !status.ok())
      return broken(path, chain[i + 1], status);
  }
  return {};
}

Status check_whole(const Checkpoint& checkpoint) {
  if (checkpoint.manifest().content != Content::kTableChanges) return {};
  return base::invalid_argument(
      fmt::format("{} has only what changed since step {}; a job loads both, and writes a whole "
                  "one when it ends",
                  checkpoint.path(), checkpoint.manifest().base));
}

Result<std::optional<proto::Step>> base_of(const std::string& path) {
  constexpr std::string_view kBefore = "\"content\":\"table-changes\",\"base\":";
  const std::string manifest = fmt::format("{}/{}", path, kManifestName);
  const auto file = open_file(manifest, O_RDONLY | O_NOFOLLOW);
  if (file.code() == Code::kNotFound) return std::optional<proto::Step>();
  if (!file.ok()) return file.status();
  std::array<char, 512> head{};
  ssize_t count = -1;
  do {
    count = ::pread(file->get(), head.data(), head.size(), 0);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return base::system_error("pread", manifest, errno);
  const std::string_view text(head.data(), static_cast<std::size_t>(count));
  const std::size_t at = text.find(kBefore);
  if (at == std::string_view::npos) return std::optional<proto::Step>();
  proto::Step base = 0;
  for (const char c : text.substr(at + kBefore.size())) {
    if (c < '0' || c > '9') break;
    base = base * 10 + static_cast<proto::Step>(c - '0');
  }
  return std::optional(base);
}

}  // namespace regroup::checkpoint
