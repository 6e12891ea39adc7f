// Builds a member's environment and searches PATH.
#include "launcher/process/environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

namespace regroup::process {
namespace {

constexpr const char* kCannotBeStarted = " cannot be started: ";

std::string in_folder(const std::string& wdir, const std::string& path) {
  return wdir.empty() || path.starts_with('/') ? path : wdir + "/" + path;
}

// 0, or the errno of why it cannot be executed.
int executable_error(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

}  // namespace

std::vector<std::string> to_strings(const spec::Environment& environment) {
  std::vector<std::string> out;
  out.reserve(environment.size());
  for (const auto& [name, value] : environment) out.push_back(fmt::format("{}={}", name, value));
  return out;
}

base::Result<std::string> find_program(const std::string& program, const std::string& wdir,
                                       const spec::Environment& environment) {
  if (program.find('/') != std::string::npos) {
    const int error = executable_error(in_folder(wdir, program));
    if (error == 0) return program;
    return base::not_found(
        fmt::format("program {}{}{}", program, kCannotBeStarted, std::strerror(error)));
  }
  const auto path = environment.find("PATH");
  const std::string folders =
      path != environment.end() ? path->second : "/usr/local/bin:/usr/bin:/bin";
  std::istringstream rest(folders);
  int worst = ENOENT;
  for (std::string folder; std::getline(rest, folder, ':');) {
    const std::string candidate = fmt::format("{}/{}", folder.empty() ? "." : folder, program);
    const int error = executable_error(in_folder(wdir, candidate));
    if (error == 0) return candidate;
    if (error == EACCES) worst = EACCES;
  }
  return base::not_found(
      worst == EACCES
          ? fmt::format("program {}: found in PATH={} but not executable", program, folders)
          : fmt::format("program {} was not found in PATH={}", program, folders));
}

base::Result<std::string> find_member_program(const std::string& program, const std::string& wdir,
                                              const spec::Environment& environment) {
  auto found = find_program(program, wdir, environment);
  if (found.ok() || program.empty() || program.find('/') != std::string::npos) return found;
  const std::string own = "./" + program;
  if (executable_error(in_folder(wdir, own)) == 0) return own;
  return found;
}

bool is_about_path(const base::Status& missing) {
  return missing.message().find(kCannotBeStarted) != std::string::npos;
}

base::Status check_wdir(const std::string& wdir) {
  if (wdir.empty() || ::access((wdir + "/.").c_str(), X_OK) == 0) return {};
  return base::invalid_argument(fmt::format("--wdir {}: {}", wdir, std::strerror(errno)));
}

// The kernel appends " (deleted)" to the path of an unlinked file.
std::string own_program() {
  constexpr std::string_view kGone = " (deleted)";
  std::error_code error;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (path.ends_with(kGone) && ::access(path.c_str(), F_OK) != 0)
    path.resize(path.size() - kGone.size());
  return path;
}

std::string find_helper(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(own_program()).parent_path();
  if (::access((folder / name).c_str(), X_OK) == 0) return folder / name;
  return folder.parent_path() / "libexec/regroup" / name;
}

base::Result<HeldPort> hold_port() {
  HeldPort held{base::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!held.socket.valid() ||
      ::setsockopt(held.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(held.socket.get(), generic, size) != 0 ||
      ::getsockname(held.socket.get(), generic, &size) != 0) {
    return base::system_error("bind", "a port of 127.0.0.1 for MASTER_PORT", errno);
  }
  held.port = ntohs(address.sin_port);
  return held;
}

namespace {

// Those of the batch script's own step are 0 for each rank. Lightning, PyTorch Ignite and JAX read
// them; Ignite even sets LOCAL_RANK from them.
void number_in_slurm(const std::string& rank, const std::string& local_rank,
                     spec::Environment& environment) {
  if (const auto at = environment.find("SLURM_PROCID"); at != environment.end()) at->second = rank;
  if (const auto at = environment.find("SLURM_LOCALID"); at != environment.end())
    at->second = local_rank;
}

// The kernel takes no string of 128 KiB.
constexpr std::size_t kLongestArguments = 65536;

}  // namespace

void add_program(const std::vector<std::string>& argv, spec::Environment& environment) {
  if (argv.empty()) return;
  environment.emplace("OMPI_COMMAND", argv[0]);
  std::string arguments = fmt::format("{}", fmt::join(argv.begin() + 1, argv.end(), " "));
  if (arguments.size() <= kLongestArguments) environment.emplace("OMPI_ARGV", std::move(arguments));
}

spec::Environment member_environment(spec::Environment base, const Place& place,
                                     const std::string& job, const Master& master,
                                     const std::string& agent_socket, std::uint32_t threads) {
  const std::string rank = std::to_string(place.rank);
  const std::string size = std::to_string(place.world_size);
  const std::string local_rank = std::to_string(place.local_rank.value_or(place.rank));
  const std::string local_size = std::to_string(place.local_size.value_or(place.world_size));
  base.emplace("RANK", rank);
  base.emplace("WORLD_SIZE", size);
  base.emplace("LOCAL_RANK", local_rank);
  base.emplace("LOCAL_WORLD_SIZE", local_size);
  base.emplace("MASTER_ADDR", master.address);
  base.emplace("MASTER_PORT", std::to_string(master.port));
  base.emplace("OMP_NUM_THREADS", std::to_string(threads));
  base["REGROUP_JOB"] = job;
  if (!agent_socket.empty()) {
    base["REGROUP_AGENT"] = agent_socket;
    base["REGROUP_MEMBER"] = std::to_string(place.member);
    base.emplace("CUBLAS_WORKSPACE_CONFIG", ":4096:8");  // else cuBLAS may choose by what is free
    return base;
  }
  base["OMPI_COMM_WORLD_RANK"] = rank;
  base["OMPI_COMM_WORLD_SIZE"] = base["OMPI_UNIVERSE_SIZE"] = size;
  base["OMPI_COMM_WORLD_LOCAL_RANK"] = base["OMPI_COMM_WORLD_NODE_RANK"] = local_rank;
  base["OMPI_COMM_WORLD_LOCAL_SIZE"] = local_size;
  number_in_slurm(rank, local_rank, base);
  base.emplace("GROUP_RANK", std::to_string(place.host));
  base.emplace("ROLE_RANK", rank);
  base.emplace("ROLE_WORLD_SIZE", size);
  base.emplace("TORCHELASTIC_RESTART_COUNT", "0");
  base.emplace("TORCHELASTIC_MAX_RESTARTS", "0");
  base.emplace("TORCHELASTIC_RUN_ID", job);
  base.emplace("JAX_COORDINATOR_PORT", std::to_string(master.port));
  if (place.space != 0) return base;
  // jax.distributed.initialize() knows a job of Open MPI by this name and takes the address only;
  // Open MPI 4.1 sets it, 5.0 does not, and JAX 0.10.2 does not find its ranks there. Of what
  // MPI_Comm_spawn has started Open MPI 4.1 would connect to no parent then.
  const bool v6 = master.address.find(':') != std::string::npos;
  base.emplace("OMPI_MCA_orte_hnp_uri",
               v6 ? fmt::format("0.0;tcp6://[{}]:{}", master.address, master.port)
                  : fmt::format("0.0;tcp://{}:{}", master.address, master.port));
  return base;
}

}  // namespace regroup::process
