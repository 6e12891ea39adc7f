// The child sends a length, a code and a text. A text that is shorter than its length was cut by
// the child's end.
#include "launcher/topology/read_in_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>

#include "base/fd.h"

namespace regroup::topology {
namespace {

using base::Code;
using Answer = base::Result<std::string>;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostAnswer = std::size_t{64} << 20;

struct AnswerHead {
  std::uint64_t length = 0;
  std::uint32_t code = 0;
};

void write_all(int to, const void* bytes, std::size_t size) {
  const char* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t count = ::write(to, from, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // the parent has closed the pipe
    from += count;
    size -= static_cast<std::size_t>(count);
  }
}

// Resets signals that the launcher blocks or ignores, and that must end the child.
void become_reader(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, "regroup-reader");
  if (::getppid() != parent) ::_exit(1);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null >= 0) ::dup2(null, STDOUT_FILENO);
}

[[noreturn]] void answer(int to, const Answer& found) {
  const std::string& text = found.ok() ? *found : found.status().message();
  const AnswerHead head{text.size(), static_cast<std::uint32_t>(found.code())};
  write_all(to, &head, sizeof head);
  write_all(to, text.data(), text.size());
  ::_exit(0);
}

enum class Reading : std::uint8_t { kEnded, kLate, kTooLong };

// Reads until the end of the stream.
Reading read_all(int from, Clock::time_point until, std::string& out) {
  std::array<char, 65536> part;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    pollfd one{from, POLLIN, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Reading::kLate;
    const ssize_t count = ::read(from, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Reading::kEnded;
    out.append(part.data(), static_cast<std::size_t>(count));
    if (out.size() > kMostAnswer + sizeof(AnswerHead)) return Reading::kTooLong;
  }
}

// The child's wait status; empty: it hangs, or another thread has reaped it.
std::optional<int> reap(pid_t child) {
  for (int i = 0; i < 2000; ++i) {
    int status = 0;
    const pid_t got = ::waitpid(child, &status, WNOHANG);
    if (got == child) return status;
    if (got < 0 && errno != EINTR) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::microseconds(i < 100 ? 50 : 1000));
  }
  return std::nullopt;
}

std::optional<Answer> whole(const std::string& text) {
  AnswerHead head;
  if (text.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, text.data(), sizeof head);
  if (head.length != text.size() - sizeof head) return std::nullopt;
  std::string rest = text.substr(sizeof head);
  const auto code = static_cast<Code>(head.code);
  if (code == Code::kOk) return Answer(std::move(rest));
  return Answer(base::Status(code, std::move(rest)));
}

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("ended with status {}", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* const name = ::sigabbrev_np(signal);
  return fmt::format(
      "was killed by {} ({})",
      name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal),
      ::strsignal(signal));
}

}  // namespace

Answer read_in_child(const std::string& source, std::string_view reader,
                     const std::function<Answer()>& read, base::Duration limit) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return base::system_error("pipe", source, errno);
  const base::Fd ours(ends[0]);
  base::Fd theirs(ends[1]);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) return base::system_error("fork", source, errno);
  if (child == 0) {
    become_reader(parent);
    answer(theirs.get(), read());
  }
  theirs.reset();
  std::string text;
  const Reading reading =
      read_all(ours.get(), Clock::now() + std::chrono::duration_cast<Clock::duration>(limit), text);
  std::optional<Answer> found = reading == Reading::kEnded ? whole(text) : std::nullopt;
  if (reading != Reading::kEnded) ::kill(child, SIGKILL);
  const std::optional<int> status = reap(child);
  if (found) return std::move(*found);
  if (reading == Reading::kTooLong)
    return base::invalid_argument(fmt::format("{}: the answer of {} is larger than {} MiB", source,
                                              reader, kMostAnswer >> 20));
  if (reading == Reading::kLate)
    return base::deadline_exceeded(fmt::format("{}: {} did not finish within {:g} s", source,
                                               reader,
                                               std::chrono::duration<double>(limit).count()));
  return base::invalid_argument(fmt::format("{}: {} {} while reading it", source, reader,
                                            status ? how_it_ended(*status) : "vanished"));
}

}  // namespace regroup::topology
