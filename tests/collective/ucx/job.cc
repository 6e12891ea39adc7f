// The addresses are in memory that all processes share, by generation, then by rank.
#include "tests/collective/ucx/job.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/status.h"
#include "collective/backends/backends.h"
#include "shmem/generation_fence.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing {
namespace {

constexpr int kRanks = 16;
constexpr std::size_t kGenerations = 8;  // at a time

struct AddressCard {
  std::atomic<std::uint64_t> generation;
  // A member that fails since the ranks disagree publishes once more.
  std::atomic<std::uint64_t> writes;
  std::size_t bytes;
  std::byte data[4096];
};
struct AddressBook {
  AddressCard cards[kGenerations][kRanks];
};

std::shared_ptr<AddressBook> make_book() {
  void* memory = ::mmap(nullptr, sizeof(AddressBook), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return {new (memory) AddressBook(), [](AddressBook* book) { ::munmap(book, sizeof *book); }};
}

class UcxJob final : public TestJob {
 public:
  UcxJob(std::vector<proto::NodeId> nodes, ucx::UcxSettings settings, Readdress readdress,
         OnMesh on_mesh, std::vector<shmem::Arena> arenas, std::shared_ptr<AddressBook> book)
      : nodes_(std::move(nodes)),
        settings_(std::move(settings)),
        readdress_(std::move(readdress)),
        on_mesh_(std::move(on_mesh)),
        arenas_(std::move(arenas)),
        book_(std::move(book)) {}

  base::Result<std::unique_ptr<Communicator>> open(const proto::World& world, int rank) override {
    shmem::hold_fence<shmem::RealPolicy>(member_slot(rank).left_generation, world.generation);
    proto::World placed = world;
    for (proto::WorldMember& member : placed.members)
      member.slot_id = slot_id_of(static_cast<int>(member.id));
    if (context_ == nullptr) {
      REGROUP_ASSIGN_OR_RETURN(context_, ucx::open_ucx(settings_));
    }
    REGROUP_ASSIGN_OR_RETURN(auto mesh,
                             ucx::open_peer_mesh(context_, arena_of(rank), placed, slot_id_of(rank),
                                                 addresses(world.generation, rank)));
    if (on_mesh_) on_mesh_(*mesh, arena_of(rank), placed, slot_id_of(rank));
    return backends::open_communicator({arena_of(rank), placed, slot_id_of(rank), std::move(mesh)});
  }
  void leave(proto::Generation g, int rank) override {
    shmem::leave_generation<shmem::RealPolicy>(member_slot(rank).left_generation, g);
    shmem::ring_all(arena_of(rank));
  }
  void revoke(proto::Generation g) override {
    for (const shmem::Arena& arena : arenas_) revoke_all(arena, g);
  }
  void bury(int rank) override {
    member_slot(rank).dead.store(1);
    ring();
  }
  void replace(int rank) override {
    arena_of(rank).assign_slot(slot_id_of(rank).slot, next_id_++);
    member_slot(rank).revoked_up_to.store(0);
  }
  [[nodiscard]] proto::NodeId host_of(int rank) const override {
    return nodes_[static_cast<std::size_t>(rank)];
  }
  std::unique_ptr<TestJob> in_child() override {
    std::vector<shmem::Arena> mine;
    for (const shmem::Arena& arena : arenas_) {
      auto one = shmem::Arena::open(base::Fd(::dup(arena.memfd())));
      if (!one.ok()) return nullptr;
      mine.push_back(std::move(*one));
    }
    return std::make_unique<UcxJob>(nodes_, settings_, readdress_, on_mesh_, std::move(mine),
                                    book_);
  }
  [[nodiscard]] std::optional<std::vector<std::byte>> address_in(proto::Generation g, int rank) {
    return addresses(g, rank).find(static_cast<proto::MemberId>(rank));
  }
  [[nodiscard]] std::uint64_t barriers(int rank) {
    return arrivals_in(member_slot(rank).channels[0]);
  }

 private:
  [[nodiscard]] proto::SlotId slot_id_of(int rank) const {
    const proto::NodeId node = nodes_[static_cast<std::size_t>(rank)];
    return {node,
            static_cast<proto::SlotIndex>(std::count(nodes_.begin(), nodes_.begin() + rank, node))};
  }
  [[nodiscard]] shmem::Arena& arena_of(int rank) {
    return arenas_[nodes_[static_cast<std::size_t>(rank)]];
  }
  [[nodiscard]] shmem::MemberSlot& member_slot(int rank) {
    return arena_of(rank).member_slot(slot_id_of(rank).slot);
  }
  void ring() const {
    for (const shmem::Arena& arena : arenas_) shmem::ring_all(arena);
  }

  ucx::Addresses addresses(proto::Generation g, int rank) {
    AddressCard* const cards = book_->cards[g % kGenerations];
    return {
        .publish =
            [this, cards, g, rank](std::span<const std::byte> address) {
              AddressCard& card = cards[rank];
              if (address.size() > sizeof card.data)
                return base::internal_error("an address is too long");
              card.generation = 0;
              ++card.writes;
              card.bytes = address.size();
              std::memcpy(card.data, address.data(), address.size());
              card.generation = g;
              ring();
              return base::Status();
            },
        .find = [this, cards, g](proto::MemberId member) -> std::optional<std::vector<std::byte>> {
          const AddressCard& card = cards[member];
          const std::uint64_t writes = card.writes;
          if (card.generation != g) return std::nullopt;
          std::vector address(card.data, card.data + std::min(card.bytes, sizeof card.data));
          std::atomic_thread_fence(std::memory_order_acquire);
          if (card.generation != g || card.writes != writes)
            return std::nullopt;  // it is being written
          return readdress_ ? readdress_(address) : address;
        },
        .on_peer_lost = {},
    };
  }

  const std::vector<proto::NodeId> nodes_;
  const ucx::UcxSettings settings_;
  const Readdress readdress_;
  const OnMesh on_mesh_;
  std::vector<shmem::Arena> arenas_;  // by node
  const std::shared_ptr<AddressBook> book_;
  std::shared_ptr<const ucx::UcxContext> context_;
  proto::MemberId next_id_ = 1000;
};

std::unique_ptr<TestJob> make(int ranks, proto::NodeId (*node_of)(int rank)) {
  std::vector<proto::NodeId> nodes;
  for (int r = 0; r < ranks; ++r) nodes.push_back(node_of(r));
  return make_ucx_job(std::move(nodes), {.config = {{"TLS", "tcp"}}});
}

}  // namespace

std::unique_ptr<TestJob> make_ucx_job(std::vector<proto::NodeId> nodes,
                                      const ucx::UcxSettings& settings, Readdress readdress,
                                      OnMesh on_mesh) {
  std::vector<shmem::Arena> arenas;
  for (proto::NodeId node = 0; node <= *std::ranges::max_element(nodes); ++node) {
    const auto slots = static_cast<std::uint32_t>(std::ranges::count(nodes, node));
    arenas.push_back(make_arena({.slots = std::max(slots, 1U)}));
  }
  return std::make_unique<UcxJob>(std::move(nodes), settings, std::move(readdress),
                                  std::move(on_mesh), std::move(arenas), make_book());
}

std::uint64_t local_barriers(TestJob& job, int rank) {
  return dynamic_cast<UcxJob&>(job).barriers(rank);
}

std::optional<std::vector<std::byte>> address_in(TestJob& job, proto::Generation g, int rank) {
  return dynamic_cast<UcxJob&>(job).address_in(g, rank);
}

std::unique_ptr<TestJob> make_ucx_pairs(int ranks) {
  return make(ranks, [](int r) { return static_cast<proto::NodeId>(r / 2); });
}
std::unique_ptr<TestJob> make_ucx_apart(int ranks) {
  return make(ranks, [](int r) { return static_cast<proto::NodeId>(r); });
}
std::unique_ptr<TestJob> make_ucx_uneven(int ranks) {
  return make(ranks, [](int r) {
    return static_cast<proto::NodeId>(r % 2 == 0 ? 0 : r % 4 == 1 ? 1 : 2);
  });
}

}  // namespace regroup::collective::testing
