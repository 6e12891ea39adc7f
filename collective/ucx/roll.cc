// What members tell each other beside their data: the roll call, and that the ranks disagree.
//
// Who has waited for a while without result calls the roll, again and again: it tells the others what it is
// in. So all learn of a disagreement that no data would show, who is missing, and whether those who wait too
// can still be heard.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "collective/ucx/engine.h"

namespace regroup::collective {

using core::Status;
using core::TimePoint;

namespace {

constexpr std::chrono::seconds kFarewell(2);
constexpr std::size_t kRollCall = 64;  // members of a communicator: more, and only those waited for are told

TimePoint time_now() { return core::SystemClock().now(); }

}  // namespace

// Stays until everybody knows, since closing connections on which something is unread takes back what was
// said, but not for ever: who comes later finds it where our address was.
void Engine::fail_all(const Status& why) {
  if (!failed_.ok()) return;
  failed_ = why;
  if (queue_.empty()) return;
  const LineId line = queue_.front().job.line;
  const std::string& text = failed_.message();
  std::vector<int> left = queue_.front().job.ranks;
  std::vector<int> told;
  std::erase(left, wire_->rank());
  const auto tell = [&](int rank) {
    if (!wire_->reach(rank)) return false;
    static_cast<void>(wire_->send(rank, {{line, LetterKind::kFailure}, {}}, std::as_bytes(std::span(text))));
    told.push_back(rank);
    return true;
  };
  const auto knows = [&](int rank) {
    return !wire_->lost(rank).empty() || wire_->find({line, LetterKind::kReceipt, 0, 0, rank}) != nullptr ||
           wire_->find({line, LetterKind::kFailure, 0, 0, rank}) != nullptr;
  };
  for (const TimePoint end = time_now() + kFarewell; time_now() < end && !wire_->is_over();) {
    std::erase_if(left, tell);
    std::erase_if(told, knows);
    if (left.empty() && told.empty()) break;
    if (!wire_->progress()) ::sched_yield();
  }
  const auto says_so_too = [&](int rank) {
    return rank < wire_->rank() && wire_->find({line, LetterKind::kFailure, 0, 0, rank}) != nullptr;
  };
  if ((left.empty() && told.empty()) || std::ranges::any_of(queue_.front().job.ranks, says_so_too)) return;
  wire_->leave_word(text);
}

void Engine::disagree(const CollectiveSignature& mine, int rank, const CollectiveSignature& theirs) {
  const auto& ranks = queue_.front().job.ranks;
  const auto number_of = [&](int r) { return std::ranges::find(ranks, r) - ranks.begin(); };
  fail_all(core::invalid_argument(
      fmt::format("{}: rank {} is in {}, rank {} in {}", name_of(static_cast<Kind>(mine.what & 0xff)),
                  number_of(wire_->rank()), describe(mine), number_of(rank), describe(theirs))));
}

void Engine::hear_failure(const Job& job) {
  const Letter* heard = nullptr;
  wire_->letters().for_each(job.line, LetterKind::kFailure, 0, [&](const Letter& letter) {
    heard = letter.fetch ? nullptr : &letter;
    return heard == nullptr;
  });
  if (heard == nullptr) return;
  fail(core::invalid_argument(std::string(static_cast<const char*>(heard->data), heard->bytes)));
  const Transfer receipt = wire_->send(heard->head.key.from, {{job.line, LetterKind::kReceipt}, {}}, {});
  for (const TimePoint end = time_now() + kFarewell;
       time_now() < end && !receipt.done() && !wire_->is_over();) {
    if (!wire_->progress()) ::sched_yield();
  }
}

// Of those that have left, and call no roll.
void Engine::hear_last_words(const Job& job) {
  for (const int rank : job.ranks) {
    if (rank == wire_->rank() || !is_called(job, rank)) continue;
    const std::string word = wire_->word_of(rank);
    if (!word.empty()) return fail(core::invalid_argument(word));
  }
}

void Engine::find_stranger(const Job& job) {
  const LetterHead* stranger = nullptr;
  for (const LetterKind kind : {LetterKind::kCall, LetterKind::kData}) {
    wire_->letters().for_each(job.line, kind, job.number, [&](const Letter& letter) {
      const bool here = letter.head.key.number == job.number;
      if (here && letter.head.call != job.call) stranger = &letter.head;
      return here && stranger == nullptr;
    });
  }
  if (stranger != nullptr) disagree(job.call, stranger->key.from, stranger->call);
}

TimePoint Engine::next_call(const Pending& pending) const {
  return pending.called == TimePoint() ? pending.begun + kPatience : pending.called + wire_->roll_interval();
}

// Of many, only those that we wait for.
bool Engine::is_called(const Job& job, int rank) const {
  const auto waits_for = [&](const Waiter* w) { return w->peer() == rank; };
  return job.ranks.size() <= kRollCall || std::ranges::any_of(waiters_, waits_for);
}

// A call that has not left yet, since nobody reads, is not repeated. The first goes to those we know: to
// connect with everybody costs UCX 1 to 2 ms of processor time each, and most operations are late only
// because they are large.
void Engine::call_roll() {
  const bool first = std::exchange(queue_.front().called, time_now()) == TimePoint();
  const Job& job = queue_.front().job;
  for (const int rank : job.ranks) {
    if (rank == wire_->rank() || (first && !wire_->knows(rank)) || !is_called(job, rank)) continue;
    Transfer& last = calls_[rank];
    if (!wire_->reach(rank) || !last.done()) continue;
    last = wire_->send(rank, {{job.line, LetterKind::kCall, job.number}, job.call}, {});
  }
}

// Ranks of the communicator of which nothing has been heard in this operation.
std::vector<int> Engine::missing(const Job& job) const {
  std::vector<int> here{wire_->rank()};
  for (const LetterKind kind : {LetterKind::kCall, LetterKind::kData}) {
    wire_->letters().for_each(job.line, kind, job.number, [&](const Letter& letter) {
      here.push_back(letter.head.key.from);
      return true;
    });
  }
  std::vector<int> out;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    if (std::ranges::find(here, job.ranks[r]) == here.end()) out.push_back(static_cast<int>(r));
  }
  return out;
}

}  // namespace regroup::collective
