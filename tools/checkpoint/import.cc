// import --from safetensors | npz: maps the file and writes it as a checkpoint. For torch's files
// see torch_import.h.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/status.h"
#include "checkpoint/directory.h"
#include "checkpoint/file_io.h"
#include "checkpoint/hdf5/factory.h"
#include "checkpoint/manifest.h"
#include "tools/checkpoint/command.h"
#include "tools/checkpoint/npz.h"
#include "tools/checkpoint/safetensors.h"
#include "tools/checkpoint/torch_import.h"

namespace regroup::checkpoint_tool {
namespace {

using base::invalid_argument;
using base::Result;
using Bytes = std::span<const std::byte>;

// Maps the whole file. It stays mapped: the process ends soon.
Result<Bytes> map(const std::string& path) {
  REGROUP_ASSIGN_OR_RETURN(auto file, checkpoint::open_file(path, O_RDONLY));
  REGROUP_ASSIGN_OR_RETURN(const auto size, checkpoint::size_of(file.get(), path));
  if (size == 0) return Bytes();
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (base == MAP_FAILED) return base::system_error("mmap", path, errno);
  return Bytes(static_cast<const std::byte*>(base), size);
}

// Refuses names that no manifest may have, before anything is written.
base::Status check_names(const std::vector<checkpoint::CheckpointPiece>& pieces,
                         const std::string& path) {
  for (const checkpoint::CheckpointPiece& piece : pieces) {
    if (const auto why = checkpoint::name_error(piece.name))
      return invalid_argument(fmt::format("{}: {}", path, *why));
  }
  return {};
}

// The tensors' bytes point into `file` or into the result.
Result<Arrays> read_file(const std::string& format, Bytes file, const std::string& path) {
  if (format == "npz") return read_npz(file, path);
  REGROUP_ASSIGN_OR_RETURN(auto pieces, read_safetensors(file, path));
  return Arrays{std::move(pieces), {}};
}

std::string format_of(const Arguments& arguments) {
  if (!arguments.format.empty()) return arguments.format;
  const std::string& path = arguments.words[0];
  const std::string ending = path.substr(std::min(path.size(), path.rfind('.') + 1));
  return ending == "pt" || ending == "pth" ? "torch" : ending;
}

}  // namespace

Answer import_from(const Arguments& arguments) {
  const std::string &path = arguments.words[0], &directory = arguments.words[1];
  const std::string format = format_of(arguments);
  if (format == "torch") return import_torch(path, directory, arguments.step.value_or(0));
  if (format != "safetensors" && format != "npz")
    return invalid_argument("import: expected --from safetensors, torch or npz");
  REGROUP_ASSIGN_OR_RETURN(const auto file, map(path));
  REGROUP_ASSIGN_OR_RETURN(auto arrays, read_file(format, file, path));
  REGROUP_RETURN_IF_ERROR(check_names(arrays.pieces, path));
  REGROUP_ASSIGN_OR_RETURN(const auto lock,
                           checkpoint::DirectoryLock::take(directory, "regroup checkpoint import"));
  checkpoint::CheckpointPart part;
  part.about.step = arguments.step.value_or(0);
  part.about.job = checkpoint::kImportJob;
  part.uuid = fmt::format("import-{}", ::getpid());
  part.pieces = std::move(arrays.pieces);
  const auto store = checkpoint::hdf5::make_store(directory);
  REGROUP_RETURN_IF_ERROR(store->write(part));
  REGROUP_RETURN_IF_ERROR(store->commit(part));
  fmt::print("{}\n", checkpoint::path_of_step(directory, part.about.step));
  return 0;
}

}  // namespace regroup::checkpoint_tool
