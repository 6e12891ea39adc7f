// Asks again and again, since a watch ends whenever the server likes. The pods together ask at most
// kAskedPerSecond times a second.
#include "launcher/job/pods.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "launcher/job/grant.h"
#include "launcher/job/start.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/time_limit.h"

namespace regroup::job {
namespace {

constexpr std::chrono::seconds kPhaseLimit{15};
constexpr std::chrono::seconds kAskEvery{2};
constexpr std::size_t kAskedPerSecond = 20;
constexpr std::chrono::milliseconds kLookEvery{50};

void reap_orphans() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  std::getline(file, line);
  return line;
}

// Two processes are in one pod if these variables of theirs are equal.
bool in_this_pod(const std::filesystem::path& folder, const spec::Environment& own) {
  std::ifstream file(folder / "environ", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  const auto is_equal = [&](const char* name) {
    const auto found = own.find(name);
    return found != own.end() &&
           process::has_variable(all, fmt::format("{}={}", name, found->second));
  };
  return is_equal("HOSTNAME") && is_equal("JOB_COMPLETION_INDEX");
}

std::vector<pid_t> agents_of_pod(const spec::Environment& own) {
  std::vector<pid_t> out = process::all_processes();
  std::erase_if(out, [&](pid_t pid) {
    const std::filesystem::path folder = fmt::format("/proc/{}", pid);
    return first_line(folder / "comm") != "regroup-agent" || !in_this_pod(folder, own);
  });
  return out;
}

// The next signal within `limit`; 0: none came.
int next_signal(base::Duration limit) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(limit - whole);
  const timespec time{whole.count(), static_cast<long>(rest.count())};
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) ::sigaddset(&wanted, signal);
  return std::max(0, ::sigtimedwait(&wanted, nullptr, &time));
}

// Whatever signal ends the wait; 0: none came within `limit`.
int wait_for_end(base::Duration limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (auto now = std::chrono::steady_clock::now(); now < end;
       now = std::chrono::steady_clock::now()) {
    const int signal = next_signal(end - now);
    reap_orphans();
    if (signal != 0 && signal != SIGCHLD) return signal;
  }
  return 0;
}

// The pod's grace limits this.
int end_with(int signal, const spec::Environment& environment) {
  for (const pid_t agent : agents_of_pod(environment)) ::kill(agent, signal);
  while (!agents_of_pod(environment).empty()) {
    (void)next_signal(kLookEvery);
    reap_orphans();
  }
  return 128 + signal;
}

// Until a pod runs for each of `hosts`; nothing where the grant's hosts are no pods.
std::optional<int> wait_for(const spec::Grant& grant, const std::vector<spec::HostRequest>& hosts,
                            const spec::Environment& environment, bool quiet,
                            std::optional<base::Duration> limit) {
  if (grant.print_running.empty()) return std::nullopt;
  std::vector<std::string> addresses;
  for (const spec::HostRequest& host : hosts) {
    if (!host.here) addresses.push_back(host.address.empty() ? host.name : host.address);
  }
  std::string told;
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const auto running = command_output(grant.print_running, environment, kPhaseLimit);
    const auto absent =
        running.ok() ? absent_pods(addresses, *running) : std::vector<std::string>();
    if (running.ok() && absent.empty()) return std::nullopt;
    if (limit && std::chrono::steady_clock::now() - begin >= *limit) return std::nullopt;
    const std::string text = running.ok() ? fmt::format("waiting for pods: {} of {} do not run yet",
                                                        absent.size(), addresses.size())
                                          : fmt::format("pods: {}", running.status().message());
    if (!quiet && text != told) fail(text, 0);
    told = text;
    if (const int signal = wait_for_end(process::time_limit(environment, kAskEvery)))
      return 128 + signal;
  }
}

}  // namespace

std::optional<int> status_of_phases(std::string_view phases) {
  bool failed = false;
  for (std::string_view phase; base::next_part(phases, '\n', phase);) {
    phase = base::trimmed_word(phase);
    if (phase == "Succeeded") return 0;
    if (!phase.empty() && phase != "Failed") return std::nullopt;
    failed = failed || phase == "Failed";
  }
  return failed ? std::optional(1) : std::nullopt;
}

int serve_launcher(const spec::Grant& grant, const spec::Environment& environment, bool quiet) {
  const base::Duration every = std::max<base::Duration>(
      kAskEvery, std::chrono::seconds(grant.hosts.size() / kAskedPerSecond));
  if (!quiet)
    fail(
        fmt::format("host {} launches the job; this host serves it until it ends (--allocator none "
                    "launches one here)",
                    grant.launched_by),
        0);
  std::string told;
  for (;;) {
    const auto phases = command_output(grant.print_phases, environment, kPhaseLimit);
    const auto status = phases.ok() ? status_of_phases(*phases) : std::nullopt;
    if (status) return *status;
    if (!phases.ok() && told != phases.status().message()) {
      told = phases.status().message();
      fail(fmt::format("phase of pod {}: {}; asking again", grant.launched_by, told), 0);
    }
    if (const int signal = wait_for_end(process::time_limit(environment, every)))
      return end_with(signal, environment);
  }
}

std::vector<std::string> absent_pods(const std::vector<std::string>& addresses,
                                     std::string_view running) {
  std::set<std::string, std::less<>> found;
  for (std::string_view line; base::next_part(running, '\n', line);) {
    line = base::trimmed_word(line);
    line.remove_prefix(std::min(line.find('/') + 1, line.size()));
    found.emplace(line.substr(0, line.rfind('-')));
  }
  std::vector<std::string> out = addresses;
  std::erase_if(out, [&](const std::string& each) { return found.contains(each); });
  return out;
}

std::optional<int> wait_for_pods(const spec::JobSpec& spec) {
  const bool pods = spec.discovery.script.empty() && spec.several_hosts() && !spec.do_not_launch;
  if (!pods) return std::nullopt;
  const auto limit = spec.elastic ? std::optional(spec.min_members_timeout) : std::nullopt;
  return wait_for(spec.grant, spec.hosts, spec.environment, spec.quiet, limit);
}

std::optional<int> wait_for_pods(const spec::Grant& grant, const spec::Environment& environment) {
  return wait_for(grant, grant.hosts, environment, false, std::nullopt);
}

}  // namespace regroup::job
