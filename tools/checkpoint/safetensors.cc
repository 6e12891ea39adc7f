// Reads the header with a streaming JSON parser, which keeps the order of tensors and finds one
// listed twice; then checks the rules of the reference implementation (huggingface/safetensors,
// Metadata::validate).
#include "tools/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "base/printable.h"
#include "checkpoint/dtype.h"
#include "checkpoint/json_outline.h"
#include "tools/checkpoint/foreign_types.h"

namespace regroup::checkpoint_tool {
namespace {

using base::escaped;
using base::invalid_argument;
using checkpoint::CheckpointPiece;
using Json = nlohmann::json;
using Numbers = std::vector<std::uint64_t>;

// The reference implementation's limit, for fields that it ignores.
constexpr std::size_t kDeepestHeader = 127;
// The reference implementation's limit.
constexpr std::uint64_t kLargestTensorHeader = 100'000'000;
constexpr const char* kMetadata = "__metadata__";  // the key that names no tensor

// A tensor in the header.
struct Listed {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<Numbers> shape, ends;
};

// Handles the parser's events. `error` holds why it stopped.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  std::vector<Listed> tensors;
  std::string error;

  bool null() override { return depth_ == 1 && name_ == kMetadata ? true : value("nothing"); }
  bool boolean(bool) override { return value("true or false"); }
  bool number_integer(number_integer_t) override { return value("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a fraction"); }
  bool binary(binary_t&) override { return value("bytes"); }
  bool number_unsigned(number_unsigned_t number) override {
    if (list_ == nullptr) return value("a number");
    (*list_)->push_back(number);
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ == 2 && name_ == kMetadata) return true;
    if (depth_ == 2 && field_ == "dtype") return tensors.back().dtype = text, true;
    return value("a text");
  }
  bool start_object(std::size_t) override {
    if (++depth_ == 1) return true;
    if (depth_ > 2) return ignored() || wrong("an object");
    if (name_ != kMetadata) tensors.push_back({name_, {}, {}, {}});
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool key(string_t& text) override {
    if (depth_ == 1) {
      name_ = text;
      field_.clear();
      return names_.insert(text).second ||
             fail(fmt::format("tensor {} is listed twice", escaped(text)));
    }
    if (depth_ > 2 || name_ == kMetadata) return true;
    field_ = text;
    const bool twice = (text == "dtype" && tensors.back().dtype) ||
                       (text == "shape" && tensors.back().shape) ||
                       (text == "data_offsets" && tensors.back().ends);
    return !twice || fail(fmt::format("tensor {}: {} is given twice", escaped(name_), field_));
  }
  bool start_array(std::size_t) override {
    if (++depth_ == 1) return fail("header: expected a JSON object of tensors");
    if (depth_ == 2) return wrong("a list");
    if (depth_ == 3 && name_ != kMetadata && (field_ == "shape" || field_ == "data_offsets")) {
      list_ = field_ == "shape" ? &tensors.back().shape : &tensors.back().ends;
      list_->emplace();
      return true;
    }
    return ignored() || wrong("a list");
  }
  bool end_array() override { return list_ = nullptr, --depth_, true; }
  bool parse_error(std::size_t at, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail(fmt::format(
        "header: expected a JSON object of tensors: unexpected byte at offset {}", at - 1));
  }

 private:
  bool fail(std::string why) {
    if (error.empty()) error = std::move(why);
    return false;
  }
  // Inside a field that the format does not define.
  [[nodiscard]] bool ignored() const {
    return depth_ > 1 && name_ != kMetadata && field_ != "dtype" && field_ != "shape" &&
           field_ != "data_offsets";
  }
  bool value(const char* what) { return (depth_ > 1 && ignored()) || wrong(what); }
  bool wrong(const char* what) {
    if (depth_ == 0) return fail("header: expected a JSON object of tensors");
    if (name_ == kMetadata) return fail("__metadata__: expected an object of strings");
    if (field_ == "shape") return fail(of_tensor("shape: expected a list of whole numbers"));
    if (field_ == "data_offsets")
      return fail(of_tensor("data_offsets: expected two whole numbers"));
    if (field_ == "dtype") return fail(of_tensor("the type is missing"));
    return fail(of_tensor(what + std::string(" instead of a description")));
  }
  [[nodiscard]] std::string of_tensor(const std::string& what) const {
    return fmt::format("tensor {}: {}", escaped(name_), what);
  }

  std::size_t depth_ = 0;
  std::string name_, field_;
  std::optional<Numbers>* list_ = nullptr;  // the list that is being read
  std::unordered_set<std::string> names_;
};

base::Result<CheckpointPiece> piece_of(Listed listed, std::span<const std::byte> data) {
  const auto wrong = [&](const std::string& what) {
    return invalid_argument(fmt::format("tensor {}: {}", escaped(listed.name), what));
  };
  if (!listed.dtype) return wrong("the type is missing");
  const TypeNames* type = by_safetensors(*listed.dtype);
  if (type == nullptr) return wrong(fmt::format("unknown type {}", escaped(*listed.dtype)));
  const auto &shape = listed.shape, &ends = listed.ends;
  if (!shape) return wrong("shape: expected a list of whole numbers");
  if (!ends || ends->size() != 2 || (*ends)[0] > (*ends)[1] || (*ends)[1] > data.size())
    return wrong(fmt::format(
        "data_offsets are [{}], expected two whole numbers, the second no less than the first "
        "and at most {}, the bytes of tensors in the file",
        fmt::join(ends.value_or(Numbers()), ", "), data.size()));
  const auto bytes = data.subspan((*ends)[0], (*ends)[1] - (*ends)[0]);
  if (shape->size() > checkpoint::kMaxRank)
    return wrong(
        fmt::format("{} dimensions, expected at most {}", shape->size(), checkpoint::kMaxRank));
  const auto volume = checkpoint::volume_of(*shape);
  if (!volume || checkpoint::is_too_large(*shape) ||
      *volume * *checkpoint::size_of_dtype(type->ours) != bytes.size())
    return wrong(fmt::format("the shape does not match the size: [{}] of {}, {} bytes",
                             fmt::join(*shape, ", "), *listed.dtype, bytes.size()));
  return CheckpointPiece{std::move(listed.name), std::string(type->ours), *shape,
                         checkpoint::whole(*shape), bytes};
}

// Sorts `pieces` by offset. The format forbids tensors that overlap and bytes of no tensor: if
// tensors could overlap, a small file could become a checkpoint of any size.
base::Status check_layout(std::vector<CheckpointPiece>* pieces, std::span<const std::byte> data) {
  std::ranges::stable_sort(*pieces, {}, [](const CheckpointPiece& piece) {
    return std::pair(piece.bytes.data(), piece.bytes.size());
  });
  std::uint64_t at = 0;
  for (const CheckpointPiece& piece : *pieces) {
    const auto begin = static_cast<std::uint64_t>(piece.bytes.data() - data.data());
    if (begin != at)
      return invalid_argument(fmt::format(
          "the bytes of tensor {} begin at {}, expected {}: {}", escaped(piece.name), begin, at,
          begin < at ? "it overlaps the tensor before" : "the bytes between belong to no tensor"));
    at += piece.bytes.size();
  }
  if (at == data.size()) return {};
  return invalid_argument(
      fmt::format("{} bytes after the last tensor belong to no tensor", data.size() - at));
}

// The tensors that a header lists, in its order.
base::Result<std::vector<Listed>> parse_tensors(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n\r";
  const char* const no_object = "header: expected a JSON object of tensors";
  // The parser would end at a byte 0 and skip a byte order mark.
  if (text.find('\0') != text.npos) return invalid_argument("header: contains a byte 0");
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == text.npos || text[first] != '{') return invalid_argument(no_object);
  if (const std::size_t depth = checkpoint::outline_of_json(text).depth; depth > kDeepestHeader)
    return invalid_argument(
        fmt::format("header: nested {} levels deep, expected at most {}", depth, kDeepestHeader));
  HeaderReader reader;
  if (!Json::sax_parse(text, &reader))
    return invalid_argument(reader.error.empty() ? no_object : reader.error);
  return std::move(reader.tensors);
}

