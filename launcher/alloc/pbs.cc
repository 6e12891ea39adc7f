// PBS Professional 2024 User's Guide, chapter "Multiprocessor Jobs", and Torque 6.1 administrator's
// guide, "Exported batch environment variables"; OpenPBS 23.06, pbs.conf(8B) and pbs_attach(8B).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/status.h"
#include "base/text.h"
#include "launcher/alloc/reading.h"

namespace regroup::alloc {
namespace {

using base::invalid_argument;
using base::Status;

// Lines "host-gpu0".
Status read_gpus(const AllocInput& input, HostSum& sum, Reading& reading) {
  if (!input.has("PBS_GPUFILE")) return {};
  REGROUP_ASSIGN_OR_RETURN(const auto text, read_named_file(input, "PBS_GPUFILE"));
  std::size_t number = 0;
  for (std::string_view rest = text, line; base::next_part(rest, '\n', line);) {
    ++number;
    line = base::trimmed_word(line);
    if (line.empty()) continue;
    const std::size_t mark = line.rfind("-gpu");
    Host* host = mark == std::string_view::npos ? nullptr : sum.find(line.substr(0, mark));
    std::uint32_t gpu = 0;
    if (host == nullptr || !base::whole(line.substr(mark + 4), gpu))
      return invalid_argument(
          fmt::format("PBS_GPUFILE={}, line {}: '{}': expected HOST-gpuN with a host of the job",
                      input.value("PBS_GPUFILE"), number, base::printable_word(line)));
    host->gpus.push_back(std::to_string(gpu));
    host->gpu_count = static_cast<std::uint32_t>(host->gpus.size());
  }
  if (number > 0) reading.facts.push_back(fact(input, "PBS_GPUFILE"));
  return {};
}

// If the file lists each host once, PBS_PPN has the number of slots per host.
Status apply_ppn(const AllocInput& input, HostSum& sum, Reading& reading) {
  if (!input.has("PBS_PPN") || sum.slots() != sum.hosts().size()) return {};
  std::uint32_t each = 0;
  if (!base::whole(input.value("PBS_PPN"), each) || each == 0)
    return invalid_argument(
        fmt::format("{}: expected a whole number >= 1", fact(input, "PBS_PPN")));
  reading.facts.push_back(fact(input, "PBS_PPN"));
  for (Host& host : sum.hosts()) host.slots = each;
  return {};
}

bool plain(std::string_view word) {
  return std::ranges::all_of(word, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("/._-+").find(c) != std::string_view::npos;
  });
}

// pbs_attach makes a process that ssh has started a part of the job, so that PBS accounts for it
// and kills it. Torque has neither pbs_attach nor pbs.conf.
void attach_to_job(const AllocInput& input, Reading& reading) {
  const std::string path =
      input.has("PBS_CONF_FILE") ? input.value("PBS_CONF_FILE") : "/etc/pbs.conf";
  const auto text = input.read_file(path);
  if (!text.ok()) return;
  for (std::string_view rest = *text, line; base::next_part(rest, '\n', line);) {
    constexpr std::string_view kName = "PBS_EXEC=";
    line = base::trimmed_word(line);
    if (!line.starts_with(kName)) continue;
    const std::string folder(line.substr(kName.size()));
    // Quoted, since a shell on the other host reads these words: "7[3].server" is a job of an
    // array.
    if (!folder.starts_with('/') || !plain(folder) || reading.id.find('\'') != std::string::npos)
      return;
    reading.facts.push_back(fmt::format("{}: {}", path, line));
    reading.reach.after = {folder + "/bin/pbs_attach", "-j",
                           plain(reading.id) ? reading.id : "'" + reading.id + "'"};
  }
}

}  // namespace

base::Result<Reading> read_pbs(const AllocInput& input) {
  Reading reading;
  reading.id = input.value("PBS_JOBID");
  if (!input.has("PBS_NODEFILE"))
    return invalid_argument("PBS_JOBID is set, but PBS_NODEFILE is not");
  const auto text = read_named_file(input, "PBS_NODEFILE");
  if (!text.ok()) {
    return Status(
        text.code(),
        fmt::format("{}; the file exists only on the job's first host, where its script runs",
                    text.status().message()));
  }
  HostSum sum("PBS_NODEFILE=" + input.value("PBS_NODEFILE"));
  for (std::string_view rest = *text, line; base::next_part(rest, '\n', line);) {
    line = base::trimmed_word(line);
    if (!line.empty()) REGROUP_RETURN_IF_ERROR(sum.add(line, 1));
  }
  if (sum.hosts().empty())
    return invalid_argument(fmt::format("{}: contains no host", fact(input, "PBS_NODEFILE")));
  reading.facts.push_back(fact(input, "PBS_NODEFILE"));
  REGROUP_RETURN_IF_ERROR(apply_ppn(input, sum, reading));
  REGROUP_RETURN_IF_ERROR(read_gpus(input, sum, reading));
  sum.mark_here(input.host_name);
  reading.allocation.hosts = std::move(sum.hosts());
  check_count(input, "PBS_NP", reading.allocation.slots(), "PBS_NODEFILE", reading);
  check_count(input, "PBS_NUM_NODES", reading.allocation.hosts.size(), "PBS_NODEFILE", reading);
  // Uses ssh, because processes that tm_spawn starts (pbs_tmrsh, pbsdsh) have no standard input,
  // from which agents read the job's secret, and write their output into the job's files.
  attach_to_job(input, reading);
  return reading;
}

}  // namespace regroup::alloc
