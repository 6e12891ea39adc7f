// Messages of one operation of one communicator, and what hosts do with each other by them. Tasks: each ends
// when its part is done, and none of them fails (task.h). Numbers of ranks are the communicator's.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/ucx/engine.h"
#include "collective/ucx/layout.h"
#include "collective/ucx/merge.h"
#include "collective/ucx/scratch.h"

namespace regroup::collective {

// Which of the messages between two ranks.
struct Piece {
  enum Phase : std::uint8_t { kHalving, kExtra = 64, kResult, kBlock, kNodes, kBarrier, kDoubling = 128 };

  // Who comes back from an operation may die, and what it last said with it. Of a block it waits until that
  // is there. Of all else it has read by then what the other sends it in the operation, and with nothing
  // unread its messages come through even so; thanks for them come with a later message
  // (PeerMesh::expect_ack).
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
  Op partial;  // op without what is done once at the end

  [[nodiscard]] static Arithmetic of(Dtype dtype, Op op);
  [[nodiscard]] std::size_t size() const { return size_of(stored); }
  [[nodiscard]] std::size_t work_size() const { return size_of(work); }
};

// Partial sums over some elements, one for each of a list of nodes: where the first element of each lies.
using PartialSums = std::vector<const std::byte*>;

class Exchange {
 public:
  // `ranks` are the communicator's in the World. All outlive it.
  Exchange(Engine& engine, Scratch& scratch, const Layout& layout, const std::vector<int>& ranks,
           CommunicatorId communicator, std::uint64_t number, CollectiveSignature call)
      : engine_(engine),
        scratch_(scratch),
        layout_(layout),
        ranks_(ranks),
        id_(communicator),
        number_(number),
        call_(call) {}

  // Ends when `data` may change; of blocks, when the other is sure to have them.
  [[nodiscard]] Task send(int to, Piece piece, Input data);
  // Of exactly that many bytes.
  [[nodiscard]] Task receive(int from, Piece piece, Output data);
  // Of any number of bytes up to `most`.
  [[nodiscard]] Task receive(int from, Piece piece, std::vector<std::byte>* data, std::size_t most);
  // Until every host has come here; called by the first member of each.
  [[nodiscard]] Task barrier_between_hosts();
  // The whole sum of the elements of a segment, in stored form, to `out` of its owners, or only of that on
  // host `to` (-1: all). `held` are the partial sums of this host as `plan` wants them, in work form. Where
  // `out` is the memory of `held`, it is so element by element.
  [[nodiscard]] Task reduce(Segment segment, const Halving& plan, PartialSums held, Arithmetic arithmetic,
                            std::byte* out, std::uint32_t chunk, int to = -1);

  // Runs `merge` over `count` elements of `inputs`; what is new lies in memory that `keep` holds.
  [[nodiscard]] PartialSums merged(const Merge& merge, const PartialSums& inputs, std::size_t count,
                                   Arithmetic arithmetic, std::vector<Scratch::Buffer>* keep);
  // The whole sum, in stored form, to `out`, from the inputs of its only output.
  void write_result(const Merge& whole, const PartialSums& inputs, std::size_t count, Arithmetic arithmetic,
                    std::byte* out);

 private:
  class Arrival;
  struct Reduction;  // one under way

  [[nodiscard]] MatchKey key_of(int from, Piece piece) const;
  // Ends when `data` may change.
  [[nodiscard]] Task post(int to, Piece piece, Input data);
  [[nodiscard]] Task await_ack(int to, Piece piece);
  [[nodiscard]] Task send_ack(MatchKey key);
  // A message that is there.
  [[nodiscard]] Task take(MatchKey key, Piece piece, Output data);
  [[nodiscard]] Task receive_nodes(Reduction& r, std::size_t host, Piece piece, std::size_t nodes);
  [[nodiscard]] bool uses_doubling(const Reduction& r) const;
  [[nodiscard]] Task reduce_by_doubling(Reduction& r);
  [[nodiscard]] Task reduce_by_halving(Reduction& r);
  [[nodiscard]] Task allgather_results(Reduction& r);
  [[nodiscard]] Task collect(Reduction& r);
  [[nodiscard]] Task delegate_to_base(Reduction& r);

  Engine& engine_;
  Scratch& scratch_;
  const Layout& layout_;
  const std::vector<int>& ranks_;
  const CommunicatorId id_;
  const std::uint64_t number_;
  const CollectiveSignature call_;
};

// Awaits what an expression says.
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
