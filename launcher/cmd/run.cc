// Checks what can be checked before anything starts, then hands over to the guardian.
#include "launcher/cmd/run.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "launcher/alloc/allocator.h"
#include "launcher/supervise/agent.h"
#include "launcher/supervise/guardian.h"
#include "launcher/supervise/rigid_job.h"

namespace regroup::cmd {
namespace {

constexpr int kUsage = 1;
constexpr int kNoFolder = 181;  // as Open MPI 5

int fail(const std::string& message, int exit_status) {
  fmt::print(stderr, "regroup: {}\n", message);
  return exit_status;
}

std::string new_job_id() {
  std::uint32_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != sizeof bits) bits = static_cast<std::uint32_t>(::getpid());
  return fmt::format("{:08x}", bits);
}

int rigid_agent(const Options& options, const launcher::Program& program, core::Fd guardian) {
  auto port = launcher::hold_port();
  if (!port.ok()) return fail(port.status().message(), kUsage);
  launcher::AgentOptions agent{program, std::move(*port), options.term_grace, options.timeout};
  agent.program.master_port = agent.port.port;
  return launcher::Agent(
             std::move(agent), std::move(guardian),
             [&](launcher::Agent& owner) { return std::make_unique<launcher::RigidJob>(owner, options.max); })
      .run();
}

}  // namespace

int run_job(Options options) {
  auto allocation = launcher::make_this_machine()->allocation();
  if (!allocation.ok()) return fail(allocation.status().message(), kUsage);
  if (core::Status status = fit_to_slots(options, allocation->slots()); !status.ok()) {
    return fail(status.message(), kUsage);
  }
  if (!options.wdir.empty() && ::access(options.wdir.c_str(), X_OK) != 0) {
    return fail(fmt::format("--wdir {}: {}", options.wdir, std::strerror(errno)), kNoFolder);
  }
  auto path = launcher::find_program(options.command[0], options.wdir, options.environment);
  if (!path.ok()) return fail(path.status().message(), launcher::kStartFailed);

  launcher::Program program;
  program.path = std::move(*path);
  program.argv = options.command;
  program.environment = options.environment;
  program.wdir = options.wdir;
  program.job = new_job_id();
  program.tag_output = options.tag_output;
  program.priority = launcher::current_priority();
  return launcher::Guardian(
             [&](core::Fd guardian) { return rigid_agent(options, program, std::move(guardian)); }, nullptr)
      .run();
}

}  // namespace regroup::cmd
