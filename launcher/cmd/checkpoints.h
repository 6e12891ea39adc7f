// Checkpoints of an elastic job: what it goes on from, and who brings its members' snapshots to the disk.
// HDF5 is regroup-persist's business.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/arena.h"
#include "core/file_lock.h"
#include "core/save_mark.h"
#include "core/status.h"
#include "launcher/cmd/options.h"
#include "launcher/spawn/piped_process.h"

namespace regroup::cmd {

// The checkpoint that a job goes on from.
struct Resume {
  std::string path;
  core::Step step = 0;
  std::uint64_t seed = 0;
  std::uint32_t shards = 1;
};

struct CheckpointPlan {
  std::string directory;  // absolute; empty: the job makes none
  core::Step every = 0;
  std::uint32_t keep_last = 3;
  std::uint64_t keep_every = 0;
  std::uint64_t memory = 0;  // most that a snapshot may take; 0: no limit
  std::string job;
  std::uint64_t seed = 0;
  std::uint32_t shards = 1;
  std::optional<Resume> resume;
};

// Takes the directory of `options` for the job and looks for its newest good checkpoint, whose seed and
// number of shards become those of the job. The lock is held as long as `lock` lives, here or in a child
// process. Blocks while that checkpoint is verified.
[[nodiscard]] core::Result<CheckpointPlan> prepare_checkpoints(Options* options, const std::string& job,
                                                               std::optional<core::FileLock>* lock);

// In the agent: waits for snapshots in the arena and has them written. Used by the loop's thread.
class Checkpoints {
 public:
  using Say = std::function<void(const std::string&)>;
  // `arena` gives the agent's, which may not be mapped yet.
  Checkpoints(boost::asio::io_context& loop, CheckpointPlan plan, std::function<const core::Arena&()> arena,
              Say say, bool quiet);
  ~Checkpoints();
  void start();
  // Calls `then` once nothing is being written any more and no snapshot waits.
  void finish(std::function<void()> then);

 private:
  void poll();
  void wait_again();
  void write(core::Step step);
  void written(int wait_status);
  [[nodiscard]] core::Result<std::string> description(core::Step step) const;
  [[nodiscard]] core::Step newest_step() const;
  void free_area(core::Step step);

  const CheckpointPlan plan_;
  const std::function<const core::Arena&()> arena_;
  const Say say_;
  const bool quiet_;
  boost::asio::io_context& loop_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<launcher::PipedProcess> process_;
  core::Step writing_ = 0;
  std::uint64_t attempts_ = 0, bytes_ = 0;
  core::TimePoint since_{};
  bool acknowledged_ = false;
  std::string error_;
  std::function<void()> then_;
};

}  // namespace regroup::cmd
