// The verbs of `regroup checkpoint`. Each returns an exit status, 0, or 1 if a checkpoint is
// damaged or two differ, or an error. None throws.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace regroup::checkpoint_tool {

struct Arguments {
  std::vector<std::string> words;   // without the verb
  std::optional<proto::Step> step;  // --step N
  std::string format;               // --to, --from
  checkpoint::Retention retention;  // --keep-last, --keep-every
  bool json = false;
  bool model_only = false;  // --model-only
};
using Answer = base::Result<int>;

// Returns the path of a checkpoint: `word` if it is one, otherwise that of `step`, or of the newest
// step, in the directory `word`.
[[nodiscard]] base::Result<std::string> checkpoint_at(const std::string& word,
                                                      const std::optional<proto::Step>& step);

[[nodiscard]] Answer ls(const Arguments& arguments);
[[nodiscard]] Answer show(const Arguments& arguments);
[[nodiscard]] Answer verify(const Arguments& arguments);
[[nodiscard]] Answer diff(const Arguments& arguments);
[[nodiscard]] Answer prune(const Arguments& arguments);
[[nodiscard]] Answer export_to(const Arguments& arguments);
[[nodiscard]] Answer import_from(const Arguments& arguments);

}  // namespace regroup::checkpoint_tool
