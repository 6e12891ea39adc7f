// The usage of a member as columns of a table.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

namespace regroup::metrics {

// "  1.98    812 MiB 93% 14.2/40.0 GiB"; "-" for an unknown value.
inline std::string usage_columns(const nlohmann::json& member) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  if (!member.contains("memory_bytes")) return fmt::format("{:>6} {:>10} -", "-", "-");
  std::string out = fmt::format("{:>6.2f} {:>6.0f} MiB", member.value("cpus", 0.0),
                                member.value("memory_bytes", 0.0) / kMiB);
  const nlohmann::json gpus = member.value("gpus", nlohmann::json::array());
  if (gpus.empty()) out += " -";
  for (const nlohmann::json& gpu : gpus) {
    // Of the rank, or of the whole GPU where the driver does not tell the rank's.
    const int busy = gpu.value("rank_busy_percent", gpu.value("busy_percent", 0));
    const double used = gpu.value("rank_memory_used", gpu.value("memory_used", 0.0));
    out += fmt::format(" {}% {:.1f}/{:.1f} GiB", busy, used / kGiB,
                       gpu.value("memory_total", 0.0) / kGiB);
  }
  return out;
}

// For each fault of a GPU of the members a line, "GPU GPU-5c0 of member 3: 2 uncorrectable ...".
inline std::string gpu_fault_lines(const nlohmann::json& members) {
  std::string out;
  for (const nlohmann::json& member : members) {
    for (const nlohmann::json& gpu : member.value("gpus", nlohmann::json::array())) {
      for (const nlohmann::json& fault : gpu.value("faults", nlohmann::json::array())) {
        if (fault.is_string())
          out += fmt::format("GPU {} of member {}: {}\n", gpu.value("uuid", ""),
                             member.value("id", 0U), fault.get<std::string>());
      }
    }
  }
  return out;
}

// For each GPU that is not used a line that says why.
inline std::string refused_gpu_lines(const nlohmann::json& status) {
  std::string out;
  for (const nlohmann::json& gpu : status.value("refused_gpus", nlohmann::json::array()))
    out += fmt::format("GPU {} is not used, since member {} was refused: {}\n",
                       gpu.value("gpu", ""), gpu.value("member", 0U), gpu.value("why", ""));
  return out;
}

}  // namespace regroup::metrics
