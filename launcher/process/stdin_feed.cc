// Copies the input to the pipes, one block at a time.
#include "launcher/process/stdin_feed.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace regroup::process {
namespace {

// No signal tells a background process group that it came to the foreground, so this is polled.
constexpr std::chrono::milliseconds kForegroundPoll{250};

}  // namespace

StdinFeed::StdinFeed(boost::asio::io_context& loop, int input, bool own)
    : readiness_(loop),
      input_(input),
      own_(own),
      terminal_(::isatty(input) == 1),
      look_again_(loop) {}

void StdinFeed::add(base::Fd pipe) {
  members_.push_back(std::make_unique<Member>(Member{
      boost::asio::posix::stream_descriptor(look_again_.get_executor(), pipe.release()), {}}));
}

void StdinFeed::stop() {
  look_again_.cancel();
  for (const auto& member : members_) {
    boost::system::error_code ignored;
    member->pipe.close(ignored);
  }
}

// A terminal of another session has no foreground group of ours.
bool StdinFeed::in_background() const {
  const pid_t group = terminal_ ? ::tcgetpgrp(input_) : -1;
  return group > 0 && group != ::getpgrp();
}

void StdinFeed::wait_input() {
  if (in_background()) return wait_foreground();
  readiness_.wait(input_, EPOLLIN, [self = shared_from_this()] { self->read(); });
}

void StdinFeed::wait_foreground() {
  look_again_.expires_after(kForegroundPoll);
  look_again_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->wait_input();
  });
}

// In the background a read would fail with EIO instead of stopping this process, since SIGTTIN is
// blocked.
void StdinFeed::read() {
  const bool taken = std::any_of(members_.begin(), members_.end(),
                                 [](const auto& member) { return member->pipe.is_open(); });
  if (!taken) return close_own();
  if (in_background()) return wait_foreground();
  const ssize_t count = ::read(input_, bytes_.data(), bytes_.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return wait_input();
  if (count < 0 && errno == EIO && in_background()) return wait_foreground();
  if (count <= 0) return stop();  // EOF, or the terminal is gone
  for (const auto& member : members_) {
    if (member->pipe.is_open()) member->rest = {bytes_.data(), static_cast<std::size_t>(count)};
  }
  for (const auto& member : members_) write(*member);
  next_if_taken();
}

void StdinFeed::close_own() {
  if (!own_) return;
  const base::Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (nothing.valid()) ::dup2(nothing.get(), input_);
}

void StdinFeed::write(Member& member) {
  while (!member.rest.empty() && member.pipe.is_open()) {
    const ssize_t count =
        ::write(member.pipe.native_handle(), member.rest.data(), member.rest.size());
    if (count >= 0) {
      member.rest.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      member.pipe.async_wait(member.pipe.wait_write, [self = shared_from_this(), &member](
                                                         const boost::system::error_code& error) {
        if (error) return;
        self->write(member);
        self->next_if_taken();
      });
      return;
    } else if (errno != EINTR) {
      boost::system::error_code ignored;
      member.pipe.close(ignored);  // EPIPE: the member closed its end
      member.rest = {};
    }
  }
}

void StdinFeed::next_if_taken() {
  for (const auto& member : members_) {
    if (!member->rest.empty() && member->pipe.is_open()) return;
  }
  wait_input();
}

}  // namespace regroup::process
