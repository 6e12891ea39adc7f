// Members reply in the arena (elastic/final_save.h); the agent also sees deaths of members.
#include "checkpoint/writer/last_save.h"

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

bool has_finished(const shmem::MemberSlot& member) {
  return member.finished.load(std::memory_order_acquire) != 0;
}

}  // namespace

LastSave::LastSave(boost::asio::io_context& loop, std::function<const shmem::Arena&()> arena)
    : arena_(std::move(arena)), half_time_(loop), claim_timer_(loop) {}

bool LastSave::can_request() const {
  const shmem::Arena& arena = arena_();
  if (!arena.mapped() || arena.save_area().empty() || newest() == 0) return false;
  for (proto::SlotIndex slot = 0; slot < arena.spec().slots; ++slot) {
    if (arena.member_slot(slot).has_living_member() && !has_finished(arena.member_slot(slot)))
      return true;
  }
  return false;
}

proto::Step LastSave::newest() const {
  proto::Step newest = 0;
  for (proto::SlotIndex slot = 0; arena_().mapped() && slot < arena_().spec().slots; ++slot)
    newest = std::max(newest, arena_().member_slot(slot).step.load(std::memory_order_relaxed));
  return newest;
}

// True if every living member has finished or left its World.
bool LastSave::all_have_left() const {
  const shmem::Arena& arena = arena_();
  for (proto::SlotIndex slot = 0; slot < arena.spec().slots; ++slot) {
    const shmem::MemberSlot& member = arena.member_slot(slot);
    const bool in = member.left_generation.load(std::memory_order_acquire) != proto::kMaxGeneration;
    if (in && member.has_living_member() && !has_finished(member)) return false;
  }
  return true;
}

LastSeen LastSave::seen() const {
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
  out.all_had_left = all_had_left_;
  out.since = base::SystemClock().now() - requested_at_;
  return out;
}

void LastSave::request(SaveRequest::What what, base::TimePoint until) {
  if (!std::exchange(requested_, true)) requested_at_ = base::SystemClock().now();
  until_ = until;
  all_had_left_ = all_have_left();
  shmem::SaveHeader& header = shmem::save_header(arena_().save_area());
  const auto at = std::chrono::duration_cast<std::chrono::nanoseconds>(until.time_since_epoch());
  header.until.store(at.count(), std::memory_order_release);
  header.asked.store(SaveRequest{what, ++requests_}.pack(), std::memory_order_seq_cst);
  shmem::ring_all(arena_());
}

void LastSave::withdraw() {
  request(SaveRequest::What::kNone, until_);
  process::call_off(half_time_);
  requested_ = false;
}

void LastSave::include_waiting_at(base::TimePoint at) {
  half_time_.expires_at(std::chrono::steady_clock::time_point(at.time_since_epoch()));
  half_time_.async_wait([this](const boost::system::error_code& error) {
    if (error || !process::is_due(half_time_)) return;
    late_ = true;
    request_again_if_needed();
  });
}

void LastSave::request_again_if_needed() {
  if (requested_ && must_request_again(seen())) request(SaveRequest::What::kNow, until_);
}

void LastSave::on_member_ended() {
  request_again_if_needed();
  check_settled(/*in_time=*/true);
}

void LastSave::await(base::Duration within, std::function<void()> then) {
  then_ = std::move(then);
  within_ = within;
  start_claim_timer(within);
  check_settled(/*in_time=*/true);
}

void LastSave::start_claim_timer(base::Duration within) {
  claim_timer_.expires_after(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(within));
  claim_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && process::is_due(claim_timer_)) check_settled(/*in_time=*/false);
  });
}

void LastSave::on_rung() { check_settled(/*in_time=*/true); }

// Calls then_ if there is nothing more to wait for. Until the members' deadline it waits for a
// living member that copies its state, and for the previous save to be written.
void LastSave::check_settled(bool in_time) {
  if (!then_) return;
  const LastSeen now = seen();
  const bool complete = now.mark.phase != SaveMark::Phase::kWanted && now.mark.step >= now.newest;
  const bool coming = now.request.what == SaveRequest::What::kClaimed && now.claimant_lives;
  const bool goes_on =
      (in_time || coming || now.mark.on_its_way()) && base::SystemClock().now() < until_;
  if (!complete && can_request() && goes_on) {
    if (!in_time) start_claim_timer(within_);
    return;
  }
  process::call_off(claim_timer_);
  std::exchange(then_, nullptr)();
}

shmem::SaveHeader* LastSave::header() const {
  const shmem::Arena& arena = arena_();
  return !arena.mapped() || arena.save_area().empty() ? nullptr
                                                      : &shmem::save_header(arena.save_area());
}

void LastSave::set_hangs(bool hangs) const {
  shmem::SaveHeader* const header = this->header();
  if (header == nullptr) return;
  const std::uint32_t now = hangs ? 1 : 0;
  if (header->hangs.exchange(now, std::memory_order_acq_rel) != now) shmem::ring_all(arena_());
}

void LastSave::failed(proto::Step step) const {
  if (shmem::SaveHeader* const header = this->header())
    header->failed.store(step, std::memory_order_release);
}

void LastSave::moved() const {
  if (shmem::SaveHeader* const header = this->header())
    header->moved.fetch_add(1, std::memory_order_acq_rel);
}

proto::Step LastSave::due() const {
  const shmem::SaveHeader* const header = this->header();
  return header != nullptr ? header->due.load(std::memory_order_acquire) : 0;
}

std::string LastSave::outcome() {
  if (!std::exchange(requested_, false)) return "";
  process::call_off(half_time_);
  return outcome_of_last(seen(), wrote_);
}

}  // namespace regroup::writer
