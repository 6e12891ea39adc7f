// Rows stand in the order of their positions, so the tensors do not depend on the ranges and shards
// that had them.
#include "tools/persist/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "checkpoint/dtype.h"
#include "collective/ps/store.h"
#include "collective/ps/table.h"

namespace regroup::persist {
namespace {

using namespace collective::ps;
using base::Status;
using checkpoint::Box;
using checkpoint::Shape;
using Json = nlohmann::json;

constexpr std::chrono::seconds kServerLimit(60);      // for a push, or to apply the log
constexpr std::chrono::milliseconds kTakeover(100);   // for the lock of a server that is dead
constexpr std::chrono::milliseconds kSettlePause(1);  // while the next server applies the log
constexpr std::uint64_t kReadBytes = 8 << 20;         // of values, at a time
constexpr std::array kKinds{TableKind::kDense, TableKind::kDirect, TableKind::kHash};
constexpr std::array kDtypes{Dtype::kFloat32,  Dtype::kFloat64, Dtype::kFloat16,
                             Dtype::kBfloat16, Dtype::kInt32,   Dtype::kInt64};
constexpr std::array kInitials{InitialKind::kZeros, InitialKind::kConstant, InitialKind::kUniform,
                               InitialKind::kNormal};

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// The value of `known` whose name `from[key]` is.
template <class T, std::size_t N>
T named(const Json& from, const char* key, const std::array<T, N>& known) {
  const std::string name = from.at(key).get<std::string>();
  for (const T one : known) {
    if (name == name_of(one)) return one;
  }
  throw Json::other_error::create(500, fmt::format("{} {:?}", key, name), &from);
}

TableSpec spec_from(const Json& from) {
  const Json& init = from.at("init");
  const Json& of = from.at("optimizer");
  const auto kind = optimizer_of(of.at("kind").get<std::string>());
  if (!kind.ok()) throw Json::other_error::create(500, kind.status().message(), &from);
  return {.name = from.at("name"),
          .kind = named(from, "kind", kKinds),
          .rows = from.at("rows"),
          .dim = from.at("dim"),
          .dtype = named(from, "dtype", kDtypes),
          .init = {named(init, "kind", kInitials), init.at("first"), init.at("second")},
          .optimizer = {.kind = *kind,
                        .momentum = of.at("momentum"),
                        .beta1 = of.at("beta1"),
                        .beta2 = of.at("beta2"),
                        .epsilon = of.at("epsilon"),
                        .weight_decay = of.at("weight_decay"),
                        .l1 = of.at("l1"),
                        .l2 = of.at("l2"),
                        .beta = of.at("beta")},
          .evict_after = from.at("evict_after")};
}

// Adds the pieces of one table.
class TableImage {
 public:
  TableImage(TablesImage& out, std::span<const RangeCopy> copies)
      : out_(out), copies_(copies), spec_(copies.front().spec) {}

  void add() { spec_.kind == TableKind::kDense ? add_dense() : add_rows(); }

 private:
  void put(const char* what, const char* dtype, const Shape& shape, Box box,
           std::span<const std::byte> bytes) {
    out_.pieces.push_back({spec_.name + "/" + what, dtype, shape, std::move(box), bytes});
  }

  void add_dense() {
    const std::uint64_t words = spec_.state_bytes() / sizeof(float);
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const RangeCopy& copy = copies_[i];
      const std::uint64_t first = copy.range.first, count = copy.range.last - first + 1;
      put("values", name_of(spec_.dtype), {spec_.rows}, {{first}, {count}}, copy.values);
      if (words > 0)
        put("state", "float32", {words, spec_.rows}, {{0, first}, {words, count}}, copy.state);
      put("updates", "uint32", {copies_.size()}, {{i}, {1}}, bytes_of(copy.updates));
    }
  }

  void add_rows() {
    std::uint64_t rows = 0;
    for (const RangeCopy& copy : copies_) rows += copy.positions.size();
    std::uint64_t first = 0;
    for (const RangeCopy& copy : copies_) {
      // A tensor without rows has a piece, too.
      if (copy.positions.empty() && (rows > 0 || &copy != &copies_.front())) continue;
      add_rows(copy, first, rows);
      first += copy.positions.size();
    }
  }
  void add_rows(const RangeCopy& copy, std::uint64_t first, std::uint64_t rows) {
    const std::uint64_t count = copy.positions.size(), words = spec_.state_bytes() / sizeof(float);
    std::vector<std::int64_t>& ids = out_.ids.emplace_back();
    ids.reserve(count);
    for (const std::uint64_t position : copy.positions) ids.push_back(id_at(spec_.kind, position));
    put("ids", "int64", {rows}, {{first}, {count}}, bytes_of(ids));
    put("values", name_of(spec_.dtype), {rows, spec_.dim}, {{first, 0}, {count, spec_.dim}},
        copy.values);
    if (words > 0) put("state", "float32", {rows, words}, {{first, 0}, {count, words}}, copy.state);
    put("updates", "uint32", {rows}, {{first}, {count}}, bytes_of(copy.updates));
  }

