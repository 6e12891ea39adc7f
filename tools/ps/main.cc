// regroup-ps: a server of the parameter server. An agent starts it with descriptors of memory that
// outlives it, and starts the next one when it ends: docs/design/ps_store.md.
#include <fmt/format.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <span>
#include <string_view>
#include <thread>

#include "base/printable.h"
#include "collective/ps/server.h"

namespace {

using namespace regroup;
using collective::ps::Server;

constexpr std::string_view kHelp =
    "usage: regroup-ps --memory LANES:SEGMENT,SEGMENT...[;...]\n"
    "Serve the parameter server of this host, in memory behind the inherited descriptors of\n"
    "these numbers: for each shard its lanes and the segments of its store. Waits until the\n"
    "server before it has ended, and goes on where that one stopped. It is started by\n"
    "regroup. SIGTERM ends it with exit status 0.\n";
// How long it waits for the server before it. The kernel frees its locks as it ends.
constexpr std::chrono::seconds kTakeover{60};

int fail(const base::Status& status, int exit) {
  fmt::print(stderr, "regroup-ps: {}\n", base::escaped(status.to_string()));
  return exit;
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  if (words.size() != 3 || std::string_view(words[1]) != "--memory") {
    const bool help = words.size() == 2 && std::string_view(words[1]) == "--help";
    fmt::print(help ? stdout : stderr, "{}", kHelp);
    return help ? 0 : 2;
  }
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &ending, nullptr);  // before any thread, which inherits it
  const auto memory = collective::ps::parse_server_memory(words[2]);
  if (!memory.ok()) return fail(memory.status(), 2);
  auto server = Server::start(*memory, kTakeover);
  if (!server.ok()) return fail(server.status(), 1);
  std::thread([&ending, &running = **server] {
    int signal = 0;
    ::sigwait(&ending, &signal);
    running.stop();
  }).detach();
  const base::Status status = (*server)->wait();
  // _exit: the thread that waits for a signal still uses the server.
  _exit(status.ok() ? 0 : fail(status, 1));
}
