// A communicator over PointToPoint. Collective operations run one after the other; messages
// concurrently with them. Every failure is final.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/net/exchange.h"
#include "collective/net/tree_sum.h"
#include "collective/p2p/inbox.h"
#include "collective/p2p/runner.h"
#include "collective/tree_reducer.h"
#include "regroup/communicator.h"

namespace regroup::collective::p2p {

class P2pCommunicator final : public Communicator, public TreeReducer {
 public:
  [[nodiscard]] static base::Result<std::unique_ptr<Communicator>> open(
      std::unique_ptr<PointToPoint> messages);
  ~P2pCommunicator() override;

  [[nodiscard]] int rank() const override { return layout_.rank; }
  [[nodiscard]] int size() const override { return layout_.size; }
  [[nodiscard]] base::Result<Request> start(const Operation& operation,
                                            base::TimePoint deadline) override;
  [[nodiscard]] TreeReducer& tree_reducer() override { return *this; }
  [[nodiscard]] base::Result<std::unique_ptr<Communicator>> split(
      int color, base::TimePoint deadline) override;
  using TreeReducer::reduce;
  [[nodiscard]] base::Status reduce(std::span<const Partial> partials, std::uint32_t leaf_count,
                                    Output result, Dtype dtype, base::TimePoint deadline,
                                    const SumBlocks& blocks) override;

 private:
  // All that were split from one: each advances the operations of all.
  using Family = std::vector<P2pCommunicator*>;
  struct Pending {
    std::uint64_t ticket = 0;
    std::uint64_t number = 0;
    CollectiveSignature signature;
    int peer = -1;  // of a message
    base::TimePoint deadline;
    base::TimePoint begun;
    std::function<net::Task()> begin;
    bool probed = false;
    std::optional<net::Task> task = std::nullopt;
  };

  P2pCommunicator(std::unique_ptr<PointToPoint> messages, net::Layout layout,
                  net::RankSums rank_sums, std::shared_ptr<Family> family);
  [[nodiscard]] static base::Result<std::unique_ptr<Communicator>> open(
      std::unique_ptr<PointToPoint> messages, std::shared_ptr<Family> family);
  [[nodiscard]] base::Result<bool> test(std::uint64_t ticket) override;
  [[nodiscard]] base::Status wait(std::uint64_t ticket) override;

  [[nodiscard]] Pending next_collective(const CollectiveSignature& signature,
                                        base::TimePoint deadline);
  [[nodiscard]] Pending next_message(const Operation& operation, base::TimePoint deadline);
  [[nodiscard]] std::uint64_t enqueue(Pending pending);
  [[nodiscard]] net::Task collective(Operation o, CollectiveSignature signature,
                                     std::uint64_t number);
  [[nodiscard]] net::Task sum(const net::TreeSum& s, CollectiveSignature signature,
                              std::uint64_t number);
  [[nodiscard]] net::Task message(Operation o, CollectiveSignature signature, std::uint64_t number);
  [[nodiscard]] bool advance_all();
  [[nodiscard]] bool advance();
  [[nodiscard]] bool retire();
  void on_header(int from, const Header& header);
  void compare(int from, const CollectiveSignature& theirs);
  void probe();
  void fail(const base::Status& why);
  void fail_all(const base::Status& why);
  void fail_at_deadline(const Pending& pending);
  void abort_if_failed();
  void say_bye();
  [[nodiscard]] Pending* find(std::uint64_t ticket);
  [[nodiscard]] bool is_done(std::uint64_t ticket);

  // What a rank has said of the collective operations that it is in.
  struct Heard {
    std::uint64_t number = 0;                            // of the newest
    bool failed = false;                                 // in an operation; it says why
    bool bye = false;                                    // it sends nothing more
    std::map<std::uint64_t, CollectiveSignature> ahead;  // of those that this rank has not begun
  };

  const std::unique_ptr<PointToPoint> messages_;
  const net::Layout layout_;
  const net::RankSums rank_sums_;
  const std::shared_ptr<Family> family_;
  net::Scratch scratch_;
  Runner runner_;
  Inbox inbox_;
  std::uint64_t next_ticket_ = 1;
  std::uint64_t number_ = 0;                    // of the newest collective operation
  std::vector<std::uint64_t> sent_, received_;  // by rank: number of the newest message
  std::vector<Heard> heard_;                    // by rank
  std::deque<Pending> queue_;                   // collective operations; the first one is running
  std::list<Pending> point_to_point_;           // all are running
  std::vector<std::uint64_t> aborted_;          // tickets
  base::Status failed_;
};

}  // namespace regroup::collective::p2p
