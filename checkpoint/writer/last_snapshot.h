// Requests the last snapshot from the members of a host before an announced end, requests it again
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
class LastSnapshot {
 public:
  // `arena` gives the agent's, which may not be mapped yet.
  LastSnapshot(boost::asio::io_context& loop, std::function<const shmem::Arena&()> arena);
  // True: a member lives here that has not finished, and some member has taken a step.
  [[nodiscard]] bool can_ask() const;
  [[nodiscard]] proto::Step newest() const;  // step that any member here has applied
  // Requests a snapshot, which must be in the save area at `until`.
  void ask(shmem::SaveRequest::What what, base::TimePoint until);
  // The same with the deadline of the request before; kNone: a snapshot would come too late.
  void ask_on(shmem::SaveRequest::What what) { ask(what, until_); }
  // From `at` on the request includes members that wait for others, if none has come to a boundary.
  void insist_at(base::TimePoint at);
  void call_off();  // withdraws a request that no member has claimed
  // A member here has ended.
  void on_member_ended();
  // Calls `then` once, when the snapshot is complete, or when no member has claimed the request
  // after `within`.
  void await(base::Duration within, std::function<void()> then);
  void on_rung();  // the mark in the save area may have changed
  // Nothing can be written now: members do not wait in finish() for a checkpoint that is due.
  void set_hangs(bool hangs) const;
  void wrote() { wrote_ = true; }       // a snapshot has been written
  void failed(proto::Step step) const;  // it was not written: finish() saves the state again
  void moved() const;                   // the process that writes is alive
  [[nodiscard]] proto::Step due()
      const;  // the last step, which must be saved; 0: no member has finished
  // True: a snapshot was requested, and outcome() was not called since.
  [[nodiscard]] bool awaited() const { return awaited_; }
  [[nodiscard]] bool insists() const { return late_; }
  // Once no member lives and nothing is being written: outcome_of_last().
  [[nodiscard]] std::string outcome();

 private:
  [[nodiscard]] LastSeen seen() const;
  [[nodiscard]] bool all_have_left() const;
  [[nodiscard]] shmem::SaveHeader* header() const;  // null: there is no save area
  void ask_again_if_need_be();
  void look_whether_settled(bool in_time);
  void start_limit(base::Duration within);

  const std::function<const shmem::Arena&()> arena_;
  boost::asio::steady_timer half_time_, limit_;
  bool awaited_ = false, late_ = false, wrote_ = false;
  bool had_left_ = false;  // all members had left at the last request
  std::uint32_t asks_ = 0;
  base::TimePoint asked_at_{}, until_{};  // of the first request; of the newest
  base::Duration within_{};
  std::function<void()> then_;
};

}  // namespace regroup::writer
