// The Messenger of one operation over a PeerMesh.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collective/local_communicator.h"
#include "collective/net/layout.h"
#include "collective/net/messenger.h"
#include "collective/net/scratch.h"
#include "collective/ucx/engine.h"

namespace regroup::collective::ucx {

// The members of a communicator.
struct MeshGroup {
  CommunicatorId communicator;
  std::vector<int> ranks;  // ranks[r]: rank in the World of the communicator's rank r
  net::Layout layout;
  std::unique_ptr<LocalCommunicator> local;  // among the ranks of this host, in the same order
};

// Serves the current operation of `engine`, which is number `number` of its communicator. All
// references must outlive it.
class UcxMessenger final : public net::Messenger {
 public:
  UcxMessenger(Engine& engine, net::Scratch& scratch, const MeshGroup& group, std::uint64_t number,
               const CollectiveSignature& signature)
      : engine_(engine), scratch_(scratch), group_(group), number_(number), signature_(signature) {}

  [[nodiscard]] net::Task send(int to, net::MessageTag tag, Input data) override;
  [[nodiscard]] net::Task receive(int from, net::MessageTag tag, Output data) override;
  [[nodiscard]] net::Task receive_up_to(std::size_t limit, int from, net::MessageTag tag,
                                        std::vector<std::byte>* data) override;
  [[nodiscard]] net::Task receive_in_place(int from, net::MessageTag tag, std::size_t bytes,
                                           net::Received* out) override;
  void release(int from, net::MessageTag tag) override { engine_.mesh().drop(key_of(from, tag)); }
  [[nodiscard]] net::Task run_locally(Operation operation) override;
  [[nodiscard]] net::Task fail(base::Status why) override;

 private:
  class Arrival;

  [[nodiscard]] MatchKey key_of(int from, net::MessageTag tag) const;
  // Moves the data of an arrived message to `data`, and acks the message.
  [[nodiscard]] net::Task take(MatchKey key, net::MessageTag tag, Output data);
  void fail_locally(const base::Status& why);

  Engine& engine_;
  net::Scratch& scratch_;
  const MeshGroup& group_;
  const std::uint64_t number_;
  const CollectiveSignature signature_;
};

}  // namespace regroup::collective::ucx
