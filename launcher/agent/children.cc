// One limit covers the whole start of an agent: ssh, the connection back, and its first message.
#include "launcher/agent/children.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <variant>

#include "launcher/agent/process_spawner.h"
#include "launcher/agent/wire.h"
#include "launcher/transport/tcp.h"

namespace regroup::agent {
namespace {

constexpr std::chrono::seconds kMoving{1};

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace

Children::Children(boost::asio::io_context& loop, ChildrenOptions options, Events events)
    : loop_(loop),
      options_(std::move(options)),
      events_(std::move(events)),
      heartbeat_timer_(loop) {}

Children::~Children() = default;

base::Result<std::unique_ptr<Children>> Children::make(boost::asio::io_context& loop,
                                                       ChildrenOptions options, Events events) {
  std::unique_ptr<Children> made(new Children(loop, std::move(options), std::move(events)));
  REGROUP_RETURN_IF_ERROR(made->listen());
  return made;
}

base::Status Children::listen() {
  REGROUP_ASSIGN_OR_RETURN(
      auto context, transport::TlsContext::make(options_.job, options_.self, options_.secret));
  transport::SecureListenerLimits limits;
  limits.channel = Link::limits();
  listener_ = std::make_unique<transport::SecureListener>(
      loop_, context,
      [this](std::shared_ptr<transport::SecureChannel> channel) { on_linked(std::move(channel)); },
      limits);
  REGROUP_RETURN_IF_ERROR(listener_->start(0));
  REGROUP_ASSIGN_OR_RETURN(auto endpoints, transport::own_endpoints(listener_->port()));
  endpoints_ = transport::to_string(endpoints);
  return {};
}

base::Result<Spawner*> Children::spawner_for(const Order& order) {
  std::vector<std::string> command =
      order.access.before.empty() ? options_.ssh : order.access.before;
  std::vector<std::string> key = command;
  key.emplace_back("HOST");
  key.insert(key.end(), order.access.after.begin(), order.access.after.end());
  auto& made = order.forked ? forker_ : spawners_[key];
  if (made) return made.get();
  SpawnEvents events{
      .up = [this](proto::NodeId node) { on_spawned(node); },
      .line = [this](proto::NodeId node, const std::string& line) { events_.line(node, line); },
      .ended = [this](proto::NodeId node, const base::Status& why) { on_left(node, why); }};
  // An allocator's command may queue, so its limit starts at `up`.
  if (order.access.before.empty() || order.access.make)
    events.begun = [this](proto::NodeId node) { on_begun(node); };
  if (order.access.make) {
    made = order.access.make(options_.secret, std::move(events));
    return made.get();
  }
  SpawnOptions spawn;
  spawn.environment = options_.environment;
  spawn.limit = order.access.before.empty()
                    ? options_.limit
                    : std::max<base::Duration>(options_.limit, kAllocatorLimit);
  REGROUP_ASSIGN_OR_RETURN(
      made, order.forked
                ? make_fork_spawner(loop_, options_.secret, std::move(events), std::move(spawn))
                : make_ssh_spawner(loop_, options_.secret, std::move(events), std::move(spawn),
                                   std::move(command), order.access.after));
  return made.get();
}

base::Status Children::start(const Order& order) {
  REGROUP_ASSIGN_OR_RETURN(auto spawner, spawner_for(order));
  if (!children_.try_emplace(order.node, loop_, order.name, spawner).second) return {};
  spawner->start({order.node,
                  order.name,
                  options_.program,
                  {"--node-agent", options_.job, std::to_string(order.node),
                   std::to_string(options_.self), endpoints_, options_.build},
                  options_.wdir,
                  // An allocator's command takes no login name.
                  order.access.before.empty() ? order.user : "",
                  options_.preferred,
                  order.access.address});
  return {};
}

Children::Child* Children::find(proto::NodeId node) {
  const auto found = children_.find(node);
  return found == children_.end() ? nullptr : &found->second;
}

void Children::on_begun(proto::NodeId node) {
  Child* child = find(node);
  if (child != nullptr && !child->began) child->began = std::chrono::steady_clock::now();
}

void Children::on_spawned(proto::NodeId node) {
  Child* child = find(node);
  if (child == nullptr || child->over || child->heard) return;
  on_begun(node);
  moved_ = std::chrono::steady_clock::now();
  expect(node, *child, *child->began + options_.limit - moved_);
}

void Children::expect(proto::NodeId node, Child& child, base::Duration wait) {
  child.timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(wait));
  child.timer.async_wait([this, node](const boost::system::error_code& error) {
    Child* late = error ? nullptr : find(node);
    if (late != nullptr && !late->heard && !late->over) on_late(node, *late);
  });
}

// Many agents that start at once on few cores are all late, so the limit is extended while others
// make progress.
void Children::on_late(proto::NodeId node, Child& child) {
  const auto now = std::chrono::steady_clock::now();
  const base::Duration waited = now - *child.began;
  const bool many = std::ranges::count_if(children_, [](const auto& entry) {
                      const Child& it = entry.second;
                      return it.began && it.runs && !it.heard && !it.over;
                    }) > kMany;
  const bool moving =
      paused_ || (many && (now - moved_ < kMoving || listener_->unauthenticated() > 0));
  if (moving && waited < 2 * options_.limit) return expect(node, child, kMoving);
  const std::string what =
      child.link ? "connected, but sent no message"
                 : fmt::format("was started, but could not connect back to {}", endpoints_);
  lose(node,
       base::deadline_exceeded(fmt::format("host {}: its agent {} within {:.0f} s{}", child.name,
                                           what, std::chrono::duration<double>(waited).count(),
                                           child.link ? "" : " (a firewall?)")));
}

void Children::on_linked(std::shared_ptr<transport::SecureChannel> channel) {
  const proto::NodeId node = channel->peer();
  Child* child = find(node);
  if (child == nullptr) return on_orphan(std::move(channel));
  if (child->over || child->link) return channel->close();
  const std::string address = host_of(channel->address());
  child->link = std::make_unique<Link>(
      std::move(channel),
      Link::Handlers{[this, node](const Message& message) { on_message(node, message); },
                     [this, node, name = child->name](const base::Status& why) {
                       lose(node, {base::Code::kPeerLost,
                                   fmt::format("host {}: the connection to its agent is lost: {}",
                                               name, why.message())});
                     }});
  moved_ = std::chrono::steady_clock::now();
  if (child->runs && !child->began) {  // `begun` has not been reported yet
    on_begun(node);
    expect(node, *child, options_.limit);
  }
  if (paused_) child->link->pause();
  if (!std::exchange(watching_, true)) watch();
  events_.linked(node, address);
}

void Children::on_orphan(std::shared_ptr<transport::SecureChannel> channel) {
  const proto::NodeId node = channel->peer();
  const auto name = events_.orphan ? events_.orphan(node) : std::nullopt;
  if (name && children_.try_emplace(node, loop_, *name, nullptr).second)
    return on_linked(std::move(channel));
  std::erase_if(refused_, [](const auto& link) { return !link->open(); });
  refused_.push_back(std::make_unique<Link>(
      std::move(channel), Link::Handlers{[](const Message&) {}, [](const base::Status&) {}}));
  refused_.back()->send(EndAgent{node});
  refused_.back()->close_when_sent();
}

void Children::on_message(proto::NodeId node, const Message& message) {
  Child* child = find(node);
  if (child == nullptr || child->over) return;
  child->heard = true;
  child->timer.cancel();
  if (child->monitor.on_message()) events_.silent(node, false);
  const auto* notice = std::get_if<HostNotice>(&message);
  if (notice != nullptr && notice->kind >= HostNotice::Kind::kPauses)
    return on_pause(*child, *notice);
  if (!std::holds_alternative<Heartbeat>(message)) events_.message(node, message);
}

// A paused host sends nothing, and its kernel acknowledges nothing.
void Children::on_pause(Child& child, const HostNotice& notice) {
  const bool pauses = notice.kind == HostNotice::Kind::kPauses;
  const base::Duration pause =
      pauses ? std::min<base::Duration>(std::chrono::milliseconds(notice.within_ms), kMostPause)
             : base::Duration::zero();
  child.monitor.extend(pause);
  child.link->set_silence(Link::limits().silence + pause);
}

// After its first message the connection tells what became of the agent, so the exit of ssh is
// ignored.
void Children::on_left(proto::NodeId node, const base::Status& why) {
  Child* child = find(node);
  if (child == nullptr) return;
  child->runs = false;
  if (!child->over && !child->heard) {
    const auto code = why.ok() ? base::Code::kPeerLost : why.code();
    lose(node, {code, why.ok() ? fmt::format("host {}: its agent exited at once", child->name)
                               : "host " + why.message()});
  } else if (child->over) {
    children_.erase(node);
  }
  events_.exited();
}

void Children::watch() {
  heartbeat_timer_.expires_after(kHeartbeatInterval);
  heartbeat_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    look();
    watch();
  });
}

