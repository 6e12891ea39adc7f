// Reads the description and checks every value, although our own agent wrote it.
#include "tools/persist/description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "checkpoint/dtype.h"

namespace regroup::persist {
namespace {

using base::invalid_argument;
using base::Status;
using checkpoint::CheckpointPiece;
using Json = nlohmann::json;

Status wrong(const char* key) {
  return invalid_argument(fmt::format("description: malformed \"{}\"", key));
}

// Leaves `out` unchanged if the key is absent.
template <class T>
Status take(const Json& from, const char* key, T* out) {
  const auto found = from.find(key);
  if (found == from.end()) return {};
  if constexpr (std::is_same_v<T, bool>) {
    if (!found->is_boolean()) return wrong(key);
    *out = found->template get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    if (!found->is_number_unsigned() ||
        found->template get<std::uint64_t>() > std::numeric_limits<T>::max())
      return wrong(key);
    *out = static_cast<T>(found->template get<std::uint64_t>());
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!found->is_string()) return wrong(key);
    *out = found->template get<std::string>();
  } else {
    if (!found->is_array() || found->size() > checkpoint::kMaxRank) return wrong(key);
    for (const Json& number : *found) {
      if (!number.is_number_unsigned()) return wrong(key);
      out->push_back(number.template get<std::uint64_t>());
    }
  }
  return {};
}

std::vector<std::string_view> names_of_dtypes() {
  std::vector<std::string_view> out;
  for (const checkpoint::Dtype& dtype : checkpoint::dtypes()) out.push_back(dtype.name);
  return out;
}

Status take_piece(const Json& from, std::span<const std::byte> memory, CheckpointPiece* out) {
  if (!from.is_object()) return wrong("tensors");
  std::uint64_t offset = 0;
  REGROUP_RETURN_IF_ERROR(take(from, "name", &out->name));
  REGROUP_RETURN_IF_ERROR(take(from, "dtype", &out->dtype));
  REGROUP_RETURN_IF_ERROR(take(from, "shape", &out->shape));
  REGROUP_RETURN_IF_ERROR(take(from, "start", &out->box.start));
  REGROUP_RETURN_IF_ERROR(take(from, "count", &out->box.count));
  REGROUP_RETURN_IF_ERROR(take(from, "offset", &offset));
  if (!from.contains("start")) out->box = checkpoint::whole(out->shape);
  const auto size = checkpoint::size_of_dtype(out->dtype);
  const auto volume = checkpoint::volume_of(out->box.count);
  if (!size)
    return invalid_argument(fmt::format(
        "tensor {} has type {}, which checkpoints cannot hold; expected one of {}",
        base::escaped(out->name), base::escaped(out->dtype), fmt::join(names_of_dtypes(), ", ")));
  if (!volume || !checkpoint::lies_within(out->box, out->shape)) return wrong("tensors");
  if (offset > memory.size() || *volume > (memory.size() - offset) / *size)
    return invalid_argument(
        fmt::format("description: tensor {} reaches beyond the arena", base::escaped(out->name)));
  out->bytes = memory.subspan(offset, *volume * *size);
  return {};
}

Status take_part(const Json& from, std::span<const std::byte> memory,
                 checkpoint::CheckpointPart* out) {
  REGROUP_RETURN_IF_ERROR(take(from, "step", &out->about.step));
  REGROUP_RETURN_IF_ERROR(take(from, "job", &out->about.job));
  REGROUP_RETURN_IF_ERROR(take(from, "seed", &out->about.seed));
  REGROUP_RETURN_IF_ERROR(take(from, "shards", &out->about.shards));
  REGROUP_RETURN_IF_ERROR(take(from, "model", &out->about.model));
  REGROUP_RETURN_IF_ERROR(take(from, "fingerprint", &out->about.fingerprint));
  REGROUP_RETURN_IF_ERROR(take(from, "uuid", &out->uuid));
  REGROUP_RETURN_IF_ERROR(take(from, "writer", &out->writer));
  REGROUP_RETURN_IF_ERROR(take(from, "writers", &out->writers));
  if (out->writers == 0 || out->writer >= out->writers) return wrong("writer");
  if (out->uuid.empty() || out->uuid.find('/') != std::string::npos) return wrong("uuid");
  const auto tensors = from.find("tensors");
  if (tensors == from.end() || !tensors->is_array()) return wrong("tensors");
  for (const Json& tensor : *tensors)
    REGROUP_RETURN_IF_ERROR(take_piece(tensor, memory, &out->pieces.emplace_back()));
  return {};
}

}  // namespace

base::Result<Description> parse(std::string_view text, std::span<const std::byte> memory) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return invalid_argument("description: expected a JSON object");
  Description out;
  REGROUP_RETURN_IF_ERROR(take(json, "directory", &out.directory));
  REGROUP_RETURN_IF_ERROR(take(json, "keep_last", &out.retention.last));
  REGROUP_RETURN_IF_ERROR(take(json, "keep_every", &out.retention.every));
  REGROUP_RETURN_IF_ERROR(take(json, "direct", &out.writing.direct));
  REGROUP_RETURN_IF_ERROR(take(json, "uring", &out.writing.uring));
  REGROUP_RETURN_IF_ERROR(take(json, "fenced", &out.fenced));
  REGROUP_RETURN_IF_ERROR(take(json, "commit", &out.commit));
  REGROUP_RETURN_IF_ERROR(take(json, "base", &out.base));
  out.writing.commits = out.commit;
  REGROUP_RETURN_IF_ERROR(take_part(json, memory, &out.part));
  if (out.directory.empty()) return wrong("directory");
  return out;
}

}  // namespace regroup::persist
