// The Communicator over a PeerMesh: numbers the operations and passes them to the Engine as tasks
// of collective/net. Used by one thread, as is the Engine, which it keeps alive. Errors and
// blocking are those of Communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/local_communicator.h"
#include "collective/net/exchange.h"
#include "collective/net/scratch.h"
#include "collective/net/tree_sum.h"
#include "collective/tree_reducer.h"
#include "collective/ucx/engine.h"
#include "collective/ucx/messenger.h"
#include "collective/ucx/point_to_point.h"

namespace regroup::collective::ucx {

class UcxCommunicator final : public Communicator, private TreeReducer {
 public:
  // `ranks`: the members' ranks in the World; this member is ranks[rank]. `local`: a communicator
  // of those on this host, in the same order.
  [[nodiscard]] static base::Result<std::unique_ptr<Communicator>> open(
      std::shared_ptr<Engine> engine, const CommunicatorId& communicator, std::vector<int> ranks,
      int rank, std::unique_ptr<LocalCommunicator> local);
  ~UcxCommunicator() override;

  [[nodiscard]] int rank() const override { return group_.layout.rank; }
  [[nodiscard]] int size() const override { return group_.layout.size; }
  [[nodiscard]] base::Result<Request> start(const Operation& operation,
                                            base::TimePoint deadline) override;
  [[nodiscard]] TreeReducer& tree_reducer() override { return *this; }
  [[nodiscard]] base::Result<std::unique_ptr<Communicator>> split(
      int color, base::TimePoint deadline) override;
  [[nodiscard]] const Engine& engine() const { return *engine_; }

 private:
  UcxCommunicator(std::shared_ptr<Engine> engine, MeshGroup group, net::RankSums rank_sums);
  [[nodiscard]] base::Result<bool> test(std::uint64_t ticket) override {
    return engine_->test(ticket);
  }
  [[nodiscard]] base::Status wait(std::uint64_t ticket) override { return engine_->wait(ticket); }
  [[nodiscard]] base::Status reduce(std::span<const Partial> partials, std::uint32_t leaf_count,
                                    Output result, Dtype dtype, base::TimePoint deadline,
                                    const SumBlocks& blocks) override;
  [[nodiscard]] OperationDescriptor next_collective(const CollectiveSignature& signature);
  [[nodiscard]] net::Task collective(Operation o, CollectiveSignature signature,
                                     std::uint64_t number);
  [[nodiscard]] net::Task sum(const net::TreeSum& s, CollectiveSignature signature,
                              std::uint64_t number);

  const std::shared_ptr<Engine> engine_;
  const MeshGroup group_;
  const net::RankSums rank_sums_;
  net::Scratch scratch_;
  std::uint64_t number_ = 0;  // number of the last collective operation
  PointToPoint messages_;
};

}  // namespace regroup::collective::ucx
