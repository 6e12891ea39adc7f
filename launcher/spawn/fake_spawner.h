// Starts nothing: for tests of what waits for agents. Each order is up at once, unless its host was told to
// fail.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/spawn/spawner.h"

namespace regroup::launcher {

// Used by the loop's thread.
class FakeSpawner final : public Spawner {
 public:
  FakeSpawner(boost::asio::io_context& loop, SpawnEvents events) : loop_(loop), events_(std::move(events)) {}
  ~FakeSpawner() override { *alive_ = false; }

  // Orders for `host` end with `why` and are never up.
  void fail(const std::string& host, core::Status why) { failing_.insert_or_assign(host, std::move(why)); }
  // An agent that is up says a line, or ends.
  void say(core::NodeId node, std::string line) {
    later([this, node, line = std::move(line)] { events_.line(node, line); });
  }
  void finish(core::NodeId node, core::Status why) {
    if (running_.erase(node) == 0) return;
    later([this, node, why = std::move(why)] { events_.ended(node, why); });
  }

  void start(AgentOrder order) override {
    orders_.push_back(order);
    const core::NodeId node = order.node;
    if (!running_.insert(node).second) return;
    if (const auto failing = failing_.find(order.host); failing != failing_.end()) {
      return finish(node, failing->second);
    }
    later([this, node] { events_.up(node); });
  }
  void end(core::NodeId node) override { finish(node, {}); }

  [[nodiscard]] const std::vector<AgentOrder>& orders() const { return orders_; }
  [[nodiscard]] const std::set<core::NodeId>& running() const { return running_; }

 private:
  template <class Work>
  void later(Work work) {
    boost::asio::post(loop_, [alive = alive_, work = std::move(work)] {
      if (*alive) work();
    });
  }

  boost::asio::io_context& loop_;
  const SpawnEvents events_;
  std::map<std::string, core::Status> failing_;
  std::vector<AgentOrder> orders_;
  std::set<core::NodeId> running_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace regroup::launcher
