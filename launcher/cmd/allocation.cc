// Files and commands are read only once an allocator's variables are there: jobs without one pay nothing.
#include "launcher/cmd/allocation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <chrono>

#include "core/printable.h"
#include "launcher/alloc/allocators.h"
#include "launcher/cmd/start.h"
#include "launcher/spawn/hook.h"

namespace regroup::cmd {
namespace {

constexpr std::chrono::seconds kCommandLimit{20};
constexpr const char* kHelp =
    "usage: regroup allocation [--json] [--allocator NAME]\n"
    "Show the hosts, slots, cores and GPUs that an allocator granted to this job, the variable or\n"
    "file that names each, the way to start agents there, and the time between a notice and the loss\n"
    "of a host. Without an allocator: show why each was passed over, and this machine.\n\n"
    "  --json            print JSON\n"
    "  --allocator NAME  flux, kubernetes, slurm, lsf, pbs, gridengine or none (default: detected)\n"
    "  -h, --help        print this help\n";

}  // namespace

launcher::AllocInput allocation_input(const launcher::Environment& environment) {
  launcher::AllocInput input;
  input.environment = environment;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) input.host_name = name.data();
  input.read_file = read_file;
  input.run = [&environment](const std::vector<std::string>& words) {
    return command_output(words, environment, kCommandLimit);
  };
  return input;
}

core::Result<std::string> command_output(const std::vector<std::string>& words,
                                         const launcher::Environment& environment, core::Duration limit) {
  boost::asio::io_context loop(1);
  core::Result<std::string> printed = core::internal_error("no answer");
  launcher::Hook::start(loop, words, environment, limit,
                        [&](core::Result<std::string> text) { printed = std::move(text); });
  loop.run();
  return printed;
}

core::Result<launcher::Grant> grant_of(const launcher::Environment& environment,
                                       const std::string& allocator) {
  auto granted = launcher::find_allocation(allocation_input(environment), allocator);
  if (!granted.ok()) return granted.status();
  launcher::Grant grant;
  if (granted->by == nullptr) return grant;
  launcher::Reading& reading = granted->reading;
  grant.by =
      reading.id.empty() ? granted->by->title : fmt::format("{} job {}", granted->by->title, reading.id);
  grant.job = std::move(reading.id);
  grant.before = std::move(reading.reach.before);
  grant.after = std::move(reading.reach.after);
  grant.warnings = std::move(reading.warnings);
  for (launcher::Host& host : reading.allocation.hosts) {
    launcher::HostRequest& request = grant.hosts.emplace_back();
    request.name = std::move(host.name);
    request.slots = host.slots;
    request.here = host.here;
    request.address = std::move(host.address);
    // Flux numbers cores by itself, not as the operating system does.
    if (std::string_view(granted->by->name) == "lsf") request.cores = std::move(host.cores);
    request.gpus = std::move(host.gpus);
  }
  return grant;
}

core::Result<launcher::Grace> grace_of(const launcher::Environment& environment,
                                       const std::string& allocator) {
  const launcher::AllocInput input = allocation_input(environment);
  const launcher::AllocatorRow* row = launcher::find_allocator(input, allocator);
  if (row != nullptr) return row->grace(input);
  return core::Status(core::Code::kNotFound, "no allocator has granted hosts here");
}

int run_allocation(const Options& options) {
  bool json = false;
  std::string name;
  const std::vector<std::string>& words = options.helper_words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--json") {
      json = true;
    } else if (words[i] == "--allocator" && i + 1 < words.size()) {
      name = words[++i];
    } else {
      const bool help = words[i] == "--help" || words[i] == "-h";
      if (!help) fmt::print(stderr, "regroup allocation: what is {}?\n", core::escaped(words[i]));
      fmt::print(help ? stdout : stderr, "{}", kHelp);
      return help ? 0 : 1;
    }
  }
  const launcher::AllocInput input = allocation_input(options.environment);
  const auto granted = launcher::find_allocation(input, name);
  if (!granted.ok()) return fail(granted.status().message(), 1);
  if (!json && granted->by != nullptr) {
    const auto grace = granted->by->grace(input);
    if (grace.ok()) {
      fmt::print("a notice comes {:g} s before a host is lost ({})\n",
                 std::chrono::duration<double>(grace->host).count(), grace->source);
    } else {
      fmt::print("how long before a loss a notice comes is not known: {}\n", grace.status().message());
    }
  }
  fmt::print("{}",
             json ? launcher::allocation_json(*granted) + "\n" : launcher::allocation_text(input, *granted));
  if (json || granted->by != nullptr) return 0;
  const auto here = launcher::make_this_machine()->allocation();
  if (!here.ok()) return fail(here.status().message(), 1);
  for (const launcher::Host& host : here->hosts) fmt::print("{}\n", launcher::this_machine_text(host));
  return 0;
}

}  // namespace regroup::cmd
