// The time from an allocator's signal to the kill, from scontrol(1), queue_conf(5), and the
// defaults in the manuals.
#include <fmt/format.h>

#include "base/status.h"
#include "base/text.h"
#include "launcher/alloc/reading.h"

namespace regroup::alloc {
namespace {

using base::Result;
using std::chrono::seconds;

Result<std::string> run(const AllocInput& input, const std::vector<std::string>& command) {
  if (!input.run) return base::invalid_argument("commands cannot be run here");
  auto text = input.run(command);
  if (text.ok()) return text;
  return base::Status(text.code(),
                      fmt::format("{} {}: {}", command[0], command[1], text.status().message()));
}

// The number after `name` and "=" or blanks.
std::optional<std::uint32_t> number_after(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + name.size());
  text.remove_prefix(std::min(text.find_first_not_of("= \t"), text.size()));
  std::uint32_t number = 0;
  if (!base::whole(text.substr(0, text.find_first_not_of("0123456789")), number))
    return std::nullopt;
  return number;
}

}  // namespace

// At a preemption, Slurm sends SIGTERM to the steps, which have GraceTime, and after that to the
// batch shell, which has KillWait. At scancel and at the time limit all processes have KillWait.
Result<Grace> slurm_grace(const AllocInput& input) {
  const std::string& partition = input.value("SLURM_JOB_PARTITION");
  if (partition.empty()) return base::invalid_argument("SLURM_JOB_PARTITION is not set");
  REGROUP_ASSIGN_OR_RETURN(const auto config, run(input, {"scontrol", "show", "config"}));
  const auto wait = number_after(config, "KillWait");
  if (!wait) return base::invalid_argument("scontrol show config: KillWait is missing");
  REGROUP_ASSIGN_OR_RETURN(const auto shown,
                           run(input, {"scontrol", "show", "partition", partition, "-o"}));
  const auto grace = number_after(shown, "GraceTime=");
  if (!grace)
    return base::invalid_argument(fmt::format("partition {}: GraceTime is missing", partition));
  const bool preempted = *grace > 0;
  return Grace{seconds(preempted ? *grace : *wait), seconds(*wait),
               preempted ? fmt::format("GraceTime of partition {}", partition) : "KillWait"};
}

// qsub -notify: the time between the notification and SIGSTOP or SIGKILL.
Result<Grace> grid_engine_grace(const AllocInput& input) {
  const std::string& queue = input.value("QUEUE");
  if (queue.empty()) return base::invalid_argument("QUEUE is not set");
  REGROUP_ASSIGN_OR_RETURN(const auto shown, run(input, {"qconf", "-sq", queue}));
  for (std::string_view rest = shown, line; base::next_part(rest, '\n', line);) {
    std::string_view word;
    if (!base::next_blank_word(line, word) || word != "notify" ||
        !base::next_blank_word(line, word))
      continue;
    std::uint32_t total = 0, part = 0;
    for (std::string_view piece; base::next_part(word, ':', piece);) {
      if (!base::whole(piece, part) || part > 86'400)
        return base::invalid_argument("qconf -sq: notify is not a time");
      total = total * 60 + part;
    }
    return Grace{seconds(total), seconds(total), fmt::format("notify of queue {}", queue)};
  }
  return base::invalid_argument(fmt::format("queue {}: notify is missing", queue));
}

Result<Grace> lsf_grace(const AllocInput&) {
  return Grace{seconds(10), seconds(10), "default of LSF's JOB_TERMINATE_INTERVAL"};
}
Result<Grace> pbs_grace(const AllocInput&) {
  return Grace{seconds(10), seconds(10), "default of PBS's kill_delay"};
}
Result<Grace> flux_grace(const AllocInput&) {
  return Grace{seconds(5), seconds(5), "default of Flux's kill-timeout"};
}
// Reads the grace period of pods of an Indexed Job, if the service account has permission.
Result<Grace> kubernetes_grace(const AllocInput& input) {
  const std::string host = input.host_name.substr(0, input.host_name.find('.'));
  const std::size_t dash = host.rfind('-');
  std::uint32_t said = 0;
  if (input.has("JOB_COMPLETION_INDEX") && dash != std::string::npos) {
    const auto text =
        run(input, {"kubectl", "get", "pods", "--request-timeout=5s",
                    "--selector=batch.kubernetes.io/job-name=" + host.substr(0, dash),
                    "--output=jsonpath={.items[0].spec.terminationGracePeriodSeconds}"});
    if (text.ok() && base::whole(base::trimmed_word(*text), said) && said > 0 && said <= 86'400)
      return Grace{seconds(said), seconds(said), "terminationGracePeriodSeconds of the pods"};
  }
  return Grace{seconds(30), seconds(30), "default of terminationGracePeriodSeconds"};
}

}  // namespace regroup::alloc
