// Options with the meaning of one of nccl-tests have its name; the others are ours.
#include "tools/bench/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/nearest.h"
#include "base/values.h"

namespace regroup::bench {
namespace {

using base::bad_value;
using base::Status;
using collective::Dtype;
using collective::Op;
using Words = std::vector<std::string>;

constexpr std::size_t kMostSizes = 4096;

struct Spec {
  std::vector<std::string> names;  // with dashes; the last is shown in errors
  std::string value;               // its name in --help; "": the option is a flag
  std::string help;
  Status (*apply)(Options& out, const std::string& name, const std::string& value);
};

struct DtypeName {
  std::string_view name;
  Dtype dtype;
};
constexpr std::array<DtypeName, 15> kDtypes{
    {{"float32", Dtype::kFloat32},
     {"float64", Dtype::kFloat64},
     {"float16", Dtype::kFloat16},
     {"bfloat16", Dtype::kBfloat16},
     {"int8", Dtype::kInt8},
     {"int16", Dtype::kInt16},
     {"int32", Dtype::kInt32},
     {"int64", Dtype::kInt64},
     {"uint8", Dtype::kUint8},
     {"float", Dtype::kFloat32},  // from here on nccl-tests' names
     {"double", Dtype::kFloat64},
     {"half", Dtype::kFloat16},
     {"int", Dtype::kInt32},
     {"fp32", Dtype::kFloat32},
     {"fp64", Dtype::kFloat64}}};
constexpr std::size_t kOwnDtypes = 9;
constexpr std::array<Op, 7> kOps{Op::kSum, Op::kProd, Op::kMin, Op::kMax,
                                 Op::kAvg, Op::kBand, Op::kBor};
constexpr std::array<std::string_view, 3> kRivals{"openmpi", "mpich", "gloo"};

std::string operation_names() {
  Words names;
  for (const OperationSpec& spec : operations()) names.emplace_back(spec.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Status set_dtypes(Options& out, const std::string& name, const std::string& value) {
  out.dtypes.clear();
  for (const std::string& word : base::split(value, ",")) {
    if (word == "all") {
      for (std::size_t i = 0; i < kOwnDtypes; ++i) out.dtypes.push_back(kDtypes[i].dtype);
      continue;
    }
    const auto found = std::ranges::find(kDtypes, word, &DtypeName::name);
    if (found == kDtypes.end()) {
      return bad_value(
          name, word,
          "expected float32, float64, float16, bfloat16, int8, int16, int32, int64, uint8 or all");
    }
    out.dtypes.push_back(found->dtype);
  }
  return {};
}

Status set_ops(Options& out, const std::string& name, const std::string& value) {
  out.ops.clear();
  for (const std::string& word : base::split(value, ",")) {
    if (word == "all") {
      out.ops.assign(kOps.begin(), kOps.end());
      continue;
    }
    const auto found =
        std::ranges::find_if(kOps, [&](Op op) { return word == collective::name_of(op); });
    if (found == kOps.end())
      return bad_value(name, word, "expected sum, prod, min, max, avg, band, bor or all");
    out.ops.push_back(*found);
  }
  return {};
}

Status set_memory(Options& out, const std::string& name, const std::string& value) {
  if (value == "arena") {
    out.memories = {Memory::kArena};
  } else if (value == "ordinary") {
    out.memories = {Memory::kOrdinary};
  } else if (value == "both") {
    out.memories = {Memory::kArena, Memory::kOrdinary};
  } else {
    return bad_value(name, value, "expected arena, ordinary or both");
  }
  return {};
}

Status set_compare(Options& out, const std::string& name, const std::string& value) {
  for (const std::string& word : base::split(value, ",")) {
    const std::size_t equals = std::min(word.find('='), word.size());
    Baseline baseline{word.substr(0, equals), word.substr(std::min(equals + 1, word.size()))};
    if (std::ranges::find(kRivals, baseline.name) == kRivals.end())
      return bad_value(name, word, "expected openmpi, mpich or gloo, with =FOLDER of its programs");
    out.compare.push_back(std::move(baseline));
  }
  return {};
}

Status set_positive(const std::string& name, const std::string& value, std::uint32_t& out) {
  return base::parse_count(name, value, 1U, out);
}

const std::vector<Spec>& table() {
  using O = Options&;
  using S = const std::string&;
  static const std::vector<Spec> kTable = {
      {{"-b", "--minbytes"},
       "SIZE",
       "smallest size, in bytes or with K, M or G (default: 8)",
       [](O o, S name, S value) { return base::parse_bytes(name, value, o.min_bytes); }},
      {{"-e", "--maxbytes"},
       "SIZE",
       "largest size (default: 64M)",
       [](O o, S name, S value) { return base::parse_bytes(name, value, o.max_bytes); }},
      {{"-f", "--stepfactor"},
       "N",
       "factor between one size and the next (default: 2)",
       [](O o, S name, S value) { return base::parse_count(name, value, 2U, o.step_factor); }},
      {{"-i", "--stepbytes"},
       "SIZE",
       "difference between one size and the next, instead of -f",
       [](O o, S name, S value) { return base::parse_bytes(name, value, o.step_bytes); }},
      {{"-d", "--datatype"},
       "TYPES",
       "data types, for example float32,int8, or all (default: float32)",
       set_dtypes},
      {{"-o", "--op"},
       "OPS",
       "reductions: sum, prod, min, max, avg, band, bor, or all (default: sum)",
       set_ops},
      {{"-r", "--root"},
       "RANK",
       "root of broadcast, reduce, gather and scatter (default: 0)",
       [](O o, S name, S value) { return base::parse_count(name, value, 0U, o.root); }},
      {{"-m", "--memory"},
       "WHICH",
       "memory of the buffers: arena, ordinary or both (default: both)",
       set_memory},
      {{"-n", "--iters"},
       "N",
       "timed iterations of each size in a round (default: 100 for small sizes, 3 for the largest)",
       [](O o, S name, S value) { return set_positive(name, value, o.iterations.emplace()); }},
      {{"-w", "--warmup-iters"},
       "N",
       "untimed iterations before those (default: 20 for small sizes, 1 for the largest)",
       [](O o, S name, S value) {
         return base::parse_count(name, value, 0U, o.warmups.emplace());
       }},
      {{"--rounds"},
       "N",
       "number of rounds; each runs every compared library in turn (default: 10)",
       [](O o, S name, S value) { return set_positive(name, value, o.rounds); }},
      {{"--compare"},
       "RIVALS",
       "libraries to measure in the same run: openmpi, mpich, gloo; =FOLDER if not in PATH",
       set_compare},
      {{"--json"},
       "FILE",
       "write all results to FILE as JSON",
       [](O o, S, S value) { return o.json = value, Status(); }},
      {{"--plot"},
       "FILE.png",
       "draw time and bandwidth over size (needs python3 with matplotlib)",
       [](O o, S, S value) { return o.plot = value, Status(); }},
      {{"--timeout"},
       "SECONDS",
       "maximum wait for another rank or a compared library (default: 120)",
       [](O o, S name, S value) { return base::parse_seconds(name, value, o.timeout); }},
      {{"-h", "--help"}, "", "print this help", [](O o, S, S) { return o.help = true, Status(); }},
  };
  return kTable;
}

std::string plain(std::string name) {
  std::replace(name.begin() + std::min<std::ptrdiff_t>(2, std::ssize(name)), name.end(), '_', '-');
  return name;
}

base::Result<const Spec*> find_spec(const std::string& name) {
  Words names;
  for (const Spec& spec : table()) {
    for (const std::string& each : spec.names) {
      if (each == name) return &spec;
      names.push_back(each);
    }
  }
  const std::string near = base::nearest(name, names);
  return base::invalid_argument(fmt::format(
      "unknown option {}{}", name, near.empty() ? "" : fmt::format("; did you mean {}?", near)));
}

Status parse_option(Options& out, const Words& args, std::size_t& i) {
  const std::size_t equals = std::min(args[i].find('='), args[i].size());
  const std::string name = plain(args[i].substr(0, equals));
  REGROUP_ASSIGN_OR_RETURN(auto spec, find_spec(name));
  if (spec->value.empty()) {
    if (equals < args[i].size()) return bad_value(args[i], "", "takes no value");
    return spec->apply(out, name, "");
  }
  if (equals < args[i].size()) return spec->apply(out, name, args[i].substr(equals + 1));
  if (++i == args.size()) return bad_value(name, "", fmt::format("{} is missing", spec->value));
  return spec->apply(out, name, args[i]);
}

Status parse_operation(Options& out, const std::string& word) {
  if (out.operation != nullptr)
    return base::invalid_argument(fmt::format("unexpected argument {}", word));
  out.operation = find_operation(plain(word));
  std::string underlined = word;
  std::ranges::replace(underlined, '-', '_');
  if (out.operation == nullptr) out.operation = find_operation(underlined);
  if (out.operation != nullptr) return {};
  return base::invalid_argument(
      fmt::format("operation {}: expected one of {}", word, operation_names()));
}

Status check(const Options& o) {
  if (o.operation == nullptr)
    return base::invalid_argument(fmt::format("expected an operation: {}", operation_names()));
  if (o.min_bytes > o.max_bytes) {
    return base::invalid_argument(
        fmt::format("-b {}, -e {}: expected -b <= -e", o.min_bytes, o.max_bytes));
  }
  if (o.sizes().size() > kMostSizes)
    return bad_value("--stepbytes", std::to_string(o.step_bytes),
                     fmt::format("more than {} sizes", kMostSizes));
  const bool any = std::ranges::any_of(o.dtypes, [&](Dtype dtype) {
    return std::ranges::any_of(o.ops, [&](Op op) { return can_reduce(op, dtype); });
  });
  if (!any) {
    return bad_value("--op", collective::name_of(o.ops.front()),
                     fmt::format("not for {}: bit operations require integers",
                                 collective::name_of(o.dtypes.front())));
  }
  if (!o.plot.empty() && !o.plot.ends_with(".png"))
    return bad_value("--plot", o.plot, "expected a file name that ends in .png");
  return {};
}

}  // namespace

const char* name_of(Memory memory) { return memory == Memory::kArena ? "arena" : "ordinary"; }

std::vector<std::uint64_t> Options::sizes() const {
  if (operation->kind == collective::Kind::kBarrier) return {0};
  std::vector<std::uint64_t> out;
  for (std::uint64_t size = min_bytes; size <= max_bytes && out.size() <= kMostSizes;) {
    out.push_back(size);
    if (size > (~0ULL - step_bytes) / step_factor) break;
    size = step_bytes > 0 ? size + step_bytes : size * step_factor;
  }
  return out;
}

std::uint32_t Options::iterations_of(std::uint64_t bytes) const {
  if (iterations) return *iterations;
  return bytes <= 1 << 20 ? 100 : bytes <= 16 << 20 ? 5 : 3;
}

std::uint32_t Options::warmups_of(std::uint64_t bytes) const {
  if (warmups) return *warmups;
  return bytes <= 8 << 10 ? 20 : bytes <= 1 << 20 ? 10 : 1;
}

base::Result<Options> parse_options(const Words& args) {
  Options out;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const Status status = args[i].starts_with('-') && args[i].size() > 1
                              ? parse_option(out, args, i)
                              : parse_operation(out, args[i]);
    if (!status.ok()) return status;
    if (out.help) return out;
  }
  REGROUP_RETURN_IF_ERROR(check(out));
  return out;
}

std::string help_text() {
  std::string out = fmt::format(
      "usage: regroup -np N regroup bench OPERATION [OPTIONS]\nVerify and then measure a "
      "collective "
      "operation between the ranks of a job on one host,\nas nccl-tests and OSU do. OPERATION: "
      "{}.\n\n",
      operation_names());
  for (const Spec& spec : table()) {
    const std::string left = fmt::format("{}{}{}", fmt::join(spec.names, ", "),
                                         spec.value.empty() ? "" : " ", spec.value);
    out += fmt::format("  {:<26}  {}\n", left, spec.help);
  }
  return out + "\nHow to read the output: docs/guide/collectives.md.\n";
}

}  // namespace regroup::bench
