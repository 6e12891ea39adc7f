// regroup-ps: a server of the parameter server. An agent starts it with descriptors of memory that
// outlives it, and starts the next one when it ends: docs/design/ps_store.md.
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <map>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "base/job_signals.h"
#include "base/printable.h"
#include "base/values.h"
#include "collective/ps/server.h"

namespace {

using namespace regroup;
using collective::ps::Server;

constexpr std::string_view kHelp =
    "usage: regroup-ps --memory LANES:SEGMENT,SEGMENT...[;...] [--server N] [--with-parent PID]\n"
    "Serve the parameter server of this host, in memory behind the inherited descriptors of\n"
    "these numbers: for each shard its lanes and the segments of its store. Waits until the\n"
    "server before it has ended, and goes on where that one stopped. It is started by\n"
    "regroup. SIGTERM ends it with exit status 0.\n"
    "--server: its number. It serves the shards that the stores name this server for, and prints\n"
    "\"ready\". It ends with exit status 0 when its standard input ends, and ignores the signals\n"
    "that allocators send to all processes of a job: SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2.\n"
    "--with-parent: it ends when its parent, process PID, has ended.\n";
// How long it waits for the server before it. The kernel frees its locks as it ends.
constexpr std::chrono::seconds kTakeover{60};

int fail(const base::Status& status, int exit) {
  fmt::print(stderr, "regroup-ps: {}\n", base::escaped(status.to_string()));
  return exit;
}

// A pidfd of the parent; none if it is not `process`, which has ended.
base::Result<base::Fd> open_parent(std::string_view process) {
  pid_t pid = 0;
  const char* const last = process.data() + process.size();
  if (const auto [end, error] = std::from_chars(process.data(), last, pid);
      error != std::errc() || end != last || pid < 1) {
    return base::invalid_argument(
        fmt::format("--with-parent {}: expected a process number", process));
  }
  base::Fd out(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!out.valid() && errno != ESRCH)
    return base::system_error("pidfd_open", fmt::format("process {}", pid), errno);
  if (::getppid() != pid) out.reset();  // after the open: its number may have been given again
  return out;
}

// Ends this process once the parent has ended. Not PR_SET_PDEATHSIG, which is sent when the thread
// of the parent ends that started this process.
void end_with(base::Fd parent) {
  std::thread([parent = std::move(parent)] {
    pollfd ended{.fd = parent.get(), .events = POLLIN, .revents = 0};
    while (::poll(&ended, 1, -1) < 0 && errno == EINTR) {
    }
    _exit(0);  // any moment is as good as another one: docs/design/ps_store.md
  }).detach();
}

void stop_at_end_of_input(Server& server) {
  std::thread([&server] {
    std::array<char, 64> ignored;
    ssize_t count = 1;
    while (count > 0 || (count < 0 && errno == EINTR))
      count = ::read(STDIN_FILENO, ignored.data(), ignored.size());
    server.stop();
  }).detach();
}

// `signals` are blocked in all threads.
void stop_by_signal(Server& server, const sigset_t& signals) {
  std::thread([&server, signals] {
    int signal = 0;
    ::sigwait(&signals, &signal);
    server.stop();
  }).detach();
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  std::map<std::string_view, std::string_view> given;
  for (std::size_t i = 1; i + 1 < words.size(); i += 2) given[words[i]] = words[i + 1];
  const bool known = std::ranges::all_of(given, [](const auto& one) {
    return one.first == "--memory" || one.first == "--server" || one.first == "--with-parent";
  });
  std::uint32_t number = 0;
  if (words.size() % 2 == 0 || !known || !given.contains("--memory") ||
      (given.contains("--server") && !base::read_number(given["--server"], number))) {
    const bool help = words.size() == 2 && std::string_view(words[1]) == "--help";
    fmt::print(help ? stdout : stderr, "{}", kHelp);
    return help ? 0 : 2;
  }
  const bool numbered = given.contains("--server");
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  if (numbered) {
    base::ignore_signals_of_jobs();  // workers push what they have meanwhile
  } else {
    ::pthread_sigmask(SIG_BLOCK, &ending, nullptr);  // before any thread, which inherits it
  }
  const auto memory = collective::ps::parse_server_memory(given["--memory"]);
  if (!memory.ok()) return fail(memory.status(), 2);
  if (given.contains("--with-parent")) {
    auto parent = open_parent(given["--with-parent"]);
    if (!parent.ok()) return fail(parent.status(), 2);
    if (!parent->valid()) return 0;
    end_with(std::move(*parent));
  }
  auto server = Server::start(*memory, kTakeover, number);
  if (!server.ok()) return fail(server.status(), 1);
  if (numbered) {
    stop_at_end_of_input(**server);
    fmt::print("ready\n");  // for shards
    std::fflush(stdout);
  } else {
    stop_by_signal(**server, ending);
  }
  const base::Status status = (*server)->wait();
  // _exit: the thread that waits for the end still uses the server.
  _exit(status.ok() ? 0 : fail(status, 1));
}
