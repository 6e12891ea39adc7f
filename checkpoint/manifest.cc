// Encodes and parses a MANIFEST: one JSON object on one line, then a line with the CRC32C of all
// bytes before it.
#include "checkpoint/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "base/crc32c.h"
#include "base/printable.h"
#include "checkpoint/json_outline.h"

namespace regroup::checkpoint {
namespace {

using base::Status;
using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "regroup-checkpoint";
// Values of the key "content", which version 2 has.
constexpr std::string_view kTables = "tables", kTableChanges = "table-changes";
constexpr std::uint32_t kTablesVersion = 2;
constexpr std::string_view kTrailer = "crc32c=";
constexpr std::size_t kTrailerBytes = 7 + 8 + 1;  // crc32c=0123abcd\n
constexpr std::size_t kLargest = std::size_t{1} << 30;
constexpr std::size_t kDeepest = 8;

Status damaged(const std::string& what) { return base::data_loss(what); }

// The last line of a manifest; `body` is all bytes before it.
std::string trailer_of(std::string_view body) {
  return fmt::format("{}{:08x}\n", kTrailer, base::crc32c(std::as_bytes(std::span(body))));
}

// Writes JSON as nlohmann::json does, but without building a tree first, since there may be 100,000
// tensors.
class JsonText {
 public:
  void put(std::string_view text) { out_ += text; }
  void put_string(std::string_view key, const std::string& text) {
    const auto plain = [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; };
    put("\""), put(key);
    if (std::ranges::all_of(text, plain)) {
      put("\":\""), put(text), put("\"");
    } else {
      put("\":"), put(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
    }
  }
  void put_number(std::string_view key, std::uint64_t number) {
    fmt::format_to(std::back_inserter(out_), "\"{}\":{}", key, number);
  }
  template <class T>
  void put_list(std::string_view key, const std::vector<T>& numbers) {
    fmt::format_to(std::back_inserter(out_), "\"{}\":[{}]", key, fmt::join(numbers, ","));
  }
  template <class T, class Put>
  void put_list(std::string_view key, const std::vector<T>& values, Put put_one) {
    fmt::format_to(std::back_inserter(out_), "\"{}\":[", key);
    for (std::size_t i = 0; i < values.size(); ++i) {
      put(i == 0 ? "{" : ",{");
      put_one(values[i]);
      put("}");
    }
    put("]");
  }
  void put_range(const Range& range) {
    put_number("offset", range.offset), put(",");
    put_number("bytes", range.bytes), put(",");
    put_list("crc32c", range.crcs);
  }
  void put_file(const File& file) {
    put_string("name", file.name), put(",");
    put_number("bytes", file.bytes), put(",");
    put_list("rest", file.rest, [this](const Range& range) { put_range(range); });
  }
  void put_piece(const Piece& piece, const Manifest& manifest) {
    put_string("file", manifest.files[piece.file].name), put(",");
    put_string("dataset", piece.dataset), put(",\"box\":{");
    put_list("start", piece.box.start), put(",");
    put_list("count", piece.box.count), put("},");
    put_range(piece.range);
  }
  void put_tensor(const Tensor& tensor, const Manifest& manifest) {
    put_string("name", tensor.name), put(",");
    put_string("dtype", tensor.dtype), put(",");
    put_list("shape", tensor.shape), put(",");
    put_list("pieces", tensor.pieces, [&](const Piece& piece) { put_piece(piece, manifest); });
  }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads values out of untrusted JSON; keeps the first error.
class FieldReader {
 public:
  explicit FieldReader(std::string name) : name_(std::move(name)) {}

  void fail(std::string_view key, std::string_view wanted) {
    if (status_.ok()) status_ = damaged(fmt::format("{}: \"{}\" is not {}", name_, key, wanted));
  }
  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] const Status& status() const { return status_; }

  const Json& member(const Json& from, const char* key) {
    static const Json kNothing;
    const auto found = from.is_object() ? from.find(key) : from.end();
    return found == from.end() ? kNothing : *found;
  }
  void take(const Json& from, const char* key, std::string* out) {
    const Json& value = member(from, key);
    value.is_string() ? void(*out = value.get<std::string>()) : fail(key, "a string");
  }
  template <class T>
  void take(const Json& from, const char* key, T* out) {
    take_number(member(from, key), key, out);
  }
  template <class T>
  void take(const Json& from, const char* key, std::vector<T>* out) {
    for_each(from, key, [&](const Json& value) { take_number(value, key, &out->emplace_back()); });
  }
  template <class Take>
  void for_each(const Json& from, const char* key, Take take) {
    const Json& values = member(from, key);
    if (!values.is_array()) return fail(key, "a list");
    for (const Json& value : values) {
      if (!ok()) return;
      take(value);
    }
  }

 private:
  template <class T>
  void take_number(const Json& value, const char* key, T* out) {
    const bool fits =
        value.is_number_unsigned() && value.get<std::uint64_t>() <= std::numeric_limits<T>::max();
    fits ? void(*out = static_cast<T>(value.get<std::uint64_t>())) : fail(key, "a number in range");
  }

  std::string name_;
  Status status_;
};

Range take_range(FieldReader& take, const Json& from) {
  Range out;
  take.take(from, "offset", &out.offset);
  take.take(from, "bytes", &out.bytes);
  take.take(from, "crc32c", &out.crcs);
  return out;
}

File take_file(FieldReader& take, const Json& from) {
  File out;
  take.take(from, "name", &out.name);
  take.take(from, "bytes", &out.bytes);
  take.for_each(from, "rest",
                [&](const Json& range) { out.rest.push_back(take_range(take, range)); });
  return out;
}

using FileIndex = std::unordered_map<std::string, std::uint32_t>;

Piece take_piece(FieldReader& take, const Json& from, const FileIndex& files) {
  Piece out;
  std::string file;
  take.take(from, "file", &file);
  take.take(from, "dataset", &out.dataset);
  const Json& box = take.member(from, "box");
  take.take(box, "start", &out.box.start);
  take.take(box, "count", &out.box.count);
  out.range = take_range(take, from);
  const auto found = files.find(file);
  found != files.end() ? void(out.file = found->second) : take.fail("file", "one of the files");
  return out;
}

Tensor take_tensor(FieldReader& take, const Json& from, const FileIndex& files) {
  Tensor out;
  take.take(from, "name", &out.name);
  take.take(from, "dtype", &out.dtype);
  take.take(from, "shape", &out.shape);
  take.for_each(from, "pieces",
                [&](const Json& piece) { out.pieces.push_back(take_piece(take, piece, files)); });
  return out;
}

Manifest take_manifest(FieldReader& take, const Json& from) {
  Manifest out;
  std::uint32_t version = 0;
  take.take(from, "version", &version);
  std::string content;
  if (version == kTablesVersion) take.take(from, "content", &content);
  if (content == kTables) out.content = Content::kTables;
  if (content == kTableChanges) {
    out.content = Content::kTableChanges;
    take.take(from, "base", &out.base);
  }
  take.take(from, "step", &out.step);
  take.take(from, "job", &out.job);
  take.take(from, "seed", &out.seed);
  take.take(from, "shards", &out.shards);
  take.take(from, "model", &out.model);
  take.take(from, "fingerprint", &out.fingerprint);
  take.for_each(from, "files",
                [&](const Json& file) { out.files.push_back(take_file(take, file)); });
  FileIndex index;
  for (const File& file : out.files)
    index.emplace(file.name, static_cast<std::uint32_t>(index.size()));
  take.for_each(from, "tensors", [&](const Json& tensor) {
    out.tensors.push_back(take_tensor(take, tensor, index));
  });
  return out;
}

// Parses the JSON of the body, after the checks that need no parsing.
base::Result<Json> read_json(std::string_view text, const std::string& name) {
  if (text.size() > kLargest)
    return damaged(fmt::format("{}: too large, {} bytes", name, text.size()));
  if (text.size() < kTrailerBytes) return damaged(fmt::format("{}: truncated", name));
  const std::string_view body = text.substr(0, text.size() - kTrailerBytes);
  if (text.substr(body.size()) != trailer_of(body))
    return damaged(fmt::format("{}: the checksum does not match the content", name));
  const bool shallow = outline_of_json(body).depth <= kDeepest;
  Json json = Json::parse(shallow ? body : "", nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return damaged(fmt::format("{}: expected a JSON object", name));
  return json;
}

Status check_version(const Json& json, const std::string& name) {
  FieldReader take(name);
  std::string format;
  std::uint32_t version = 0;
  std::uint64_t block = 0;
  take.take(json, "format", &format);
  take.take(json, "version", &version);
  if (!take.ok() || format != kFormat)
    return damaged(fmt::format("{}: not a manifest of a checkpoint", name));
  if (version < kOldestVersion || version > kVersion) {
    return base::invalid_argument(fmt::format("{}: format version {}, expected {} to {}", name,
                                              version, kOldestVersion, kVersion));
  }
  take.take(json, "block", &block);
  if (block != kBlock)
    return damaged(fmt::format("{}: unsupported block size of {} bytes", name, block));
  std::string content;
  if (version >= kTablesVersion) take.take(json, "content", &content);
  if (version >= kTablesVersion && content != kTables && content != kTableChanges) {
    return base::invalid_argument(fmt::format("{}: content {:?}, expected {:?} or {:?}", name,
                                              content, kTables, kTableChanges));
  }
  return {};
}

base::Result<Manifest> parse(std::span<const std::byte> bytes, const std::string& name,
                             bool tensors_whole) {
  REGROUP_ASSIGN_OR_RETURN(
      auto json, read_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name));
  REGROUP_RETURN_IF_ERROR(check_version(json, name));
  FieldReader take(name);
  Manifest manifest = take_manifest(take, json);
  REGROUP_RETURN_IF_ERROR(take.status());
  if (Status status = check(manifest, tensors_whole); !status.ok())
    return Status(status.code(), name + ": " + status.message());
  return manifest;
}

Status same_job(const Manifest& a, const Manifest& b) {
  const auto head = [](const Manifest& m) {
    return std::tie(m.step, m.job, m.seed, m.shards, m.model, m.fingerprint, m.content, m.base);
  };
  if (head(a) == head(b)) return {};
  return damaged(
      fmt::format("parts of step {} of job {} and of step {} of job {} do not belong together",
                  a.step, base::escaped(a.job), b.step, base::escaped(b.job)));
}

}  // namespace

std::string encode(const Manifest& manifest) {
  JsonText text;
  const std::uint64_t version = has_tables(manifest) ? kTablesVersion : kOldestVersion;
  text.put("{"), text.put_string("format", std::string(kFormat)), text.put(",");
  for (const auto& [key, number] :
       {std::pair("version", version), {"block", kBlock}, {"step", manifest.step}})
    text.put_number(key, number), text.put(",");
  if (manifest.content == Content::kTables) {
    text.put_string("content", std::string(kTables)), text.put(",");
  } else if (manifest.content == Content::kTableChanges) {
    text.put_string("content", std::string(kTableChanges)), text.put(",");
    text.put_number("base", manifest.base), text.put(",");
  }
  text.put_string("job", manifest.job), text.put(",");
  text.put_number("seed", manifest.seed), text.put(",");
  text.put_number("shards", manifest.shards), text.put(",");
  text.put_string("model", manifest.model), text.put(",");
  text.put_string("fingerprint", manifest.fingerprint), text.put(",");
  text.put_list("files", manifest.files, [&](const File& file) { text.put_file(file); });
  text.put(",");
  text.put_list("tensors", manifest.tensors,
                [&](const Tensor& tensor) { text.put_tensor(tensor, manifest); });
  text.put("}\n");
  std::string body = text.take();
  body += trailer_of(body);
  return body;
}

base::Result<Manifest> parse_manifest(std::span<const std::byte> bytes, const std::string& name) {
  return parse(bytes, name, /*tensors_whole=*/true);
}

base::Result<Manifest> parse_part(std::span<const std::byte> bytes, const std::string& name) {
  return parse(bytes, name, /*tensors_whole=*/false);
}

base::Result<Manifest> merge(std::vector<Manifest> parts) {
  if (parts.empty()) return base::invalid_argument("expected at least one part of a checkpoint");
  if (parts.size() == 1) {
    REGROUP_RETURN_IF_ERROR(check(parts[0]));
    return std::move(parts[0]);
  }
  Manifest out = parts.front();
  out.files.clear();
  out.tensors.clear();
  std::unordered_map<std::string, std::size_t> index;
  for (Manifest& part : parts) {
    REGROUP_RETURN_IF_ERROR(same_job(out, part));
    const auto first_file = static_cast<std::uint32_t>(out.files.size());
    for (File& file : part.files) out.files.push_back(std::move(file));
    for (Tensor& tensor : part.tensors) {
      for (Piece& piece : tensor.pieces) piece.file += first_file;
      const auto [at, fresh] = index.try_emplace(tensor.name, out.tensors.size());
      if (fresh) {
        out.tensors.push_back(std::move(tensor));
        continue;
      }
      Tensor& there = out.tensors[at->second];
      if (there.dtype != tensor.dtype || there.shape != tensor.shape)
        return damaged(
            fmt::format("tensor {}: parts differ in type or shape", base::escaped(tensor.name)));
      std::ranges::move(tensor.pieces, std::back_inserter(there.pieces));
    }
  }
  REGROUP_RETURN_IF_ERROR(check(out));
  return out;
}

}  // namespace regroup::checkpoint
