// What keeps a process is seen in its threads: /proc/PID/task.
#include "launcher/job/finished_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "base/status.h"
#include "launcher/process/stuck_process.h"

namespace regroup::job {

bool all_finished(const shmem::Arena& arena) {
  if (!arena.mapped() || arena.newest_world() == 0) return false;
  const auto world = arena.read_world(arena.newest_world());
  if (!world.ok() || world->members.empty()) return false;
  bool any = false;
  const bool all = std::ranges::all_of(world->members, [&](const proto::WorldMember& m) {
    if (m.slot_id.node != arena.spec().node) return true;
    if (m.slot_id.slot >= arena.spec().slots) return false;
    any = true;
    const shmem::MemberSlot& member_slot = arena.member_slot(m.slot_id.slot);
    return member_slot.occupied.load(std::memory_order_acquire) == m.id + 1 &&
           member_slot.finished.load(std::memory_order_acquire) != 0;
  });
  return any && all;
}

std::string writer_lost(const std::string& host, const base::Status& why) {
  return fmt::format(
      "host {} was lost before it confirmed the checkpoints that were due at the end: {}", host,
      why.message());
}

void TrainingEnd::hear(const proto::Body& said, bool ending) {
  if (const auto* report = std::get_if<proto::Report>(&said)) {
    if (std::ranges::any_of(report->slots, &proto::SlotReport::finished))
      status_ = status_.value_or(0);
    return;
  }
  const auto* next = std::get_if<proto::Announce>(&said);
  if (next != nullptr && !next->world->members.empty() && !status_)
    writer_ = next->world->members[0].slot_id.node;
  const auto* lost = std::get_if<proto::MemberLost>(&said);
  if (lost == nullptr || !lost->finished) return;
  status_ = status_.value_or(0);
  if (*status_ == 0 && lost->reaped && !ending)
    status_ = lost->signal != 0 ? 128 + lost->signal : lost->exit_code;
}

void TrainingEnd::lose(proto::NodeId node, const std::string& host, const base::Status& why) {
  if (status_ && node == writer_ && writer_ != 0 && unsaved.empty())
    unsaved = writer_lost(host, why);
}

base::Status check_first_world(const shmem::Arena& arena, proto::SlotIndex member_slot,
                               proto::MemberId rank) {
  if (arena.member_slot(member_slot).finished.load(std::memory_order_acquire) == 0) return {};
  return base::invalid_argument(fmt::format(
      "join: rank {} has already finished its session. A job on several hosts, or with options "
      "such as "
      "--checkpoint, has one session for each rank: start another job for the next training",
      rank));
}

std::vector<std::string> FinishedWatch::look(base::TimePoint now,
                                             const std::vector<Finished>& finished) {
  std::vector<std::string> out;
  if (limit_ <= base::Duration::zero()) return out;
  for (const Finished& one : finished) {
    Seen& seen = seen_.try_emplace(one.member, Seen{now}).first->second;
    if (seen.reported || now - seen.since < limit_) continue;
    seen.reported = true;
    const auto threads = process::threads_besides_first(one.pid);
    const std::string keeps =
        threads.empty() ? "only its first thread is left"
                        : fmt::format("its threads {} are left", fmt::join(threads, ", "));
    out.push_back(fmt::format(
        "member {} (pid {}) has finished, but its process has not ended for {:.0f} s: {}; "
        "the job ends when it does, or with status 0 on SIGTERM if all have finished",
        one.member, one.pid, std::chrono::duration<double>(now - seen.since).count(), keeps));
  }
  return out;
}

}  // namespace regroup::job
