// Straggler probes and notices of failures between two members, without an engine: two meshes in
// one thread.
#include "collective/ucx/straggler_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "collective/ucx/factory.h"
#include "collective/ucx/failure_notice.h"
#include "tests/collective/harness.h"
#include "tests/collective/ucx/messages.h"

namespace regroup::collective::testing::ucx_straggler_probe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const ucx::WaitsFor kForNone = [](int) { return false; };

ucx::OperationDescriptor barrier(std::uint64_t number, int ranks = 2) {
  ucx::OperationDescriptor operation{.communicator = kAllRanks, .number = number};
  operation.ranks.resize(static_cast<std::size_t>(ranks));
  std::iota(operation.ranks.begin(), operation.ranks.end(), 0);
  operation.signature = signature_of(Operation::barrier(), ranks);
  return operation;
}

TEST(UcxStragglerProbe, GoesToAllOrInLargeWorldsToAwaitedRanks) {
  EXPECT_THAT(ucx::probed_ranks(barrier(1, 3), 1, kForNone), ElementsAre(0, 2));
  EXPECT_EQ(ucx::probed_ranks(barrier(1, 64), 0, kForNone).size(), 63U);
  EXPECT_THAT(ucx::probed_ranks(barrier(1, 65), 0, [](int rank) { return rank == 0 || rank == 7; }),
              ElementsAre(7));
}

// Members 0 and 1 on a host each.
class Pair {
 public:
  void open() {
    proto::World world = make_world(1, 2);
    for (proto::NodeId node = 0; node < 2; ++node) world.members[node].slot_id = {node, 0};
    for (proto::NodeId node = 0; node < 2; ++node) {
      auto context = ucx::open_ucx({.config = {{"TLS", "tcp"}}});
      ASSERT_TRUE(context.ok()) << context.status().to_string();
      arenas_.push_back(make_arena({.slots = 1}));
      contexts_.push_back(*context);
    }
    for (proto::NodeId node = 0; node < 2; ++node) {
      ucx::Addresses addresses;
      addresses.publish = [this, node](std::span<const std::byte> address) {
        published_[node] = {address.begin(), address.end()};
        return base::Status();
      };
      addresses.find = [this](proto::MemberId member) -> std::optional<Bytes> {
        const auto found = published_.find(static_cast<proto::NodeId>(member));
        return found == published_.end() ? std::nullopt : std::optional(found->second);
      };
      auto mesh = ucx::open_peer_mesh(contexts_[node], arenas_[node], world, {node, 0},
                                      std::move(addresses));
      ASSERT_TRUE(mesh.ok()) << mesh.status().to_string();
      meshes_.push_back(*mesh);
    }
  }
  // Lets both members move until `ready()`.
  void until(const std::function<bool()>& ready) {
    EXPECT_TRUE(eventually([&] {
      for (const auto& mesh : meshes_) {
        static_cast<void>(mesh->accept_connections());
        static_cast<void>(mesh->progress());
      }
      return ready();
    }));
  }
  void connect() {
    until([&] { return meshes_[0]->connect(1) && meshes_[1]->connect(0); });
  }

  [[nodiscard]] ucx::PeerMesh& mesh(std::size_t rank) const { return *meshes_[rank]; }

 private:
  std::vector<shmem::Arena> arenas_;
  std::vector<std::shared_ptr<const ucx::UcxContext>> contexts_;
  std::map<proto::NodeId, Bytes> published_;
  std::vector<std::shared_ptr<ucx::PeerMesh>> meshes_;
};

// In a process of its own, because one that has loaded UCX cannot fork ranks that load it.
void with_pair(const std::function<void(Pair&)>& body) {
  run_all(Ranks::kProcesses, 1, [&](int) {
    Pair pair;
    pair.open();
    if (!::testing::Test::HasFailure()) body(pair);
  });
}

TEST(UcxStragglerProbes, AreDueAfterTheDelayThenAfterTheInterval) {
  with_pair([](Pair& pair) {
    ucx::StragglerProbes probes(pair.mesh(0));
    const base::TimePoint begun = base::SystemClock().now();
    EXPECT_EQ(probes.next(begun), begun + ucx::kProbeDelay);
    probes.send(barrier(1), kForNone, begun + ucx::kProbeDelay);
    EXPECT_EQ(probes.next(begun), begun + ucx::kProbeDelay + pair.mesh(0).probe_interval());
    probes.end(barrier(1));
    EXPECT_EQ(probes.next(begun), begun + ucx::kProbeDelay) << "of the next operation";
  });
}

