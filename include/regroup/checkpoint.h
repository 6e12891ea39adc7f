// Reads the checkpoints that --checkpoint DIR makes, without HDF5. Returns a byte only if its block
// matches the checksum that was written with it.
//
//   auto checkpoint = regroup::Checkpoint::newest("checkpoints");
//   // or Checkpoint::open("checkpoints/step-00000100")
//   if (!checkpoint.ok()) return checkpoint.status();
//   if (auto index = checkpoint->find("model.fc.weight")) {
//     std::vector<std::byte> bytes(checkpoint->tensors()[*index].bytes);
//     auto status = checkpoint->read(*index, bytes);
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regroup/status.h"
#include "regroup/types.h"

namespace regroup {

// A tensor of a checkpoint, without its data.
struct CheckpointTensor {
  std::string name;
  std::string dtype;                 // "float32", "bfloat16", ... as PyTorch calls them
  std::vector<std::uint64_t> shape;  // empty: a scalar
  std::uint64_t bytes = 0;           // of the whole tensor
};

// One open checkpoint, whose files stay open until it is destroyed. Movable; references that it
// returns are valid as long as it lives. For one thread at a time. Blocks on the file system.
// Errors other than those named below come from the file system; their code follows from errno, and
// the message names call and file. If files are deleted or replaced meanwhile, reads fail or return
// the old bytes, never wrong ones.
class Checkpoint {
 public:
  // Opens the checkpoint in the folder `path`. kNotFound: there is none. kDataLoss: its manifest is
  // damaged, or a file is missing or has another size. kInvalidArgument: its format is newer than
  // this library.
  [[nodiscard]] static base::Result<Checkpoint> open(const std::string& path);
  // Opens the committed checkpoint of `directory` with the highest step, even if it is damaged:
  // bytes are verified only when they are read. kNotFound: the directory does not exist or has no
  // checkpoint. Other errors are those of open().
  [[nodiscard]] static base::Result<Checkpoint> newest(const std::string& directory);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  // The folder, as it was opened.
  [[nodiscard]] const std::string& path() const;
  // The last step that was applied to this state.
  [[nodiscard]] proto::Step step() const;
  // All tensors, in the order of the manifest.
  [[nodiscard]] const std::vector<CheckpointTensor>& tensors() const;
  // The index in tensors() of the tensor of that name; nullopt if there is none.
  [[nodiscard]] std::optional<std::size_t> find(const std::string& name) const;
  // Copies a tensor, row by row, little-endian. kInvalidArgument: no such index, or `out` has
  // another size than tensors()[tensor].bytes. kDataLoss: the bytes are not those that were
  // written; the message names file and offset, and `out` holds garbage.
  [[nodiscard]] base::Status read(std::size_t tensor, std::span<std::byte> out) const;
  // Reads every file once, by up to `threads` threads. kDataLoss: a byte differs from what was
  // written; the message names each damaged place, up to 100.
  [[nodiscard]] base::Status verify(unsigned threads = 1) const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace regroup
