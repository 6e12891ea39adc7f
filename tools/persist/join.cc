// A part's pieces of a tensor stand in the order of its store's ranges, those without rows left
// out.
#include "tools/persist/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/printable.h"
#include "collective/ps/partition.h"

namespace regroup::persist {
namespace {

using namespace collective::ps;
using base::Status;
using checkpoint::Piece;
using checkpoint::Tensor;
using Json = nlohmann::json;

Status differs(const std::string& name) {
  return base::data_loss(
      fmt::format("tensor {}: its part is not what its writer said", base::escaped(name)));
}

}  // namespace

std::string ranges_text(const TablesImage& image) {
  Json ranges = Json::object();
  for (const RangeCopy& copy : image.copies)
    ranges[copy.spec.name].push_back({copy.range.first, copy.positions.size()});
  const Json out{{"tables", Json::parse(image.specs)},
                 {"ranges", std::move(ranges)},
                 {"changes", image.changes},
                 {"step", image.step.empty() ? 0 : image.step.front()}};
  return out.dump();
}

base::Result<TablesJoin> TablesJoin::of(std::span<const std::string> texts) {
  TablesJoin out;
  out.stores_ = texts.size();
  std::map<std::string, std::size_t> holders;
  for (std::size_t store = 0; store < texts.size(); ++store) {
    try {
      const Json json = Json::parse(texts[store]);
      const auto step = json.at("step").get<std::uint64_t>();
      if (store == 0) out.step_ = step;
      if (step != out.step_) {
        return base::unavailable(fmt::format(
            "steps of mode sync: store 0 has {}, store {} {}; the next attempt may have the same",
            out.step_, store, step));
      }
      const Json& ranges = json.at("ranges");
      if (!ranges.is_object()) return base::data_loss("ranges of a part: expected an object");
      out.changes_ |= json.at("changes").get<bool>();
      REGROUP_ASSIGN_OR_RETURN(const auto specs, specs_of(json.at("tables").dump()));
      for (const TableSpec& spec : specs) {
        Table& table = out.tables_[spec.name];
        if (holders[spec.name]++ == 0) table = {spec, 0, {}};
        if (!(table.spec == spec))
          return base::data_loss(fmt::format("table {}: two hosts have other specs", spec.name));
        table.by_store.resize(texts.size());
        const auto found = ranges.find(spec.name);
        if (found == ranges.end()) continue;
        for (const Json& one : *found)
          table.by_store[store].push_back({one.at(0).get<std::uint64_t>(), one.at(1), 0});
      }
    } catch (const Json::exception& error) {
      return base::data_loss(fmt::format("ranges of a part: malformed: {}", error.what()));
    }
  }
  out.left_out_ = std::erase_if(out.tables_, [&](const auto& of) {
                    return holders[of.first] < texts.size();
                  }) > 0;
  for (auto& [name, table] : out.tables_) {
    out.specs_.push_back(table.spec);
    std::vector<RangeRows*> all;
    for (auto& ranges : table.by_store) {
      for (RangeRows& range : ranges) all.push_back(&range);
    }
    std::ranges::sort(all, {}, &RangeRows::first);
    for (RangeRows* const range : all) {
      range->before = table.rows;
      table.rows += range->rows;
    }
  }
  return out;
}

Status TablesJoin::settle(std::vector<checkpoint::Manifest>& parts, proto::Step base) const {
  for (std::size_t store = 0; store < stores_; ++store)
    REGROUP_RETURN_IF_ERROR(settle_part(store, parts.at(store)));
  for (checkpoint::Manifest& part : parts) {
    part.content = changes_ ? checkpoint::Content::kTableChanges : checkpoint::Content::kTables;
    part.base = changes_ ? base : 0;
  }
  // A tensor without rows has one piece, not one of each store.
  std::map<std::string, bool> there;
  for (checkpoint::Manifest& part : parts) {
    for (Tensor& tensor : part.tensors) {
      std::erase_if(tensor.pieces, [&](const Piece& piece) {
        if (piece.range.bytes > 0) return false;
        const bool empty = std::ranges::find(tensor.shape, 0U) != tensor.shape.end();
        return !empty || std::exchange(there[tensor.name], true);
      });
    }
  }
  return {};
}

Status TablesJoin::settle_part(std::size_t store, checkpoint::Manifest& part) const {
  std::vector<Tensor> kept;
  for (Tensor& tensor : part.tensors) {
    const std::size_t slash = tensor.name.rfind('/');
    const auto found = tables_.find(std::string_view(tensor.name).substr(0, slash));
    if (found == tables_.end()) {
      for (Piece& piece : tensor.pieces) {
        if (piece.range.bytes > 0) part.files.at(piece.file).rest.push_back(std::move(piece.range));
      }
      continue;
    }
    const Table& table = found->second;
    const bool dense = table.spec.kind == TableKind::kDense;
    const bool slices = dense && tensor.name.substr(slash + 1) == "updates";
    std::vector<RangeRows> ranges;
    for (const RangeRows& range : table.by_store[store]) {
      if (dense || range.rows > 0) ranges.push_back(range);
    }
    if (!ranges.empty() && ranges.size() != tensor.pieces.size()) return differs(tensor.name);
    if (tensor.shape.empty()) return differs(tensor.name);
    if (slices) {
      const std::vector<PositionRange> cuts = ranges_of(table.spec, 1);
      tensor.shape[0] = cuts.size();
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const auto cut = std::ranges::find(cuts, ranges[i].first, &PositionRange::first);
        if (cut == cuts.end()) return differs(tensor.name);
        tensor.pieces[i].box.start[0] = static_cast<std::uint64_t>(cut - cuts.begin());
      }
    } else if (!dense) {
      tensor.shape[0] = table.rows;
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        if (tensor.pieces[i].box.count.at(0) != ranges[i].rows) return differs(tensor.name);
        tensor.pieces[i].box.start[0] = ranges[i].before;
      }
    }
    kept.push_back(std::move(tensor));
  }
  part.tensors = std::move(kept);
  return {};
}

}  // namespace regroup::persist