  TablesImage& out_;
  const std::span<const RangeCopy> copies_;
  const TableSpec& spec_;
};

// A range as of one moment, whatever happens to servers.
base::Result<RangeCopy> copy_one(std::span<const MappedShard> shards, std::size_t shard,
                                 const RangeHeader& header) {
  const base::TimePoint end = base::SystemClock().now() + kServerLimit;
  for (;;) {
    base::Result<RangeCopy> copy = copy_range(shards[shard].store, header, end);
    const base::TimePoint now = base::SystemClock().now();
    if (copy.code() != base::Code::kUnavailable || now >= end) return copy;
    // At the end of a job there is no next server.
    const auto settled = ShardServer::attach(shards, shard, std::min(end, now + kTakeover));
    if (!settled.ok() && settled.code() != base::Code::kDeadlineExceeded) return settled.status();
    if (!settled.ok()) std::this_thread::sleep_for(kSettlePause);
  }
}

// Reads tensors of one table and puts them into its ranges.
class TableReader {
 public:
  TableReader(const checkpoint::Checkpoint& from, const TableSpec& spec)
      : from_(from), spec_(spec) {}

  // All of a tensor, which must have that type and, but for `rows` in dimension 0, that shape.
  template <class T>
  Status read(const char* what, const char* dtype, std::uint64_t& rows, std::vector<T>& out) {
    REGROUP_ASSIGN_OR_RETURN(const std::size_t tensor, find(what, dtype, 1));
    rows = from_.manifest().tensors[tensor].shape[0];
    out.resize(rows);
    return from_.read(tensor, std::as_writable_bytes(std::span(out)));
  }
  Status read(const char* what, const char* dtype, const Box& box, std::size_t bytes,
              std::vector<std::byte>& out) {
    out.resize(bytes);
    if (bytes == 0) return {};
    REGROUP_ASSIGN_OR_RETURN(const std::size_t tensor, find(what, dtype, box.count.size()));
    if (!checkpoint::lies_within(box, from_.manifest().tensors[tensor].shape) ||
        checkpoint::volume_of(box.count).value_or(0) * *checkpoint::size_of_dtype(dtype) != bytes)
      return wrong(what);
    return from_.read(tensor, box, out);
  }
  [[nodiscard]] Status wrong(const char* what) const {
    return base::data_loss(fmt::format("{}: tensor {}/{} does not fit table {}", from_.path(),
                                       spec_.name, what, spec_.name));
  }

 private:
  base::Result<std::size_t> find(const char* what, const char* dtype, std::size_t rank) {
    const auto tensor = from_.find(fmt::format("{}/{}", spec_.name, what));
    if (!tensor || from_.manifest().tensors[*tensor].dtype != dtype ||
        from_.manifest().tensors[*tensor].shape.size() != rank)
      return wrong(what);
    return *tensor;
  }

  const checkpoint::Checkpoint& from_;
  const TableSpec& spec_;
};

class Restorer {
 public:
  Restorer(std::span<const std::unique_ptr<ShardServer>> servers,
           const checkpoint::Checkpoint& from, const std::function<void()>& sign)
      : servers_(servers), from_(from), sign_(sign) {}

  Status restore(const TableSpec& spec) {
    std::map<std::uint64_t, Range*> ranges;  // by first position
    for (const auto& server : servers_) {
      REGROUP_RETURN_IF_ERROR(server->open_table(spec));
      server->store().each([&](Range& range) {
        if (range.spec().name == spec.name) ranges[range.header().positions.first] = &range;
      });
    }
    return spec.kind == TableKind::kDense ? restore_dense(spec, ranges)
                                          : restore_rows(spec, ranges);
  }

