// Checks of tables, keys and pushes, and the cut of a table into ranges.
#include "collective/ps/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/nearest.h"
#include "base/text.h"
#include "collective/ps/handover.h"

namespace regroup::collective::ps {
namespace {

using base::invalid_argument;
using base::Status;

constexpr std::array kOptimizers{"sum",         "assign", "sgd",       "momentum", "adagrad",
                                 "row_adagrad", "adam",   "lazy_adam", "ftrl"};

bool is_integer(Dtype dtype) { return dtype == Dtype::kInt32 || dtype == Dtype::kInt64; }
bool is_half(Dtype dtype) { return dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16; }
bool only_adds(OptimizerKind kind) {
  return kind == OptimizerKind::kSum || kind == OptimizerKind::kAssign;
}

Status check_name(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '/' || c == '-';
  };
  if (!name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, allowed))
    return {};
  return invalid_argument(
      fmt::format("table name: expected 1 to {} of the characters A-Z a-z 0-9 _ . / -, got \"{}\" "
                  "({} bytes)",
                  kMaxNameBytes, base::printable_word(name), name.size()));
}

Status check_shape(const TableSpec& s) {
  constexpr std::uint64_t kMostRows = 1ULL << 48;
  const bool dense = s.kind == TableKind::kDense, hash = s.kind == TableKind::kHash;
  if (s.dim < 1 || s.dim > kMaxDim || (dense && s.dim != 1)) {
    return invalid_argument(fmt::format("table {}: expected dim from 1 to {}, got {}", s.name,
                                        dense ? 1 : kMaxDim, s.dim));
  }
  if (hash && s.rows != 0) {
    return invalid_argument(fmt::format(
        "table {}: a hash table has any number of rows: expected rows 0, got {}", s.name, s.rows));
  }
  if (!hash && (s.rows < 1 || s.rows > kMostRows)) {
    return invalid_argument(fmt::format("table {}: expected {} from 1 to {}, got {}", s.name,
                                        dense ? "elements" : "rows", kMostRows, s.rows));
  }
  if (dense && s.rows * size_of(s.dtype) > kMaxRanges * kDenseSliceBytes) {
    return invalid_argument(
        fmt::format("table {}: {} elements of {} are more than {} ranges of {} "
                    "bytes; cut the tensor into several tables",
                    s.name, s.rows, name_of(s.dtype), kMaxRanges, kDenseSliceBytes));
  }
  return {};
}

Status check_dtype(const TableSpec& s) {
  const bool known = s.dtype == Dtype::kFloat32 || s.dtype == Dtype::kFloat64 ||
                     is_integer(s.dtype) || is_half(s.dtype);
  if (!known) {
    return invalid_argument(
        fmt::format("table {}: expected float32, float64, float16, bfloat16, int32 or int64, got "
                    "{}",
                    s.name, name_of(s.dtype)));
  }
  if ((is_integer(s.dtype) || s.dtype == Dtype::kFloat64) && !only_adds(s.optimizer.kind)) {
    return invalid_argument(
        fmt::format("table {}: optimizer {} computes in float32; expected sum or assign for {}",
                    s.name, name_of(s.optimizer.kind), name_of(s.dtype)));
  }
  return {};
}

Status check_range(const TableSpec& s, const char* what, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return invalid_argument(fmt::format("table {}: {} {}: expected {} from {} to {}, got {}", s.name,
                                      name_of(s.optimizer.kind), what, what, least, most, value));
}

