// Formats results as text and as JSON.
#include "tools/bench/report.h"

#include <fmt/format.h>
#include <sched.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace regroup::bench {
namespace {

using nlohmann::json;

bool both_timed(const std::optional<Series>& a, const Series& b) {
  return a && !a->blocks.empty() && a->blocks.size() == b.blocks.size();
}

double bandwidth(double bytes, double microseconds) { return bytes / microseconds / 1e3; }  // GB/s

std::string percent_text(std::optional<double> percent) {
  return percent ? fmt::format("{:.0f}", *percent) : "-";
}

// The seven columns of one Series, out of place or in place.
std::string columns_of(const SizeResult& result, const std::optional<Series>& series, int ranks) {
  constexpr const char* kFormat = " {:>9} {:>9} {:>9} {:>7} {:>7} {:>5} {:>6}";
  if (!series) return fmt::format(kFormat, "-", "-", "-", "-", "-", "-", "-");
  if (series->blocks.empty())
    return fmt::format(kFormat, "-", "-", "-", "-", "-", "-", series->wrong);
  const Stats stats = summarize(series->blocks);
  const double algorithm = bandwidth(static_cast<double>(result.size), stats.mean);
  return fmt::format(kFormat, fmt::format("{:.2f}", stats.mean), fmt::format("{:.2f}", stats.p50),
                     fmt::format("{:.2f}", stats.p99), fmt::format("{:.2f}", algorithm),
                     fmt::format("{:.2f}", algorithm * result.c.spec->bus(ranks)),
                     percent_text(copy_percent(result, *series, ranks)), series->wrong);
}

std::size_t count_of(const SizeResult& result) {
  return result.c.block / collective::size_of(result.c.dtype);
}

std::string rival_text(const SizeResult& result, const RivalSeries& rival) {
  if (!rival.refusal.empty()) return fmt::format("#   {}: {}\n", rival.name, rival.refusal);
  if (rival.series.blocks.empty())
    return fmt::format("#   {}: {} elements are wrong, not timed\n", rival.name,
                       rival.series.wrong);
  const Stats stats = summarize(rival.series.blocks);
  std::string out =
      fmt::format("#   {}: {:.2f} us (min {:.2f}, p50 {:.2f}, p99 {:.2f}, {} samples)", rival.name,
                  stats.mean, stats.min, stats.p50, stats.p99, stats.samples);
  for (const Row& row : result.rows) {
    if (!both_timed(rival.series, row.main())) continue;
    out += fmt::format("; {:.2f}x ours in {} memory",
                       paired_ratio(rival.series.blocks, row.main().blocks), name_of(row.memory));
  }
  return out + fmt::format(" (median of {} paired ratios)\n", rival.series.blocks.size());
}

json json_of(const Stats& stats) {
  return {{"mean_us", stats.mean}, {"min_us", stats.min}, {"p50_us", stats.p50},
          {"p99_us", stats.p99},   {"max_us", stats.max}, {"samples", stats.samples}};
}

json json_of(const SizeResult& result, const Series& series, int ranks) {
  json out = {{"wrong", series.wrong}};
  if (series.blocks.empty()) return out;
  const Stats stats = summarize(series.blocks);
  out.update(json_of(stats));
  const double algorithm = bandwidth(static_cast<double>(result.size), stats.mean);
  out["algbw_gbs"] = algorithm;
  out["busbw_gbs"] = algorithm * result.c.spec->bus(ranks);
  if (const auto percent = copy_percent(result, series, ranks)) out["copy_percent"] = *percent;
  if (const auto percent = bare_percent(result, series)) out["bare_percent"] = *percent;
  return out;
}

json json_of(const SizeResult& result, const RivalSeries& rival) {
  json out = {{"name", rival.name}, {"wrong", rival.series.wrong}};
  if (!rival.refusal.empty()) out["refusal"] = rival.refusal;
  if (rival.series.blocks.empty()) return out;
  out.update(json_of(summarize(rival.series.blocks)));
  for (const Row& row : result.rows) {
    if (both_timed(rival.series, row.main()))
      out["ratio"][name_of(row.memory)] = paired_ratio(rival.series.blocks, row.main().blocks);
  }
  out["pairs"] = rival.series.blocks.size();
  return out;
}

json json_of(const SizeResult& result, int ranks) {
  const Case& c = result.c;
  json out = {
      {"size", result.size}, {"count", count_of(result)}, {"type", collective::name_of(c.dtype)}};
  out["redop"] = c.spec->reduces ? json(collective::name_of(c.op)) : json();
  out["root"] = c.spec->rooted ? json(c.root) : json();
  if (both_timed(result.copy, result.rows.front().main()))
    out["copy"] = json_of(summarize(result.copy->blocks));
  for (const Row& row : result.rows) {
    json& memory = out["memory"][name_of(row.memory)];
    if (row.out_of_place) memory["out_of_place"] = json_of(result, *row.out_of_place, ranks);
    if (row.in_place) memory["in_place"] = json_of(result, *row.in_place, ranks);
  }
  for (const RivalSeries& rival : result.rivals) out["rivals"].push_back(json_of(result, rival));
  return out;
}

}  // namespace

