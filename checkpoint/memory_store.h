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
      std::map<std::uint32_t, std::vector<std::pair<SnapshotPiece, std::vector<std::byte>>>>;

  [[nodiscard]] base::Status write(const Snapshot& snapshot) override {
    if (!next_error.ok()) return std::exchange(next_error, {});
    auto& part = staged_[{snapshot.about.step, snapshot.uuid}][snapshot.writer];
    for (const SnapshotPiece& piece : snapshot.pieces) {
      part.emplace_back(piece, std::vector<std::byte>(piece.bytes.begin(), piece.bytes.end()));
      part.back().first.bytes = {};
    }
    return {};
  }
  [[nodiscard]] base::Status commit(const Snapshot& snapshot) override {
    const auto staged = staged_.find({snapshot.about.step, snapshot.uuid});
    if (staged == staged_.end() || staged->second.size() != snapshot.writers)
      return base::unavailable("commit: a part is missing");
    committed[snapshot.about.step] = std::move(staged->second);
    staged_.erase(staged);
    return {};
  }

  std::map<proto::Step, Parts> committed;
  base::Status next_error;  // if set, the next write() returns it

 private:
  std::map<std::pair<proto::Step, std::string>, Parts> staged_;
};

}  // namespace regroup::checkpoint
