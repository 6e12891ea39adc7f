// The algorithms between hosts of one operation of one communicator. Each function returns a task
// that ends when its part is done; tasks do not fail (task.h). Ranks are those of the communicator.
// Used by one thread.
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

// Partial sums over a range of elements, one for each node of a list: the address of the first
// element of each.
using PartialSums = std::vector<const std::byte*>;

// The plans by which one input of each rank is summed.
struct RankSums {
  Merge local;      // within this host
  Halving between;  // between hosts
  Merge whole;      // of the partial sums of all hosts
  std::vector<Nodes> by_host;

  [[nodiscard]] static base::Result<RankSums> of(const Layout& layout);
};

class Exchange {
 public:
  // All must outlive it.
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

  // Ends when every host has called it; the first member of each host does.
  [[nodiscard]] Task barrier_between_hosts();
  // Reduces the elements of a segment over all hosts, and writes the result in the stored type to
  // `out` of its owner on each host, or only on host `to` (-1: all). `held`: the partial sums of
  // this host that `plan` expects, in the work type. `out` may be the memory of `held` if each
  // element stays in its place.
  [[nodiscard]] Task reduce(Segment segment, const Halving& plan, PartialSums held,
                            Arithmetic arithmetic, std::byte* out, std::uint32_t chunk,
                            int to = -1);

  // Converts leaves, `count` elements each, to the work type; `keep` owns the memory of converted
  // ones.
  [[nodiscard]] PartialSums widened(PartialSums leaves, std::size_t count, Arithmetic arithmetic,
                                    std::vector<Scratch::Buffer>* keep);
  // Runs `merge` over `count` elements of `inputs`; `keep` owns the memory of new partial sums.
  [[nodiscard]] PartialSums merged(const Merge& merge, const PartialSums& inputs, std::size_t count,
                                   Arithmetic arithmetic, std::vector<Scratch::Buffer>* keep);
  // Folds the inputs of the only output of `whole` into `out`, in the stored type.
  void write_result(const Merge& whole, const PartialSums& inputs, std::size_t count,
                    Arithmetic arithmetic, std::byte* out);

 private:
  struct Reduction;  // the state of one reduce()

  [[nodiscard]] Task receive_nodes(Reduction& r, std::size_t host, MessageTag tag,
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
