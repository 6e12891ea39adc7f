// The tree is laid out at the start. An agent starts its children after it has said Hello. Messages
// to and from an agent below another travel in an envelope (Relayed).
#include "launcher/agent/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "launcher/agent/remote_script.h"
#include "launcher/agent/wire.h"
#include "launcher/transport/tcp.h"

namespace regroup::agent {
namespace {

constexpr std::chrono::seconds kInventoryLimit{10};

}  // namespace

Hosts::Hosts(boost::asio::io_context& loop, HostsOptions options,
             std::function<void(const std::string&)> said)
    : loop_(loop),
      options_(std::move(options)),
      said_(std::move(said)),
      batch_(loop, [this](proto::NodeId via, const Relayed& relayed) {
        children_->send(via, encode(relayed));
      }) {}

Hosts::~Hosts() = default;

base::Result<std::unique_ptr<Hosts>> Hosts::make(boost::asio::io_context& loop,
                                                 HostsOptions options,
                                                 std::function<void(const std::string&)> said) {
  std::unique_ptr<Hosts> hosts(new Hosts(loop, std::move(options), std::move(said)));
  REGROUP_RETURN_IF_ERROR(hosts->start());
  return hosts;
}

base::Status Hosts::start() {
  REGROUP_ASSIGN_OR_RETURN(auto secret, transport::JobSecret::generate());
  ChildrenOptions options;
  options.job = options_.job;
  options.build = options_.build;
  options.self = kController;
  options.secret = secret;
  options.environment = options_.environment;
  options.ssh = options_.ssh;
  options.program = options_.program;
  options.preferred = options_.preferred;
  options.wdir = options_.wdir;
  options.limit = options_.limit;
  REGROUP_ASSIGN_OR_RETURN(children_, Children::make(loop_, std::move(options), events()));
  slots_.resize(options_.hosts.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) add_slot(i);
  build_tree();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (routes_.tree().parent(id(i)) == kController) REGROUP_RETURN_IF_ERROR(start_child(i));
  }
  return {};
}

Children::Events Hosts::events() {
  Children::Events events;
  events.linked = [this](proto::NodeId child, const std::string& address) {
    if (RemoteNode* node = find(child)) node->attach(address);
  };
  events.message = [this](proto::NodeId child, const Message& message) {
    on_message(child, message);
  };
  events.silent = [this](proto::NodeId child, bool silent) { on_silent(child, silent); };
  events.line = [this](proto::NodeId child, const std::string& line) { on_line(child, line); };
  events.lost = [this](proto::NodeId child, const base::Status& why) {
    if (RemoteNode* node = find(child)) node->fail(why);
  };
  events.exited = [this] { finish_if_done(); };
  events.orphan = [this](proto::NodeId node) { return orphan(node); };
  return events;
}

void Hosts::add_slot(std::size_t index) {
  Slot& slot = slots_[index];
  if (slot.node) {
    retired_.push_back(std::move(slot.node));
    routes_.forget(ids_.id(index));
  }
  slot = {};
  const proto::NodeId id = ids_.assign(index);
  RemoteNode::Events events;
  events.send = [this, id](const Message& message) { send(id, message); };
  events.up = [this, id] { on_up(id); };
  events.ended = [this, id](const base::Status& why) { on_ended(id, why); };
  events.noticed = [this, index](const HostNotice& notice) { elastic_.noticed(index, notice); };
  events.membership = [this, id](const proto::Message& message) {
    if (!elastic_.membership) return refuse(id);  // no question was sent yet
    elastic_.membership(id, message);
  };
  slot.node = std::make_unique<RemoteNode>(loop_, name(index), options_.build, std::move(events));
}

// The first `radix` hosts are children of the controller, the next ones children of the first host,
// and so on.
void Hosts::build_tree() {
  std::vector<proto::NodeId> row;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const bool here = options_.hosts[i].here;
    const auto parent = here ? std::nullopt : parent_in_row(row.size(), options_.radix);
    if (parent)
      routes_.add_below(id(i), row[*parent]);
    else
      routes_.add_child(id(i));
    if (!here) row.push_back(id(i));
  }
}

