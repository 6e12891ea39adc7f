// Reads and writes zip archives of stored (not compressed) files, such as .npz and PyTorch's .pt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tools/checkpoint/output_file.h"

namespace regroup::checkpoint_tool {

class ZipWriter {
 public:
  // The data of each file begins at a multiple of `alignment`.
  ZipWriter(OutputFile* out, std::uint64_t alignment) : out_(out), alignment_(alignment) {}
  // Begins a file of `bytes` bytes, which any number of append() calls bring. Names are UTF-8.
  [[nodiscard]] base::Status begin(const std::string& name, std::uint64_t bytes,
                                   std::string_view comment = {});
  [[nodiscard]] base::Status append(std::span<const std::byte> bytes);
  [[nodiscard]] base::Status end();
  [[nodiscard]] base::Status add(const std::string& name, std::string_view content);
  // Ends the archive; the caller closes the OutputFile.
  [[nodiscard]] base::Status finish();

 private:
  struct Entry {
    std::string name;
    std::uint64_t offset;
    std::uint64_t bytes;
    std::uint32_t crc;
    std::string comment;
  };
  OutputFile* const out_;
  const std::uint64_t alignment_;
  std::vector<Entry> entries_;
};

struct ZipMember {
  std::string name;
  std::span<const std::byte> bytes;  // within the archive
  std::string comment;
};
// Returns the files of an archive. kInvalidArgument: not an archive, two files share a name or
// bytes, the local and the central record of a file differ, or a file is compressed or encrypted.
// kDataLoss: the CRC-32 of a file is wrong.
[[nodiscard]] base::Result<std::vector<ZipMember>> read_zip(std::span<const std::byte> archive,
                                                            const std::string& name);

}  // namespace regroup::checkpoint_tool
