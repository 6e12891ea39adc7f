// Members can ring the doorbell, too: a needless ring costs one check.
#include "checkpoint/writer/checkpoint_watcher.h"

#include <fcntl.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <utility>

#include "base/fd.h"
#include "shmem/doorbell.h"
#include "shmem/save_mark.h"

namespace regroup::writer {
namespace {

constexpr std::chrono::hours kLongestSave{1};  // the longest sleep

}  // namespace

base::Result<std::unique_ptr<CheckpointWatcher>> CheckpointWatcher::start(
    boost::asio::io_context& loop, const shmem::Arena& arena, std::function<void()> rung) {
  base::Fd own(::fcntl(arena.memfd(), F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return base::system_error("fcntl", "arena", errno);
  REGROUP_ASSIGN_OR_RETURN(auto mapped, shmem::Arena::open(std::move(own)));
  return std::unique_ptr<CheckpointWatcher>(
      new CheckpointWatcher(loop, std::move(mapped), std::move(rung)));
}

CheckpointWatcher::CheckpointWatcher(boost::asio::io_context& loop, shmem::Arena arena,
                                     std::function<void()> rung)
    : loop_(loop),
      arena_(std::move(arena)),
      rung_(std::make_shared<std::function<void()>>(std::move(rung))),
      thread_([this] { run(); }) {}

CheckpointWatcher::~CheckpointWatcher() {
  stop_ = true;
  shmem::ring(shmem::save_header(arena_.save_area()).bell);
  thread_.join();
  *rung_ = nullptr;  // handlers that are still queued do nothing
}

void CheckpointWatcher::run() {
  auto& bell = shmem::save_header(arena_.save_area()).bell;
  std::uint32_t seen = bell.count.load(std::memory_order_acquire);
  for (;;) {  // the first call covers rings before the start
    boost::asio::post(loop_, [rung = rung_] {
      if (*rung) (*rung)();
    });
    const auto changed = [&] {
      return stop_ || bell.count.load(std::memory_order_acquire) != seen;
    };
    while (!shmem::wait_until(bell, changed, shmem::RealPolicy::now() + kLongestSave)) {
    }
    if (stop_) return;
    seen = bell.count.load(std::memory_order_acquire);
  }
}

}  // namespace regroup::writer