Status check_optimizer(const TableSpec& s) {
  const OptimizerSpec& o = s.optimizer;
  if (s.kind != TableKind::kDense &&
      (o.kind == OptimizerKind::kAdam || o.kind == OptimizerKind::kMomentum)) {
    return invalid_argument(fmt::format("table {}: {} would move rows that get no gradient; use {}",
                                        s.name, name_of(o.kind),
                                        o.kind == OptimizerKind::kAdam ? "lazy_adam" : "sgd"));
  }
  if (s.kind == TableKind::kDense &&
      (o.kind == OptimizerKind::kLazyAdam || o.kind == OptimizerKind::kRowAdagrad)) {
    return invalid_argument(fmt::format("table {}: {} is for tables with rows; use {}", s.name,
                                        name_of(o.kind),
                                        o.kind == OptimizerKind::kLazyAdam ? "adam" : "adagrad"));
  }
  constexpr double kLarge = std::numeric_limits<float>::max();
  constexpr double kBelowOne = 1 - 1e-9;
  REGROUP_RETURN_IF_ERROR(check_range(s, "momentum", o.momentum, 0, kLarge));
  REGROUP_RETURN_IF_ERROR(check_range(s, "beta1", o.beta1, 0, kBelowOne));
  REGROUP_RETURN_IF_ERROR(check_range(s, "beta2", o.beta2, 0, kBelowOne));
  REGROUP_RETURN_IF_ERROR(check_range(s, "epsilon", o.epsilon, 0, kLarge));
  REGROUP_RETURN_IF_ERROR(check_range(s, "weight_decay", o.weight_decay, 0, kLarge));
  REGROUP_RETURN_IF_ERROR(check_range(s, "l1", o.l1, 0, kLarge));
  REGROUP_RETURN_IF_ERROR(check_range(s, "l2", o.l2, 0, kLarge));
  return check_range(s, "beta", o.beta, 0, kLarge);
}

// The greatest number that every type of a row can hold after rounding.
double most_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kInt32:
      return std::numeric_limits<std::int32_t>::max();
    case Dtype::kInt64:
      return 9007199254740992.0;  // 2^53: exact in a double
    case Dtype::kFloat16:
      return 65504;
    case Dtype::kFloat64:
      return std::numeric_limits<double>::max();
    default:
      return 3e38;  // bfloat16 ends a little below float32
  }
}

Status check_init(const TableSpec& s) {
  const Initializer& i = s.init;
  constexpr double kFarthest = 10;  // standard deviations; no draw is so far away
  const double most = most_of(s.dtype);
  const auto fits = [&](double value) { return value >= -most && value <= most; };
  bool good = std::isfinite(i.first) && std::isfinite(i.second);
  if (i.kind == InitialKind::kConstant) good = good && fits(i.first);
  if (i.kind == InitialKind::kUniform)
    good = good && i.first <= i.second && fits(i.first) && fits(i.second) &&
           std::isfinite(i.second - i.first);
  if (i.kind == InitialKind::kNormal)
    good = good && i.second >= 0 && fits(i.first - kFarthest * i.second) &&
           fits(i.first + kFarthest * i.second);
  if (good) return {};
  return invalid_argument(
      fmt::format("table {}: initializer {}: expected finite numbers of {}, lowest <= highest, "
                  "standard deviation >= 0, got {} and {}",
                  s.name, name_of(i.kind), name_of(s.dtype), i.first, i.second));
}

Status check_part(const TableSpec& s) {
  const TablePart& part = s.part;
  if (part == TablePart{}) return {};
  if (part.of >= 2 && part.of <= kMaxStores && part.number < part.of && part.shards >= part.of &&
      part.shards <= part.of * kMaxShards) {
    if (part.replicas >= 1 && part.replicas <= part.of) return {};
    return invalid_argument(fmt::format("table {}: expected 1 to {} replicas in {} stores, got {}",
                                        s.name, part.of, part.of, part.replicas));
  }
  return invalid_argument(
      fmt::format("table {}: expected a part of 2 to {} stores with 1 to {} shards each, got part "
                  "{} of {} with {} shards",
                  s.name, kMaxStores, kMaxShards, part.number, part.of, part.shards));
}

std::string text_of(const TablePart& part, const TablePart& other) {
  const std::string text = fmt::format("{} of {}", part.number, part.of);
  if (part.number != other.number || part.of != other.of) return text;
  if (part.replicas != other.replicas) return fmt::format("{} (replicas={})", text, part.replicas);
  return fmt::format("{} (cut for {} shards)", text, part.shards);
}

std::vector<PositionRange> cut(const TableSpec& spec, std::uint32_t servers) {
  std::vector<PositionRange> out;
  if (spec.kind == TableKind::kDense) {
    const std::uint64_t slice = kDenseSliceBytes / size_of(spec.dtype);
    for (std::uint64_t at = 0; at < spec.rows; at += slice)
      out.push_back({at, std::min(at + slice, spec.rows) - 1});
    return out;
  }
  std::uint64_t count = std::bit_ceil(std::max<std::uint64_t>(16, 4ULL * servers));
  count = std::min<std::uint64_t>(count, kMaxRanges);
  if (spec.kind == TableKind::kHash) {
    const std::uint64_t size = (1ULL << 63) / (count / 2);
    for (std::uint64_t i = 0; i < count; ++i) out.push_back({i * size, i * size + (size - 1)});
    return out;
  }
  count = std::min(count, std::bit_floor(spec.rows));
  for (std::uint64_t i = 0; i < count; ++i)
    out.push_back({spec.rows / count * i + std::min(i, spec.rows % count),
                   spec.rows / count * (i + 1) + std::min(i + 1, spec.rows % count) - 1});
  return out;
}

}  // namespace

