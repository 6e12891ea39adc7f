// Lines are few and short: one thread that waits for either side, and writes until all is written.
#include "launcher/cli/join_relay.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "launcher/job/start.h"
#include "launcher/process/environment.h"
#include "launcher/process/spawn.h"
#include "launcher/spec/job_variables.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::cli {
namespace {

// Once. False: one of them has ended.
bool pass(int from, int to) {
  std::array<char, 16 << 10> bytes;
  const ssize_t count = ::read(from, bytes.data(), bytes.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  for (ssize_t done = 0; done < count;) {
    const ssize_t written =
        ::write(to, bytes.data() + done, static_cast<std::size_t>(count - done));
    if (written < 0 && errno != EINTR) return false;
    done += std::max<ssize_t>(written, 0);
  }
  ::explicit_bzero(bytes.data(), bytes.size());  // the job's secret may have passed
  return count > 0;
}

}  // namespace

base::Result<base::Fd> connect_through(const std::vector<std::string>& command,
                                       const spec::Environment& environment) {
  REGROUP_ASSIGN_OR_RETURN(auto path, process::find_program(command.at(0), "", environment));
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return base::system_error("socketpair", command[0], errno);
  base::Fd ours(ends[0]);
  const base::Fd theirs(ends[1]);
  process::SpawnSpec relay;
  relay.path = std::move(path);
  relay.argv = command;
  const std::string tool = std::filesystem::path(command[0]).filename();
  relay.environment = process::to_strings(spec::environment_for(tool, environment));
  relay.in = relay.out = theirs.get();
  relay.err = STDERR_FILENO;
  const auto pid = process::spawn(relay);  // reaped with this process, which does nothing else
  if (!pid.ok()) return pid.status();
  return ours;
}

int run_relay(const std::string& path) {
  const auto socket = transport::connect_unix(path);
  if (!socket.ok()) return job::fail("join --relay: " + socket.status().message(), 1);
  std::array<pollfd, 2> sides{pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{socket->get(), POLLIN, 0}};
  for (;;) {
    if (::poll(sides.data(), sides.size(), -1) < 0 && errno != EINTR) return 1;
    if (sides[0].revents != 0 && !pass(STDIN_FILENO, socket->get())) return 0;
    if (sides[1].revents != 0 && !pass(socket->get(), STDOUT_FILENO)) return 0;
  }
}

}  // namespace regroup::cli
