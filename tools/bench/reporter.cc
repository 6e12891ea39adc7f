// open() tries to write each file, so that a bad path fails before an hour of measuring.
#include "tools/bench/reporter.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>

#include "base/clock.h"
#include "base/fd.h"
#include "tools/bench/embedded.h"

namespace regroup::bench {
namespace {

using base::Status;

constexpr auto kDrawing = std::chrono::seconds(120);

Status check_writable(const std::string& path) {
  const base::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  return file.valid() ? Status() : base::system_error("open", path, errno);
}

base::TimePoint in(base::Duration time) { return base::SystemClock().now() + time; }

}  // namespace

Reporter::Reporter(const Options& options, int ranks)
    : options_(options), ranks_(ranks), machine_(this_machine()) {}

Status Reporter::open() {
  if (!options_.json.empty()) REGROUP_RETURN_IF_ERROR(check_writable(options_.json));
  if (!options_.plot.empty()) {
    REGROUP_RETURN_IF_ERROR(check_writable(options_.plot));
    REGROUP_RETURN_IF_ERROR(folder_.make());
    auto found =
        output_of({"python3", "-c", "import matplotlib"}, folder_.path("output"), in(kDrawing));
    if (!found.ok()) {
      return base::invalid_argument(
          fmt::format("option --plot {}: requires python3 with matplotlib: {}", options_.plot,
                      found.status().message()));
    }
  }
  fmt::print("{}", head_text(options_, ranks_, machine_));
  std::fflush(stdout);
  return {};
}

void Reporter::report(const SizeResult& result) {
  fmt::print("{}", text_of(result, ranks_));
  std::fflush(stdout);
  for (const Row& row : result.rows) {
    wrong_ += row.out_of_place ? row.out_of_place->wrong : 0;
    wrong_ += row.in_place ? row.in_place->wrong : 0;
  }
  results_.push_back(result);
}

Status Reporter::close() {
  const std::string json = json_of(options_, ranks_, machine_, results_) + "\n";
  if (!options_.json.empty()) REGROUP_RETURN_IF_ERROR(write_file(options_.json, json));
  return options_.plot.empty() ? Status() : plot(json);
}

Status Reporter::plot(const std::string& json) {
  const std::string script = folder_.path("plot.py");
  const std::string data = folder_.path("data.json");
  REGROUP_RETURN_IF_ERROR(write_file(script, kPlot));
  REGROUP_RETURN_IF_ERROR(write_file(data, json));
  return output_of({"python3", script, data, options_.plot}, folder_.path("output"), in(kDrawing))
      .status();
}

}  // namespace regroup::bench
