// Each member leads a process group of its own, which is killed when the member ends.
#include "launcher/process/process_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "launcher/process/reaped_child.h"
#include "launcher/process/signals.h"
#include "launcher/process/spawn.h"
#include "launcher/process/stuck_process.h"

namespace regroup::process {
namespace {

constexpr std::chrono::milliseconds kTeardown{200};
constexpr timespec kRecheck{0, 1'000'000};

MemberExit exit_of(proto::MemberId member, std::uint32_t rank, pid_t pid, int status) {
  MemberExit exit{member, rank, pid};
  if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
  if (WIFEXITED(status)) exit.code = WEXITSTATUS(status);
  return exit;
}

std::string in_units(std::uint64_t bytes) {
  constexpr std::uint64_t kMiB = 1 << 20;
  return bytes % kMiB == 0 ? fmt::format("{} MiB", bytes / kMiB) : fmt::format("{} bytes", bytes);
}

// Sets the working directory as mpirun does; Open MPI 4 shows it as `wdir` of MPI_INFO_ENV.
void add_folder(const std::string& wdir, spec::Environment& environment) {
  std::error_code error;
  const std::string folder = std::filesystem::canonical(wdir.empty() ? "." : wdir, error);
  if (error) return;
  if (!wdir.empty()) environment["PWD"] = folder;
  environment.emplace("OMPI_MCA_initial_wdir", folder);
}

// The GPUs that the environment assigns by UUID.
std::vector<std::string> gpus_in(const spec::Environment& environment) {
  const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  std::vector<std::string> out;
  std::istringstream rest(visible == environment.end() ? "" : visible->second);
  for (std::string gpu; std::getline(rest, gpu, ',');) {
    if (gpu.starts_with("GPU-")) out.push_back(gpu);
  }
  return out;
}

// A word of a command line as a shell takes it: in quotes where it needs them.
std::string as_shell_word(const std::string& word) {
  const auto is_plain = [](unsigned char c) {
    return c >= 0x80 || std::isalnum(c) != 0 || std::strchr("%+,-./:=@^_", c) != nullptr;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

spec::OutputRequest of_job(spec::OutputRequest output, const std::string& job) {
  output.log.job = job;
  return output;
}

}  // namespace

std::string shown(const App& app) {
  constexpr std::size_t kMost = 200;
  std::string all;
  for (const std::string& word : app.argv) all += (all.empty() ? "" : " ") + as_shell_word(word);
  const std::string line = all.substr(0, all.find('\n'));
  return line.size() <= kMost && line.size() == all.size() ? line : line.substr(0, kMost) + " ...";
}

std::string MemberExit::process() const {
  return host.empty() ? fmt::format("(pid {})", pid) : fmt::format("(pid {} on {})", pid, host);
}

std::string MemberExit::what() const {
  const std::string more =
      exceeded_memory == 0
          ? ""
          : fmt::format("killed for exceeding its memory limit of {}", in_units(exceeded_memory));
  if (!more.empty() && signal == SIGKILL) return "was " + more;
  const std::string plain =
      signal != 0 ? fmt::format("was killed by signal {} ({})", signal, signal_name(signal))
                  : fmt::format("exited with code {}", code);
  return more.empty() ? plain : fmt::format("{} after one of its processes was {}", plain, more);
}

ProcessTable::ProcessTable(boost::asio::io_context& loop, ProcessTableOptions options, Sink& out,
                           Sink& err, ExitHandler exited, std::function<void()> changed)
    : options_(std::move(options)),
      streams_(loop, of_job(options_.output, options_.job), options_.stdin_to, out, err,
               std::move(changed)),
      err_(err),
      exited_(std::move(exited)),
      limiter_(options_.record ? options_.record->job() : options_.job, options_.record) {}

base::Status ProcessTable::start(const Place& place, Extras extras) {
  REGROUP_ASSIGN_OR_RETURN(auto pipes, streams_.open(place));
  return start_with(std::move(pipes), place, extras);
}

void ProcessTable::set_app(std::uint32_t number, App app) {
  if (options_.apps.size() <= number) options_.apps.resize(number + std::size_t{1});
  options_.apps[number] = std::move(app);
}

// REGROUP_PLACEMENT marks with "claim" the GPUs that the job uses exclusively.
base::Status ProcessTable::claim_gpus(const spec::Environment& given) {
  const auto placement = given.find("REGROUP_PLACEMENT");
  if (placement == given.end()) return {};
  const nlohmann::json told = nlohmann::json::parse(placement->second, nullptr, false);
  if (!told.is_object()) return {};
  std::vector<std::string> gpus;
  for (const nlohmann::json& gpu : told.value("gpus", nlohmann::json::array())) {
    if (gpu.contains("claim")) gpus.push_back(gpu.value("claim", ""));
  }
  return claims_.claim_all(options_.claims, gpus);
}

base::Status ProcessTable::start_with(MemberPipes pipes, const Place& place, const Extras& extras) {
  REGROUP_RETURN_IF_ERROR(claim_gpus(extras.environment));
  const App& app = options_.apps.at(place.app);
  spec::Environment environment = member_environment(
      app.environment, place, options_.job, options_.master, options_.agent_socket, extras.threads);
  if (!options_.world_socket.empty() && place.space == 0) {
    environment["REGROUP_AGENT"] = options_.world_socket;
    environment["REGROUP_MEMBER"] = std::to_string(place.rank);
    environment.emplace("REGROUP_WORLD", "fixed");  // or "alone", if the user says so
  }
  if (!options_.exits_file.empty() && place.space == 0)
    environment["REGROUP_RANK_EXITS"] = options_.exits_file;
  add_folder(app.wdir, environment);
  if (options_.agent_socket.empty()) add_program(app.argv, environment);
  for (const auto& [name, value] : extras.environment) environment[name] = value;
  const Restraint restraint = limiter_.restrain(place.member, app.limits);
  if (!restraint.said.empty() && !options_.quiet) err_.write("regroup: " + restraint.said + "\n");
  SpawnSpec spec{app.path,
                 app.argv,
                 to_strings(environment),
                 app.wdir,
                 pipes.in(),
                 pipes.out(),
                 pipes.err(),
                 options_.priority,
                 extras.inherited.get(),
                 extras.cores.empty() ? restraint.cores : extras.cores};
  for (const base::Fd& procs : restraint.cgroup_procs) spec.groups.push_back(procs.get());
  spec.data_bytes = restraint.data_bytes;
  spec.open_files = options_.open_files;
  REGROUP_ASSIGN_OR_RETURN(spec.memory, memory_order(options_.memory, spec.cores));
  REGROUP_ASSIGN_OR_RETURN(auto pid, spawn(spec));
  running_[place.member] = {pid, place.rank, gpus_in(environment)};
  if (options_.verbose) tell_start(place, app, pid, spec.cores);
  streams_.start(std::move(pipes), place, pid);
  return {};
}

void ProcessTable::tell_start(const Place& place, const App& app, pid_t pid,
                              const std::vector<int>& cores) {
  err_.write(fmt::format(
      "regroup: member {} (rank {}, pid {}) runs {} in {}{}\n", place.member, place.rank, pid,
      base::escaped(app.path), app.wdir.empty() ? "." : base::escaped(app.wdir),
      cores.empty() ? "" : fmt::format(" on processors {}", fmt::join(cores, ","))));
}

void ProcessTable::tell_exit_codes() {
  if (!options_.tell_exit_codes) return;
  std::vector<std::string> codes;
  for (const auto& [member, exit] : exits_)
    codes.push_back(fmt::format("{}:{}", member, exit.status()));
  err_.write(fmt::format("regroup: exit codes, by member: {}\n", fmt::join(codes, " ")));
}

bool ProcessTable::signal(proto::MemberId member, int signal) {
  const auto found = running_.find(member);
  return found != running_.end() && ::kill(-found->second.pid, signal) == 0;
}

void ProcessTable::signal_all(int signal) {
  for (const auto& [member, process] : running_) ::kill(-process.pid, signal);
}

void ProcessTable::reap() {
  siginfo_t info{};
  // WNOWAIT first, reap second: until the leader is reaped, the kernel cannot reuse the id of its
  // process group, so the SIGKILL to the group in between hits nothing else.
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    const pid_t pid = info.si_pid;
    const bool ours = std::any_of(running_.begin(), running_.end(),
                                  [pid](const auto& entry) { return entry.second.pid == pid; });
    reap_child(pid, ours);
    info = {};
  }
}

void ProcessTable::reap_child(pid_t pid, bool ours) {
  if (ours) ::kill(-pid, SIGKILL);
  int status = 0;
  if (::waitpid(pid, &status, 0) == pid) reaped(pid, status);
}

// The kernel closes the files of an exiting process, which its peers notice, a moment before the
// process can be reaped.
void ProcessTable::reap_exiting(proto::MemberId but) {
  const auto deadline = std::chrono::steady_clock::now() + kTeardown;
  const auto next_exiting = [&] {
    return std::find_if(running_.begin(), running_.end(), [&](const auto& entry) {
      return entry.first != but && is_exiting(entry.second.pid);
    });
  };
  for (auto at = next_exiting();
       at != running_.end() && std::chrono::steady_clock::now() < deadline; at = next_exiting()) {
    siginfo_t info{};
    const pid_t pid = at->second.pid;
    const auto id = static_cast<id_t>(pid);
    const bool over =
        ::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
    if (over) reap_child(pid, true);
    if (!over) ::nanosleep(&kRecheck, nullptr);
  }
}

void ProcessTable::leave_stuck() {
  std::vector<MemberExit> left;
  for (const auto& [member, process] : running_) {
    const auto where = stuck_in(process.pid);
    if (!where) continue;
    err_.write(fmt::format("regroup: member {} (pid {}) was killed, but {}: it is left behind\n",
                           member, process.pid, hangs_in(*where)));
    left.push_back(exit_of(member, process.rank, process.pid, SIGKILL));
  }
  for (const MemberExit& exit : left) {
    running_.erase(exit.member);
    if (options_.tell_exit_codes) exits_[exit.member] = exit;
    exited_(exit);
  }
}

void ProcessTable::reaped(pid_t pid, int status) {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [pid](const auto& entry) { return entry.second.pid == pid; });
  if (found == running_.end()) return ReapedChild::record(pid, status);  // or an orphan of a member
  MemberExit exit = exit_of(found->first, found->second.rank, pid, status);
  exit.exceeded_memory = limiter_.exceeded_memory(exit.member);
  running_.erase(found);
  if (options_.verbose) {
    err_.write(fmt::format("regroup: member {} (rank {}, pid {}) {}\n", exit.member, exit.rank,
                           exit.pid, exit.what()));
  }
  if (options_.tell_exit_codes) exits_[exit.member] = exit;
  exited_(exit);
}

std::vector<metrics::UsageTarget> ProcessTable::usage_targets() const {
  std::vector<metrics::UsageTarget> out;
  for (const auto& [member, process] : running_)
    out.push_back({member, process.rank, process.pid, limiter_.folders_of(member), process.gpus});
  return out;
}

pid_t ProcessTable::pid_of(proto::MemberId member) const {
  const auto found = running_.find(member);
  return found == running_.end() ? 0 : found->second.pid;
}

}  // namespace regroup::process
