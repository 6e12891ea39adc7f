// A process that hangs in a call of the kernel's cannot be reaped: it is killed, which it will notice one
// day, and left behind.
#include "launcher/cmd/patience.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "launcher/supervise/environment.h"
#include "launcher/supervise/spawn.h"

namespace regroup::cmd {
namespace {

namespace fs = std::filesystem;
using core::Code;
using core::Duration;
using core::Result;
using core::Status;
using Taken = std::optional<core::FileLock>;

constexpr std::size_t kMostText = 8192;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// False: nothing is there to be read within `limit`, no end either.
bool readable_within(int fd, Duration limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd one{fd, POLLIN, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (ready == 0) return false;
  }
}

void leave_behind(pid_t pid) {
  ::kill(pid, SIGKILL);
  for (int i = 0; i < 100 && ::waitpid(pid, nullptr, WNOHANG) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Result<Taken> take_now(const std::string& directory, const std::string& owner, bool make) {
  std::error_code error;
  if (!make && !fs::is_directory(directory, error)) return Taken();
  fs::create_directories(directory, error);
  if (error) return core::system_error("mkdir", directory, error.value());
  auto lock = core::FileLock::take(directory + "/LOCK", owner);
  if (!lock.ok()) return lock.status();
  return Taken(std::move(*lock));
}

// One message: a code and a text, and the descriptor of the lock if there is one.
void tell(int socket, const Result<Taken>& taken) {
  std::string text = taken.ok() ? "" : taken.status().message().substr(0, kMostText - 1);
  text.insert(text.begin(), static_cast<char>(taken.ok() ? Code::kOk : taken.code()));
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  if (taken.ok() && taken->has_value()) {
    message.msg_control = control.data(), message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = (*taken)->descriptor();
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  (void)::sendmsg(socket, &message, MSG_NOSIGNAL);
}

Result<Taken> hear(int socket, const std::string& directory) {
  std::array<char, kMostText> text{};
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control.data(), message.msg_controllen = control.size();
  const ssize_t bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (bytes <= 0) return core::internal_error(directory + ": the process that was to take its lock has died");
  const auto code = static_cast<Code>(text[0]);
  if (code != Code::kOk)
    return Status(code, std::string(text.data() + 1, static_cast<std::size_t>(bytes - 1)));
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return Taken();
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return Taken(core::FileLock::adopt(core::Fd(fd)));
}

}  // namespace

Result<Taken> take_directory(const std::string& directory, const std::string& owner, bool make,
                             Duration limit) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return core::system_error("socketpair", directory, errno);
  const core::Fd ours(ends[0]);
  core::Fd theirs(ends[1]);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) return core::system_error("fork", directory, errno);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == parent) tell(theirs.get(), take_now(directory, owner, make));
    ::_exit(0);
  }
  theirs.reset();
  if (!readable_within(ours.get(), limit)) {
    leave_behind(pid);
    return core::deadline_exceeded(
        fmt::format("{}: it has not answered for {:g} s", directory, seconds(limit)));
  }
  auto taken = hear(ours.get(), directory);
  leave_behind(pid);  // it has nothing to do any more, but may hang in closing LOCK
  return taken;
}

Result<std::string> ask_persist(std::vector<std::string> words, const std::string& about, Duration quiet) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return core::system_error("pipe", "regroup-persist", errno);
  const core::Fd ours(ends[0]);
  core::Fd theirs(ends[1]);
  launcher::SpawnSpec spec;
  spec.path = launcher::find_helper("regroup-persist");
  spec.argv = std::move(words);
  spec.in = STDIN_FILENO, spec.out = theirs.get(), spec.err = STDERR_FILENO;
  const auto pid = launcher::spawn(spec);
  if (!pid.ok()) return pid.status();
  theirs.reset();
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t count = 1; count > 0 || (count < 0 && errno == EINTR);) {
    if (!readable_within(ours.get(), quiet)) {
      leave_behind(*pid);
      return core::deadline_exceeded(fmt::format(
          "{}: regroup-persist, which looks there, has said nothing for {:g} s", about, seconds(quiet)));
    }
    count = ::read(ours.get(), part.data(), part.size());
    if (count > 0) text.append(part.data(), static_cast<std::size_t>(count));
  }
  int status = 0;
  while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return core::internal_error(fmt::format("{}: its checkpoints cannot be read", about));
  return text;
}

}  // namespace regroup::cmd