 private:
  Status restore_dense(const TableSpec& spec, const std::map<std::uint64_t, Range*>& ranges) {
    TableReader reader(from_, spec);
    std::uint64_t slices = 0;
    std::vector<std::uint32_t> updates;
    std::vector<std::byte> values, state;
    REGROUP_RETURN_IF_ERROR(reader.read("updates", "uint32", slices, updates));
    if (slices != ranges.size()) return reader.wrong("updates");
    const std::uint64_t words = spec.state_bytes() / sizeof(float);
    std::size_t slice = 0;
    for (const auto& [first, range] : ranges) {
      const std::uint64_t count = range->header().positions.last - first + 1;
      REGROUP_RETURN_IF_ERROR(reader.read("values", name_of(spec.dtype), Box{{first}, {count}},
                                          count * size_of(spec.dtype), values));
      REGROUP_RETURN_IF_ERROR(reader.read("state", "float32", Box{{0, first}, {words, count}},
                                          words * count * sizeof(float), state));
      REGROUP_RETURN_IF_ERROR(
          range->restore({{}, std::span(updates).subspan(slice++, 1), values, state}, step()));
      sign_();
    }
    return {};
  }

  Status restore_rows(const TableSpec& spec, const std::map<std::uint64_t, Range*>& ranges) {
    TableReader reader(from_, spec);
    std::uint64_t rows = 0, counted = 0;
    std::vector<std::int64_t> ids;
    std::vector<std::uint32_t> updates;
    REGROUP_RETURN_IF_ERROR(reader.read("ids", "int64", rows, ids));
    REGROUP_RETURN_IF_ERROR(reader.read("updates", "uint32", counted, updates));
    std::vector<std::uint64_t> positions;
    positions.reserve(rows);
    for (const std::int64_t id : ids) positions.push_back(position_of(spec.kind, id));
    if (counted != rows || !std::ranges::is_sorted(positions, std::less_equal()))
      return reader.wrong("ids");
    std::size_t first = 0;
    for (const auto& [begin, range] : ranges) {
      const auto end = std::ranges::upper_bound(positions, range->header().positions.last);
      const auto last = static_cast<std::size_t>(end - positions.begin());
      REGROUP_RETURN_IF_ERROR(restore_rows(spec, reader, *range, first,
                                           std::span(positions).subspan(first, last - first),
                                           std::span(updates).subspan(first, last - first)));
      first = last;
    }
    return first == rows ? Status() : reader.wrong("ids");
  }
  Status restore_rows(const TableSpec& spec, TableReader& reader, Range& range, std::size_t first,
                      std::span<const std::uint64_t> positions,
                      std::span<const std::uint32_t> updates) {
    const std::size_t most = std::max<std::size_t>(1, kReadBytes / spec.value_bytes());
    const std::uint64_t words = spec.state_bytes() / sizeof(float);
    std::vector<std::byte> values, state;
    std::size_t at = 0;
    do {  // a range without rows is restored, too
      const std::size_t count = std::min(most, positions.size() - at);
      REGROUP_RETURN_IF_ERROR(reader.read("values", name_of(spec.dtype),
                                          Box{{first + at, 0}, {count, spec.dim}},
                                          count * spec.value_bytes(), values));
      REGROUP_RETURN_IF_ERROR(reader.read("state", "float32", Box{{first + at, 0}, {count, words}},
                                          count * spec.state_bytes(), state));
      REGROUP_RETURN_IF_ERROR(range.restore(
          {positions.subspan(at, count), updates.subspan(at, count), values, state}, step()));
      at += count;
      sign_();
    } while (at < positions.size());
    return {};
  }
  [[nodiscard]] std::uint64_t step() const { return from_.manifest().step; }

  const std::span<const std::unique_ptr<ShardServer>> servers_;
  const checkpoint::Checkpoint& from_;
  const std::function<void()>& sign_;
};

}  // namespace

std::string to_json(std::span<const TableSpec> specs) {
  Json out = Json::array();
  for (const TableSpec& spec : specs) {
    const OptimizerSpec& of = spec.optimizer;
    out.push_back({{"name", spec.name},
                   {"kind", name_of(spec.kind)},
                   {"rows", spec.rows},
                   {"dim", spec.dim},
                   {"dtype", name_of(spec.dtype)},
                   {"evict_after", spec.evict_after},
                   {"init",
                    {{"kind", name_of(spec.init.kind)},
                     {"first", spec.init.first},
                     {"second", spec.init.second}}},
                   {"optimizer",
                    {{"kind", name_of(of.kind)},
                     {"momentum", of.momentum},
                     {"beta1", of.beta1},
                     {"beta2", of.beta2},
                     {"epsilon", of.epsilon},
                     {"weight_decay", of.weight_decay},
                     {"l1", of.l1},
                     {"l2", of.l2},
                     {"beta", of.beta}}}});
  }
  return out.dump();
}

base::Result<std::vector<TableSpec>> specs_of(std::string_view text) {
  std::vector<TableSpec> out;
  try {
    for (const Json& one : Json::parse(text)) out.push_back(spec_from(one));
  } catch (const Json::exception& error) {
    return base::data_loss(fmt::format("tensor {}: malformed: {}", kSpecsName, error.what()));
  }
  for (const TableSpec& spec : out) REGROUP_RETURN_IF_ERROR(check(spec));
  return out;
}

