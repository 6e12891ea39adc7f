// Members answer in the arena (elastic/final_snapshot.h); the agent adds the deaths of members.
#include "checkpoint/writer/last_snapshot.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "launcher/process/due.h"
#include "shmem/generation_fence.h"

namespace regroup::writer {
namespace {

using shmem::SaveMark;
using shmem::SaveRequest;

bool has_finished(const shmem::MemberSlot& line) {
  return line.finished.load(std::memory_order_acquire) != 0;
}

}  // namespace

LastSnapshot::LastSnapshot(boost::asio::io_context& loop,
                           std::function<const shmem::Arena&()> arena)
    : arena_(std::move(arena)), half_time_(loop), limit_(loop) {}

bool LastSnapshot::can_ask() const {
  const shmem::Arena& arena = arena_();
  if (!arena.mapped() || arena.save_area().empty() || newest() == 0) return false;
  for (proto::SlotIndex slot = 0; slot < arena.spec().slots; ++slot) {
    if (arena.member_slot(slot).has_living_member() && !has_finished(arena.member_slot(slot)))
      return true;
  }
  return false;
}

proto::Step LastSnapshot::newest() const {
  proto::Step newest = 0;
  for (proto::SlotIndex slot = 0; arena_().mapped() && slot < arena_().spec().slots; ++slot)
    newest = std::max(newest, arena_().member_slot(slot).step.load(std::memory_order_relaxed));
  return newest;
}

// True: no living member that has not finished is in a World.
bool LastSnapshot::all_have_left() const {
  const shmem::Arena& arena = arena_();
  for (proto::SlotIndex slot = 0; slot < arena.spec().slots; ++slot) {
    const shmem::MemberSlot& line = arena.member_slot(slot);
    const bool in = line.left.load(std::memory_order_acquire) != proto::kMaxGeneration;
    if (in && line.has_living_member() && !has_finished(line)) return false;
  }
  return true;
}

LastSeen LastSnapshot::seen() const {
  const shmem::Arena& arena = arena_();
  LastSeen out;
  out.mark = SaveMark::unpack(arena.save_word().load(std::memory_order_acquire));
  out.request = SaveRequest::unpack(
      shmem::save_header(arena.save_area()).asked.load(std::memory_order_acquire));
  if (out.request.by < arena.spec().slots) {
    const shmem::MemberSlot& claimant = arena.member_slot(out.request.by);
    out.claimant_lives = claimant.has_living_member();
    out.claimant = std::max(1U, claimant.occupied.load(std::memory_order_acquire)) - 1;
  }
  out.newest = newest();
  out.late = late_;
  out.had_left = had_left_;
  out.since = base::SystemClock().now() - asked_at_;
  return out;
}

void LastSnapshot::ask(SaveRequest::What what, base::TimePoint until) {
  if (!std::exchange(awaited_, true)) asked_at_ = base::SystemClock().now();
  until_ = until;
  had_left_ = all_have_left();
  shmem::SaveHeader& header = shmem::save_header(arena_().save_area());
  const auto at = std::chrono::duration_cast<std::chrono::nanoseconds>(until.time_since_epoch());
  header.until.store(at.count(), std::memory_order_release);
  header.asked.store(SaveRequest{what, ++asks_}.pack(), std::memory_order_seq_cst);
  shmem::ring_all(arena_());
}

void LastSnapshot::call_off() {
  ask(SaveRequest::What::kNone, until_);
  process::call_off(half_time_);
  awaited_ = false;
}

void LastSnapshot::insist_at(base::TimePoint at) {
  half_time_.expires_at(std::chrono::steady_clock::time_point(at.time_since_epoch()));
  half_time_.async_wait([this](const boost::system::error_code& error) {
    if (error || !process::is_due(half_time_)) return;
    late_ = true;
    ask_again_if_need_be();
  });
}

void LastSnapshot::ask_again_if_need_be() {
  if (awaited_ && ask_again(seen())) ask(SaveRequest::What::kNow, until_);
}

void LastSnapshot::on_member_ended() {
  ask_again_if_need_be();
  look_whether_settled(/*in_time=*/true);
}

void LastSnapshot::await(base::Duration within, std::function<void()> then) {
  then_ = std::move(then);
  within_ = within;
  start_limit(within);
  look_whether_settled(/*in_time=*/true);
}

void LastSnapshot::start_limit(base::Duration within) {
  limit_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(within));
  limit_.async_wait([this](const boost::system::error_code& error) {
    if (!error && process::is_due(limit_)) look_whether_settled(/*in_time=*/false);
  });
}

void LastSnapshot::on_rung() { look_whether_settled(/*in_time=*/true); }

// Waits for the copy of a living member, and for the disk that takes the snapshot before, until the
// deadline that the members know.
void LastSnapshot::look_whether_settled(bool in_time) {
  if (!then_) return;
  const LastSeen now = seen();
  const bool complete = now.mark.phase != SaveMark::Phase::kWanted && now.mark.step >= now.newest;
  const bool coming = now.request.what == SaveRequest::What::kClaimed && now.claimant_lives;
  const bool goes_on =
      (in_time || coming || now.mark.on_its_way()) && base::SystemClock().now() < until_;
  if (!complete && can_ask() && goes_on) {
    if (!in_time) start_limit(within_);
    return;
  }
  process::call_off(limit_);
  std::exchange(then_, nullptr)();
}

shmem::SaveHeader* LastSnapshot::header() const {
  const shmem::Arena& arena = arena_();
  return !arena.mapped() || arena.save_area().empty() ? nullptr
                                                      : &shmem::save_header(arena.save_area());
}

void LastSnapshot::set_hangs(bool hangs) const {
  shmem::SaveHeader* const header = this->header();
  if (header == nullptr) return;
  const std::uint32_t now = hangs ? 1 : 0;
  if (header->hangs.exchange(now, std::memory_order_acq_rel) != now) shmem::ring_all(arena_());
}

void LastSnapshot::failed(proto::Step step) const {
  if (shmem::SaveHeader* const header = this->header())
    header->failed.store(step, std::memory_order_release);
}

void LastSnapshot::moved() const {
  if (shmem::SaveHeader* const header = this->header())
    header->moved.fetch_add(1, std::memory_order_acq_rel);
}

proto::Step LastSnapshot::due() const {
  const shmem::SaveHeader* const header = this->header();
  return header != nullptr ? header->due.load(std::memory_order_acquire) : 0;
}

std::string LastSnapshot::outcome() {
  if (!std::exchange(awaited_, false)) return "";
  process::call_off(half_time_);
  return outcome_of_last(seen(), wrote_);
}

}  // namespace regroup::writer
