// JSON of regroup-persist, variables of members, sentences.
#include "checkpoint/writer/checkpoint_texts.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

namespace regroup::writer {
namespace {

namespace fs = std::filesystem;
using base::Result;
using Json = nlohmann::json;

}  // namespace

Result<std::optional<Resume>> resume_of(const std::string& text, const std::string& about,
                                        bool tables) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return base::internal_error(
        fmt::format("{}: unexpected output of regroup-persist: {:?}", about, text));
  if (json.empty()) return std::optional<Resume>();
  const auto unsigned_at = [&](const char* key) {
    return json.contains(key) && json[key].is_number_unsigned();
  };
  if (!unsigned_at("step") || !unsigned_at("seed") || !unsigned_at("shards") ||
      !json["path"].is_string() || !json["fingerprint"].is_string())
    return base::internal_error(
        fmt::format("{}: unexpected output of regroup-persist: {:?}", about, text));
  if (json.value("tables", false) != tables) {
    return base::invalid_argument(fmt::format(
        "{}: {} was made by a job {} --ps-memory, this job is one {} it: give another "
        "directory",
        about, json.value("path", ""), tables ? "without" : "with", tables ? "with" : "without"));
  }
  // At step 0 members would silently start from scratch, with the seed and the shards of the file.
  if (const std::string made_by = json.value("made_by_other", ""); !made_by.empty())
    return base::invalid_argument(fmt::format(
        "{}: {} was made by {}: it contains tensors, but no training to resume. To start from "
        "them, load "
        "them before join(), for example by model.load_state_dict(), and give another directory",
        about, json.value("path", ""), made_by));
  return std::optional(Resume{json.value("path", ""), json.value("step", proto::Step{0}),
                              json.value("seed", std::uint64_t{0}),
                              json.value("shards", std::uint32_t{1}),
                              json["fingerprint"].get<std::string>()});
}

std::string resumes(const CheckpointPlan& plan) {
  return fmt::format("the job resumes after step {} from {}", plan.resume->step, plan.resume->path);
}

std::string newest_of(const CheckpointPlan& plan, proto::Step committed, proto::Step writing,
                      bool several_hosts) {
  if (plan.directory.empty()) return "";
  const std::string more =
      writing > 0 ? fmt::format(" (that of step {} is being written)", writing) : "";
  if (committed == 0 && plan.resume)
    return fmt::format("the newest checkpoint is that of step {}, {}{}", plan.resume->step,
                       plan.resume->path, more);
  if (committed > 0)
    return fmt::format("the newest checkpoint is that of step {} in {}{}", committed,
                       plan.directory, more);
  return several_hosts ? "" : fmt::format("no checkpoint in {} yet{}", plan.directory, more);
}

std::string local_copy(const CheckpointPlan& plan) {
  if (!plan.resume || plan.shared.empty()) return {};
  return fmt::format("{}/{}", plan.directory, fs::path(plan.resume->path).filename().string());
}

void add_checkpoint_variables(const CheckpointPlan& plan, spec::Environment& environment) {
  if (plan.directory.empty()) return;
  environment["REGROUP_CHECKPOINT_EVERY"] = std::to_string(plan.every);
  if (plan.resume) environment["REGROUP_CHECKPOINT_FROM"] = plan.resume->path;
  if (const std::string local = local_copy(plan); !local.empty())
    environment["REGROUP_CHECKPOINT_LOCAL"] = local;
}

}  // namespace regroup::writer
