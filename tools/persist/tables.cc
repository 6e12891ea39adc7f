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

// What `look(deadline)` returns, which pauses the server of `shard`, whatever happens to servers.
template <class Look>
auto look_at(std::span<const MappedShard> shards, std::size_t shard, const Look& look)
    -> decltype(look(base::TimePoint())) {
  const base::TimePoint end = base::SystemClock().now() + kServerLimit;
  for (;;) {
    auto out = look(end);
    const base::TimePoint now = base::SystemClock().now();
    if (out.code() != base::Code::kUnavailable || now >= end) {
      if (out.ok()) return out;
      return Status(out.code(), fmt::format("shard {}: {}", shard, out.status().message()));
    }
    // At the end of a job there is no next server.
    const auto settled = ShardServer::attach(shards, shard, std::min(end, now + kTakeover));
    if (!settled.ok() && settled.code() != base::Code::kDeadlineExceeded) return settled.status();
    if (!settled.ok()) std::this_thread::sleep_for(kSettlePause);
  }
}

// A range of the stores, and what of it is copied.
struct RangeToCopy {
  std::size_t shard = 0;
  const RangeHeader* header = nullptr;
  std::optional<std::uint64_t> since;  // only rows that have changed since this LSN
  bool left_out = false;               // `lsn` is that of the base
  std::uint64_t lsn = 0;
};

base::Result<std::vector<RangeToCopy>> ranges_to_copy(std::span<const MappedShard> shards) {
  std::vector<RangeToCopy> out;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    REGROUP_ASSIGN_OR_RETURN(const auto headers, ranges_in(shards[shard].store));
    for (const RangeHeader* const header : headers) {
      if (header->part.replicas > 1) {
        return base::invalid_argument(fmt::format(
            "table {}: it has {} replicas in several stores, and tables with replicas cannot be "
            "saved yet; expected 1 replica in a job that writes checkpoints",
            header->name.data(), header->part.replicas));
      }
      out.push_back({shard, header, {}, false, 0});
    }
  }
  return out;
}

// The same for what has changed since `base`; nothing if the base is not known, or too much has
// changed.
base::Result<std::optional<std::vector<RangeToCopy>>> changes_to_copy(
    std::span<const MappedShard> shards, const TablesBase& base,
    const std::function<void()>& sign) {
  REGROUP_ASSIGN_OR_RETURN(std::vector<RangeToCopy> out, ranges_to_copy(shards));
  std::uint64_t changed = base.changed_bytes, all = 0;
  std::map<std::string, bool> dense;  // whether it has changed
  for (RangeToCopy& one : out) {
    one.since = saved_lsn(*one.header, base.step);
    // A range that was made since has been noted with no step.
    const bool made = one.header->saved_step.load(std::memory_order_acquire) == 0;
    if (!one.since && !made) return std::optional<std::vector<RangeToCopy>>();
    REGROUP_ASSIGN_OR_RETURN(
        const RangeChanges changes, look_at(shards, one.shard, [&](base::TimePoint end) {
          return count_changes(shards[one.shard].store, *one.header, one.since.value_or(0), end);
        }));
    REGROUP_ASSIGN_OR_RETURN(const TableSpec spec, spec_of(*one.header));
    if (spec.kind == TableKind::kDense) dense[spec.name] |= made || changes.lsn != one.since;
    one.lsn = changes.lsn;
    changed += made ? changes.all : changes.changed;
    all += changes.all;
    sign();
  }
  if (changed > all / 2) return std::optional<std::vector<RangeToCopy>>();
  for (RangeToCopy& one : out) {
    REGROUP_ASSIGN_OR_RETURN(const TableSpec spec, spec_of(*one.header));
    // With several stores another one may have the part that has changed.
    if (spec.kind == TableKind::kDense && spec.part.of == 1) one.left_out = !dense[spec.name];
  }
  return std::optional(std::move(out));
}

// Reads tensors of one table.
class TableReader {
 public:
  TableReader(const checkpoint::Checkpoint& from, const TableSpec& spec)
      : from_(&from), spec_(&spec) {}

