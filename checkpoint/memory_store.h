// The fake of CheckpointStore for tests: keeps checkpoints in memory, and fails on request.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint_store.h"

namespace regroup::checkpoint {

// Used by one thread.
class MemoryStore final : public CheckpointStore {
 public:
  // The pieces of a checkpoint and their bytes, by writer.
  using Parts =
      std::map<std::uint32_t, std::vector<std::pair<CheckpointPiece, std::vector<std::byte>>>>;

  [[nodiscard]] base::Status write(const CheckpointPart& part) override {
    if (!next_error.ok()) return std::exchange(next_error, {});
    auto& copies = staged_[{part.about.step, part.uuid}][part.writer];
    for (const CheckpointPiece& piece : part.pieces) {
      copies.emplace_back(piece, std::vector<std::byte>(piece.bytes.begin(), piece.bytes.end()));
      copies.back().first.bytes = {};
    }
    return {};
  }
  [[nodiscard]] base::Status commit(const CheckpointPart& part) override {
    const auto staged = staged_.find({part.about.step, part.uuid});
    if (staged == staged_.end() || staged->second.size() != part.writers)
      return base::unavailable("commit: a part is missing");
    committed[part.about.step] = std::move(staged->second);
    staged_.erase(staged);
    return {};
  }

  std::map<proto::Step, Parts> committed;
  base::Status next_error;  // if set, the next write() returns it

 private:
  std::map<std::pair<proto::Step, std::string>, Parts> staged_;
};

}  // namespace regroup::checkpoint
