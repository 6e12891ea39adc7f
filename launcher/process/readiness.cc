// A nested epoll, armed for one event at a time.
#include "launcher/process/readiness.h"

#include <sys/epoll.h>

#include <boost/asio/post.hpp>
#include <cerrno>

namespace regroup::process {

void Readiness::wait(int fd, std::uint32_t events, std::function<void()> ready) {
  if (!poll_.is_open()) poll_.assign(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = events | EPOLLONESHOT;
  const int poll = poll_.native_handle();
  if (::epoll_ctl(poll, EPOLL_CTL_MOD, fd, &event) != 0 &&
      (errno != ENOENT || ::epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) != 0)) {
    boost::asio::post(poll_.get_executor(),
                      std::move(ready));  // EPERM: a regular file is always ready
    return;
  }
  poll_.async_wait(poll_.wait_read,
                   [poll, ready = std::move(ready)](const boost::system::error_code& error) {
                     if (error) return;
                     epoll_event taken{};
                     ::epoll_wait(poll, &taken, 1, 0);
                     ready();
                   });
}

}  // namespace regroup::process
