// What one call of the coordinator does, and the sentences that `regroup status` shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "base/clock.h"
#include "membership/coordinator/coordinator_effects.h"
#include "membership/coordinator/journal_entry.h"
#include "proto/message.h"

namespace regroup::membership {

// Collects effects in the order in which they are to be performed: an entry of the journal is
// written, and a World or an Intent also synced, before any effect that was added after it. Not
// thread-safe, performs nothing itself.
class Outbox {
 public:
  // `history`: the sentences of earlier incarnations, the oldest first.
  explicit Outbox(std::deque<JobEvent> history = {}) : history_(std::move(history)) {}

  // A call begins at `now`, which is the time of its sentences.
  void begin(base::TimePoint now) { now_ = now; }
  // The effects since the last call of take().
  [[nodiscard]] Effects take();

  void send(proto::NodeId node, proto::Body body);  // to the agent of that node
  void send_to_all(proto::Body body);               // to all agents
  void reply(std::uint64_t client, proto::Body body);
  void journal(JournalEntry entry);
  // The job is over. Nothing may be added afterwards but what a later call answers to clients.
  void finish(std::int32_t exit_code, const std::string& reason);

  // For an entry whose content is known only after some effects that must follow it: end() before
  // these, and then journal_at() with the position that it returned.
  [[nodiscard]] std::size_t end() const { return effects_.size(); }
  void journal_at(std::size_t position, JournalEntry entry);

  // Adds a sentence to the history, for `regroup status`, and journals it, unless it repeats the
  // newest one: a regroup begins and ends with the same reason. The newest kMostSentences are kept.
  void remember(const std::string& sentence);
  // Shows the sentence on the user's terminal, where it may repeat.
  void say(const std::string& sentence);
  // Both.
  void note(const std::string& sentence);
  [[nodiscard]] const std::deque<JobEvent>& history() const { return history_; }

 private:
  base::TimePoint now_{};
  Effects effects_;
  std::deque<JobEvent> history_;
};

}  // namespace regroup::membership
