// Files and commands are read only once an allocator's variables are there: jobs without one pay
// nothing.
#include "launcher/job/grant.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <chrono>

#include "launcher/alloc/allocators.h"
#include "launcher/job/host_names.h"
#include "launcher/job/this_host.h"
#include "launcher/process/hook.h"

namespace regroup::job {
namespace {

constexpr std::chrono::seconds kCommandLimit{20};

}  // namespace

alloc::AllocInput allocation_input(const spec::Environment& environment) {
  alloc::AllocInput input;
  input.environment = environment;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) input.host_name = name.data();
  input.read_file = read_file;
  input.run = [&environment](const std::vector<std::string>& words) {
    return command_output(words, environment, kCommandLimit);
  };
  return input;
}

base::Result<std::string> command_output(const std::vector<std::string>& words,
                                         const spec::Environment& environment,
                                         base::Duration limit) {
  boost::asio::io_context loop(1);
  base::Result<std::string> printed = base::internal_error("no answer");
  process::Hook::start(loop, words, environment, limit,
                       [&](base::Result<std::string> text) { printed = std::move(text); });
  loop.run();
  return printed;
}

void mark_own(alloc::Reading& reading) {
  std::vector<alloc::Host>& hosts = reading.allocation.hosts;
  if (std::ranges::any_of(hosts, [](const alloc::Host& host) { return host.here; })) return;
  const std::vector<std::string> names = host_names();
  const auto own = std::ranges::find_if(
      hosts, [&](const alloc::Host& host) { return spec::is_this_host(names, host.name); });
  if (own != hosts.end()) own->here = true;
}

base::Result<spec::Grant> grant_of(const spec::Environment& environment,
                                   const std::string& allocator) {
  REGROUP_ASSIGN_OR_RETURN(auto granted,
                           alloc::find_allocation(allocation_input(environment), allocator));
  spec::Grant grant;
  if (granted.by == nullptr) return grant;
  alloc::Reading& reading = granted.reading;
  mark_own(reading);
  grant.by = reading.id.empty() ? granted.by->title
                                : fmt::format("{} job {}", granted.by->title, reading.id);
  grant.job = std::move(reading.id);
  grant.before = std::move(reading.reach.before);
  grant.after = std::move(reading.reach.after);
  grant.warnings = std::move(reading.warnings);
  grant.launched_by = std::move(reading.launched_by);
  grant.print_phases = std::move(reading.print_phases);
  grant.print_running = std::move(reading.print_running);
  for (alloc::Host& host : reading.allocation.hosts) {
    spec::HostRequest& request = grant.hosts.emplace_back();
    request.name = std::move(host.name);
    request.slots = host.slots;
    request.here = host.here;
    request.address = std::move(host.address);
    // Flux numbers cores by itself, not as the operating system does.
    if (std::string_view(granted.by->name) == "lsf") request.cores = std::move(host.cores);
    request.gpus = std::move(host.gpus);
  }
  return grant;
}

base::Result<alloc::Grace> grace_of(const spec::Environment& environment,
                                    const std::string& allocator) {
  const alloc::AllocInput input = allocation_input(environment);
  const alloc::AllocatorRow* row = alloc::find_allocator(input, allocator);
  if (row != nullptr) return row->grace(input);
  return base::not_found("no allocator granted hosts here");
}

}  // namespace regroup::job
