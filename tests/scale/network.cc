// Messages leave when the handler that sent them is done, in order; nothing overtakes between two
// processes.
#include "tests/scale/network.h"

#include <ctime>
#include <utility>

namespace regroup::scale {

base::Duration thread_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

namespace {

base::Duration on_the_line(const Bytes& bytes) { return std::chrono::nanoseconds(bytes->size()); }

}  // namespace

Network::Network(std::size_t processes, std::optional<base::Duration> each, Handler handler)
    : each_(each), handler_(std::move(handler)), hosts_(processes) {}

void Network::send(ProcessId to, Bytes bytes) { outbox_.emplace_back(to, std::move(bytes)); }

void Network::schedule(ProcessId process, base::TimePoint at, std::function<void()> what) {
  events_.push({at, ++last_, process, process, nullptr, std::move(what), 0});
}

void Network::uncounted(const std::function<void()>& what) {
  const base::Duration before = thread_time();
  what();
  extra_ -= thread_time() - before;
}

bool Network::step(base::TimePoint until) {
  if (events_.empty() || events_.top().at > until) return false;
  const Event event = events_.top();
  events_.pop();
  if (!hosts_[event.to].down) run(event);
  return true;
}

void Network::run(const Event& event) {
  Host& host = hosts_[event.to];
  now_ = std::max(event.at, host.free);
  extra_ = {};
  const base::Duration before = thread_time();
  if (event.bytes) {
    ++host.traffic.messages_in;
    host.traffic.bytes_in += event.bytes->size();
    handler_(event.to, event.from, event.bytes);
  } else {
    event.what();
  }
  const base::Duration taken = each_.value_or(thread_time() - before + extra_);
  host.traffic.busy += taken;
  host.traffic.depth = event.depth;
  now_ = host.free = now_ + taken;
  for (auto& [to, bytes] : std::exchange(outbox_, {}))
    transmit(event.to, to, std::move(bytes), event.depth + 1);
}

void Network::transmit(ProcessId from, ProcessId to, Bytes bytes, std::uint32_t depth) {
  Host &sender = hosts_[from], &receiver = hosts_[to];
  ++sender.traffic.messages_out;
  sender.traffic.bytes_out += bytes->size();
  const base::TimePoint leaves = std::max(sender.free, sender.sent);
  sender.sent = leaves + on_the_line(bytes);
  const base::TimePoint arrives =
      std::max(leaves + kLatency, receiver.received) + on_the_line(bytes);
  receiver.received = arrives;
  events_.push({arrives, ++last_, to, from, std::move(bytes), {}, depth});
}

void Network::reset() {
  for (Host& host : hosts_) host.traffic = {};
}

}  // namespace regroup::scale
