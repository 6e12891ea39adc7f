// The messages of one operation of one communicator, and the algorithms between hosts that are made of them.
// Each function returns a task that ends when its part is done; tasks do not fail (task.h). Ranks are those
// of the communicator. Used by the thread of the engine.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/net/layout.h"
#include "collective/net/merge.h"
#include "collective/net/scratch.h"
#include "collective/ucx/engine.h"

namespace regroup::collective {

// Distinguishes the messages between two ranks in one operation.
struct MessageTag {
  enum Phase : std::uint8_t { kHalving, kExtra = 64, kResult, kBlock, kNodes, kBarrier, kDoubling = 128 };

  // The message needs an ack of its own. A rank may die right after its operation returns, and its last
  // messages with it. So the sender of a block waits for the ack. Other messages need none: by the time that
  // a rank returns, it has read all that its partner sends it in the operation, and the kernel delivers its
  // own last messages, because nothing is unread. A later header acks them (PeerMesh::expect_ack).
  [[nodiscard]] bool needs_ack() const { return phase == kBlock || phase == kNodes; }

  std::uint8_t phase = kBlock;  // kHalving or kDoubling + step
  std::uint32_t chunk = 0;      // below 2^20
  std::uint32_t segment = 0;    // below 2^20
  std::uint32_t node = 0;       // below 2^16

  [[nodiscard]] std::uint64_t pack() const {
    return static_cast<std::uint64_t>(phase) << 56 | static_cast<std::uint64_t>(chunk) << 36 |
           static_cast<std::uint64_t>(segment) << 16 | node;
  }
};

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

// Partial sums over a range of elements, one for each node of a list: the address of the first element of
// each.
using PartialSums = std::vector<const std::byte*>;

class Exchange {
 public:
  // `ranks`: in the World, by rank in the communicator. All references must outlive it.
  Exchange(Engine& engine, Scratch& scratch, const Layout& layout, const std::vector<int>& ranks,
           CommunicatorId communicator, std::uint64_t number, CollectiveSignature signature)
      : engine_(engine),
        scratch_(scratch),
        layout_(layout),
        ranks_(ranks),
        id_(communicator),
        number_(number),
        signature_(signature) {}

  // Ends when `data` may change; for a tag that needs an ack, when the receiver has the data.
  [[nodiscard]] Task send(int to, MessageTag tag, Input data);
  // Receives exactly data.size() bytes.
  [[nodiscard]] Task receive(int from, MessageTag tag, Output data);
  // Receives up to `limit` bytes, to which `data` is resized.
  [[nodiscard]] Task receive(int from, MessageTag tag, std::vector<std::byte>* data, std::size_t limit);
  // Ends when every host has called it; the first member of each host does.
  [[nodiscard]] Task barrier_between_hosts();
  // Reduces the elements of a segment over all hosts, and writes the result in the stored type to `out` of
  // its owner on each host, or only on host `to` (-1: all). `held`: the partial sums of this host that `plan`
  // expects, in the work type. `out` may be the memory of `held` if each element stays in its place.
  [[nodiscard]] Task reduce(Segment segment, const Halving& plan, PartialSums held, Arithmetic arithmetic,
                            std::byte* out, std::uint32_t chunk, int to = -1);

  // Runs `merge` over `count` elements of `inputs`; `keep` owns the memory of new partial sums.
  [[nodiscard]] PartialSums merged(const Merge& merge, const PartialSums& inputs, std::size_t count,
                                   Arithmetic arithmetic, std::vector<Scratch::Buffer>* keep);
  // Folds the inputs of the only output of `whole` into `out`, in the stored type.
  void write_result(const Merge& whole, const PartialSums& inputs, std::size_t count, Arithmetic arithmetic,
                    std::byte* out);

 private:
  class Arrival;
  struct Reduction;  // the state of one reduce()

  [[nodiscard]] MatchKey key_of(int from, MessageTag tag) const;
  // Sends without waiting for an ack. Ends when `data` may change.
  [[nodiscard]] Task post(int to, MessageTag tag, Input data);
  [[nodiscard]] Task await_ack(int to, MessageTag tag);
  [[nodiscard]] Task send_ack(MatchKey key);
  // Moves the data of a message that has arrived.
  [[nodiscard]] Task take(MatchKey key, MessageTag tag, Output data);
  [[nodiscard]] Task receive_nodes(Reduction& r, std::size_t host, MessageTag tag, std::size_t nodes);
  [[nodiscard]] bool uses_doubling(const Reduction& r) const;
  [[nodiscard]] Task reduce_by_doubling(Reduction& r);
  [[nodiscard]] Task reduce_by_halving(Reduction& r);
  [[nodiscard]] Task allgather_results(Reduction& r);
  [[nodiscard]] Task receive_results(Reduction& r);
  [[nodiscard]] Task delegate_to_base(Reduction& r);

  Engine& engine_;
  Scratch& scratch_;
  const Layout& layout_;
  const std::vector<int>& ranks_;
  const CommunicatorId id_;
  const std::uint64_t number_;
  const CollectiveSignature signature_;
};

// Awaits a condition that involves rank `peer` of the World (-1: only members of this host).
template <class Condition>
class Until final : public Waiter {
 public:
  Until(Engine& engine, Condition condition, int peer = -1)
      : Waiter(engine, peer), condition_(std::move(condition)) {}
  [[nodiscard]] bool ready() override { return condition_(); }

 private:
  Condition condition_;
};

}  // namespace regroup::collective
