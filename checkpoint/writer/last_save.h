// Requests the last save from the members of a host before an announced end, requests it again
// if the member that had claimed it died, and reports the outcome.
// docs/design/checkpoint_in_a_job.md.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "checkpoint/writer/final_checkpoint.h"
#include "shmem/arena.h"
#include "shmem/save_mark.h"

namespace regroup::writer {

// Used by the loop's thread.
class LastSave {
 public:
  // `arena` returns the agent's arena, which may not be mapped yet.
  LastSave(boost::asio::io_context& loop, std::function<const shmem::Arena&()> arena);
  // True if a member that has not finished lives here, and some member has completed a step.
  [[nodiscard]] bool can_request() const;
  [[nodiscard]] proto::Step newest() const;  // newest step that any member here has applied
  // Requests a save, which must be in the save area by `until`.
  void request(shmem::SaveRequest::What what, base::TimePoint until);
  // Requests a save with the deadline of the previous request; kNone: it would be too late.
  void request_again(shmem::SaveRequest::What what) { request(what, until_); }
  // From `at` on the request includes members that wait for others, if none has reached a boundary.
  void include_waiting_at(base::TimePoint at);
  void withdraw();  // withdraws a request that no member has claimed
  // A member on this host has ended.
  void on_member_ended();
  // Calls `then` once: when the save is complete, or when no member has claimed the request
  // within `within`.
  void await(base::Duration within, std::function<void()> then);
  void on_rung();  // the mark in the save area may have changed
  // `hangs`: nothing can be written now, so members do not wait in finish() for a checkpoint.
  void set_hangs(bool hangs) const;
  void wrote() { wrote_ = true; }       // a save has been written
  void failed(proto::Step step) const;  // a save was not written: finish() saves it again
  void moved() const;                   // the writing process has made progress
  // The last step, which must be saved; 0: no member has finished.
  [[nodiscard]] proto::Step due() const;
  // True if a save was requested and outcome() was not called since.
  [[nodiscard]] bool requested() const { return requested_; }
  [[nodiscard]] bool includes_waiting() const { return late_; }
  // outcome_of_last(); call it when no member lives and nothing is being written.
  [[nodiscard]] std::string outcome();

 private:
  [[nodiscard]] LastSeen seen() const;
  [[nodiscard]] bool all_have_left() const;
  [[nodiscard]] shmem::SaveHeader* header() const;  // null: there is no save area
  void request_again_if_needed();
  void check_settled(bool in_time);
  void start_claim_timer(base::Duration within);

  const std::function<const shmem::Arena&()> arena_;
  boost::asio::steady_timer half_time_, claim_timer_;
  bool requested_ = false, late_ = false, wrote_ = false;
  bool all_had_left_ = false;  // all members had left their World at the last request
  std::uint32_t requests_ = 0;
  base::TimePoint requested_at_{};  // time of the first request
  base::TimePoint until_{};         // deadline of the newest request
  base::Duration within_{};
  std::function<void()> then_;
};

}  // namespace regroup::writer
