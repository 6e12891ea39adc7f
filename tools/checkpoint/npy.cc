// The header is the text of a Python dictionary of three keys; what numpy.lib.format refuses in it
// is refused.
#include "tools/checkpoint/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/printable.h"
#include "checkpoint/dtype.h"
#include "tools/checkpoint/foreign_types.h"

namespace regroup::checkpoint_tool {
namespace {

using base::escaped;
using base::Result;
using base::Status;
using checkpoint::Shape;
using Bytes = std::span<const std::byte>;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kLargestHeader = 10'000;  // NumPy's limit
constexpr std::size_t kNpyAlignment = 64;       // NumPy's, for memory maps

struct Header {
  std::string descr;
  bool fortran = false;
  Shape shape;
};

Status wrong(const std::string& what) { return base::invalid_argument(what); }

// Reads Python literals one after the other. A method returns false if the text has something else
// there; how much of the text it has then consumed is undefined.
class Literals {
 public:
  explicit Literals(std::string_view text) : text_(text) {}

  bool take(char c) {
    skip_blanks();
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool take(std::string* out) {
    skip_blanks();
    if (!text_.starts_with('\'') && !text_.starts_with('"')) return false;
    const std::size_t end = text_.find(text_[0], 1);
    if (end == text_.npos) return false;
    *out = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return out->find('\\') == std::string::npos;
  }
  bool take(bool* out) {
    skip_blanks();
    *out = text_.starts_with("True");
    if (!*out && !text_.starts_with("False")) return false;
    text_.remove_prefix(*out ? 4 : 5);
    return true;
  }
  bool take(Shape* out) {
    if (!take('(')) return false;
    for (bool comma = true; !take(')'); comma = take(',')) {
      skip_blanks();
      const bool zero_before =
          text_.size() > 1 && text_[0] == '0' && text_[1] >= '0' && text_[1] <= '9';
      const auto [end, error] =
          std::from_chars(text_.data(), text_.data() + text_.size(), out->emplace_back());
      if (!comma || zero_before || error != std::errc() || out->size() > checkpoint::kMaxRank)
        return false;
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      if (text_.starts_with('L')) text_.remove_prefix(1);  // as Python 2 wrote numbers
      tuple_ =
          text_.find_first_not_of(' ') != text_.npos && text_[text_.find_first_not_of(' ')] == ',';
    }
    return out->size() != 1 || tuple_;  // (3) is a number, (3,) is a tuple
  }
  bool at_end() {
    skip_blanks();
    return text_.empty();
  }

 private:
  void skip_blanks() {
    text_.remove_prefix(std::min(text_.size(), text_.find_first_not_of(" \t\n\r")));
  }

  std::string_view text_;
  bool tuple_ = false;
};

Status take_value(Literals& from, const std::string& key, Header* out) {
  if (key == "descr")
    return from.take(&out->descr) ? Status() : wrong("unknown type, not a type of numbers");
  if (key == "fortran_order")
    return from.take(&out->fortran) ? Status() : wrong("fortran_order: expected True or False");
  return from.take(&out->shape)
             ? Status()
             : wrong(fmt::format("shape: expected a tuple of at most {} whole numbers",
                                 checkpoint::kMaxRank));
}

Result<Header> parse_header(std::string_view text) {
  Header out;
  Literals from(text);
  std::string seen, key;
  const Status no_dictionary =
      wrong("header: expected a dictionary of descr, fortran_order and shape");
  if (!text.ends_with('\n')) return wrong("header: expected a line feed at its end");
  if (!from.take('{')) return no_dictionary;
  for (bool comma = true; !from.take('}'); comma = from.take(',')) {
    const bool known = comma && from.take(&key) && from.take(':') &&
                       (key == "descr" || key == "fortran_order" || key == "shape");
    if (!known || seen.find("'" + key) != std::string::npos) return no_dictionary;
    seen += "'" + key;
    REGROUP_RETURN_IF_ERROR(take_value(from, key, &out));
  }
  const bool all = std::ranges::count(seen, '\'') == 3;
  if (!all || !from.at_end()) return no_dictionary;
  return out;
}

// The text of the header, and the bytes after it.
Result<std::pair<std::string_view, Bytes>> split(Bytes file) {
  if (file.size() < 10 || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0)
    return wrong("not a NumPy array");
  const auto at = [&](std::size_t i) { return std::to_integer<std::size_t>(file[i]); };
  if (at(6) < 1 || at(6) > 3 || at(7) != 0)
    return wrong(fmt::format("format version {}.{}, expected 1.0, 2.0 or 3.0", at(6), at(7)));
  const std::size_t begin = at(6) == 1 ? 10 : 12;
  if (file.size() < begin) return wrong("not a NumPy array: truncated");
  const std::size_t length = at(8) | at(9) << 8 | (at(6) == 1 ? 0 : at(10) << 16 | at(11) << 24);
  if (length > file.size() - begin) return wrong("not a NumPy array: truncated header");
  if (length > kLargestHeader)
    return wrong(fmt::format("header of {} bytes, expected at most {}", length, kLargestHeader));
  const auto* text = reinterpret_cast<const char*>(file.data()) + begin;
  return std::pair(std::string_view(text, length), file.subspan(begin + length));
}

struct Type {
  const TypeNames* names = nullptr;
  bool big_endian = false;
};

bool is_unnamed(std::string_view numpy) { return numpy.find('V') != numpy.npos; }

// `said` is the type that the archive gives. ml_dtypes writes bfloat16 as <V2, float8_e5m2 as <f1,
// and a dozen other types as <V1; NumPy's own void is |V1, |V2.
Result<Type> type_of(const std::string& descr, std::string_view said) {
  const bool ordered =
      !descr.empty() && std::string_view("<>=|").find(descr[0]) != std::string_view::npos;
  const std::string kind = descr.substr(ordered ? 1 : 0);
  if (!said.empty()) {
    const TypeNames* type = by_ours(said);
    if (type != nullptr && is_unnamed(type->numpy) && kind == type->numpy.substr(1))
      return Type{type};
    return wrong(fmt::format("the archive gives its type as {}, the header as '{}'", escaped(said),
                             escaped(descr)));
  }
  if (descr == "<V2") return Type{by_ours("bfloat16")};
  if (kind == "f1") return Type{by_ours("float8_e5m2")};
  if (kind == "V1" || kind == "V2")
    return wrong(fmt::format(
        "its elements are '{}', {} without a type in the file: save it as an array of whole "
        "numbers, or as a safetensors file",
        escaped(descr), kind == "V1" ? "bytes" : "pairs of bytes"));
  for (const char* order : {"<", "|"}) {
    const TypeNames* type = by_numpy(kind == "?" ? "|b1" : order + kind);
    if (type != nullptr) return Type{type, descr[0] == '>'};
  }
  return wrong(fmt::format("unknown type '{}'", escaped(descr)));
}

// Reverses the bytes of each element of `unit` bytes.
void swap_bytes(std::span<std::byte> bytes, std::size_t unit) {
  for (std::size_t at = 0; at < bytes.size(); at += unit)
    std::ranges::reverse(bytes.subspan(at, unit));
}

// Converts from Fortran's order, in which the first index varies fastest, to C's.
void reorder(Bytes from, const Shape& shape, std::size_t size, std::byte* to) {
  Shape strides(shape.size(), size), at(shape.size(), 0);
  for (std::size_t i = 1; i < shape.size(); ++i) strides[i] = strides[i - 1] * shape[i - 1];
  const std::byte* source = from.data();
  for (std::size_t done = 0; done < from.size(); done += size) {
    std::memcpy(to + done, source, size);
    for (std::size_t i = shape.size(); i-- > 0;) {
      source += strides[i];
      if (++at[i] < shape[i]) break;
      source -= strides[i] * shape[i];
      at[i] = 0;
    }
  }
}

}  // namespace

Result<NpyArray> read_npy(const std::string& name, Bytes file, std::string_view dtype) {
  const auto fail = [&](const Status& status) {
    return wrong(fmt::format("array {}: {}", escaped(name), status.message()));
  };
  const auto parts = split(file);
  if (!parts.ok()) return fail(parts.status());
  const auto header = parse_header(parts->first);
  if (!header.ok()) return fail(header.status());
  const auto type = type_of(header->descr, dtype);
  if (!type.ok()) return fail(type.status());
  const Shape& shape = header->shape;
  const Bytes bytes = parts->second;
  const std::size_t size = *checkpoint::size_of_dtype(type->names->ours);
  const auto volume = checkpoint::volume_of(shape);
  if (!volume || checkpoint::is_too_large(shape, size) || *volume * size != bytes.size())
    return fail(wrong(fmt::format("the shape does not match the size: [{}] of {}, {} bytes",
                                  fmt::join(shape, ", "), type->names->ours, bytes.size())));
  NpyArray out{{name, std::string(type->names->ours), shape, checkpoint::whole(shape), bytes},
               nullptr};
  const std::size_t unit = out.piece.dtype.starts_with("complex") ? size / 2 : size;
  const bool swap = type->big_endian && unit > 1, reordered = header->fortran && shape.size() > 1;
  if ((!swap && !reordered) || bytes.empty()) return out;
  out.converted = std::make_unique<std::byte[]>(bytes.size());
  const std::span converted(out.converted.get(), bytes.size());
  reordered ? reorder(bytes, shape, size, converted.data())
            : void(std::ranges::copy(bytes, converted.begin()));
  if (swap) swap_bytes(converted, unit);
  out.piece.bytes = converted;
  return out;
}

// Writes version 1.0: every shape fits into its limit of 65,535 bytes.
std::string npy_header(std::string_view dtype, const Shape& shape, bool* unnamed) {
  const std::string_view numpy = by_ours(dtype)->numpy;
  *unnamed = is_unnamed(numpy);
  const std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", numpy,
                  fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  const std::size_t padded =
      (10 + text.size() + 1 + kNpyAlignment - 1) / kNpyAlignment * kNpyAlignment;
  std::string out(kMagic);
  out += '\1';
  out += '\0';
  out += static_cast<char>((padded - 10) & 0xff);
  out += static_cast<char>((padded - 10) >> 8);
  out += text;
  out.append(padded - out.size() - 1, ' ');
  return out + '\n';
}

}  // namespace regroup::checkpoint_tool
