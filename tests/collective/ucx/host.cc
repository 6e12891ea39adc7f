// The members of one host of several. tests/hosts/test_collective.py starts it and is the
// coordinator. usage: ucx_host FOLDER NODE COUNT,COUNT... DEADLINE_S
//   FOLDER  shared by all hosts: addresses, in one file per generation and member
//   NODE    index of this host; the COUNTs are the numbers of members of all hosts
// Commands on standard input, one per line: "open G", "revoke G"; its end ends the program.
// Answers on standard output, one per line:
//   digest G RANK HEX                 results of the first operations, over all their bytes
//   silent G RANK PEER 0|1 TIME WHY   on_peer_silent, with host_answers and seconds of
//   CLOCK_MONOTONIC ended G RANK TIME STATUS          of the operation that failed
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is not in <csignal>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <new>
#include <sstream>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "collective/backends/backends.h"
#include "collective/ucx/factory.h"
#include "shmem/generation_fence.h"
#include "tests/collective/exchange.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing {
namespace {

struct Board {
  std::atomic<std::uint64_t> announced;
};

struct Host {
  std::filesystem::path folder;
  proto::NodeId node = 0;
  std::vector<proto::NodeId> nodes;  // by rank
  std::chrono::seconds timeout{60};
};

void print_line(const std::string& line) {
  const std::string whole = line + "\n";
  static_cast<void>(!::write(STDOUT_FILENO, whole.data(), whole.size()));
}

double seconds() {
  return std::chrono::duration<double>(base::SystemClock().now().time_since_epoch()).count();
}

proto::World world_of(const Host& host, proto::Generation g) {
  proto::World world;
  world.generation = g;
  std::vector<proto::SlotIndex> next(host.nodes.size());
  for (const proto::NodeId node : host.nodes) {
    const auto id = static_cast<proto::MemberId>(world.members.size());
    world.members.push_back({.id = id, .slot_id = {node, next[node]++}});
  }
  return world;
}

ucx::Addresses addresses_in(const std::filesystem::path& folder, proto::Generation g, int rank) {
  const auto file = [folder, g](proto::MemberId member) {
    return folder / fmt::format("{}.{}", g, member);
  };
  return {
      .publish =
          [file, rank](std::span<const std::byte> address) {
            const auto path = file(static_cast<proto::MemberId>(rank));
            const auto draft = path.string() + ".draft";
            std::ofstream(draft, std::ios::binary)
                .write(reinterpret_cast<const char*>(address.data()),
                       static_cast<std::streamsize>(address.size()));
            std::filesystem::rename(draft, path);
            return base::Status();
          },
      .find = [file](proto::MemberId member) -> std::optional<std::vector<std::byte>> {
        std::ifstream in(file(member), std::ios::binary);
        if (!in) return std::nullopt;
        const std::string text(std::istreambuf_iterator<char>(in), {});
        const auto bytes = std::as_bytes(std::span(text));
        return std::vector(bytes.begin(), bytes.end());
      },
      .on_peer_lost = {},
      .on_peer_silent =
          [g, rank](proto::MemberId peer, bool host_answers, const std::string& why) {
            print_line(fmt::format("silent {} {} {} {} {:.6f} {}", g, rank, peer,
                                   host_answers ? 1 : 0, seconds(), why));
          },
  };
}

// Sums whose bits depend on the order of the terms, small ones and ones of many chunks.
base::Result<std::uint32_t> digest_of(Communicator& comm, base::TimePoint deadline) {
  std::uint32_t crc = 0;
  for (const std::size_t elements : {1UL, 1000UL, 600'001UL}) {
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
      const Bytes in = make_leaf(dtype, elements, static_cast<std::uint64_t>(comm.rank()));
      Bytes out(in.size());
      REGROUP_RETURN_IF_ERROR(comm.allreduce(in, out, dtype, deadline));
      crc = base::crc32c(out, crc);
    }
  }
  return crc;
}

base::Status run_generation(Communicator& comm, proto::Generation g, std::chrono::seconds timeout) {
  const auto deadline = [&] { return base::SystemClock().now() + timeout; };
  REGROUP_ASSIGN_OR_RETURN(const auto digest, digest_of(comm, deadline()));
  print_line(fmt::format("digest {} {} {:08x}", g, comm.rank(), digest));
  base::Status status;
  for (std::uint64_t k = 0; status.ok(); ++k) {
    const Kind kind = kCollectives[k % std::size(kCollectives)];
    status = run_checked(comm, {kind, Dtype::kFloat32, Op::kSum, 0, 100'000}, k, deadline());
  }
  return status;
}

void run_member(const Host& host, const shmem::Arena& arena, const Board& board, int rank) {
  const proto::SlotId slot_id = world_of(host, 1).members[static_cast<std::size_t>(rank)].slot_id;
  shmem::MemberSlot& member_slot = arena.member_slot(slot_id.slot);
  const auto ucx = ucx::open_ucx({.config = {{"TLS", "tcp"}}});
  if (!ucx.ok()) return print_line("error " + ucx.status().to_string());
  std::unique_ptr<Communicator> comm;
  for (proto::Generation g = 1;; ++g) {
    static_cast<void>(shmem::wait_until(
        member_slot.bell, [&] { return board.announced >= g; }, base::TimePoint::max()));
    g = board.announced;
    const proto::World world = world_of(host, g);
    auto mesh =
        ucx::open_peer_mesh(*ucx, arena, world, slot_id, addresses_in(host.folder, g, rank));
    if (!mesh.ok()) return print_line("error " + mesh.status().to_string());
    auto next = backends::open_communicator({arena, world, slot_id, std::move(*mesh)});
    if (!next.ok()) return print_line("error " + next.status().to_string());
    comm = std::move(*next);
    const base::Status status = run_generation(*comm, g, host.timeout);
    print_line(fmt::format("ended {} {} {:.6f} {}", g, rank, seconds(), status.to_string()));
    shmem::leave_generation<shmem::RealPolicy>(member_slot.left_generation, g);
    shmem::ring_all(arena);
  }
}

// The agent: executes commands, and rings its members when addresses have come.
void run_agent(const Host& host, const shmem::Arena& arena, Board& board) {
  const base::Fd changes(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  ::inotify_add_watch(changes.get(), host.folder.c_str(), IN_MOVED_TO);
  pollfd entries[] = {{STDIN_FILENO, POLLIN, 0}, {changes.get(), POLLIN, 0}};
  for (std::string command; ::poll(entries, 2, -1) >= 0;) {
    char buffer[4096];
    while (::read(changes.get(), buffer, sizeof buffer) > 0) {
    }
    if ((entries[0].revents & (POLLIN | POLLHUP)) != 0) {
      const auto bytes = ::read(STDIN_FILENO, buffer, sizeof buffer);
      if (bytes <= 0) return;
      command.append(buffer, static_cast<std::size_t>(bytes));
    }
    for (std::size_t end = 0; (end = command.find('\n')) != std::string::npos;
         command.erase(0, end + 1)) {
      std::istringstream words(command.substr(0, end));
      std::string verb;
      proto::Generation g = 0;
      words >> verb >> g;
      if (verb == "open") board.announced = g;
      if (verb == "revoke") revoke_all(arena, g);
    }
    shmem::ring_all(arena);
  }
}

void run(const Host& host) {
  const auto mine = static_cast<std::uint32_t>(std::ranges::count(host.nodes, host.node));
  const shmem::Arena arena = make_arena({.slots = mine});
  void* memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const board = new (memory) Board();
  std::vector<pid_t> members;
  for (int rank = 0; rank < static_cast<int>(host.nodes.size()); ++rank) {
    if (host.nodes[static_cast<std::size_t>(rank)] != host.node) continue;
    members.push_back(fork_rank(rank, [&](int r) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto own = shmem::Arena::open(base::Fd(::dup(arena.memfd())));
      run_member(host, *own, *board, r);
    }));
  }
  run_agent(host, arena, *board);
  for (const pid_t member : members) ::kill(member, SIGKILL);
  for (const pid_t member : members) ::waitpid(member, nullptr, 0);
}

}  // namespace
}  // namespace regroup::collective::testing

int main(int argc, char** argv) {
  using regroup::collective::testing::Host;
  if (argc != 5) return std::cerr << "usage: ucx_host FOLDER NODE COUNT,COUNT... DEADLINE_S\n", 2;
  Host host{argv[1],
            static_cast<regroup::proto::NodeId>(std::stoi(argv[2])),
            {},
            std::chrono::seconds(std::stoi(argv[4]))};
  std::istringstream counts(argv[3]);
  regroup::proto::NodeId node = 0;
  for (std::string count; std::getline(counts, count, ','); ++node) {
    host.nodes.insert(host.nodes.end(), std::stoul(count), node);
  }
  regroup::collective::testing::run(host);
  return 0;
}