TablesImage image_of(std::vector<RangeCopy> copies) {
  TablesImage out;
  out.copies = std::move(copies);
  std::ranges::sort(out.copies, {}, [](const RangeCopy& copy) {
    return std::pair(std::string_view(copy.spec.name), copy.range.first);
  });
  std::vector<TableSpec> specs;
  for (std::size_t i = 0; i < out.copies.size();) {
    const TableSpec& spec = specs.emplace_back(out.copies[i].spec);
    std::size_t end = i;
    while (end < out.copies.size() && out.copies[end].spec.name == spec.name) ++end;
    TableImage(out, std::span(out.copies).subspan(i, end - i)).add();
    i = end;
  }
  out.specs = to_json(specs);
  out.pieces.push_back({kSpecsName,
                        "uint8",
                        {out.specs.size()},
                        checkpoint::whole({out.specs.size()}),
                        std::as_bytes(std::span(out.specs))});
  return out;
}

base::Result<TablesImage> copy_tables(std::span<const MappedShard> shards,
                                      const std::function<void()>& sign) {
  // In mode sync ranges of one moment each would not be the tables of one step.
  REGROUP_ASSIGN_OR_RETURN(const StepHold hold,
                           StepHold::take(shards, base::SystemClock().now() + kServerLimit));
  std::vector<RangeCopy> copies;
  std::map<std::string, std::pair<TableSpec, std::vector<PositionRange>>>
      dense;  // ranges that are there
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    REGROUP_ASSIGN_OR_RETURN(const auto headers, ranges_in(shards[shard].store));
    for (const RangeHeader* const header : headers) {
      base::Result<RangeCopy> copy = copy_one(shards, shard, *header);
      if (!copy.ok())
        return Status(copy.code(), fmt::format("shard {}: {}", shard, copy.status().message()));
      if (copy->spec.kind == TableKind::kDense) {
        auto& [spec, ranges] = dense[copy->spec.name];
        spec = copy->spec;
        ranges.push_back(copy->range);
      }
      copies.push_back(std::move(*copy));
      sign();
    }
  }
  // A table that is being opened may lack some.
  const auto& header = *reinterpret_cast<const StoreHeader*>(shards.front().store.at(0));
  for (const auto& [name, there] : dense) {
    for (const PositionRange& range :
         ranges_of(there.first, static_cast<std::uint32_t>(shards.size()))) {
      if (std::ranges::find(there.second, range) == there.second.end())
        copies.push_back(initial_copy(there.first, range, header.job_seed));
    }
  }
  TablesImage image = image_of(std::move(copies));
  if (const std::uint64_t step = hold.step(); step != 0) {
    image.step = {step};
    image.pieces.push_back(
        {kStepName, "uint64", {1}, checkpoint::whole({1}), bytes_of(image.step)});
  }
  return image;
}

Status restore_tables(std::span<const MappedShard> shards, const checkpoint::Checkpoint& from,
                      const std::function<void()>& sign) {
  const auto tensor = from.find(kSpecsName);
  if (from.manifest().content != checkpoint::Content::kTables || !tensor) {
    return base::invalid_argument(
        fmt::format("{}: expected tables of a parameter server, got none", from.path()));
  }
  std::string text(checkpoint::bytes_of(from.manifest().tensors[*tensor]), ' ');
  REGROUP_RETURN_IF_ERROR(from.read(*tensor, std::as_writable_bytes(std::span(text))));
  REGROUP_ASSIGN_OR_RETURN(const std::vector<TableSpec> specs, specs_of(text));
  std::vector<std::unique_ptr<ShardServer>> servers;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    REGROUP_ASSIGN_OR_RETURN(
        auto server, ShardServer::attach(shards, shard, base::SystemClock().now() + kServerLimit));
    servers.push_back(std::move(server));
  }
  Restorer restorer(servers, from, sign);
  for (const TableSpec& spec : specs) REGROUP_RETURN_IF_ERROR(restorer.restore(spec));
  if (const auto steps = from.find(kStepName)) {
    std::uint64_t step = 0;
    if (checkpoint::bytes_of(from.manifest().tensors[*steps]) != sizeof step)
      return base::data_loss(fmt::format("tensor {}: expected one uint64", kStepName));
    REGROUP_RETURN_IF_ERROR(from.read(*steps, std::as_writable_bytes(std::span(&step, 1))));
    restore_step(shards, step);
  }
  return {};
}

}  // namespace regroup::persist
