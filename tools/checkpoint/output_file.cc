// Writes to a temporary file; close() renames it.
#include "tools/checkpoint/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "checkpoint/file_io.h"

namespace regroup::checkpoint_tool {

base::Result<OutputFile> OutputFile::create(const std::string& path) {
  std::string staged = fmt::format("{}.{}.part", path, ::getpid());
  REGROUP_ASSIGN_OR_RETURN(auto file, checkpoint::open_file(staged, O_RDWR | O_CREAT | O_EXCL));
  return OutputFile(path, std::move(staged), std::move(file));
}

OutputFile::~OutputFile() {
  if (file_.valid()) ::unlink(staged_.c_str());
}

base::Status OutputFile::append(std::span<const std::byte> bytes) {
  REGROUP_RETURN_IF_ERROR(checkpoint::write_at(file_.get(), size_, bytes, staged_));
  size_ += bytes.size();
  return {};
}

base::Status OutputFile::rewrite(std::uint64_t offset, std::string_view text) {
  return checkpoint::write_at(file_.get(), offset, std::as_bytes(std::span(text)), staged_);
}

base::Status OutputFile::close() {
  REGROUP_RETURN_IF_ERROR(checkpoint::sync(file_.get(), staged_));
  REGROUP_RETURN_IF_ERROR(checkpoint::rename_path(staged_, path_));
  if (::close(file_.release()) != 0) return base::system_error("close", path_, errno);
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  return checkpoint::sync_folder(folder.empty() ? "." : folder);
}

}  // namespace regroup::checkpoint_tool