const char* name_of(TableKind kind) {
  constexpr std::array kNames{"dense", "direct", "hash"};
  return kNames[static_cast<std::size_t>(kind)];
}
const char* name_of(OptimizerKind kind) { return kOptimizers[static_cast<std::size_t>(kind)]; }
const char* name_of(InitialKind kind) {
  constexpr std::array kNames{"zeros", "constant", "uniform", "normal"};
  return kNames[static_cast<std::size_t>(kind)];
}

base::Result<OptimizerKind> optimizer_of(std::string_view name) {
  const auto* const found = std::ranges::find(kOptimizers, name);
  if (found != kOptimizers.end()) return static_cast<OptimizerKind>(found - kOptimizers.begin());
  const std::string like =
      base::nearest(name, std::vector<std::string>(kOptimizers.begin(), kOptimizers.end()));
  return invalid_argument(fmt::format("optimizer \"{}\" is not known; expected {}{}",
                                      base::printable_word(name), fmt::join(kOptimizers, ", "),
                                      like.empty() ? "" : fmt::format("; did you mean {}?", like)));
}

Dtype TableSpec::compute_dtype() const { return is_half(dtype) ? Dtype::kFloat32 : dtype; }

std::size_t TableSpec::state_bytes() const {
  switch (optimizer.kind) {
    case OptimizerKind::kSum:
    case OptimizerKind::kAssign:
    case OptimizerKind::kSgd:
      return 0;
    case OptimizerKind::kRowAdagrad:
      return sizeof(float);
    case OptimizerKind::kMomentum:
    case OptimizerKind::kAdagrad:
      return dim * sizeof(float);
    case OptimizerKind::kAdam:
    case OptimizerKind::kLazyAdam:
    case OptimizerKind::kFtrl:
      return 2 * dim * sizeof(float);
  }
  return 0;
}

Status check(const TableSpec& spec) {
  REGROUP_RETURN_IF_ERROR(check_name(spec.name));
  REGROUP_RETURN_IF_ERROR(check_dtype(spec));
  REGROUP_RETURN_IF_ERROR(check_shape(spec));
  REGROUP_RETURN_IF_ERROR(check_optimizer(spec));
  REGROUP_RETURN_IF_ERROR(check_init(spec));
  REGROUP_RETURN_IF_ERROR(check_part(spec));
  if (spec.kind == TableKind::kDense && spec.evict_after != 0) {
    return invalid_argument(
        fmt::format("table {}: a dense table forgets no rows: expected evict_after 0, got {}",
                    spec.name, spec.evict_after));
  }
  return {};
}

Status check_same(const TableSpec& here, const TableSpec& there, std::string_view who) {
  if (here == there) return {};
  const auto differs = [&](const char* what, const auto& mine, const auto& theirs) {
    return invalid_argument(fmt::format("table {}: expected {} {} as {} has it, got {}", here.name,
                                        what, theirs, who, mine));
  };
  if (here.name != there.name) return differs("name", here.name, there.name);
  // First, since clients of other stores than these are no users of this table.
  if (here.part != there.part)
    return differs("part", text_of(here.part, there.part), text_of(there.part, here.part));
  if (here.kind != there.kind) return differs("kind", name_of(here.kind), name_of(there.kind));
  if (here.rows != there.rows) return differs("rows", here.rows, there.rows);
  if (here.dim != there.dim) return differs("dim", here.dim, there.dim);
  if (here.dtype != there.dtype) return differs("dtype", name_of(here.dtype), name_of(there.dtype));
  if (here.optimizer.kind != there.optimizer.kind)
    return differs("optimizer", name_of(here.optimizer.kind), name_of(there.optimizer.kind));
  if (here.evict_after != there.evict_after)
    return differs("evict_after", here.evict_after, there.evict_after);
  if (here.init != there.init) {
    const auto text = [](const Initializer& i) {
      return fmt::format("{}({}, {})", name_of(i.kind), i.first, i.second);
    };
    return differs("initializer", text(here.init), text(there.init));
  }
  const auto text = [](const OptimizerSpec& o) {
    return fmt::format(
        "(momentum={}, beta1={}, beta2={}, epsilon={}, weight_decay={}, l1={}, l2={}, beta={})",
        o.momentum, o.beta1, o.beta2, o.epsilon, o.weight_decay, o.l1, o.l2, o.beta);
  };
  return differs(name_of(here.optimizer.kind), text(here.optimizer), text(there.optimizer));
}

