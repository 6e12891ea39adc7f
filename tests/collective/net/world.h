// Simulates ranks on several hosts in one thread, without a network: each rank runs its part of an
// operation as a task; a simulated Messenger passes messages and runs the operations within a host
// by their definitions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/net/exchange.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing {

class NetWorld {
 public:
  // Rank r is on host `nodes[r]`.
  explicit NetWorld(std::vector<proto::NodeId> nodes);
  ~NetWorld();
  NetWorld(const NetWorld&) = delete;
  NetWorld& operator=(const NetWorld&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(nodes_.size()); }
  // Runs `part(exchange)` of each rank until no rank can continue. Returns "" if all have ended;
  // otherwise that an operation failed, or which message a rank waits for.
  [[nodiscard]] std::string run(const std::function<net::Task(net::Exchange&, int rank)>& part);
  // The number of messages in the last run.
  [[nodiscard]] std::size_t messages() const { return messages_; }

 private:
  class Rank;
  struct State;

  const std::vector<proto::NodeId> nodes_;
  std::unique_ptr<State> state_;
  std::size_t messages_ = 0;
};

}  // namespace regroup::collective::testing