TEST(UcxStragglerProbes, ConnectFromTheSecondOnOnly) {
  with_pair([](Pair& pair) {
    ucx::StragglerProbes probes(pair.mesh(0));
    const base::TimePoint now = base::SystemClock().now();
    probes.send(barrier(1), kForNone, now);
    EXPECT_EQ(pair.mesh(0).connections(), 0U);
    pair.until([&] {
      probes.send(barrier(1), kForNone, now);
      return pair.mesh(0).connections() == 1 && pair.mesh(1).connections() == 1;
    });
  });
}

TEST(UcxStragglerProbes, NameArrivedAndMismatchedRanks) {
  with_pair([](Pair& pair) {
    pair.connect();
    ucx::StragglerProbes sender(pair.mesh(0));
    ucx::StragglerProbes receiver(pair.mesh(1));
    EXPECT_THAT(receiver.missing_ranks(barrier(1)), ElementsAre(0));
    sender.send(barrier(1), kForNone, base::SystemClock().now());
    pair.until([&] { return receiver.missing_ranks(barrier(1)).empty(); });
    EXPECT_FALSE(receiver.find_mismatch(barrier(1)));
    ucx::OperationDescriptor other = barrier(1);
    other.signature = header_of(ucx::MessageKind::kData, 0).signature;
    const auto mismatch = receiver.find_mismatch(other);
    ASSERT_TRUE(mismatch);
    EXPECT_EQ(mismatch->rank, 0);
    EXPECT_EQ(mismatch->signature, barrier(1).signature);
    receiver.end(barrier(1));
    EXPECT_THAT(receiver.missing_ranks(barrier(1)), ElementsAre(0)) << "after its end";
  });
}

TEST(UcxStragglerProbes, ProbesOfALaterOperationAreNoMismatch) {
  with_pair([](Pair& pair) {
    pair.connect();
    ucx::StragglerProbes receiver(pair.mesh(1));
    ucx::StragglerProbes(pair.mesh(0)).send(barrier(2), kForNone, base::SystemClock().now());
    pair.until([&] { return receiver.missing_ranks(barrier(2)).empty(); });
    EXPECT_FALSE(receiver.find_mismatch(barrier(1)));
    EXPECT_THAT(receiver.missing_ranks(barrier(1)), IsEmpty()) << "rank 0 is past it";
  });
}

TEST(UcxStragglerProbes, ANoticeIsReceivedOnceItHasCome) {
  with_pair([](Pair& pair) {
    pair.connect();
    EXPECT_FALSE(ucx::receive_failure(pair.mesh(1), kAllRanks));
    const std::string why = "broadcast: rank 0 has another root";
    const ucx::Transfer sent = pair.mesh(0).send(1, {{kAllRanks, ucx::MessageKind::kFailure}, {}},
                                                 std::as_bytes(std::span(why)));
    std::optional<std::string> received;
    pair.until(
        [&] { return (received = ucx::receive_failure(pair.mesh(1), kAllRanks)).has_value(); });
    EXPECT_EQ(received, why);
    pair.until([&] {
      return pair.mesh(0).find({kAllRanks, ucx::MessageKind::kAck, 0, 0, 1}) != nullptr;
    });
  });
}

// Nobody answers: the sender gives up after 2 s, and publishes its reason.
TEST(UcxStragglerProbes, ANoticeThatNobodyAcksIsPublished) {
  with_pair([](Pair& pair) {
    const ucx::OperationDescriptor operation = barrier(1);
    const std::vector<int> peers{0};
    EXPECT_THAT(ucx::published_failure(pair.mesh(1), peers), IsEmpty());
    ucx::send_failure(pair.mesh(0), kAllRanks, operation.ranks, "rank 0 gives up");
    EXPECT_EQ(ucx::published_failure(pair.mesh(1), peers), "rank 0 gives up");
  });
}

}  // namespace
}  // namespace regroup::collective::testing::ucx_straggler_probe
