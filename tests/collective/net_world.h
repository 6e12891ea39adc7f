// Ranks on several hosts in one thread, without a network: each rank runs its part of an operation
// as a task, and a Messenger of this file passes messages and runs the local operations by their
// definitions.
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
  // Runs `part(exchange)` of each rank until nothing moves any more. Returns why it did not end: an
  // operation failed, or a rank waits for what nobody sends; empty if all ended.
  [[nodiscard]] std::string run(const std::function<net::Task(net::Exchange&, int rank)>& part);
  // Of the last run.
  [[nodiscard]] std::size_t messages() const { return messages_; }

 private:
  class Rank;
  struct State;

  const std::vector<proto::NodeId> nodes_;
  std::unique_ptr<State> state_;
  std::size_t messages_ = 0;
};

}  // namespace regroup::collective::testing
