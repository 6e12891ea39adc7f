// The Communicator over a PeerMesh. communicator.cc makes tasks of operations, reductions.cc, sums.cc and
// moves.cc hold the operations, factory.cc opens communicators. Owned and used by one thread, like the
// Engine, which it keeps alive. Errors and blocking are those of Communicator.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collective/local_communicator.h"
#include "collective/net/layout.h"
#include "collective/net/merge.h"
#include "collective/net/scratch.h"
#include "collective/ucx/engine.h"
#include "collective/ucx/exchange.h"

namespace regroup::collective {

class UcxCommunicator final : public Communicator {
 public:
  struct Group {
    CommunicatorId communicator;
    std::vector<int> ranks;  // in the World, by rank
    int rank = 0;
    std::unique_ptr<LocalCommunicator> local;  // of the ranks of this host, in the same order
  };
  [[nodiscard]] static base::Result<std::unique_ptr<Communicator>> open(std::shared_ptr<Engine> engine,
                                                                        Group group);
  ~UcxCommunicator() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] base::Result<Request> start(const Operation& operation, base::TimePoint deadline) override;
  [[nodiscard]] base::Status sum_partials(std::span<const Partial> partials, std::uint32_t leaves,
                                          Output result, Dtype dtype, base::TimePoint deadline,
                                          const SumBlocks& blocks) override;
  [[nodiscard]] base::Result<std::unique_ptr<Communicator>> split(int color,
                                                                  base::TimePoint deadline) override;
  [[nodiscard]] const Engine& engine() const { return *engine_; }

 private:
  // The plans by which one input of each rank is summed.
  struct Plans {
    Merge local;      // within this host
    Halving between;  // between hosts
    Merge whole;      // of the partial sums of all hosts
    std::vector<Nodes> by_host;
  };
  UcxCommunicator(std::shared_ptr<Engine> engine, Group group, Layout layout, Plans plans);
  [[nodiscard]] base::Result<bool> test(std::uint64_t ticket) override { return engine_->test(ticket); }
  [[nodiscard]] base::Status wait(std::uint64_t ticket) override { return engine_->wait(ticket); }

  [[nodiscard]] Task collective(Operation o, std::uint64_t number);
  [[nodiscard]] Task perform(Exchange& x, const Operation& o);
  [[nodiscard]] Task send(Operation o, std::uint64_t number);
  [[nodiscard]] Task receive(Operation o, std::uint64_t number);
  // Runs `o` among the members of this host, as a part of the current operation.
  [[nodiscard]] Task local(Operation o);
  void fail_locally(const base::Status& why);
  [[nodiscard]] Task compare_signatures();
  [[nodiscard]] Task host_barrier(Exchange& x);

  // reductions.cc, sums.cc
  struct Chunk;
  [[nodiscard]] Task reduce(Exchange& x, Operation o, int to);
  [[nodiscard]] Task reduce_via_leader(Exchange& x, Operation o, int to);
  [[nodiscard]] Task sum_at_leader(Exchange& x, Chunk& chunk, int leader);
  [[nodiscard]] std::size_t max_local_size() const;
  [[nodiscard]] std::size_t chunk_bytes(std::size_t bytes) const;
  [[nodiscard]] bool uses_leader(std::size_t bytes) const;
  [[nodiscard]] int leader_of(std::size_t host, const Operation& o) const;
  [[nodiscard]] bool is_summed_by_local(Arithmetic arithmetic) const;
  [[nodiscard]] PartialSums widened(PartialSums leaves, std::size_t count, Arithmetic arithmetic,
                                    std::vector<Scratch::Buffer>* keep);
  [[nodiscard]] Task gather_slices(Exchange& x, Chunk& chunk);
  [[nodiscard]] Task share_slices(Chunk& chunk);
  [[nodiscard]] Task between_hosts(Exchange& x, Chunk& chunk);
  [[nodiscard]] Task reduce_scatter(Exchange& x, Operation o);
  struct Sum;
  [[nodiscard]] Task sum(Sum& s, std::uint64_t number);
  using InFlight =
      std::deque<std::pair<Task, proto::Interval>>;  // pieces, and the blocks that are complete after each
  [[nodiscard]] static Task finish_oldest(Sum& s, InFlight* flight);
  [[nodiscard]] Task sum_segment(Exchange& x, Sum& s, const Halving& plan, Segment segment, InFlight* flight);
  [[nodiscard]] Task sum_piece(Exchange& x, Sum& s, const Halving& plan, Segment segment,
                               std::uint32_t index);
  struct ScatterChunk;
  [[nodiscard]] Task reduce_scatter_chunk(Exchange& x, ScatterChunk& p);
  [[nodiscard]] Task exchange_progress(Exchange& x, Sum& s, std::vector<Nodes>* by_host);

  // moves.cc
  [[nodiscard]] Task broadcast(Exchange& x, Operation o);
  [[nodiscard]] Task allgather(Exchange& x, Operation o);
  [[nodiscard]] Task gather(Exchange& x, Operation o);
  [[nodiscard]] Task scatter(Exchange& x, Operation o);
  [[nodiscard]] Task alltoall(Exchange& x, Operation o);

  struct BroadcastPiece;
  // Ranks of other hosts whose blocks one member of this host sends and receives for all members of the host.
  struct ProxiedRanks {
    std::vector<int> mine;    // in rank order
    std::size_t maximum = 0;  // number of such ranks of any member of this host
  };
  // The local rank of the member of `host` that is the proxy of `rank`, a rank of another host.
  [[nodiscard]] std::size_t proxy_for(std::size_t host, int rank) const;
  [[nodiscard]] ProxiedRanks ranks_proxied_by(std::size_t local_rank) const;
  [[nodiscard]] Output blocks_here(Output all, std::size_t block) const;
  [[nodiscard]] Task forward(Exchange& x, Segment segment, Output data, std::uint32_t index,
                             std::size_t root_host);
  [[nodiscard]] Task forward_slice(Exchange& x, BroadcastPiece& piece);
  [[nodiscard]] Task share_piece(BroadcastPiece& piece);

  // `rank` is on this host.
  [[nodiscard]] int local_rank_of(int rank) const;
  [[nodiscard]] std::size_t local_size() const { return layout_.here().size(); }

  const std::shared_ptr<Engine> engine_;
  const CommunicatorId id_;
  const std::vector<int> ranks_;
  const int rank_;
  const Layout layout_;
  const Plans plans_;
  const std::unique_ptr<LocalCommunicator> local_;
  Scratch scratch_;
  std::uint64_t number_ = 0;         // of the last collective operation
  CollectiveSignature signature_;    // of the current one
  std::vector<std::uint64_t> sent_;  // point-to-point messages, by rank
  std::vector<std::uint64_t> received_;
  std::vector<std::uint64_t> completed_;  // of these, those that have completed
};

}  // namespace regroup::collective
