// The order of effects, and the history of sentences.
#include "membership/coordinator/outbox.h"

#include <utility>

namespace regroup::membership {

Effects Outbox::take() { return std::exchange(effects_, {}); }

void Outbox::send(proto::NodeId node, proto::Body body) {
  effects_.emplace_back(ToAgent{node, std::move(body)});
}

void Outbox::send_to_all(proto::Body body) { send(proto::kEveryNode, std::move(body)); }

void Outbox::reply(std::uint64_t client, proto::Body body) {
  effects_.emplace_back(ToClient{client, std::move(body)});
}

void Outbox::journal(JournalEntry entry) { effects_.emplace_back(Journal{std::move(entry)}); }

void Outbox::journal_at(std::size_t position, JournalEntry entry) {
  effects_.insert(effects_.begin() + static_cast<std::ptrdiff_t>(position),
                  Effect(Journal{std::move(entry)}));
}

void Outbox::finish(std::int32_t exit_code, const std::string& reason) {
  effects_.emplace_back(Done{exit_code, reason});
}

void Outbox::say(const std::string& sentence) { effects_.emplace_back(Say{sentence}); }

void Outbox::note(const std::string& sentence) {
  say(sentence);
  remember(sentence);
}

void Outbox::remember(const std::string& sentence) {
  if (!history_.empty() && history_.back().text == sentence) return;
  history_.push_back({now_, sentence});
  while (history_.size() > kMostSentences) history_.pop_front();
  journal(history_.back());
}

}  // namespace regroup::membership
