// At most kParallel orders are outstanding, so that the socket's buffer has room for each of them.
#include "launcher/lease/leased_host_spawner.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <vector>

#include "launcher/process/due.h"

namespace regroup::lease {
namespace {

constexpr std::size_t kParallel = 16;
// Longer than the limits of `regroup join` itself, so that its reason is reported first.
constexpr std::chrono::seconds kUp{25}, kLeave{5};

}  // namespace

LeasedHostSpawner::LeasedHostSpawner(boost::asio::io_context& loop,
                                     std::shared_ptr<const transport::JobSecret> secret,
                                     agent::SpawnEvents events, std::shared_ptr<JoinerLink> joiner)
    : loop_(loop),
      secret_(std::move(secret)),
      events_(std::move(events)),
      joiner_(std::move(joiner)) {
  joiner_->heard = [this](const AgentNews& news) { heard(news); };
  // When the joiner ends, the agents that it has started end too.
  joiner_->gone = [this] {
    std::vector<proto::NodeId> all;
    for (const auto& [node, agent] : agents_) all.push_back(node);
    for (const proto::NodeId node : all) report_later(node, {});
  };
}

LeasedHostSpawner::~LeasedHostSpawner() {
  *alive_ = false;
  joiner_->heard = {};
  joiner_->gone = {};
}

void LeasedHostSpawner::start(agent::AgentOrder order) {
  const proto::NodeId node = order.node;
  if (!agents_.try_emplace(node, loop_, std::move(order)).second) return;  // one order for each
  waiting_.push_back(node);
  boost::asio::post(loop_, [this, alive = alive_] {
    if (*alive) fill();
  });
}

void LeasedHostSpawner::fill() {
  while (on_their_way_ < kParallel && !waiting_.empty()) {
    const auto agent = agents_.find(waiting_.front());
    waiting_.pop_front();
    if (agent != agents_.end()) send(agent->second);
  }
}

void LeasedHostSpawner::send(Agent& agent) {
  const proto::NodeId node = agent.order.node;
  agent.sent = true;
  ++on_their_way_;
  const bool first = !secret_sent_;
  secret_sent_ = joiner_->send && joiner_->send(to_line(AgentStart{agent.order, first}),
                                                first ? secret_.get() : nullptr);
  if (!secret_sent_) {
    return report_later(
        node, {base::Code::kUnavailable,
               fmt::format("{}: no connection to the `regroup join` that starts agents there",
                           agent.order.host)});
  }
  wait(node, kUp,
       base::deadline_exceeded(
           fmt::format("{}: its `regroup join` did not report the start of an agent within {} s",
                       agent.order.host, kUp.count())));
}

void LeasedHostSpawner::wait(proto::NodeId node, base::Duration limit, const base::Status& late) {
  auto& timer = agents_.at(node).timer;
  timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit));
  timer.async_wait([this, node, late, alive = alive_](const boost::system::error_code& error) {
    if (error || !*alive) return;
    const auto agent = agents_.find(node);
    if (agent != agents_.end() && process::is_due(agent->second.timer)) report(node, late);
  });
}

void LeasedHostSpawner::heard(const AgentNews& news) {
  const auto agent = agents_.find(news.node);
  if (agent == agents_.end() || !agent->second.sent) return;
  if (news.what == AgentNews::What::kEnded) return report(news.node, news.why);
  if (news.what == AgentNews::What::kLine) {
    if (agent->second.up && events_.line) events_.line(news.node, news.line);
    return;
  }
  if (std::exchange(agent->second.up, true)) return;
  if (!agent->second.ending) process::call_off(agent->second.timer);
  --on_their_way_;
  const auto alive = alive_;  // the handler may destroy this object
  if (events_.up) events_.up(news.node);
  if (*alive) fill();
}

void LeasedHostSpawner::end(proto::NodeId node) {
  const auto found = agents_.find(node);
  if (found == agents_.end()) return;
  const bool sent =
      found->second.sent && joiner_->send && joiner_->send(to_line(AgentEnd{node}), nullptr);
  std::erase(waiting_, node);
  if (!sent) return report_later(node, {});
  found->second.ending = true;
  wait(node, kLeave,
       base::deadline_exceeded(
           fmt::format("{}: its agent did not exit in time", found->second.order.host)));
}

void LeasedHostSpawner::report_later(proto::NodeId node, base::Status why) {
  boost::asio::post(loop_, [this, alive = alive_, node, why = std::move(why)] {
    if (*alive) report(node, why);
  });
}

void LeasedHostSpawner::report(proto::NodeId node, const base::Status& why) {
  const auto alive = alive_;
  const auto agent = agents_.extract(node);
  if (agent.empty()) return;
  if (agent.mapped().sent && !agent.mapped().up) --on_their_way_;
  if (events_.ended) events_.ended(node, why);
  if (*alive) fill();
}

}  // namespace regroup::lease
