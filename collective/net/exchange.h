// The algorithms of one operation between hosts. Each function returns a task that ends when this
// rank's part is done; tasks do not fail (task.h). Ranks are those of the communicator. Used by one
// thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "collective/net/layout.h"
#include "collective/net/merge.h"
#include "collective/net/messenger.h"
#include "collective/net/scratch.h"

namespace regroup::collective::net {

// How elements are stored and summed. Partial sums of 16-bit floats are float32.
struct Arithmetic {
  Dtype stored;
  Op op;
  Dtype work;
  Op partial;  // op without its final step (the division of an average)

  [[nodiscard]] static Arithmetic of(Dtype dtype, Op op);
  [[nodiscard]] std::size_t size() const { return size_of(stored); }
  [[nodiscard]] std::size_t work_size() const { return size_of(work); }
};

// For each tree node of a list, the address of its partial sums of a range of elements.
using PartialSums = std::vector<const std::byte*>;

// How to sum the inputs of all ranks, where each rank is one leaf.
struct RankSums {
  Merge local;      // merges the inputs of this host's ranks
  Halving between;  // the steps between hosts
  Merge whole;      // merges the partial sums of all hosts
  std::vector<TreeNodes> by_host;

  [[nodiscard]] static base::Result<RankSums> of(const Layout& layout);
};

class Exchange {
 public:
  // All arguments must outlive the Exchange.
  Exchange(Messenger& messenger, Scratch& scratch, const Layout& layout, const RankSums& rank_sums)
      : messenger_(messenger), scratch_(scratch), layout_(layout), rank_sums_(rank_sums) {}

  [[nodiscard]] Messenger& messenger() const { return messenger_; }
  [[nodiscard]] Scratch& scratch() const { return scratch_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const RankSums& rank_sums() const { return rank_sums_; }

  // As the functions of Messenger.
  [[nodiscard]] Task send(int to, MessageTag tag, Input data) {
    return messenger_.send(to, tag, data);
  }
  [[nodiscard]] Task receive(int from, MessageTag tag, Output data) {
    return messenger_.receive(from, tag, data);
  }
  [[nodiscard]] Task run_locally(const Operation& operation) {
    return messenger_.run_locally(operation);
  }

  // A barrier between hosts, called by the first rank of each host.
  [[nodiscard]] Task barrier_between_hosts();
  // Reduces the elements of a segment over all hosts. The owners of the segment call it; each on
  // every host, or only that on host `to` if it is not -1, receives the result in the stored type
  // in `out`. `held`: this host's partial sums, as `plan` expects them, in the work type. `out` may
  // be the memory of `held` if each element has the same place in both.
  [[nodiscard]] Task reduce(Segment segment, const Halving& plan, PartialSums held,
                            Arithmetic arithmetic, std::byte* out, std::uint32_t chunk,
                            int to = -1);

  // Converts leaves, `count` elements each, to the work type; `keep` receives the new memory.
  [[nodiscard]] PartialSums widened(PartialSums leaves, std::size_t count, Arithmetic arithmetic,
                                    std::vector<Scratch::Buffer>* keep);
  // Runs `merge` over `count` elements of `inputs`; `keep` receives the memory of new partial sums.
  [[nodiscard]] PartialSums merged(const Merge& merge, const PartialSums& inputs, std::size_t count,
                                   Arithmetic arithmetic, std::vector<Scratch::Buffer>* keep);
  // Folds the inputs of the only output of `whole` into `out`, in the stored type.
  void write_result(const Merge& whole, const PartialSums& inputs, std::size_t count,
                    Arithmetic arithmetic, std::byte* out);

 private:
  struct Reduction;  // the state of one reduce()

  [[nodiscard]] Task receive_tree_nodes(Reduction& r, std::size_t host, MessageTag tag,
                                        std::size_t nodes);
  [[nodiscard]] bool uses_doubling(const Reduction& r) const;
  [[nodiscard]] Task reduce_by_doubling(Reduction& r);
  [[nodiscard]] Task reduce_by_halving(Reduction& r);
  [[nodiscard]] Task allgather_results(Reduction& r);
  [[nodiscard]] Task receive_results(Reduction& r);
  [[nodiscard]] Task delegate_to_base(Reduction& r);
  void release_borrowed(Reduction& r);

  Messenger& messenger_;
  Scratch& scratch_;
  const Layout& layout_;
  const RankSums& rank_sums_;
};

}  // namespace regroup::collective::net
