// Each task of regroup-persist (the only program that uses HDF5) is a process of its own.
#include "checkpoint/writer/persist_process.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <utility>

#include "launcher/process/environment.h"
#include "launcher/process/spawn.h"

namespace regroup::writer {

std::string persist_program() { return process::find_helper("regroup-persist"); }

base::Result<std::shared_ptr<process::PipedProcess>> start_persist(
    boost::asio::io_context& loop, const std::string& program, std::vector<std::string> words,
    int inherited, process::PipedProcess::Events events) {
  process::SpawnSpec spec;
  spec.path = program;
  spec.argv = std::move(words);
  spec.argv.insert(spec.argv.begin(), "regroup-persist");
  spec.inherited = inherited;
  return process::PipedProcess::start(loop, std::move(spec), std::move(events));
}

void add_error(std::string_view line, std::string* errors) {
  if (!errors->empty()) *errors += "; ";
  *errors += line;
}

std::string silent_end(int wait_status) {
  return WIFSIGNALED(wait_status)
             ? fmt::format("regroup-persist: killed by signal {}", WTERMSIG(wait_status))
             : "regroup-persist ended without a message";
}

}  // namespace regroup::writer
