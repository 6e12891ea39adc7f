// Point-to-point messages of one communicator: send and receive.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/ucx/engine.h"
#include "regroup/operation.h"

namespace regroup::collective::ucx {

// Counts the messages of each pair, by which the two sides match them. Owned by one thread, that of
// the engine. Both arguments of the constructor must outlive it and its messages.
class PointToPoint {
 public:
  // `ranks`: in the World, by rank.
  PointToPoint(Engine& engine, const CommunicatorId& communicator, const std::vector<int>& ranks)
      : engine_(engine),
        id_(communicator),
        ranks_(ranks),
        sent_(ranks.size()),
        received_(ranks.size()),
        completed_(ranks.size()) {}
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  // The next message to or from rank `o.root`, for Engine::start(). `o`: a kSend or kReceive,
  // checked.
  [[nodiscard]] OperationDescriptor next(const Operation& o);

 private:
  [[nodiscard]] net::Task send(Operation o, std::uint64_t number);
  [[nodiscard]] net::Task receive(Operation o, std::uint64_t number);
  [[nodiscard]] CollectiveSignature signature_of_message(const Operation& o) const {
    return signature_of(o, static_cast<int>(ranks_.size()));
  }

  Engine& engine_;
  const CommunicatorId id_;
  const std::vector<int>& ranks_;
  std::vector<std::uint64_t> sent_;  // by rank, as are these:
  std::vector<std::uint64_t> received_;
  std::vector<std::uint64_t> completed_;  // of the received ones, those that have completed
};

}  // namespace regroup::collective::ucx
