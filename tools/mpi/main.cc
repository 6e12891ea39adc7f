// regroup-mpi: a member of an elastic job starts this process to take messages to other hosts
// through the user's MPI (--plane mpi). A crash of the MPI ends only this process.
// usage: regroup-mpi JOB GENERATION FOLDER LIBMPI HOST HOST_OF_RANK,...; descriptor 3 listens for
// the members of this host.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string>

#include "launcher/process/app.h"
#include "tools/mpi/service.h"

namespace {

regroup::mpi::ServiceOptions options_of(char** argv, char** environment) {
  regroup::mpi::ServiceOptions options;
  options.job = fmt::format("{}-mpi{}", argv[1], argv[2]);
  options.generation = argv[2];
  options.folder = argv[3];
  options.library = argv[4];
  options.host = std::atoi(argv[5]);
  std::istringstream hosts(argv[6]);
  for (std::string host; std::getline(hosts, host, ',');)
    options.host_of.push_back(std::atoi(host.c_str()));
  for (char** variable = environment; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos)
      options.environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return options;
}

}  // namespace

int main(int argc, char** argv, char** environment) {
  if (argc != 7) {
    fmt::print(stderr,
               "regroup-mpi: it is started by members of a job with --plane mpi, with JOB "
               "GENERATION FOLDER LIBMPI HOST HOST_OF_RANK,...\n");
    return 2;
  }
  if (const pid_t child = ::fork(); child != 0) _exit(child > 0 ? 0 : 1);
  std::signal(SIGPIPE, SIG_IGN);
  const regroup::base::Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(null.get(), STDIN_FILENO);
  // MPI's start replaces the descriptor: nothing else may get its number.
  regroup::base::Fd listener(
      ::fcntl(regroup::process::kInheritedFd, F_DUPFD_CLOEXEC, regroup::process::kInheritedFd + 1));
  ::dup2(null.get(), regroup::process::kInheritedFd);
  boost::asio::io_context loop;
  regroup::mpi::Service service(loop, std::move(listener), options_of(argv, environment));
  service.start();
  loop.run();
  service.finish();
  _exit(0);  // threads of MPI still run
}