  // All of a tensor, which must have that type and, but for `rows` in dimension 0, that shape.
  template <class T>
  Status read(const char* what, const char* dtype, std::uint64_t& rows, std::vector<T>& out) const {
    REGROUP_ASSIGN_OR_RETURN(const std::size_t tensor, find(what, dtype, 1));
    rows = from_->manifest().tensors[tensor].shape[0];
    out.resize(rows);
    return from_->read(tensor, std::as_writable_bytes(std::span(out)));
  }
  Status read(const char* what, const char* dtype, const Box& box, std::size_t bytes,
              std::vector<std::byte>& out) const {
    out.resize(bytes);
    if (bytes == 0) return {};
    REGROUP_ASSIGN_OR_RETURN(const std::size_t tensor, find(what, dtype, box.count.size()));
    if (!checkpoint::lies_within(box, from_->manifest().tensors[tensor].shape) ||
        checkpoint::volume_of(box.count).value_or(0) * *checkpoint::size_of_dtype(dtype) != bytes)
      return wrong(what);
    return from_->read(tensor, box, out);
  }
  [[nodiscard]] Status wrong(const char* what) const {
    return base::data_loss(fmt::format("{}: tensor {}/{} does not fit table {}", from_->path(),
                                       spec_->name, what, spec_->name));
  }

 private:
  base::Result<std::size_t> find(const char* what, const char* dtype, std::size_t rank) const {
    const auto tensor = from_->find(fmt::format("{}/{}", spec_->name, what));
    if (!tensor || from_->manifest().tensors[*tensor].dtype != dtype ||
        from_->manifest().tensors[*tensor].shape.size() != rank)
      return wrong(what);
    return *tensor;
  }

  const checkpoint::Checkpoint* from_;
  const TableSpec* spec_;
};