base::Status Hosts::start_child(std::size_t index) {
  const HostsOptions::Host& host = options_.hosts[index];
  const bool forked = host.here || (options_.ssh.empty() && host.access.before.empty());
  return children_->start({id(index), host.name, host.user, forked, host.access});
}

// The routes are sent before StartAgents, so that the agents on the path know a child before it can
// send a message.
void Hosts::start_below(proto::NodeId node) {
  const std::vector<proto::NodeId> children = routes_.tree().children(node);
  const auto index = index_of(node);
  if (children.empty() || !index) return;
  proto::NodeId via = node;
  for (auto above = routes_.agent_above(via); above; above = routes_.agent_above(via)) {
    send(*above, AddRoute{via, children});
    via = *above;
  }
  StartAgents start;
  start.from = name(*index);
  start.ssh = options_.ssh;
  start.program = options_.program;
  start.preferred = options_.preferred;
  start.wdir = options_.wdir;
  start.limit_ms = static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.limit).count());
  for (const proto::NodeId child : children) {
    const HostsOptions::Host& host = options_.hosts[*index_of(child)];
    start.children.push_back({child, host.name, host.user});
  }
  send(node, start);
}

std::vector<base::Status> Hosts::bring_up(const BringUp& how) {
  const auto starting = [this] {
    return std::ranges::any_of(slots_, [](const Slot& slot) {
      return slot.node->state() == RemoteNode::State::kStarting;
    });
  };
  std::size_t levels = 1;
  for (std::size_t i = 0; i < slots_.size(); ++i)
    levels = std::max(levels, routes_.tree().depth(id(i)).value_or(0));
  const bool by_allocator = std::ranges::any_of(
      options_.hosts, [](const auto& host) { return !host.access.before.empty(); });
  bring_up_.begin(how, options_.limit,
                  longest_bring_up(slots_.size(), levels, options_.limit, by_allocator),
                  std::chrono::steady_clock::now());
  while (starting()) {
    const auto now = std::chrono::steady_clock::now();
    if (bring_up_.is_over(now)) break;
    if (loop_.run_one_until(bring_up_.next_check(now)) > 0 || !bring_up_.has_passed(now)) continue;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!is_coming(i)) continue;
      slots_[i].node->fail(base::deadline_exceeded(
          fmt::format("host {}: its agent did not start in time", name(i))));
    }
  }
  return bring_up_.failures();
}

// The shared state outlives this call, so that a late reply finds it.
std::vector<base::Result<std::string>> Hosts::query_inventory(
    const std::vector<InventoryRequest>& orders) {
  struct Answers {
    std::vector<std::optional<base::Result<std::string>>> said;
    std::size_t open = 0;
  };
  const auto answers = std::make_shared<Answers>();
  answers->said.resize(slots_.size());
  answers->open = slots_.size();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    query_inventory(i, orders.at(i), [answers, i](base::Result<std::string> answer) {
      answers->said[i] = std::move(answer);
      --answers->open;
    });
  }
  const auto deadline = std::chrono::steady_clock::now() + kInventoryLimit;
  while (answers->open > 0 && loop_.run_one_until(deadline) > 0) {
  }
  std::vector<base::Result<std::string>> out;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    auto& said = answers->said[i];
    if (said) out.push_back(std::move(*said));
    if (!said)
      out.emplace_back(base::deadline_exceeded(
          fmt::format("host {}: no host inventory received within 10 s", name(i))));
  }
  return out;
}

void Hosts::bring_back(std::size_t index) {
  if (finished_ || slots_.at(index).node->state() != RemoteNode::State::kEnded) return;
  std::erase_if(retired_, [](const auto& node) { return node->drained(); });
  add_slot(index);
  routes_.add_child(id(index));
  if (const base::Status status = start_child(index); !status.ok())
    slots_[index].node->fail(status);
}

