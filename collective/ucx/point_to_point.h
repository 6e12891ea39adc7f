// Point-to-point messages of one communicator: send and receive.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/ucx/engine.h"
#include "regroup/operation.h"

namespace regroup::collective::ucx {

// Numbers the messages of each pair of ranks; the two sides match messages by these numbers. Used
// by the engine's thread.
class PointToPoint {
 public:
  // `ranks[r]`: rank in the World of the communicator's rank r. `engine` and `ranks` must outlive
  // this and its messages.
  PointToPoint(Engine& engine, const CommunicatorId& communicator, const std::vector<int>& ranks)
      : engine_(engine),
        id_(communicator),
        ranks_(ranks),
        sent_(ranks.size()),
        received_(ranks.size()),
        completed_(ranks.size()) {}
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  // Describes the next message to or from rank `o.root`, for Engine::start(). `o`: a kSend or
  // kReceive that has passed Operation::check().
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
  // Numbers of messages, by rank of the peer.
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> received_;
  std::vector<std::uint64_t> completed_;  // receives that have completed
};

}  // namespace regroup::collective::ucx
