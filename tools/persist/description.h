// What an agent sends regroup-persist: which bytes of the arena belong to which tensor, and where
// to write them. docs/reference/formats/checkpoint.md, regroup-persist.
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
  checkpoint::CheckpointPart part;  // its pieces point into the memory given to parse()
  checkpoint::Retention retention;
  checkpoint::hdf5::WriteOptions writing;
  bool fenced = false;  // write only while the directory's LOCK names the part's job
  bool commit = true;   // commit after writing; false: another writer commits
  // Of save-tables: a checkpoint that an earlier call with the same memory has written; it need not
  // write again what has not changed since. 0: none.
  proto::Step base = 0;
};

// kInvalidArgument: not JSON, a value out of range, or bytes outside `memory`.
[[nodiscard]] base::Result<Description> parse(std::string_view text,
                                              std::span<const std::byte> memory);

}  // namespace regroup::persist
