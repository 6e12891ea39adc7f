// A Spawner for tests that starts nothing. Each order is up at its turn, unless the test has set
// another outcome for its host.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/agent/spawner.h"

namespace regroup::agent {

struct FakeSpawnerOptions {
  std::size_t parallel = 32;                       // started at a time
  base::Duration limit = std::chrono::seconds(5);  // limit until `up`
  base::Duration grace = std::chrono::seconds(2);  // from end() until an agent is given up
};

// Used by the loop's thread.
class FakeSpawner final : public Spawner {
 public:
  FakeSpawner(boost::asio::io_context& loop, SpawnEvents events, FakeSpawnerOptions options = {})
      : loop_(loop), events_(std::move(events)), options_(options) {}
  ~FakeSpawner() override { *alive_ = false; }

  // Outcomes of orders for `host`: they end with `why` before they are up, are up later, leave with
  // `why` once they are up, or do not leave when asked to. An order that is later than the limit is
  // never up.
  void fail(const std::string& host, base::Status why) { hosts_[host].fails = std::move(why); }
  void delay(const std::string& host, base::Duration by) { hosts_[host].delay = by; }
  void leave(const std::string& host, base::Status why) { hosts_[host].leaves = std::move(why); }
  void stay(const std::string& host) { hosts_[host].stays = true; }

  // An agent that is up prints a line, or ends.
  void say(proto::NodeId node, std::string line) {
    later([this, node, line = std::move(line)] {
      if (is_up(node)) events_.line(node, line);
    });
  }
  void finish(proto::NodeId node, base::Status why) {
    later([this, node, why = std::move(why)] { report(node, why); });
  }

  void start(AgentOrder order) override {
    const proto::NodeId node = order.node;
    if (!agents_.try_emplace(node, loop_, order.host).second) return;
    orders_.push_back(std::move(order));
    waiting_.push_back(node);
    later([this] { fill(); });
  }
  void end(proto::NodeId node) override {
    const auto at = agents_.find(node);
    if (at == agents_.end()) return;
    Agent& agent = at->second;
    if (std::erase(waiting_, node) > 0)
      return finish(node,
                    {base::Code::kUnavailable, agent.host + ": not started, since the job ends"});
    if (!hosts_[agent.host].stays) return finish(node, {});
    after(node, options_.grace,
          {base::Code::kPeerLost, agent.host + ": the agent did not exit in time"});
  }

  // All orders, in the order of arrival.
  [[nodiscard]] const std::vector<AgentOrder>& orders() const { return orders_; }
  [[nodiscard]] bool is_up(proto::NodeId node) const {
    return agents_.contains(node) && agents_.at(node).up;
  }

 private:
  struct Host {
    // ok: not set.
    base::Status fails;
    base::Status leaves;
    base::Duration delay{};
    bool stays = false;
  };
  struct Agent {
    Agent(boost::asio::io_context& loop, std::string h) : host(std::move(h)), timer(loop) {}
    std::string host;
    boost::asio::steady_timer timer;
    bool begun = false;
    bool up = false;
  };

  void fill() {
    const auto alive = alive_;  // a handler may destroy this object
    while (*alive && on_their_way_ < options_.parallel && !waiting_.empty()) {
      const proto::NodeId node = waiting_.front();
      waiting_.pop_front();
      ++on_their_way_;
      Agent& agent = agents_.at(node);
      const Host& host = hosts_[agent.host];
      agent.begun = true;
      if (!host.fails.ok()) {
        finish(node, host.fails);
      } else if (host.delay < options_.limit) {
        after(node, host.delay, {});
      } else {
        after(node, options_.limit, base::deadline_exceeded(agent.host + ": no answer"));
      }
      if (host.fails.ok() && events_.begun) events_.begun(node);
    }
  }
  // The agent is up or has ended.
  void after(proto::NodeId node, base::Duration wait, base::Status why) {
    auto& timer = agents_.at(node).timer;
    timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(wait));
    timer.async_wait(
        [this, alive = alive_, node, why = std::move(why)](const boost::system::error_code& error) {
          if (error || !*alive || !agents_.contains(node)) return;
          why.ok() ? rise(node) : report(node, why);
        });
  }
  void rise(proto::NodeId node) {
    Agent& agent = agents_.at(node);
    agent.up = true;
    --on_their_way_;
    if (const base::Status& why = hosts_[agent.host].leaves; !why.ok()) finish(node, why);
    const auto alive = alive_;
    events_.up(node);
    if (*alive) fill();
  }
  void report(proto::NodeId node, const base::Status& why) {
    const auto agent = agents_.extract(node);
    if (agent.empty()) return;
    if (agent.mapped().begun && !agent.mapped().up) --on_their_way_;
    const auto alive = alive_;
    events_.ended(node, why);
    if (*alive) fill();
  }
  template <class Work>
  void later(Work work) {
    boost::asio::post(loop_, [alive = alive_, work = std::move(work)] {
      if (*alive) work();
    });
  }

  boost::asio::io_context& loop_;
  const SpawnEvents events_;
  const FakeSpawnerOptions options_;
  std::vector<AgentOrder> orders_;
  std::map<std::string, Host> hosts_;
  std::map<proto::NodeId, Agent> agents_;  // agents that have not ended
  std::deque<proto::NodeId> waiting_;
  std::size_t on_their_way_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace regroup::agent
