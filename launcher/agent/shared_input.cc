// The former descriptor 0 is duplicated to another number, which a StdinFeed reads.
#include "launcher/agent/shared_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace regroup::agent {

base::Status SharedInput::open(boost::asio::io_context& loop, bool here) {
  const auto failed = [](const char* call) {
    return base::system_error(call, "standard input", errno);
  };
  input_ = base::Fd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!input_.valid() && errno == EBADF)
    input_ = base::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input_.valid()) return failed("fcntl");
  feed_ = std::make_shared<process::StdinFeed>(loop, input_.get());
  if (!here) return {};
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return failed("pipe2");
  const base::Fd read(fds[0]);
  base::Fd write(fds[1]);
  ::fcntl(write.get(), F_SETFL, O_NONBLOCK);
  if (::dup2(read.get(), STDIN_FILENO) < 0) return failed("dup2");
  add(std::move(write));
  return {};
}

void SharedInput::add(base::Fd pipe) {
  if (feed_ && pipe.valid()) feed_->add(std::move(pipe));
}

void SharedInput::start() {
  if (feed_ && feed_->members() > 0) feed_->start();
}

void SharedInput::stop() {
  if (feed_) feed_->stop();
}

}  // namespace regroup::agent
