// The ucx backend with carriers passes the conformance suite, with two ranks on each host, over
// each MPI of this machine. Each rank waits until the carriers take its messages.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string_view>

#include "base/clock.h"
#include "collective/mpi/factory.h"
#include "collective/ucx/peer_mesh.h"
#include "tests/collective/conformance.h"
#include "tests/collective/ucx/job.h"

extern char** environ;

namespace regroup::collective::testing::mpi_conformance {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::minutes kStartTimeout(3);  // that only a hang reaches
constexpr int kPauseMs = 5;

// Tests that messages go through it.
class Counted final : public Carrier {
 public:
  explicit Counted(std::unique_ptr<Carrier> carrier) : carrier_(std::move(carrier)) {}
  // Other tests may have no operation that succeeds.
  ~Counted() override {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    if (std::string_view(test->name()).starts_with("RunsEveryOperationAtEverySize")) {
      EXPECT_GT(sent_, 0U);
      EXPECT_GT(received_, 0U);
    }
  }

  [[nodiscard]] bool carries(int to, std::size_t bytes) const override {
    return carrier_->carries(to, bytes);
  }
  [[nodiscard]] std::uint64_t send(int to, Input header, Input data) override {
    ++sent_;
    return carrier_->send(to, header, data);
  }
  [[nodiscard]] std::uint64_t passed() const override { return carrier_->passed(); }
  [[nodiscard]] bool holds(int to) const override { return carrier_->holds(to); }
  [[nodiscard]] bool progress() override { return carrier_->progress(); }
  [[nodiscard]] std::optional<Message> receive() override {
    auto message = carrier_->receive();
    if (message) ++received_;
    return message;
  }
  [[nodiscard]] std::optional<Parcel> returned() override { return carrier_->returned(); }
  [[nodiscard]] std::optional<Parcel> note() override { return carrier_->note(); }
  void on_note(int from, Input note) override { carrier_->on_note(from, note); }
  [[nodiscard]] pollfd awaited() const override { return carrier_->awaited(); }
  void close(bool revoked) override { carrier_->close(revoked); }

 private:
  const std::unique_ptr<Carrier> carrier_;
  std::size_t sent_ = 0;
  std::size_t received_ = 0;
};

mpi::CarrierSettings settings_of(const char* library) {
  const fs::path bin = fs::read_symlink("/proc/self/exe").parent_path() / "../../bin";
  mpi::CarrierSettings settings{
      .program = bin / "regroup-mpi", .place = library, .path = "", .job = "test"};
  settings.job += std::to_string(::getpid());
  settings.folder = fs::temp_directory_path();
  for (char** variable = environ; *variable != nullptr; ++variable)
    settings.environment.emplace_back(*variable);
  // Hosts of one machine: its other interfaces may not reach each other.
  settings.environment.emplace_back("OMPI_MCA_btl_tcp_if_include=lo");
  settings.environment.emplace_back("OMPI_MCA_btl=^ofi");
  return settings;
}

std::unique_ptr<TestJob> make_job(int ranks, const char* library) {
  std::vector<proto::NodeId> nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(static_cast<proto::NodeId>(rank / 2));
  const auto attach = [settings = settings_of(library)](
                          ucx::PeerMesh& mesh, const shmem::Arena& arena, const proto::World& world,
                          proto::SlotId self) {
    auto opened = mpi::open_carrier(settings, arena, world, self);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    auto counted = std::make_unique<Counted>(std::move(*opened));
    const Carrier& carrier = *counted;
    mesh.attach(std::move(counted));
    const int far = self.node == 0 ? static_cast<int>(world.members.size()) - 1 : 0;
    // Sleeps between two looks: the carriers need the processor to start.
    for (const auto deadline = base::SystemClock().now() + kStartTimeout;
         !carrier.carries(far, 1);) {
      ASSERT_LT(base::SystemClock().now(), deadline) << "the carriers do not start";
      static_cast<void>(mesh.progress());
      pollfd entry = carrier.awaited();
      ::poll(&entry, 1, kPauseMs);
    }
  };
  return make_ucx_job(std::move(nodes), {.config = {{"TLS", "tcp"}}}, {}, attach);
}

std::unique_ptr<TestJob> make_open_mpi(int ranks) {
  return make_job(ranks, "/usr/lib/x86_64-linux-gnu/libmpi.so.40");
}
std::unique_ptr<TestJob> make_mpich(int ranks) {
  return make_job(ranks, "/usr/lib/x86_64-linux-gnu/libmpich.so.12");
}

constexpr Backend kOpenMpi{"OpenMpi4Pairs", true, make_open_mpi, true};
constexpr Backend kMpich{"MpichPairs", true, make_mpich, true};
INSTANTIATE_TEST_SUITE_P(MpiPairs, Conformance,
                         ::testing::Values(Setting{kOpenMpi, 4}, Setting{kMpich, 4}),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(MpiPairs, Sums,
                         ::testing::Values(Setting{kOpenMpi, 5}, Setting{kMpich, 5}),
                         name_of_setting);

}  // namespace
}  // namespace regroup::collective::testing::mpi_conformance
