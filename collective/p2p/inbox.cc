// Headers and data have tags of their own, so that the data of a rank can be received in the order
// of its headers while further headers arrive.
#include "collective/p2p/inbox.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"

namespace regroup::collective::p2p {
namespace {

constexpr int kHeaderTag = 1;
constexpr int kDataTag = 2;
constexpr std::size_t kPiece = std::size_t{1} << 30;  // MPI counts in int
constexpr std::chrono::seconds kCloseTimeout(2);

template <class Bytes, class Call>
void for_each_piece(Bytes bytes, const Call& call) {
  for (std::size_t begin = 0; begin < bytes.size(); begin += kPiece)
    call(bytes.subspan(begin, std::min(kPiece, bytes.size() - begin)));
}

}  // namespace

Inbox::Sent Inbox::send(int to, Header header, Input data) {
  header.bytes = data.size();
  Outgoing& out = outgoing_.emplace_back();
  out.header = header;
  if (header.kind == HeaderKind::kFailure) {
    out.copy.assign(data.begin(), data.end());
    data = out.copy;
  }
  out.numbers.push_back(messages_.send(to, kHeaderTag, std::as_bytes(std::span(&out.header, 1))));
  for_each_piece(data,
                 [&](Input piece) { out.numbers.push_back(messages_.send(to, kDataTag, piece)); });
  return out.done;
}

void Inbox::want(const Key& key, Output data) {
  Incoming& message = incoming_[key];
  if (message.announced) return;
  message.wanted = data;
  message.is_wanted = true;
}

void Inbox::take_header(int from, const Header& header) {
  if (header.kind == HeaderKind::kProbe || header.kind == HeaderKind::kBye)
    return on_header_(from, header);
  const Key key{from, header.kind, header.number, header.tag};
  Incoming& message = incoming_[key];
  message.announced = true;
  message.signature = header.signature;
  message.bytes = header.bytes;
  message.is_wanted = message.is_wanted && message.wanted.size() == header.bytes;
  if (!message.is_wanted) message.room.resize(header.bytes);
  const Output to = message.is_wanted ? message.wanted : Output(message.room);
  Arriving& arriving = arriving_.emplace_back();
  arriving.key = key;
  for_each_piece(to, [&](Output piece) {
    arriving.numbers.push_back(messages_.receive(from, kDataTag, piece));
  });
  on_header_(from, header);
}

bool Inbox::progress() {
  bool moved = false;
  const auto erase_done = [&](std::vector<std::size_t>& numbers) {
    moved |= std::erase_if(numbers, [&](std::size_t each) { return messages_.done(each); }) > 0;
    return numbers.empty();
  };
  outgoing_.remove_if([&](Outgoing& each) {
    if (!erase_done(each.numbers)) return false;
    return *each.done = true;
  });
  while (!closed_) {
    const auto from = messages_.arrived(kHeaderTag);
    if (!from) break;
    HeaderArriving& header = headers_.emplace_back();
    header.from = *from;
    header.number = messages_.receive(*from, kHeaderTag,
                                      std::as_writable_bytes(std::span(header.header.get(), 1)));
    moved = true;
  }
  while (!headers_.empty() && messages_.done(headers_.front().number)) {
    const HeaderArriving arrived = std::move(headers_.front());
    headers_.pop_front();
    take_header(arrived.from, *arrived.header);
    moved = true;
  }
  arriving_.remove_if([&](Arriving& each) {
    if (!erase_done(each.numbers)) return false;
    incoming_[each.key].complete = true;
    return moved = true;
  });
  return moved;
}

void Inbox::close() {
  closed_ = true;
  for (Arriving& each : std::exchange(arriving_, {})) {
    for (const std::size_t number : each.numbers) messages_.cancel(number);
  }
}

// A receiver that has ended takes nothing more. What it was sent stays in memory, for MPI.
Inbox::~Inbox() {
  close();
  const base::TimePoint end = base::SystemClock().now() + kCloseTimeout;
  while ((!outgoing_.empty() || !headers_.empty()) && messages_.error().empty() &&
         base::SystemClock().now() < end) {
    while (!headers_.empty() && messages_.done(headers_.front().number)) headers_.pop_front();
    if (!progress()) ::sched_yield();
  }
  if (!outgoing_.empty()) new std::list<Outgoing>(std::move(outgoing_));
  if (!headers_.empty()) new std::deque<HeaderArriving>(std::move(headers_));
}

}  // namespace regroup::collective::p2p
