// Sleeps on the doorbell of an arena's save area, so that the agent need not poll for complete
// saves.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <thread>

#include "base/status.h"
#include "shmem/arena.h"

namespace regroup::writer {

// Owns a thread. The loop's thread constructs, uses and destroys it.
class CheckpointWatcher {
 public:
  // Calls `rung` on the loop's thread at least once after each ring, until the watcher is
  // destroyed. `arena` must have a save area; the watcher maps it separately, because the agent may
  // replace its own mapping.
  [[nodiscard]] static base::Result<std::unique_ptr<CheckpointWatcher>> start(
      boost::asio::io_context& loop, const shmem::Arena& arena, std::function<void()> rung);
  ~CheckpointWatcher();
  CheckpointWatcher(const CheckpointWatcher&) = delete;
  CheckpointWatcher& operator=(const CheckpointWatcher&) = delete;

 private:
  CheckpointWatcher(boost::asio::io_context& loop, shmem::Arena arena, std::function<void()> rung);
  void run();

  boost::asio::io_context& loop_;
  const shmem::Arena arena_;
  // Empty once the watcher is destroyed. Used by the loop's thread.
  const std::shared_ptr<std::function<void()>> rung_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace regroup::writer
