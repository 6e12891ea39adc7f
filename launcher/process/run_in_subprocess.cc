// The child sends its result as one message over a socket pair, with the descriptor of a lock if it
// took one.
#include "launcher/process/run_in_subprocess.h"

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
#include <fstream>
#include <iterator>
#include <string_view>
#include <thread>
#include <utility>

#include "base/lock_owner.h"
#include "launcher/process/environment.h"
#include "launcher/process/signals.h"
#include "launcher/process/spawn.h"
#include "launcher/process/stuck_process.h"

namespace regroup::process {
namespace {

namespace fs = std::filesystem;
using base::Code;
using base::Duration;
using base::Result;
using base::Status;
using Taken = std::optional<base::FileLock>;

constexpr std::size_t kMostText = 8192;
constexpr std::uint64_t kMostHolder = 512;            // bytes of a LOCK
constexpr std::chrono::milliseconds kEndingLook(20);  // whether a job that is ending has ended ...
constexpr std::chrono::milliseconds kEndingAnswer(500);  // ... and for how long one child looks

double seconds_of(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// False: neither data nor end of file came within `limit`.
bool readable_within(int fd, Duration limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd one{fd, POLLIN, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (ready == 0) return false;
  }
}

void kill_and_abandon(pid_t pid) {
  ::kill(pid, SIGKILL);
  for (int i = 0; i < 100 && ::waitpid(pid, nullptr, WNOHANG) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// What the child sends: a text, and perhaps a descriptor.
struct SubprocessResult {
  std::string text;
  base::Fd file;
};

std::string holder_of(const std::string& lock) {
  std::ifstream file(lock);
  std::string text(kMostHolder, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// Returns the lock, or the text of one whose job is ending.
Result<SubprocessResult> take_now(const std::string& directory, const std::string& owner,
                                  bool make) {
  std::error_code error;
  if (!make && !fs::is_directory(directory, error)) return SubprocessResult();
  fs::create_directories(directory, error);
  if (error) return base::system_error("mkdir", directory, error.value());
  const std::string path = directory + "/LOCK";
  auto lock = base::FileLock::take(path, owner);
  for (const auto end = std::chrono::steady_clock::now() + kEndingAnswer;
       lock.code() == Code::kUnavailable;) {
    const std::string holder = holder_of(path);
    if (!launcher_is_gone(holder, owner)) break;
    if (std::chrono::steady_clock::now() >= end) return SubprocessResult{holder, {}};
    std::this_thread::sleep_for(kEndingLook);
    lock = base::FileLock::take(path, owner);
  }
  if (!lock.ok()) return lock.status();
  base::Fd file(::fcntl(lock->descriptor(), F_DUPFD_CLOEXEC, 0));
  if (!file.valid()) return base::system_error("fcntl", directory + "/LOCK", errno);
  return SubprocessResult{{}, std::move(file)};
}

// One message: a code and a text, and the descriptor of the file if there is one.
void send_result(int socket, const Result<SubprocessResult>& result) {
  std::string text =
      (result.ok() ? result->text : result.status().message()).substr(0, kMostText - 1);
  text.insert(text.begin(), static_cast<char>(result.ok() ? Code::kOk : result.code()));
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  if (result.ok() && result->file.valid()) {
    message.msg_control = control.data(), message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS,
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = result->file.get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  (void)::sendmsg(socket, &message, MSG_NOSIGNAL);
}

Result<SubprocessResult> receive_result(int socket, const std::string& about) {
  std::array<char, kMostText> text{};
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control.data(), message.msg_controllen = control.size();
  const ssize_t bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (bytes <= 0) return base::internal_error(about + ": the child process ended without a result");
  const auto code = static_cast<Code>(text[0]);
  SubprocessResult out{std::string(text.data() + 1, static_cast<std::size_t>(bytes - 1)), {}};
  if (code != Code::kOk) return Status(code, std::move(out.text));
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return out;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  out.file = base::Fd(fd);
  return out;
}

// Runs `work` in a child, which is abandoned if it has sent no result within `limit`.
Result<SubprocessResult> run_child(const std::function<Result<SubprocessResult>()>& work,
                                   const std::string& about, Duration limit) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return base::system_error("socketpair", about, errno);
  const base::Fd ours(ends[0]);
  base::Fd theirs(ends[1]);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) return base::system_error("fork", about, errno);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == parent) send_result(theirs.get(), work());
    ::_exit(0);
  }
  theirs.reset();
  if (!readable_within(ours.get(), limit)) {
    kill_and_abandon(pid);
    return base::deadline_exceeded(
        fmt::format("{}: no answer for {:g} s", about, seconds_of(limit)));
  }
  auto result = receive_result(ours.get(), about);
  kill_and_abandon(pid);  // it has sent its result, but may hang while it closes a file
  return result;
}

// A pending signal that ends a job and is blocked here, or 0.
int pending_end_signal() {
  sigset_t waiting;
  ::sigpending(&waiting);
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) {
    if (::sigismember(&waiting, signal) == 1) return signal;
  }
  return 0;
}

}  // namespace

// An earlier launch by the launcher of this one is over, too.
bool launcher_is_gone(const std::string& holder, const std::string& owner) {
  const auto theirs = base::process_in_owner(holder), ours = base::process_in_owner(owner);
  if (!theirs || !ours || theirs->second != ours->second) return false;
  if (theirs->first == ours->first) return true;
  const bool none = ::kill(theirs->first, 0) != 0 && errno == ESRCH;
  return none || is_exiting(theirs->first);
}

std::vector<base::FileLock>& HeldLocks::kept() {
  static auto& kept = *new std::vector<base::FileLock>;
  return kept;
}

HeldLocks::~HeldLocks() { std::ranges::move(locks_, std::back_inserter(kept())); }

Result<Taken> take_directory(const std::string& directory, const std::string& owner, bool make,
                             const LockWait& wait) {
  std::optional<std::chrono::steady_clock::time_point> until;
  for (;;) {
    auto result =
        run_child([&] { return take_now(directory, owner, make); }, directory, wait.answer);
    if (!result.ok()) return result.status();
    if (result->file.valid()) return Taken(base::FileLock::adopt(std::move(result->file)));
    if (result->text.empty()) return Taken();
    const std::string has = fmt::format("{}/LOCK: {} has it", directory, result->text);
    const auto now = std::chrono::steady_clock::now();
    if (!until) {
      until = now + wait.ending;
      if (wait.say)
        wait.say(fmt::format(
            "{}, but its launcher has ended: this job starts when that one has ended, within "
            "{:g} s (--orphan-timeout, and time to clean up)",
            has, seconds_of(wait.ending)));
    } else if (now >= *until) {
      return base::unavailable(
          fmt::format("{}, and has not ended within {:g} s although its launcher has: end its "
                      "processes (REGROUP_JOB in their environment), or give another directory",
                      has, seconds_of(wait.ending)));
    }
    if (const int signal = pending_end_signal(); signal != 0)
      return base::unavailable(fmt::format("{}, and {} was received while waiting for its end", has,
                                           signal_name(signal)));
  }
}

Result<std::string> run_in_subprocess(const std::function<Result<std::string>()>& work,
                                      const std::string& about, Duration limit) {
  auto result = run_child(
      [&]() -> Result<SubprocessResult> {
        REGROUP_ASSIGN_OR_RETURN(auto text, work());
        return SubprocessResult{std::move(text), {}};
      },
      about, limit);
  if (!result.ok()) return result.status();
  return std::move(result->text);
}

Result<std::string> run_persist(std::vector<std::string> arguments, const std::string& about,
                                Duration quiet) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return base::system_error("pipe", "regroup-persist", errno);
  const base::Fd ours(ends[0]);
  base::Fd theirs(ends[1]);
  SpawnSpec spec;
  spec.path = find_helper("regroup-persist");
  spec.argv = std::move(arguments);
  spec.in = STDIN_FILENO, spec.out = theirs.get(), spec.err = STDERR_FILENO;
  REGROUP_ASSIGN_OR_RETURN(const auto pid, spawn(spec));
  theirs.reset();
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t count = 1; count > 0 || (count < 0 && errno == EINTR);) {
    if (!readable_within(ours.get(), quiet)) {
      kill_and_abandon(pid);
      return base::deadline_exceeded(
          fmt::format("{}: regroup-persist printed nothing for {:g} s", about, seconds_of(quiet)));
    }
    count = ::read(ours.get(), part.data(), part.size());
    if (count > 0) text.append(part.data(), static_cast<std::size_t>(count));
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return base::internal_error(
        fmt::format("{}: regroup-persist could not read its checkpoints", about));
  return text;
}

}  // namespace regroup::process