Machine this_machine() {
  Machine out;
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; out.model.empty() && std::getline(cpus, line);) {
    if (line.starts_with("model name")) out.model = line.substr(line.find(':') + 2);
  }
  if (out.model.empty()) out.model = "unknown processor";
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) out.cores = CPU_COUNT(&cores);
  ::getloadavg(&out.load, 1);
  return out;
}

std::optional<double> copy_percent(const SizeResult& result, const Series& series, int ranks) {
  const double traffic = result.c.spec->traffic(ranks);
  if (!both_timed(result.copy, series) || traffic == 0) return std::nullopt;
  return 100 * traffic / (2 * ranks) * paired_ratio(result.copy->blocks, series.blocks);
}

std::optional<double> bare_percent(const SizeResult& result, const Series& series) {
  if (!both_timed(result.bare, series)) return std::nullopt;
  return 100 * paired_ratio(result.bare->blocks, series.blocks);
}

std::string head_text(const Options& options, int ranks, const Machine& machine) {
  std::string out =
      fmt::format("# regroup bench {}: {} rank{}, each with {} core{}, {}, load {:.2f}\n",
                  options.operation->name, ranks, ranks == 1 ? "" : "s", machine.cores,
                  machine.cores == 1 ? "" : "s", machine.model, machine.load);
  out +=
      "# times: mean over iterations and ranks, as OSU has it; data change in each iteration, "
      "results are\n"
      "# verified; %copy: of the bound that a copy past the cache by all ranks sets; %bare: of a "
      "loop that\n"
      "# reads and writes the same without synchronisation; up to 56 bytes: of a bare exchange of "
      "one cache "
      "line\n"
      "# of each rank\n#\n";
  constexpr const char* kPlacement = " {:>9} {:>9} {:>9} {:>7} {:>7} {:>5} {:>6}";
  out += fmt::format("#{:>10} {:>11} {:>8} {:>6} {:>4} {:>8}  {:^58}  {:^58}\n", "", "", "", "", "",
                     "", "out of place", "in place");
  const std::string placement =
      fmt::format(kPlacement, "time", "p50", "p99", "algbw", "busbw", "%copy", "#wrong");
  out += fmt::format("#{:>10} {:>11} {:>8} {:>6} {:>4} {:>8} {} {} {:>5}\n", "size", "count",
                     "type", "redop", "root", "memory", placement, placement, "%bare");
  const std::string units =
      fmt::format(kPlacement, "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "");
  return out + fmt::format("#{:>10} {:>11} {:>8} {:>6} {:>4} {:>8} {} {}\n", "(B)", "(elements)",
                           "", "", "", "", units, units);
}

std::string text_of(const SizeResult& result, int ranks) {
  const Case& c = result.c;
  std::string out;
  for (const Row& row : result.rows) {
    out += fmt::format(
        " {:>10} {:>11} {:>8} {:>6} {:>4} {:>8} {} {} {:>5}\n", result.size, count_of(result),
        collective::name_of(c.dtype), c.spec->reduces ? collective::name_of(c.op) : "-",
        c.spec->rooted ? std::to_string(c.root) : "-", name_of(row.memory),
        columns_of(result, row.out_of_place, ranks), columns_of(result, row.in_place, ranks),
        row.memory == Memory::kArena ? percent_text(bare_percent(result, row.main())) : "-");
  }
  for (const RivalSeries& rival : result.rivals) out += rival_text(result, rival);
  return out;
}

std::string json_of(const Options& options, int ranks, const Machine& machine,
                    const std::vector<SizeResult>& results) {
  json out = {
      {"bench", "regroup bench"},
      {"operation", options.operation->name},
      {"ranks", ranks},
      {"rounds", options.rounds},
      {"machine", {{"model", machine.model}, {"cores", machine.cores}, {"load", machine.load}}}};
  out["rows"] = json::array();
  for (const SizeResult& result : results) out["rows"].push_back(json_of(result, ranks));
  return out.dump();
}

}  // namespace regroup::bench
