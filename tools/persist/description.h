// What an agent tells regroup-persist: which bytes of the arena are which tensor, and where they
// go. docs/reference/formats/checkpoint.md, regroup-persist.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/directory.h"
#include "checkpoint/hdf5/image_writer.h"

namespace regroup::persist {

struct Description {
  std::string directory;
  checkpoint::Snapshot snapshot;  // its pieces lie in the memory given to parse()
  checkpoint::Retention retention;
  checkpoint::hdf5::WriteOptions writing;
  bool fenced = false;  // only while the directory's LOCK names the snapshot's job
  bool commit = true;   // after writing; false: another writer does
};

// kInvalidArgument: not JSON, a value that cannot be, bytes beyond `memory`.
[[nodiscard]] base::Result<Description> parse(std::string_view text,
                                              std::span<const std::byte> memory);

}  // namespace regroup::persist
