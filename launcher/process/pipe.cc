// Pipes, pseudo-terminals and /dev/null, all closed on exec.
#include "launcher/process/pipe.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace regroup::process {
namespace {

constexpr const char* kTerminal = "a member's terminal";

// Clears all output modes except OPOST, which changes nothing by itself.
base::Status set_modes(int fd, int like) {
  termios modes{};
  if (::tcgetattr(fd, &modes) != 0) return base::system_error("tcgetattr", kTerminal, errno);
  modes.c_iflag = 0;
  modes.c_oflag = OPOST;
  modes.c_lflag = ISIG | ICANON | IEXTEN;
  if (::tcsetattr(fd, TCSANOW, &modes) != 0)
    return base::system_error("tcsetattr", kTerminal, errno);
  winsize size{};
  if (::ioctl(like, TIOCGWINSZ, &size) == 0) ::ioctl(fd, TIOCSWINSZ, &size);
  return {};
}

}  // namespace

base::Result<Pipe> make_pipe(bool ours_is_read) {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0)
    return base::system_error("pipe2", "a member's stream", errno);
  Pipe pipe{base::Fd(fds[0]), base::Fd(fds[1])};
  ::fcntl(ours_is_read ? fds[0] : fds[1], F_SETFL, O_NONBLOCK);
  return pipe;
}

base::Result<Pipe> make_terminal(int like) {
  base::Fd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  if (!master.valid()) return base::system_error("posix_openpt", kTerminal, errno);
  if (::grantpt(master.get()) != 0 || ::unlockpt(master.get()) != 0)
    return base::system_error("unlockpt", kTerminal, errno);
  base::Fd slave(::ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!slave.valid()) return base::system_error("ioctl(TIOCGPTPEER)", kTerminal, errno);
  REGROUP_RETURN_IF_ERROR(set_modes(slave.get(), like));
  return Pipe{std::move(master), std::move(slave)};
}

base::Result<Pipe> empty_input() {
  Pipe pipe{base::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)), {}};
  if (!pipe.read.valid()) return base::system_error("open", "/dev/null", errno);
  return pipe;
}

}  // namespace regroup::process
