// Usage as text: lines of a CSV log, the JSON that `regroup status` reads, Prometheus.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/metrics/usage_meter.h"

namespace regroup::metrics {

[[nodiscard]] std::string usage_csv_header();
// One line for each sample and GPU (one line for a sample without GPUs). `seconds`: since 1970.
[[nodiscard]] std::string usage_csv(double seconds, const std::vector<UsageSample>& samples);

// {"members": [{"id", "rank", "host", "pid", "cpu_seconds", "cpus", "memory_bytes", "processes",
// "gpus":
// [...]}]}
[[nodiscard]] std::string usage_json(const std::vector<UsageSample>& samples);
// kDataLoss: malformed, or more than 65,536 members.
[[nodiscard]] base::Result<std::vector<UsageSample>> usage_from_json(const std::string& text);

// Converts the output of `regroup status --json` to Prometheus' text format, version 0.0.4.
[[nodiscard]] std::string prometheus_text(const std::string& status_json);

}  // namespace regroup::metrics
