// A file that appears whole or not at all: written beside its place, put on the disk, renamed.
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
  ~OutputFile();  // without close() nothing is left

  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] base::Status append(std::span<const std::byte> bytes);
  [[nodiscard]] base::Status append(std::string_view text) {
    return append(std::as_bytes(std::span(text)));
  }
  // Over bytes that are there.
  [[nodiscard]] base::Status rewrite(std::uint64_t offset, std::string_view text);
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