void put_string(std::string* out, const std::string& text) {
  *out += Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

base::Result<std::string> safetensors_header(const checkpoint::Manifest& manifest) {
  std::string text =
      fmt::format(R"({{"{}":{{"format":"pt","step":"{}"}})", kMetadata, manifest.step);
  std::uint64_t at = 0;
  for (const checkpoint::Tensor& tensor : manifest.tensors) {
    const TypeNames* type = by_ours(tensor.dtype);
    if (type == nullptr || type->safetensors.empty())
      return invalid_argument(
          fmt::format("tensor {}: safetensors has no type {}; use --to torch or npz",
                      escaped(tensor.name), tensor.dtype));
    if (tensor.name == kMetadata)
      return invalid_argument(
          fmt::format("tensor {}: safetensors does not allow this name", kMetadata));
    const std::uint64_t end = at + checkpoint::bytes_of(tensor);
    text += ',';
    put_string(&text, tensor.name);
    fmt::format_to(std::back_inserter(text),
                   R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", type->safetensors,
                   fmt::join(tensor.shape, ","), at, end);
    at = end;
  }
  text += '}';
  if (text.size() + 8 > kLargestTensorHeader)
    return invalid_argument(fmt::format(
        "names and shapes take {} bytes; readers of safetensors accept a header of at most {}",
        text.size(), kLargestTensorHeader));
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string out(8, '\0');
  const std::uint64_t length = text.size();
  std::memcpy(out.data(), &length, sizeof length);
  return out + text;
}

base::Result<std::vector<CheckpointPiece>> read_safetensors(std::span<const std::byte> file,
                                                            const std::string& name) {
  std::uint64_t length = 0;
  if (file.size() >= sizeof length) std::memcpy(&length, file.data(), sizeof length);
  const auto wrong = [&](const std::string& what) { return invalid_argument(name + ": " + what); };
  if (file.size() < sizeof length)
    return wrong(fmt::format("not a safetensors file: {} bytes, but the header's length takes 8",
                             file.size()));
  if (length > kLargestTensorHeader || length > file.size() - sizeof length)
    return wrong(
        fmt::format("not a safetensors file: the header takes {} bytes, but the file has {}, and "
                    "at most {} are allowed",
                    length, file.size() - sizeof length, kLargestTensorHeader));
  const auto* text = reinterpret_cast<const char*>(file.data()) + sizeof length;
  auto tensors = parse_tensors({text, length});
  if (!tensors.ok()) return wrong(tensors.status().message());
  const auto data = file.subspan(sizeof length + length);
  std::vector<CheckpointPiece> out;
  for (Listed& listed : *tensors) {
    auto piece = piece_of(std::move(listed), data);
    if (!piece.ok()) return wrong(piece.status().message());
    out.push_back(std::move(*piece));
  }
  if (const auto layout = check_layout(&out, data); !layout.ok()) return wrong(layout.message());
  return out;
}

}  // namespace regroup::checkpoint_tool
