// Of each rank at most one header or one message is being received, so a Receive waits in a list
// until a header matches it.
#include "collective/group/tagged_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace regroup::collective::group {
namespace {

// A header is awaited as long as the group lives; the Receive has the deadline of the user.
base::TimePoint never() { return base::SystemClock().now() + std::chrono::hours(24 * 365); }

}  // namespace

TaggedMessages::TaggedMessages(Communicator& communicator)
    : communicator_(communicator), inboxes_(static_cast<std::size_t>(communicator.size())) {}

base::Result<std::shared_ptr<TaggedMessage>> TaggedMessages::send(int to, std::uint32_t tag,
                                                                  Input data,
                                                                  base::TimePoint deadline) {
  auto header = std::make_unique<Header>(Header{tag, data.size()});
  REGROUP_ASSIGN_OR_RETURN(
      auto request,
      communicator_.start(Operation::send(std::as_bytes(std::span(*header)), to), deadline));
  if (!data.empty()) {
    REGROUP_ASSIGN_OR_RETURN(request, communicator_.start(Operation::send(data, to), deadline));
  }
  auto message = std::make_shared<TaggedMessage>(TaggedMessage{.peer = to});
  sends_.push_back({message, std::move(header), request});
  return message;
}

base::Result<std::shared_ptr<TaggedMessage>> TaggedMessages::receive(int from, std::uint32_t tag,
                                                                     Output out,
                                                                     base::TimePoint deadline) {
  const int size = communicator_.size();
  if (from != kAnyRank && (from < 0 || from >= size || from == communicator_.rank()))
    return base::invalid_argument(
        fmt::format("receive: expected another rank of 0 to {}, got {}", size - 1, from));
  auto message = std::make_shared<TaggedMessage>(TaggedMessage{.peer = from});
  Receive receive{message, tag, out, deadline};
  if (!take_unexpected(receive)) receives_.push_back(std::move(receive));
  return message;
}

base::Status TaggedMessages::advance() {
  std::erase_if(receives_, [this](Receive& receive) { return take_unexpected(receive); });
  for (auto send = sends_.begin(); send != sends_.end();) {
    // The data follows the header, so the header is done when the data is.
    auto done = send->data.test();
    if (!done.ok()) return done.status();
    if (*done) send->message->done = true;
    send = *done ? sends_.erase(send) : std::next(send);
  }
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    if (rank != communicator_.rank()) REGROUP_RETURN_IF_ERROR(advance(rank));
  }
  const base::TimePoint now = base::SystemClock().now();
  for (Receive& receive : receives_) {
    if (now < receive.deadline) continue;
    const std::string from = receive.message->peer == kAnyRank
                                 ? "any rank"
                                 : fmt::format("rank {}", receive.message->peer);
    return base::deadline_exceeded(
        fmt::format("rank {}: no message with tag {} came from {} in time", communicator_.rank(),
                    receive.tag, from));
  }
  return {};
}

// Whether a Receive waits for the next header of rank `from`.
bool TaggedMessages::is_wanted(int from) const {
  return std::ranges::any_of(receives_, [from](const Receive& receive) {
    return receive.message->peer == kAnyRank || receive.message->peer == from;
  });
}

base::Status TaggedMessages::advance(int from) {
  Inbox& inbox = inboxes_[static_cast<std::size_t>(from)];
  for (;;) {
    if (inbox.data_request) {
      REGROUP_ASSIGN_OR_RETURN(const bool done, inbox.data_request->test());
      if (!done) return {};
      inbox.data_request.reset();
      end_data(from);
    } else if (inbox.header_request) {
      REGROUP_ASSIGN_OR_RETURN(const bool done, inbox.header_request->test());
      if (!done) return {};
      inbox.header_request.reset();
      REGROUP_RETURN_IF_ERROR(start_data(from));
    } else {
      if (!is_wanted(from)) return {};
      const auto header = std::as_writable_bytes(std::span(inbox.header));
      REGROUP_ASSIGN_OR_RETURN(inbox.header_request,
                               communicator_.start(Operation::receive(header, from), never()));
    }
  }
}

// After a header of rank `from`: receives its data into the memory of the Receive that it matches.
base::Status TaggedMessages::start_data(int from) {
  Inbox& inbox = inboxes_[static_cast<std::size_t>(from)];
  const auto tag = static_cast<std::uint32_t>(inbox.header[0]);
  const std::size_t bytes = inbox.header[1];
  const auto match = std::ranges::find_if(receives_, [&](const Receive& receive) {
    return receive.tag == tag &&
           (receive.message->peer == kAnyRank || receive.message->peer == from);
  });
  Output out;
  if (match != receives_.end()) {
    inbox.receive = std::move(*match);
    receives_.erase(match);
  }
  if (inbox.receive && inbox.receive->out.size() == bytes) {
    out = inbox.receive->out;
  } else {
    // Also of a message whose size is wrong, so that the ones after it still match.
    inbox.unexpected.push_back({tag, std::vector<std::byte>(bytes)});
    out = inbox.unexpected.back().data;
  }
  if (bytes == 0) {
    end_data(from);
    return {};
  }
  REGROUP_ASSIGN_OR_RETURN(inbox.data_request,
                           communicator_.start(Operation::receive(out, from), never()));
  return {};
}

void TaggedMessages::end_data(int from) {
  Inbox& inbox = inboxes_[static_cast<std::size_t>(from)];
  if (!inbox.receive) {
    inbox.unexpected.back().complete = true;
    std::erase_if(receives_, [this](Receive& receive) { return take_unexpected(receive); });
    return;
  }
  if (inbox.receive->out.size() != inbox.header[1]) inbox.unexpected.pop_back();
  complete(*inbox.receive, from, inbox.header[1]);
  inbox.receive.reset();
}

void TaggedMessages::complete(Receive& receive, int source, std::size_t bytes) {
  receive.message->source = source;
  receive.message->done = true;
  if (bytes != receive.out.size())
    receive.message->status = base::invalid_argument(
        fmt::format("receive: rank {} sent {} bytes with tag {}, expected {}", source, bytes,
                    receive.tag, receive.out.size()));
}

bool TaggedMessages::take_unexpected(Receive& receive) {
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    if (receive.message->peer != kAnyRank && receive.message->peer != rank) continue;
    Inbox& inbox = inboxes_[static_cast<std::size_t>(rank)];
    const auto found = std::ranges::find_if(inbox.unexpected, [&](const Unexpected& unexpected) {
      return unexpected.complete && unexpected.tag == receive.tag;
    });
    if (found == inbox.unexpected.end()) continue;
    if (found->data.size() == receive.out.size() && !found->data.empty())
      std::memcpy(receive.out.data(), found->data.data(), found->data.size());
    complete(receive, rank, found->data.size());
    inbox.unexpected.erase(found);
    return true;
  }
  return false;
}

bool TaggedMessages::waits_for(int rank) const {
  return is_wanted(rank) || std::ranges::any_of(sends_, [rank](const Send& send) {
           return send.message->peer == rank;
         });
}

}  // namespace regroup::collective::group