void Children::look() {
  std::vector<proto::NodeId> linked;
  for (const auto& [node, child] : children_) {
    if (child.link && !child.over) linked.push_back(node);
  }
  for (const proto::NodeId node : linked) {
    Child* child = find(node);
    if (child == nullptr || child->over) continue;
    if (options_.heartbeats) child->link->send(Heartbeat{});
    if (paused_) continue;
    const HeartbeatMonitor::Change change = child->monitor.on_interval();
    if (change == HeartbeatMonitor::Change::kSilent) events_.silent(node, true);
    if (change != HeartbeatMonitor::Change::kLost) continue;
    lose(node, {base::Code::kPeerLost, fmt::format("host {}: no message from its agent for {} s",
                                                   child->name, kSilence.count())});
  }
}

void Children::lose(proto::NodeId node, const base::Status& why) {
  const Child* child = find(node);
  if (child == nullptr || child->over) return;
  const bool came = child->heard;
  end(node);
  events_.lost(node, came ? why : base::Status(why.code(), why.message() + options_.from));
}

void Children::send(proto::NodeId node, std::span<const std::byte> bytes) {
  const Child* child = find(node);
  if (child != nullptr && child->link && !child->over) child->link->send_encoded(bytes);
}

bool Children::linked(proto::NodeId node) const {
  const auto found = children_.find(node);
  return found != children_.end() && found->second.link && !found->second.over;
}

void Children::end(proto::NodeId node) {
  Child* child = find(node);
  if (child == nullptr || std::exchange(child->over, true)) return;
  child->timer.cancel();
  if (child->link) child->link->close();
  if (child->runs) {
    child->spawner->end(node);
  } else {
    children_.erase(node);
  }
}

void Children::end_all() {
  std::vector<proto::NodeId> all;
  for (const auto& [node, child] : children_) all.push_back(node);
  for (const proto::NodeId node : all) end(node);
}

std::string Children::name(proto::NodeId node) const {
  const auto found = children_.find(node);
  return found == children_.end() ? "?" : found->second.name;
}

bool Children::empty() const {
  return std::ranges::none_of(children_, [](const auto& entry) { return entry.second.runs; });
}

void Children::pause() {
  paused_ = true;
  for (auto& [node, child] : children_) {
    if (child.link) child.link->pause();
  }
}

void Children::resume() {
  paused_ = false;
  for (auto& [node, child] : children_) {
    child.monitor.reset();
    if (child.link) child.link->resume();
  }
}

}  // namespace regroup::agent
