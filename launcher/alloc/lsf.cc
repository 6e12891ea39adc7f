// IBM Spectrum LSF 10.1 reference, "Environment variables set for job execution"; OpenLava has
// LSB_HOSTS and LSB_MCPU_HOSTS only.
#include <fmt/format.h>

#include <optional>

#include "base/status.h"
#include "base/text.h"
#include "launcher/alloc/reading.h"
#include "launcher/spec/host_list.h"

namespace regroup::alloc {
namespace {

using base::invalid_argument;
using base::Status;

// LSB_HOSTS: one word per slot.
Status read_words(std::string_view text, HostSum& sum) {
  for (std::string_view host; base::next_blank_word(text, host);)
    REGROUP_RETURN_IF_ERROR(sum.add(host, 1));
  return {};
}

// On machines with IBM's job step manager the first slot is on the node that runs the script, which
// runs no members.
void drop_launch_node(const AllocInput& input, std::vector<Host>& hosts, Reading& reading) {
  if (!input.has("CSM_ALLOCATION_ID") || hosts.size() < 2 || hosts.front().slots != 1) return;
  reading.facts.push_back(fmt::format("{}: host {}, the first, is the launch node",
                                      fact(input, "CSM_ALLOCATION_ID"), hosts[0].name));
  hosts.erase(hosts.begin());
}

// Lines "Host1 0,1,2,3 0 2": host, processors, NUMA nodes and memory policy of each rank.
Status read_affinity(const AllocInput& input, HostSum& sum, Reading& reading) {
  const std::string name = "LSB_AFFINITY_HOSTFILE";
  if (!input.has(name)) return {};
  auto text = read_named_file(input, name);
  if (!text.ok()) {  // the file may have been removed, which must not end the job
    reading.warnings.push_back(
        fmt::format("{}: the file is not used to bind members", text.status().message()));
    return {};
  }
  std::size_t line = 0;
  for (std::string_view rest = *text, row; base::next_part(rest, '\n', row);) {
    ++line;
    std::string_view host, cpus;
    if (!base::next_blank_word(row, host)) continue;
    Host* known = sum.find(host);
    if (known == nullptr)
      return invalid_argument(fmt::format("{}={}, line {}: host {} is not in the job's allocation",
                                          name, input.value(name), line,
                                          base::printable_word(host)));
    if (!base::next_blank_word(row, cpus)) continue;
    const auto numbers = spec::expand_numbers(cpus);
    if (!numbers.ok())
      return invalid_argument(fmt::format("{}={}, line {}: {}", name, input.value(name), line,
                                          numbers.status().message()));
    known->cores.insert(known->cores.end(), numbers->begin(), numbers->end());
  }
  if (line > 0) reading.facts.push_back(fact(input, name));
  return {};
}

void add_gpus(const AllocInput& input, std::vector<Host>& hosts, Reading& reading) {
  const auto ids = spec::expand_numbers(input.value("CUDA_VISIBLE_DEVICES"));
  for (Host& host : hosts) {
    if (!host.here || !ids.ok() || ids->empty()) continue;
    reading.facts.push_back(fact(input, "CUDA_VISIBLE_DEVICES"));
    for (const int id : *ids) host.gpus.push_back(std::to_string(id));
    host.gpu_count = static_cast<std::uint32_t>(host.gpus.size());
  }
}

}  // namespace

// "hA 2 hB 4"
Status add_pairs(const AllocInput& input, const std::string& name, HostSum& sum) {
  for (std::string_view rest = input.value(name), host, number;
       base::next_blank_word(rest, host);) {
    std::uint32_t slots = 0;
    if (!base::next_blank_word(rest, number) || !base::whole(number, slots) || slots == 0)
      return invalid_argument(fmt::format("{}: host {}: expected a number of slots after the name",
                                          name, base::printable_word(host)));
    REGROUP_RETURN_IF_ERROR(sum.add(host, slots));
  }
  return {};
}

base::Result<Reading> read_lsf(const AllocInput& input) {
  Reading reading;
  reading.id = input.value("LSB_JOBID");
  const std::string source = input.has("LSB_MCPU_HOSTS")      ? "LSB_MCPU_HOSTS"
                             : input.has("LSB_DJOB_HOSTFILE") ? "LSB_DJOB_HOSTFILE"
                                                              : "LSB_HOSTS";
  HostSum sum(source);
  if (source == "LSB_MCPU_HOSTS") {
    REGROUP_RETURN_IF_ERROR(add_pairs(input, source, sum));
  } else if (source == "LSB_DJOB_HOSTFILE") {
    REGROUP_ASSIGN_OR_RETURN(const auto text, read_named_file(input, source));
    REGROUP_RETURN_IF_ERROR(read_words(text, sum));
  } else {
    REGROUP_RETURN_IF_ERROR(read_words(input.value(source), sum));
  }
  if (sum.hosts().empty())
    return invalid_argument(
        "LSB_JOBID is set, but LSB_MCPU_HOSTS, LSB_DJOB_HOSTFILE and LSB_HOSTS contain no host");
  reading.facts.push_back(fact(input, source));
  check_count(input, "LSB_DJOB_NUMPROC", sum.slots(), source, reading);
  REGROUP_RETURN_IF_ERROR(read_affinity(input, sum, reading));
  sum.mark_here(input.host_name);
  add_gpus(input, sum.hosts(), reading);
  reading.allocation.hosts = std::move(sum.hosts());
  drop_launch_node(input, reading.allocation.hosts, reading);
  // OpenLava has no blaunch, and none of these variables either.
  if (input.has("LSB_DJOB_HOSTFILE") || input.has("LSB_DJOB_NUMPROC"))
    reading.reach.before = {"blaunch"};
  return reading;
}

}  // namespace regroup::alloc
