// regroup-pmi: an agent starts this process to serve the MPI programs of its host. A crash in
// libpmix ends only this process. usage: regroup-pmi JOB FOLDER LIBPMIX HOST; descriptor 3 is the
// socket to the agent.
#include <fmt/format.h>

#include <unistd.h>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <cstdlib>

#include "launcher/process/app.h"
#include "tools/pmi/service.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "regroup-pmi: it is started by regroup, with JOB FOLDER LIBPMIX HOST\n");
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  boost::asio::io_context loop;
  regroup::pmi::Service service(
      loop, regroup::base::Fd(regroup::process::kInheritedFd),
      {argv[1], argv[2], argv[3], static_cast<std::uint32_t>(std::strtoul(argv[4], nullptr, 10))});
  service.start();
  loop.run();
  _exit(0);  // libpmix's threads still run
}
