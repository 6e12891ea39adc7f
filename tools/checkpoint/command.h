// What `regroup checkpoint VERB` does. Each returns the exit status: 0, or 1 where something is
// damaged or differs, and throws nothing; errors come as a Status.
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

// `word` itself if it is a checkpoint, else the one of --step, or the newest, in the directory
// `word`.
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
