// Reads and writes the header.
#include "tools/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/dtype.h"
#include "tools/checkpoint/foreign_types.h"

namespace regroup::checkpoint_tool {
namespace {

using checkpoint::SnapshotPiece;
using core::invalid_argument;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kLargestHeader = 100'000'000;  // as the reference implementation has it

std::vector<std::uint64_t> numbers(const Json& from, const char* key) {
  std::vector<std::uint64_t> out;
  const auto found = from.is_object() ? from.find(key) : from.end();
  if (found == from.end() || !found->is_array()) return out;
  for (const Json& number : *found)
    if (number.is_number_unsigned()) out.push_back(number.get<std::uint64_t>());
  return out;
}

core::Result<SnapshotPiece> piece_of(const std::string& key, const Json& value,
                                     std::span<const std::byte> data) {
  const auto wrong = [&](const char* what) {
    return invalid_argument(fmt::format("tensor {}: {}", key, what));
  };
  if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string())
    return wrong("no type given");
  const TypeNames* type = by_safetensors(value["dtype"].get<std::string>());
  if (type == nullptr) return wrong("of a type that is not known");
  SnapshotPiece out{key, std::string(type->ours), numbers(value, "shape"), {}, {}};
  out.box = checkpoint::whole(out.shape);
  const auto ends = numbers(value, "data_offsets");
  const auto volume = checkpoint::volume_of(out.shape);
  if (ends.size() != 2 || ends[0] > ends[1] || ends[1] > data.size()) return wrong("its bytes are not there");
  if (!volume || out.shape.size() > checkpoint::kMaxRank ||
      *volume * *checkpoint::size_of_dtype(out.dtype) != ends[1] - ends[0])
    return wrong("its shape does not fit its bytes");
  out.bytes = data.subspan(ends[0], ends[1] - ends[0]);
  return out;
}

}  // namespace

core::Result<std::string> safetensors_header(const checkpoint::Manifest& manifest) {
  Json json = {{"__metadata__", {{"format", "pt"}, {"step", std::to_string(manifest.step)}}}};
  std::uint64_t at = 0;
  for (const checkpoint::Tensor& tensor : manifest.tensors) {
    const TypeNames* type = by_ours(tensor.dtype);
    if (type == nullptr || type->safetensors.empty())
      return invalid_argument(
          fmt::format("tensor {}: safetensors has no type {}", tensor.name, tensor.dtype));
    const std::uint64_t end = at + checkpoint::bytes_of(tensor);
    json[tensor.name] = {{"dtype", type->safetensors}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = json.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string out(8, '\0');
  const std::uint64_t length = text.size();
  std::memcpy(out.data(), &length, sizeof length);
  return out + text;
}

core::Result<std::vector<SnapshotPiece>> read_safetensors(std::span<const std::byte> file,
                                                          const std::string& name) {
  std::uint64_t length = 0;
  if (file.size() >= sizeof length) std::memcpy(&length, file.data(), sizeof length);
  if (file.size() < sizeof length || length > kLargestHeader || length > file.size() - sizeof length)
    return invalid_argument(name + ": no safetensors file");
  const auto* text = reinterpret_cast<const char*>(file.data()) + sizeof length;
  const Json json = Json::parse(text, text + length, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return invalid_argument(name + ": its header is no JSON object");
  std::vector<SnapshotPiece> out;
  for (const auto& [key, value] : json.items()) {
    if (key == "__metadata__") continue;
    auto piece = piece_of(key, value, file.subspan(sizeof length + length));
    if (!piece.ok()) return invalid_argument(name + ": " + piece.status().message());
    out.push_back(std::move(*piece));
  }
  return out;
}

}  // namespace regroup::checkpoint_tool
