// The members of one host that `./dev bench hosts` runs: allreduces of fp32 between hosts.
// usage: hosts_member FOLDER NODE HOSTS MEMBERS BYTES:TIMES...
//   FOLDER   where addresses lie; all hosts see it
//   MEMBERS  of each host
// Rank 0 prints "BYTES NANOSECONDS" for each allreduce; all verify one of each size before, and the
// last.
#include <fmt/format.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): SIGKILL for prctl
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/backends/backends.h"
#include "collective/ucx/factory.h"
#include "shmem/arena.h"
#include "tests/bench/timeline.h"

using regroup::base::Result;
using regroup::base::Status;
namespace bench = regroup::bench;
namespace collective = regroup::collective;
namespace base = regroup::base;
namespace proto = regroup::proto;
namespace shmem = regroup::shmem;

namespace {

[[noreturn]] void stop(const Status& status) {
  std::fprintf(stderr, "hosts_member: %s\n", status.to_string().c_str());
  std::_Exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result.ok()) stop(result.status());
  return std::move(*result);
}

proto::World make_world(int hosts, int members) {
  proto::World world;
  world.generation = 1;
  for (int r = 0; r < hosts * members; ++r) {
    world.members.push_back({.id = static_cast<proto::MemberId>(r),
                             .slot_id = {static_cast<proto::NodeId>(r / members),
                                         static_cast<proto::SlotIndex>(r % members)}});
  }
  return world;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

collective::ucx::Addresses addresses_in(const std::filesystem::path& folder, int rank) {
  const auto file = [folder](proto::MemberId member) { return folder / std::to_string(member); };
  return {
      .publish =
          [file, rank](std::span<const std::byte> address) {
            const auto path = file(static_cast<proto::MemberId>(rank));
            const auto draft = path.string() + ".draft";
            std::ofstream(draft, std::ios::binary)
                .write(reinterpret_cast<const char*>(address.data()),
                       static_cast<std::streamsize>(address.size()));
            std::filesystem::rename(draft, path);
            return Status();
          },
      .find = [file](proto::MemberId member) -> std::optional<std::vector<std::byte>> {
        const std::string text = read(file(member));
        const auto bytes = std::as_bytes(std::span(text));
        return text.empty() ? std::nullopt : std::optional(std::vector(bytes.begin(), bytes.end()));
      },
      .on_peer_lost = {},
      .on_peer_silent = {},
  };
}

// All addresses, before anybody looks for one: nobody rings here.
void await_addresses(const std::filesystem::path& folder, std::uint32_t members) {
  for (proto::MemberId id = 0; id < members; ++id) {
    while (!std::filesystem::exists(folder / std::to_string(id))) std::this_thread::yield();
  }
}

void expect(const std::vector<float>& sum, int size) {
  const float want = static_cast<float>(size * (size + 1)) / 2;
  if (std::ranges::any_of(sum, [&](float value) { return value != want; })) {
    stop(base::internal_error("a wrong sum"));
  }
}

void measure(collective::Communicator& comm, std::size_t bytes, int times) {
  std::vector<float> in(bytes / sizeof(float), static_cast<float>(comm.rank() + 1));
  std::vector<float> out(in.size());
  const auto deadline = base::SystemClock().now() + std::chrono::seconds(60);
  for (int i = -2; i < times; ++i) {
    const auto began = bench::now_ns();
    const Status status =
        comm.allreduce(std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(out)),
                       collective::Dtype::kFloat32, deadline);
    const auto took = bench::now_ns() - began;
    if (!status.ok()) stop(status);
    if (i == -2 || i + 1 == times) expect(out, comm.size());
    if (i >= 0 && comm.rank() == 0) std::printf("%zu %lld\n", bytes, static_cast<long long>(took));
  }
}

void live(const shmem::Arena& arena, const proto::World& world, int rank, char** argv, int argc) {
  const std::filesystem::path folder(argv[1]);
  const auto ucx = must(collective::ucx::open_ucx({.config = {{"TLS", "tcp"}}}));
  const proto::SlotId slot_id = world.members[static_cast<std::size_t>(rank)].slot_id;
  auto mesh =
      must(collective::ucx::open_peer_mesh(ucx, arena, world, slot_id, addresses_in(folder, rank)));
  await_addresses(folder, world.size());
  const auto comm =
      must(collective::backends::open_communicator({arena, world, slot_id, std::move(mesh)}));
  for (int i = 5; i < argc; ++i) {
    const std::string word(argv[i]);
    const std::size_t colon = word.find(':');
    measure(*comm, std::stoull(word.substr(0, colon)), std::stoi(word.substr(colon + 1)));
  }
  const Status last = comm->barrier(base::SystemClock().now() + std::chrono::seconds(60));
  if (!last.ok()) stop(last);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6)
    stop(base::invalid_argument("usage: hosts_member FOLDER NODE HOSTS MEMBERS BYTES:TIMES..."));
  const int node = std::stoi(argv[2]);
  const int members = std::stoi(argv[4]);
  const proto::World world = make_world(std::stoi(argv[3]), members);
  shmem::Arena arena = must(shmem::Arena::create({.slots = static_cast<std::uint32_t>(members)}));
  for (int slot = 0; slot < members; ++slot) {
    arena.assign_slot(static_cast<proto::SlotIndex>(slot),
                      static_cast<proto::MemberId>(node * members + slot));
  }
  for (int slot = 0; slot < members; ++slot) {
    if (::fork() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto own = must(shmem::Arena::open(base::Fd(::dup(arena.memfd()))));
    live(own, world, node * members + slot, argv, argc);
    std::_Exit(0);
  }
  bool good = true;
  for (int status = 0; ::wait(&status) > 0;) good = good && status == 0;
  return good ? 0 : 1;
}
