// Reads and writes the header.
#include "tools/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/dtype.h"
#include "checkpoint/json_outline.h"
#include "tools/checkpoint/foreign_types.h"

namespace regroup::checkpoint_tool {
namespace {

using checkpoint::SnapshotPiece;
using core::invalid_argument;
using HeaderJson = nlohmann::json;  // nlohmann::ordered_json compares each key with all before it

constexpr std::size_t kDeepest = 4;
constexpr std::uint64_t kLargestHeader = 100'000'000;  // as the reference implementation has it

// Nothing: there is no list of whole numbers >= 0.
std::optional<std::vector<std::uint64_t>> numbers(const HeaderJson& from, const char* key) {
  const auto found = from.find(key);
  if (found == from.end() || !found->is_array()) return std::nullopt;
  std::vector<std::uint64_t> out;
  for (const HeaderJson& number : *found) {
    if (!number.is_number_unsigned()) return std::nullopt;
    out.push_back(number.get<std::uint64_t>());
  }
  return out;
}

core::Result<SnapshotPiece> piece_of(const std::string& key, const HeaderJson& value,
                                     std::span<const std::byte> data) {
  const auto wrong = [&](const char* what) {
    return invalid_argument(fmt::format("tensor {}: {}", key, what));
  };
  if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string())
    return wrong("no type given");
  const TypeNames* type = by_safetensors(value["dtype"].get<std::string>());
  if (type == nullptr) return wrong("of a type that is not known");
  const auto shape = numbers(value, "shape"), ends = numbers(value, "data_offsets");
  if (!shape) return wrong("its shape is no list of whole numbers");
  if (!ends || ends->size() != 2 || (*ends)[0] > (*ends)[1] || (*ends)[1] > data.size())
    return wrong("its bytes are not there");
  const auto bytes = data.subspan((*ends)[0], (*ends)[1] - (*ends)[0]);
  const auto volume = checkpoint::volume_of(*shape);
  if (!volume || shape->size() > checkpoint::kMaxRank ||
      *volume * *checkpoint::size_of_dtype(type->ours) != bytes.size())
    return wrong("its shape does not fit its bytes");
  return SnapshotPiece{key, std::string(type->ours), *shape, checkpoint::whole(*shape), bytes};
}

// The format allows neither tensors that overlap nor bytes of no tensor: without that a small file could
// unpack to a checkpoint of any size. `pieces` become ordered by their bytes.
core::Status check_layout(std::vector<SnapshotPiece>* pieces, std::span<const std::byte> data) {
  std::ranges::stable_sort(*pieces, {}, [](const SnapshotPiece& piece) {
    return std::pair(piece.bytes.data(), piece.bytes.size());
  });
  std::uint64_t at = 0;
  for (const SnapshotPiece& piece : *pieces) {
    const auto begin = static_cast<std::uint64_t>(piece.bytes.data() - data.data());
    if (begin != at)
      return invalid_argument(
          fmt::format("the bytes of tensor {} begin at {}, expected {}", piece.name, begin, at));
    at += piece.bytes.size();
  }
  if (at == data.size()) return {};
  return invalid_argument(fmt::format("{} bytes belong to no tensor", data.size() - at));
}

// The JSON object of a header.
core::Result<HeaderJson> parse_header(std::string_view text) {
  const checkpoint::JsonOutline outline = checkpoint::outline_of_json(text);
  HeaderJson json =
      HeaderJson::parse(outline.depth > kDeepest ? "" : text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return invalid_argument("its header is no JSON object of tensors");
  if (outline.keys != json.size()) return invalid_argument("a tensor is listed twice");
  return json;
}

}  // namespace

core::Result<std::string> safetensors_header(const checkpoint::Manifest& manifest) {
  nlohmann::ordered_json json = {
      {"__metadata__", {{"format", "pt"}, {"step", std::to_string(manifest.step)}}}};
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
  const auto json = parse_header({text, length});
  if (!json.ok()) return invalid_argument(name + ": " + json.status().message());
  const auto data = file.subspan(sizeof length + length);
  std::vector<SnapshotPiece> out;
  for (const auto& [key, value] : json->items()) {
    if (key == "__metadata__") continue;
    auto piece = piece_of(key, value, data);
    if (!piece.ok()) return invalid_argument(name + ": " + piece.status().message());
    out.push_back(std::move(*piece));
  }
  if (const auto layout = check_layout(&out, data); !layout.ok())
    return invalid_argument(name + ": " + layout.message());
  return out;
}

}  // namespace regroup::checkpoint_tool