class Restorer {
 public:
  Restorer(std::span<const std::unique_ptr<ShardServer>> servers,
           std::span<const checkpoint::Checkpoint> chain, const std::function<void()>& sign)
      : servers_(servers), chain_(chain), sign_(sign) {}

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
    const TableReader reader(newest_with(spec, "values"), spec);
    std::uint64_t slices = 0;
    std::vector<std::uint32_t> updates;
    std::vector<std::byte> values, state;
    REGROUP_RETURN_IF_ERROR(reader.read("updates", "uint32", slices, updates));
    TableSpec whole = spec;
    whole.part = {};
    const std::vector<PositionRange> cuts = ranges_of(whole, 1);  // of all stores
    if (slices != cuts.size()) return reader.wrong("updates");
    const std::uint64_t words = spec.state_bytes() / sizeof(float);
    for (std::size_t slice = 0; slice < cuts.size(); ++slice) {
      const std::uint64_t first = cuts[slice].first, count = cuts[slice].last - first + 1;
      const auto own = ranges.find(first);
      if (own == ranges.end()) continue;  // another store's
      Range* const range = own->second;
      REGROUP_RETURN_IF_ERROR(reader.read("values", name_of(spec.dtype), Box{{first}, {count}},
                                          count * size_of(spec.dtype), values));
      REGROUP_RETURN_IF_ERROR(reader.read("state", "float32", Box{{0, first}, {words, count}},
                                          words * count * sizeof(float), state));
      REGROUP_RETURN_IF_ERROR(
          range->restore({{}, std::span(updates).subspan(slice, 1), values, state}, step()));
      sign_();
    }
    return {};
  }

  // The newest checkpoint that has the table; the last one does unless nothing has changed since.
  [[nodiscard]] const checkpoint::Checkpoint& newest_with(const TableSpec& spec,
                                                          const char* what) const {
    for (std::size_t i = chain_.size(); i-- > 0;) {
      if (chain_[i].find(fmt::format("{}/{}", spec.name, what))) return chain_[i];
    }
    return chain_.back();
  }

  Status restore_rows(const TableSpec& spec, const std::map<std::uint64_t, Range*>& ranges) {
    std::vector<RowSource> sources;
    for (const checkpoint::Checkpoint& from : chain_) {
      if (!from.find(spec.name + "/ids") && &from != &chain_.back()) continue;
      RowSource& source = sources.emplace_back(TableReader(from, spec));
      REGROUP_RETURN_IF_ERROR(source.read_ids(spec));
    }
    for (const auto& [begin, range] : ranges) {
      for (RowSource& source : sources) source.pass_others(spec, begin);
      REGROUP_RETURN_IF_ERROR(restore_rows(spec, sources, *range));
    }
    for (RowSource& source : sources) {
      if (spec.part.of == 1 && source.next != source.positions.size())
        return source.reader.wrong("ids");
    }
    return {};
  }

  // Rows of one checkpoint of the chain.
  struct RowSource {
    explicit RowSource(TableReader its) : reader(its) {}
    Status read_ids(const TableSpec& spec) {
      std::uint64_t rows = 0, counted = 0;
      std::vector<std::int64_t> ids;
      REGROUP_RETURN_IF_ERROR(reader.read("ids", "int64", rows, ids));
      REGROUP_RETURN_IF_ERROR(reader.read("updates", "uint32", counted, updates));
      positions.reserve(rows);
      for (const std::int64_t id : ids) positions.push_back(position_of(spec.kind, id));
      if (counted != rows || !std::ranges::is_sorted(positions, std::less_equal()))
        return reader.wrong("ids");
      return {};
    }
    // The rows before position `begin`, which other stores have.
    void pass_others(const TableSpec& spec, std::uint64_t begin) {
      if (spec.part.of == 1) return;
      const auto from = positions.begin() + static_cast<std::ptrdiff_t>(next);
      next += static_cast<std::size_t>(std::lower_bound(from, positions.end(), begin) - from);
    }
    // Of the rows from `first` to `next`, one after another.
    Status read_rows(const TableSpec& spec) {
      const std::uint64_t words = spec.state_bytes() / sizeof(float), count = next - first;
      REGROUP_RETURN_IF_ERROR(reader.read("values", name_of(spec.dtype),
                                          Box{{first, 0}, {count, spec.dim}},
                                          count * spec.value_bytes(), values));
      return reader.read("state", "float32", Box{{first, 0}, {count, words}},
                         count * spec.state_bytes(), state);
    }

    TableReader reader;
    std::vector<std::uint64_t> positions;
    std::vector<std::uint32_t> updates;
    std::size_t first = 0, next = 0;
    std::vector<std::byte> values, state;
  };

  // The next row of all sources, in the order of positions, at most at `last`: the index of the
  // newest source that has it. Passes it in all of them.
  static std::optional<std::size_t> take_next(std::vector<RowSource>& sources, std::uint64_t last) {
    std::optional<std::size_t> newest;
    std::uint64_t at = last;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const RowSource& source = sources[i];
      if (source.next == source.positions.size() || source.positions[source.next] > at) continue;
      at = source.positions[source.next];
      newest = i;
    }
    for (RowSource& source : sources) {
      if (newest && source.next < source.positions.size() && source.positions[source.next] == at)
        ++source.next;
    }
    return newest;
  }

  Status restore_rows(const TableSpec& spec, std::vector<RowSource>& sources, Range& range) {
    const std::size_t most = std::max<std::size_t>(1, kReadBytes / spec.value_bytes());
    const std::uint64_t last = range.header().positions.last;
    struct Row {
      std::size_t source = 0, at = 0;
    };
    std::vector<Row> rows;
    std::vector<std::uint64_t> positions;
    std::vector<std::uint32_t> updates;
    std::vector<std::byte> values, state;
    do {  // a range without rows is restored, too
      rows.clear(), positions.clear(), updates.clear(), values.clear(), state.clear();
      for (RowSource& source : sources) source.first = source.next;
      while (rows.size() < most) {
        const auto source = take_next(sources, last);
        if (!source) break;
        rows.push_back({*source, sources[*source].next - 1});
      }
      for (RowSource& source : sources) REGROUP_RETURN_IF_ERROR(source.read_rows(spec));
      for (const Row& row : rows) {
        const RowSource& from = sources[row.source];
        positions.push_back(from.positions[row.at]);
        updates.push_back(from.updates[row.at]);
        const auto add = [&](const std::vector<std::byte>& all, std::size_t bytes, auto& out) {
          const auto at = all.begin() + static_cast<std::ptrdiff_t>((row.at - from.first) * bytes);
          out.insert(out.end(), at, at + static_cast<std::ptrdiff_t>(bytes));
        };
        add(from.values, spec.value_bytes(), values);
        add(from.state, spec.state_bytes(), state);
      }
      REGROUP_RETURN_IF_ERROR(range.restore({positions, updates, values, state}, step()));
      sign_();
    } while (rows.size() == most);
    return {};
  }
  [[nodiscard]] std::uint64_t step() const { return chain_.back().manifest().step; }

  const std::span<const std::unique_ptr<ShardServer>> servers_;
  const std::span<const checkpoint::Checkpoint> chain_;  // the last one has the newest rows
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

TablesImage image_of(std::vector<RangeCopy> copies, std::vector<TableSpec> others) {
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
  specs.insert(specs.end(), others.begin(), others.end());
  std::ranges::sort(specs, {}, &TableSpec::name);
  out.specs = to_json(specs);
  out.pieces.push_back({kSpecsName,
                        "uint8",
                        {out.specs.size()},
                        checkpoint::whole({out.specs.size()}),
                        std::as_bytes(std::span(out.specs))});
  return out;
}