std::size_t Hosts::add(HostsOptions::Host host) {
  const std::size_t index = slots_.size();
  options_.hosts.push_back(std::move(host));
  slots_.emplace_back();
  add_slot(index);
  routes_.add_child(id(index));
  if (const base::Status status = start_child(index); !status.ok())
    slots_[index].node->fail(status);
  return index;
}

void Hosts::set_up(std::size_t index, const Setup& setup, const process::App& app) {
  RemoteNode& node = *slots_.at(index).node;
  Setup own = setup;
  if (own.elastic && routes_.has_session(id(index)))
    own.elastic->controller = children_->endpoints();
  node.set_up(own);
  slots_[index].set_up = true;
  node.serve(static_cast<std::uint32_t>(index) + 1, served_->events, *served_->out, *served_->err,
             space_);
  node.add_app(0, app);
}

void Hosts::give_up(proto::NodeId node, const base::Status& why) {
  if (const auto index = index_of(node)) slots_[*index].node->fail(why);
}

void Hosts::tell_membership(proto::NodeId node, const proto::Message& message) {
  if (const auto index = index_of(node)) slots_[*index].node->tell_membership(message);
}

void Hosts::tell_membership(const proto::Message& message) {
  const Message said = Membership{message};
  const auto bytes = std::make_shared<const std::vector<std::byte>>(encode(said));
  std::vector<proto::NodeId> all, silent;
  std::vector<std::uint64_t> numbers;
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    if (!is_up(index) || (elastic_.came && !slots_[index].set_up))
      continue;  // it must get Setup first
    const auto number = routes_.number(id(index), bytes, wants_answer(said));
    if (!number) {
      silent.push_back(id(index));
      continue;
    }
    all.push_back(id(index));
    numbers.push_back(*number);
  }
  batch_.flush();  // earlier messages go first
  for (const Frame& frame : routes_.down(all, *bytes, wants_answer(said), numbers))
    children_->send(frame.child, *frame.bytes);
  for (const proto::NodeId node : silent)
    refuse(node, "does not acknowledge messages");  // last, since this may send messages
}

std::string Hosts::own_address() const {
  const auto endpoints = transport::own_endpoints(0);
  return endpoints.ok() && !endpoints->empty() ? endpoints->front().address().to_string()
                                               : "127.0.0.1";
}

base::Status Hosts::set_up(const std::vector<Setup>& setups, bool here) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (setups.at(i).stdin_to.to != spec::StdinRequest::To::kNone) readers_.push_back(i);
    slots_[i].node->set_up(setups[i]);
  }
  return readers_.empty() ? base::Status() : input_.open(loop_, here);
}

void Hosts::serve(NodeEvents events, Lost lost, process::Sink& out, process::Sink& err) {
  bring_up_.end();
  served_ = ServeArguments{std::move(events), std::move(lost), &out, &err};
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!elastic_.came)
      slots_[i].node->serve(static_cast<std::uint32_t>(i) + 1, served_->events, out, err, space_);
  }
  for (const std::size_t i : readers_) input_.add(slots_[i].node->open_input());
  input_.start();
}

void Hosts::signal_all(int signal) {
  for (const Slot& slot : slots_) slot.node->signal_all(signal);
}

std::size_t Hosts::running() const {
  std::size_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.node->running();
  return sum;
}

void Hosts::finish(std::function<void()> then) {
  finished_ = std::move(then);
  input_.stop();
  const auto finish = [this](RemoteNode& node) {
    node.on_drained([this] { finish_if_done(); });
    node.finish();
  };
  for (const Slot& slot : slots_) finish(*slot.node);
  for (const auto& node : retired_) finish(*node);
  finish_if_done();
}

void Hosts::finish_if_done() {
  if (!finished_ || !children_->empty()) return;
  const bool all =
      std::ranges::all_of(slots_, [](const Slot& slot) { return slot.node->drained(); }) &&
      std::ranges::all_of(retired_, [](const auto& node) { return node->drained(); });
  if (all) std::exchange(finished_, nullptr)();
}

}  // namespace regroup::agent
