// Archives of stored (not compressed) files, as .npz and PyTorch's .pt are.
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
  // A file of `bytes` bytes, which follow in any number of append(). Names are UTF-8.
  [[nodiscard]] base::Status begin(const std::string& name, std::uint64_t bytes,
                                   std::string_view comment = {});
  [[nodiscard]] base::Status append(std::span<const std::byte> bytes);
  [[nodiscard]] base::Status end();
  [[nodiscard]] base::Status add(const std::string& name, std::string_view content);
  [[nodiscard]] base::Status finish();  // of the archive; the caller closes the file

 private:
  struct Entry {
    std::string name;
    std::uint64_t offset, bytes;
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
// The files of an archive in memory. kInvalidArgument: no such archive, one of whose files two have
// a name or bytes, or that says different things of a file in its two places, or a file in it that
// is compressed or encrypted. kDataLoss: a file does not have its CRC-32.
[[nodiscard]] base::Result<std::vector<ZipMember>> read_zip(std::span<const std::byte> archive,
                                                            const std::string& name);

}  // namespace regroup::checkpoint_tool