base::Result<TablesImage> copy_tables(std::span<const MappedShard> shards,
                                      const std::function<void()>& sign,
                                      const std::optional<TablesBase>& base,
                                      const AgreeOnSteps& agree) {
  // In mode sync ranges of one moment each would not be the tables of one step.
  REGROUP_ASSIGN_OR_RETURN(const StepHold hold,
                           StepHold::take(shards, base::SystemClock().now() + kServerLimit));
  if (agree) {
    REGROUP_ASSIGN_OR_RETURN(const std::uint64_t steps, agree(hold.logged(), hold.has_steps()));
    REGROUP_RETURN_IF_ERROR(hold.agree(steps, base::SystemClock().now() + kServerLimit));
  }
  std::optional<std::vector<RangeToCopy>> ranges;
  if (base) {
    REGROUP_ASSIGN_OR_RETURN(ranges, changes_to_copy(shards, *base, sign));
  }
  const bool changes = ranges.has_value();
  if (!changes) {
    REGROUP_ASSIGN_OR_RETURN(ranges, ranges_to_copy(shards));
  }
  std::vector<RangeCopy> copies;
  std::vector<TablesImage::SavedRange> saved;
  std::map<std::string, TableSpec> others;  // tables of which nothing has changed
  std::map<std::string, std::pair<TableSpec, std::vector<PositionRange>>>
      dense;  // ranges that are there
  for (const RangeToCopy& one : *ranges) {
    const StoreMemory& store = shards[one.shard].store;
    saved.push_back({&store, one.header, one.lsn});
    if (one.left_out) {
      REGROUP_ASSIGN_OR_RETURN(const TableSpec spec, spec_of(*one.header));
      others[spec.name] = spec;
      continue;
    }
    REGROUP_ASSIGN_OR_RETURN(RangeCopy copy, look_at(shards, one.shard, [&](base::TimePoint end) {
                               return copy_range(store, *one.header, end, one.since);
                             }));
    saved.back().lsn = copy.lsn;
    if (copy.spec.kind == TableKind::kDense) {
      auto& [spec, there] = dense[copy.spec.name];
      spec = copy.spec;
      there.push_back(copy.range);
    }
    copies.push_back(std::move(copy));
    sign();
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
  REGROUP_ASSIGN_OR_RETURN(const auto placed, tables_in(shards.front().store));
  for (const PlacedTable& table : placed) {
    if (ranges_of(table.spec, static_cast<std::uint32_t>(shards.size())).empty())
      others[table.spec.name] = table.spec;
  }
  std::vector<TableSpec> unchanged;
  for (auto& [name, spec] : others) unchanged.push_back(std::move(spec));
  TablesImage image = image_of(std::move(copies), std::move(unchanged));
  image.changes = changes;
  image.ranges = std::move(saved);
  if (const std::uint64_t step = hold.step(); step != 0) {
    image.step = {step};
    image.pieces.push_back(
        {kStepName, "uint64", {1}, checkpoint::whole({1}), bytes_of(image.step)});
  }
  return image;
}

void note_saved(const TablesImage& image, proto::Step step) {
  for (const auto& [memory, header, lsn] : image.ranges)
    collective::ps::note_saved(*memory, *header, lsn, step);
}

Status restore_tables(std::span<const MappedShard> shards,
                      std::span<const checkpoint::Checkpoint> chain,
                      const std::function<void()>& sign, const TablePart& part) {
  const checkpoint::Checkpoint& from = chain.back();
  const auto tensor = from.find(kSpecsName);
  if (!checkpoint::has_tables(from.manifest()) || !tensor) {
    return base::invalid_argument(
        fmt::format("{}: expected tables of a parameter server, got none", from.path()));
  }
  std::string text(checkpoint::bytes_of(from.manifest().tensors[*tensor]), ' ');
  REGROUP_RETURN_IF_ERROR(from.read(*tensor, std::as_writable_bytes(std::span(text))));
  REGROUP_ASSIGN_OR_RETURN(std::vector<TableSpec> specs, specs_of(text));
  for (TableSpec& spec : specs) spec.part = part;
  std::vector<std::unique_ptr<ShardServer>> servers;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    REGROUP_ASSIGN_OR_RETURN(
        auto server, ShardServer::attach(shards, shard, base::SystemClock().now() + kServerLimit));
    servers.push_back(std::move(server));
  }
  Restorer restorer(servers, chain, sign);
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
