// Turns operations into tasks for the Engine.
#include "collective/ucx/communicator.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "collective/net/collectives.h"
#include "shmem/arena.h"

namespace regroup::collective::ucx {

using base::Result;
using base::Status;
using base::TimePoint;

UcxCommunicator::UcxCommunicator(std::shared_ptr<Engine> engine, MeshGroup group,
                                 net::RankSums rank_sums)
    : engine_(std::move(engine)),
      group_(std::move(group)),
      rank_sums_(std::move(rank_sums)),
      messages_(*engine_, group_.communicator, group_.ranks) {}

UcxCommunicator::~UcxCommunicator() { engine_->abandon(group_.communicator); }

Result<std::unique_ptr<Communicator>> UcxCommunicator::open(
    std::shared_ptr<Engine> engine, const CommunicatorId& communicator, std::vector<int> ranks,
    int rank, std::unique_ptr<LocalCommunicator> local) {
  std::vector<proto::NodeId> nodes;
  for (const int r : ranks)
    nodes.push_back(engine->mesh().world().members[static_cast<std::size_t>(r)].slot_id.node);
  MeshGroup group{communicator, std::move(ranks), net::Layout::of(nodes, rank), std::move(local)};
  REGROUP_ASSIGN_OR_RETURN(auto rank_sums, net::RankSums::of(group.layout));
  return std::unique_ptr<Communicator>(
      new UcxCommunicator(std::move(engine), std::move(group), std::move(rank_sums)));
}

OperationDescriptor UcxCommunicator::next_collective(const CollectiveSignature& signature) {
  return {.communicator = group_.communicator,
          .ranks = group_.ranks,
          .number = ++number_,
          .signature = signature};
}

Result<Request> UcxCommunicator::start(const Operation& o, TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(o.check(rank(), size()));
  OperationDescriptor operation;
  if (o.kind == Kind::kSend || o.kind == Kind::kReceive) {
    operation = messages_.next(o);
  } else {
    operation = next_collective(signature_of(o, size()));
    operation.begin = [this, o, signature = operation.signature, number = operation.number] {
      return collective(o, signature, number);
    };
  }
  REGROUP_ASSIGN_OR_RETURN(auto ticket, engine_->start(std::move(operation), deadline));
  return Request(this, ticket);
}

net::Task UcxCommunicator::collective(Operation o, CollectiveSignature signature,
                                      std::uint64_t number) {
  UcxMessenger messenger(*engine_, scratch_, group_, number, signature);
  net::Exchange x(messenger, scratch_, group_.layout, rank_sums_);
  co_await net::run_collective(x, o);
}

Status UcxCommunicator::reduce(std::span<const Partial> partials, std::uint32_t leaf_count,
                               Output result, Dtype dtype, TimePoint deadline,
                               const SumBlocks& blocks) {
  if (group_.layout.hosts.size() == 1)
    return group_.local->tree_reducer().reduce(partials, leaf_count, result, dtype, deadline,
                                               blocks);
  REGROUP_RETURN_IF_ERROR(check_partials(partials, result, dtype));
  net::TreeNodes tree_nodes;
  net::PartialSums inputs;
  for (const Partial& partial : partials) {
    tree_nodes.push_back(partial.leaves);
    inputs.push_back(partial.data.data());
  }
  REGROUP_ASSIGN_OR_RETURN(auto here, net::plan_merge(std::span(&tree_nodes, 1), leaf_count));
  const net::TreeSum s{leaf_count,
                       result,
                       net::Arithmetic::of(dtype, Op::kSum),
                       blocks,
                       engine_->mesh().world().generation,
                       std::move(here),
                       std::move(inputs)};
  OperationDescriptor operation =
      next_collective(tree_reduce_signature(dtype, leaf_count, result.size()));
  operation.begin = [this, &s, signature = operation.signature, number = operation.number] {
    return sum(s, signature, number);
  };
  auto ticket = engine_->start(std::move(operation), deadline);
  return ticket.ok() ? engine_->wait(*ticket) : ticket.status();
}

net::Task UcxCommunicator::sum(const net::TreeSum& s, CollectiveSignature signature,
                               std::uint64_t number) {
  UcxMessenger messenger(*engine_, scratch_, group_, number, signature);
  net::Exchange x(messenger, scratch_, group_.layout, rank_sums_);
  co_await Until(*engine_,
                 [&] { return shmem::all_left_before(engine_->mesh().arena(), s.generation); });
  co_await net::tree_sum(x, s);
}

Result<std::unique_ptr<Communicator>> UcxCommunicator::split(int color, TimePoint deadline) {
  struct SplitEntry {
    std::int32_t color;
    std::uint32_t group;
  };
  const SplitEntry mine{color, engine_->last_group};
  std::vector<SplitEntry> entries(group_.ranks.size());
  REGROUP_RETURN_IF_ERROR(run(Operation::allgather(std::as_bytes(std::span(&mine, 1)),
                                                   std::as_writable_bytes(std::span(entries))),
                              deadline));
  for (const SplitEntry& entry : entries)
    engine_->last_group = std::max(engine_->last_group, entry.group + 1);
  REGROUP_ASSIGN_OR_RETURN(auto local, group_.local->split_local(color, deadline));
  if (color < 0) return std::unique_ptr<Communicator>();
  CommunicatorId communicator = group_.communicator;
  communicator.group = engine_->last_group;
  std::vector<int> ranks;
  int mine_there = 0;
  for (std::size_t r = 0; r < entries.size(); ++r) {
    if (entries[r].color != color) continue;
    if (static_cast<int>(r) == rank()) mine_there = static_cast<int>(ranks.size());
    ranks.push_back(group_.ranks[r]);
  }
  return open(engine_, communicator, std::move(ranks), mine_there, std::move(local));
}

}  // namespace regroup::collective::ucx
