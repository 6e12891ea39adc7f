// A file that appears complete or not at all: written under another name in the same folder, synced
// to disk, then renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace regroup::checkpoint_tool {

class OutputFile {
 public:
  [[nodiscard]] static base::Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept = default;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // removes the file unless close() has succeeded

  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] base::Status append(std::span<const std::byte> bytes);
  [[nodiscard]] base::Status append(std::string_view text) {
    return append(std::as_bytes(std::span(text)));
  }
  // Overwrites bytes that were appended before.
  [[nodiscard]] base::Status rewrite(std::uint64_t offset, std::string_view text);
  // Syncs the file and renames it to `path`.
  [[nodiscard]] base::Status close();

 private:
  OutputFile(std::string path, std::string staged, base::Fd file)
      : path_(std::move(path)), staged_(std::move(staged)), file_(std::move(file)) {}

  std::string path_;
  std::string staged_;
  base::Fd file_;
  std::uint64_t size_ = 0;
};

}  // namespace regroup::checkpoint_tool
