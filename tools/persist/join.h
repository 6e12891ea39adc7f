// Makes one checkpoint of the parts that the stores of several hosts have written. A writer knows
// its own ranges only, so its part counts the rows of row tables, and the slices of dense ones, as
// if there were no other store; what follows from all parts is put right before they are merged.
// docs/design/ps_checkpoint.md.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/manifest.h"
#include "collective/ps/table.h"
#include "tools/persist/tables.h"

namespace regroup::persist {

// The tables of a store's image and the rows of its ranges, as text for TablesJoin::of().
[[nodiscard]] std::string ranges_text(const TablesImage& image);

class TablesJoin {
 public:
  // `texts`: of ranges_text(), by store. kDataLoss: one is malformed, or two stores have a table
  // with different specs. kUnavailable: they have different steps of mode sync.
  [[nodiscard]] static base::Result<TablesJoin> of(std::span<const std::string> texts);

  // The specs of the tables that all stores have. One that is being opened may not be everywhere;
  // no push to it was acknowledged before the last store was copied, so it is left out.
  [[nodiscard]] const std::vector<collective::ps::TableSpec>& specs() const { return specs_; }

  // Steps of mode sync that all tables have; 0: there were none.
  [[nodiscard]] std::uint64_t step() const { return step_; }

  // True if there is such a table: parts have noted its rows as saved, so no checkpoint of changes
  // may follow.
  [[nodiscard]] bool left_out() const { return left_out_; }

  // True if a part has only what has changed since the base.
  [[nodiscard]] bool changes() const { return changes_; }

  // Puts the shapes and boxes of parts right, `parts[i]` that of store i, and says in all, in
  // further ones, too, whether they have all rows or what has changed since `base`. Tables that are
  // left out become bytes that belong to no tensor. kDataLoss: a part is not what its text says.
  [[nodiscard]] base::Status settle(std::vector<checkpoint::Manifest>& parts,
                                    proto::Step base = 0) const;

 private:
  struct RangeRows {
    std::uint64_t first = 0;  // position
    std::uint64_t rows = 0;
    std::uint64_t before = 0;  // rows of all stores before this range's
  };
  struct Table {
    collective::ps::TableSpec spec;
    std::uint64_t rows = 0;                        // of all stores
    std::vector<std::vector<RangeRows>> by_store;  // ranges in the order of positions
  };
  [[nodiscard]] base::Status settle_part(std::size_t store, checkpoint::Manifest& part) const;

  std::vector<collective::ps::TableSpec> specs_;  // by name
  std::map<std::string, Table, std::less<>> tables_;
  std::size_t stores_ = 0;
  bool changes_ = false;  // a part has only what changed
  bool left_out_ = false;
  std::uint64_t step_ = 0;
};

}  // namespace regroup::persist