Status check_keys(const TableSpec& spec, std::span<const std::int64_t> ids) {
  std::unordered_map<std::int64_t, std::size_t> seen;
  seen.reserve(ids.size());
  for (std::size_t at = 0; at < ids.size(); ++at) {
    const std::int64_t id = ids[at];
    if (spec.kind != TableKind::kHash && (id < 0 || static_cast<std::uint64_t>(id) >= spec.rows)) {
      return invalid_argument(
          fmt::format("table {}: expected ids from 0 to {}, got {} (position "
                      "{} of the batch)",
                      spec.name, spec.rows - 1, id, at));
    }
    if (const auto [first, fresh] = seen.emplace(id, at); !fresh) {
      return invalid_argument(
          fmt::format("table {}: key {} occurs twice (positions {} and {} of the batch); add up "
                      "the gradients of a key first",
                      spec.name, id, first->second, at));
    }
  }
  return {};
}

Status check_push(const TableSpec& spec, std::size_t keys, std::size_t rows, Dtype gradient,
                  const Scalars& scalars) {
  if (rows != keys) {
    return invalid_argument(fmt::format("push to table {}: expected {} rows for {} keys, got {}",
                                        spec.name, keys, keys, rows));
  }
  if (gradient != spec.compute_dtype()) {
    return invalid_argument(fmt::format("push to table {}: expected gradients of {}, got {}",
                                        spec.name, name_of(spec.compute_dtype()),
                                        name_of(gradient)));
  }
  const auto lr = static_cast<float>(scalars.lr);  // as optimizers use it
  if (!only_adds(spec.optimizer.kind) && !(lr >= 0 && std::isfinite(lr))) {
    return invalid_argument(
        fmt::format("push to table {}: expected lr >= 0, got {}", spec.name, scalars.lr));
  }
  if (spec.optimizer.kind == OptimizerKind::kFtrl && lr < std::numeric_limits<float>::min()) {
    return invalid_argument(fmt::format(
        "push to table {}: ftrl divides by lr: expected lr > 0, got {}", spec.name, scalars.lr));
  }
  return {};
}

Status check_scalars(const Scalars& here, const Scalars& there) {
  if (here == there) return {};
  return invalid_argument(fmt::format(
      "push: expected lr {} as another leaf of the step has it, got {}", there.lr, here.lr));
}

std::vector<PositionRange> ranges_of(const TableSpec& spec, std::uint32_t servers) {
  const TablePart& part = spec.part;
  if (part.of == 1) return cut(spec, servers);
  const std::vector<PositionRange> all = cut(spec, part.shards);
  std::vector<PositionRange> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (has_range(part, spec.name, i)) out.push_back(all[i]);
  }
  return out;
}

std::uint64_t dense_elements(const TableSpec& spec) {
  const TablePart& part = spec.part;
  if (part.of == 1) return spec.rows;
  const std::uint64_t slice = kDenseSliceBytes / size_of(spec.dtype);
  const std::uint64_t whole = spec.rows / slice;  // ranges
  std::uint64_t own = 0;
  for (std::uint32_t i = 0; i < part.replicas; ++i) {
    // Of a store whose ranges this one has, too.
    const std::uint32_t store = (part.number + part.of - i) % part.of;
    const std::uint64_t first = (store + part.of - store_of_range(spec.name, 0, part.of)) % part.of;
    own += first < whole ? (whole - first - 1) / part.of + 1 : 0;
  }
  return own * slice + (has_range(part, spec.name, whole) ? spec.rows % slice : 0);
}

}  // namespace regroup::collective::ps
