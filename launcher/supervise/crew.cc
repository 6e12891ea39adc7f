// Members as processes. Each leads its own process group, which dies with it.
#include "launcher/supervise/crew.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "launcher/supervise/environment.h"
#include "launcher/supervise/signals.h"
#include "launcher/supervise/spawn.h"

namespace regroup::launcher {
namespace {

struct Pipe {
  core::Fd read, write;
};

// Our end is non-blocking, the member's is not.
core::Result<Pipe> make_pipe(bool ours_is_read) {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return core::system_error("pipe2", "a member's stream", errno);
  Pipe pipe{core::Fd(fds[0]), core::Fd(fds[1])};
  ::fcntl(ours_is_read ? fds[0] : fds[1], F_SETFL, O_NONBLOCK);
  return pipe;
}

MemberExit exit_of(core::MemberId member, std::uint32_t rank, pid_t pid, int status) {
  MemberExit exit{member, rank, pid, 0, 0};
  if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
  if (WIFEXITED(status)) exit.code = WEXITSTATUS(status);
  return exit;
}

}  // namespace

struct Crew::Pipes {
  core::Fd in;
  Pipe feed, out, err;
};

std::string MemberExit::what() const {
  return signal != 0 ? fmt::format("was killed by signal {} ({})", signal, signal_name(signal))
                     : fmt::format("exited with code {}", code);
}

Crew::Crew(boost::asio::io_context& loop, CrewOptions options, Sink& out, Sink& err, ExitHandler exited,
           std::function<void()> changed)
    : loop_(loop),
      options_(std::move(options)),
      out_(out),
      err_(err),
      exited_(std::move(exited)),
      changed_(std::move(changed)) {}

core::Status Crew::start(const Place& place, Extras extras) {
  Pipes pipes;
  auto out = make_pipe(true);
  if (!out.ok()) return out.status();
  auto err = make_pipe(true);
  if (!err.ok()) return err.status();
  pipes.out = std::move(*out);
  pipes.err = std::move(*err);
  if (gets_input(place)) {
    auto feed = make_pipe(false);
    if (!feed.ok()) return feed.status();
    pipes.feed = std::move(*feed);
    pipes.in = std::move(pipes.feed.read);
  } else {
    pipes.in.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!pipes.in.valid()) return core::system_error("open", "/dev/null", errno);
  }
  return start_with(pipes, place, extras);
}

std::uint32_t Crew::add_app(App app) {
  options_.apps.push_back(std::move(app));
  return static_cast<std::uint32_t>(options_.apps.size() - 1);
}

bool Crew::gets_input(const Place& place) const {
  return options_.stdin_to.to == StdinRequest::To::kRank && place.rank == options_.stdin_to.rank &&
         !input_given_;
}

core::Status Crew::start_with(Pipes& pipes, const Place& place, const Extras& extras) {
  const App& app = options_.apps.at(place.app);
  Environment environment =
      member_environment(app.environment, place, options_.job, options_.master_port, options_.agent_socket);
  for (const auto& [name, value] : extras.environment) environment[name] = value;
  auto pid =
      spawn({app.path, app.argv, to_strings(environment), app.wdir, pipes.in.get(), pipes.out.write.get(),
             pipes.err.write.get(), options_.priority, extras.inherited.get(), extras.cores});
  if (!pid.ok()) return pid.status();
  running_[place.member] = {*pid, place.rank};
  if (pipes.feed.write.valid()) {
    input_given_ = true;
    feed_ = std::make_shared<StdinFeed>(loop_, STDIN_FILENO, std::move(pipes.feed.write));
    feed_->start();
  }
  std::erase_if(outputs_, [](const auto& output) { return !output->open(); });
  listen(std::move(pipes.out.read), place, "stdout", out_);
  listen(std::move(pipes.err.read), place, "stderr", err_);
  return {};
}

std::string Crew::tag_of(const Place& place, const char* stream) const {
  switch (options_.output.tag) {
    case OutputRequest::Tag::kNone:
      return "";
    case OutputRequest::Tag::kJobRank:
      return fmt::format("[1,{}]<{}>:", place.member, stream);
    case OutputRequest::Tag::kRank:
      return fmt::format("[{}] ", place.member);
  }
  return "";
}

void Crew::listen(core::Fd pipe, const Place& place, const char* stream, Sink& sink) {
  const std::string prefix = tag_of(place, stream);
  outputs_.push_back(std::make_shared<Output>(loop_, std::move(pipe), prefix, sink, changed_));
  outputs_.back()->start();
}

bool Crew::signal(core::MemberId member, int signal) {
  const auto found = running_.find(member);
  return found != running_.end() && ::kill(-found->second.pid, signal) == 0;
}

void Crew::signal_all(int signal) {
  for (const auto& [member, process] : running_) ::kill(-process.pid, signal);
}

void Crew::reap() {
  siginfo_t info{};
  // Looked at first and reaped second: as long as its leader is not reaped, the number of a process group is
  // nobody else's.
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    const pid_t pid = info.si_pid;
    const bool ours = std::any_of(running_.begin(), running_.end(),
                                  [pid](const auto& entry) { return entry.second.pid == pid; });
    if (ours) ::kill(-pid, SIGKILL);
    int status = 0;
    if (::waitpid(pid, &status, 0) == pid) reaped(pid, status);
    info = {};
  }
}

void Crew::reaped(pid_t pid, int status) {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [pid](const auto& entry) { return entry.second.pid == pid; });
  if (found == running_.end()) return;  // an orphan that a member left
  const MemberExit exit = exit_of(found->first, found->second.rank, pid, status);
  running_.erase(found);
  exited_(exit);
}

void Crew::finish_outputs() {
  if (feed_) feed_->stop();
  for (const auto& output : std::vector(outputs_)) output->finish();
}

bool Crew::outputs_open() const {
  return std::any_of(outputs_.begin(), outputs_.end(), [](const auto& output) { return output->open(); });
}

pid_t Crew::pid_of(core::MemberId member) const {
  const auto found = running_.find(member);
  return found == running_.end() ? 0 : found->second.pid;
}

}  // namespace regroup::launcher
