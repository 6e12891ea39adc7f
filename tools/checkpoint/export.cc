// export --to safetensors | torch | npz: streams, so that a checkpoint may be larger than memory.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/status.h"
#include "checkpoint/chain.h"
#include "tools/checkpoint/command.h"
#include "tools/checkpoint/model_keys.h"
#include "tools/checkpoint/npy.h"
#include "tools/checkpoint/output_file.h"
#include "tools/checkpoint/progress.h"
#include "tools/checkpoint/safetensors.h"
#include "tools/checkpoint/slabs.h"
#include "tools/checkpoint/torch_pickle.h"
#include "tools/checkpoint/zip.h"

namespace regroup::checkpoint_tool {
namespace {

using base::Status;
using checkpoint::Box;
using checkpoint::Checkpoint;
using checkpoint::Tensor;
using Bytes = std::span<const std::byte>;

constexpr std::uint64_t kAlignment = 64;  // of torch's and numpy's memory maps
// Marks the file for import: its names are those of tensors and describe no structure. torch
// ignores the mark.
constexpr const char* kExportRecord = "archive/regroup.export";

// Passes the bytes of a tensor on and shows the progress.
class Source {
 public:
  Source(const Checkpoint& from, Selection what)
      : from_(from), what_(std::move(what)), bar_("exporting") {
    for (const Tensor& tensor : tensors()) total_ += checkpoint::bytes_of(tensor);
  }
  template <class Out>
  Status copy(std::size_t tensor, Out* out) {
    return for_each_slab(from_, what_.tensors[tensor], [&](const Box&, Bytes bytes) {
      bar_.show(done_ += bytes.size(), total_);
      return out->append(bytes);
    });
  }
  [[nodiscard]] const std::vector<Tensor>& tensors() const { return what_.manifest.tensors; }
  [[nodiscard]] const checkpoint::Manifest& manifest() const { return what_.manifest; }

 private:
  const Checkpoint& from_;
  const Selection what_;
  ProgressBar bar_;
  std::uint64_t done_ = 0, total_ = 0;
};

Status to_safetensors(Source& source, OutputFile* out) {
  REGROUP_ASSIGN_OR_RETURN(auto header, safetensors_header(source.manifest()));
  REGROUP_RETURN_IF_ERROR(out->append(header));
  for (std::size_t i = 0; i < source.tensors().size(); ++i)
    REGROUP_RETURN_IF_ERROR(source.copy(i, out));
  return {};
}

Status to_torch(Source& source, OutputFile* out) {
  ZipWriter zip(out, kAlignment);
  REGROUP_RETURN_IF_ERROR(zip.add("archive/data.pkl", torch_pickle(source.manifest())));
  REGROUP_RETURN_IF_ERROR(zip.add("archive/byteorder", "little"));
  REGROUP_RETURN_IF_ERROR(zip.add(kExportRecord, "1"));
  for (std::size_t i = 0; i < source.tensors().size(); ++i) {
    REGROUP_RETURN_IF_ERROR(
        zip.begin(fmt::format("archive/data/{}", i), checkpoint::bytes_of(source.tensors()[i])));
    REGROUP_RETURN_IF_ERROR(source.copy(i, &zip));
    REGROUP_RETURN_IF_ERROR(zip.end());
  }
  REGROUP_RETURN_IF_ERROR(zip.add("archive/version", "3\n"));
  return zip.finish();
}

Status to_npz(Source& source, OutputFile* out) {
  ZipWriter zip(out, kAlignment);
  for (std::size_t i = 0; i < source.tensors().size(); ++i) {
    const Tensor& tensor = source.tensors()[i];
    bool unnamed = false;
    const std::string header = npy_header(tensor.dtype, tensor.shape, &unnamed);
    REGROUP_RETURN_IF_ERROR(zip.begin(tensor.name + ".npy",
                                      header.size() + checkpoint::bytes_of(tensor),
                                      unnamed ? tensor.dtype : ""));
    REGROUP_RETURN_IF_ERROR(zip.append(std::as_bytes(std::span(header))));
    REGROUP_RETURN_IF_ERROR(source.copy(i, &zip));
    REGROUP_RETURN_IF_ERROR(zip.end());
  }
  return zip.finish();
}

}  // namespace

Answer export_to(const Arguments& arguments) {
  constexpr struct {
    std::string_view name;
    Status (*write)(Source&, OutputFile*);
  } kFormats[] = {{"safetensors", to_safetensors}, {"torch", to_torch}, {"npz", to_npz}};
  const auto* format =
      std::ranges::find(kFormats, arguments.format, [](const auto& f) { return f.name; });
  if (format == std::end(kFormats))
    return base::invalid_argument("export: expected --to safetensors, torch or npz");
  REGROUP_ASSIGN_OR_RETURN(const auto path, checkpoint_at(arguments.words[0], arguments.step));
  REGROUP_ASSIGN_OR_RETURN(auto from, Checkpoint::open(path));
  REGROUP_RETURN_IF_ERROR(checkpoint::check_whole(from));
  REGROUP_ASSIGN_OR_RETURN(
      auto what, arguments.model_only ? model_of(from) : base::Result<Selection>(all_of(from)));
  REGROUP_ASSIGN_OR_RETURN(auto out, OutputFile::create(arguments.words[1]));
  Source source(from, std::move(what));
  REGROUP_RETURN_IF_ERROR(format->write(source, &out));
  REGROUP_RETURN_IF_ERROR(out.close());
  return 0;
}

}  // namespace regroup::checkpoint_tool
