// The records of PKWARE's APPNOTE, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16; 64-bit numbers
// everywhere, in the extra field of 4.5.3, so that no size is special.
#include "tools/checkpoint/zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/printable.h"

namespace regroup::checkpoint_tool {
namespace {

using base::Result;
using base::Status;

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50,
                        kEnd64 = 0x06064b50, kLocator64 = 0x07064b50, kInExtra = 0xffffffff;
constexpr std::uint16_t kEncrypted = 1, kSizesBehind = 8;  // flags
constexpr std::uint16_t kVersion = 45, kUtf8 = 0x800, kJan1980 = 0x21, kNewest = 63, kExtra64 = 1,
                        kPadding = 0x4246;
constexpr std::size_t kLocalBytes = 30, kEndBytes = 22, kLocatorBytes = 20, kCrcAt = 14;
constexpr std::size_t kLocalExtra = 4 + 16;

template <class T>
void put_record(std::string* out, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    out->push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> 8 * i & 0xff));
}

// The fields that local and central records share.
void put_common(std::string* out, std::uint32_t crc, std::size_t name, std::size_t extra) {
  put_record(out, kVersion);
  put_record(out, kUtf8);
  put_record(out, std::uint16_t{0});  // stored
  put_record(out, std::uint16_t{0});
  put_record(out, kJan1980);  // the same content gives the same archive
  put_record(out, crc);
  put_record(out, kInExtra);
  put_record(out, kInExtra);
  put_record(out, static_cast<std::uint16_t>(name));
  put_record(out, static_cast<std::uint16_t>(extra));
}

std::uint32_t crc_of(std::uint32_t crc, std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

}  // namespace

Status ZipWriter::begin(const std::string& name, std::uint64_t bytes, std::string_view comment) {
  entries_.push_back({name, out_->size(), bytes, 0, std::string(comment)});
  const std::uint64_t data = out_->size() + kLocalBytes + name.size() + kLocalExtra;
  std::uint64_t padding = (alignment_ - data % alignment_) % alignment_;
  if (padding > 0 && padding < 4) padding += alignment_;
  std::string header;
  put_record(&header, kLocal);
  put_common(&header, 0, name.size(), kLocalExtra + padding);
  header += name;
  put_record(&header, kExtra64);
  put_record(&header, std::uint16_t{16});
  put_record(&header, bytes);
  put_record(&header, bytes);
  if (padding > 0) {
    put_record(&header, kPadding);
    put_record(&header, static_cast<std::uint16_t>(padding - 4));
    header.append(padding - 4, 'Z');
  }
  return out_->append(header);
}

Status ZipWriter::append(std::span<const std::byte> bytes) {
  entries_.back().crc = crc_of(entries_.back().crc, bytes);
  return out_->append(bytes);
}

Status ZipWriter::end() {
  std::string crc;
  put_record(&crc, entries_.back().crc);
  return out_->rewrite(entries_.back().offset + kCrcAt, crc);
}

Status ZipWriter::add(const std::string& name, std::string_view content) {
  REGROUP_RETURN_IF_ERROR(begin(name, content.size()));
  REGROUP_RETURN_IF_ERROR(append(std::as_bytes(std::span(content))));
  return end();
}

Status ZipWriter::finish() {
  const std::uint64_t begin = out_->size();
  std::string text;
  for (const Entry& entry : entries_) {
    put_record(&text, kCentral);
    put_record(&text, kVersion);
    put_common(&text, entry.crc, entry.name.size(), 4 + 24);
    put_record(&text, static_cast<std::uint16_t>(entry.comment.size()));
    put_record(&text, std::uint16_t{0});  // disk
    put_record(&text, std::uint16_t{0});
    put_record(&text, std::uint32_t{0});
    put_record(&text, kInExtra);
    text += entry.name;
    put_record(&text, kExtra64);
    put_record(&text, std::uint16_t{24});
    put_record(&text, entry.bytes);
    put_record(&text, entry.bytes);
    put_record(&text, entry.offset);
    text += entry.comment;
  }
  const std::uint64_t bytes = text.size(), count = entries_.size();
  put_record(&text, kEnd64);
  put_record(&text, std::uint64_t{44});
  put_record(&text, kVersion);
  put_record(&text, kVersion);
  put_record(&text, std::uint64_t{0});  // disks
  put_record(&text, count);
  put_record(&text, count);
  put_record(&text, bytes);
  put_record(&text, begin);
  put_record(&text, kLocator64);
  put_record(&text, std::uint32_t{0});
  put_record(&text, begin + bytes);
  put_record(&text, std::uint32_t{1});
  put_record(&text, kEnd);
  put_record(&text, std::uint32_t{0});
  put_record(&text, static_cast<std::uint16_t>(std::min<std::uint64_t>(count, 0xffff)));
  put_record(&text, static_cast<std::uint16_t>(std::min<std::uint64_t>(count, 0xffff)));
  put_record(&text, kInExtra);
  put_record(&text, kInExtra);
  put_record(&text, std::uint16_t{0});
  return out_->append(text);
}

namespace {

// Reads little-endian numbers. Beyond the end of the bytes it reads zeros, and ok() is false.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::uint64_t at) : bytes_(bytes), at_(at) {}
  template <class T>
  T get() {
    T value{};
    if (!have(sizeof value)) return value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::span<const std::byte> take(std::uint64_t count) {
    if (!have(count)) return {};
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  void skip(std::uint64_t count) { (void)take(count); }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::uint64_t at() const { return at_; }

 private:
  bool have(std::uint64_t count) {
    ok_ = ok_ && at_ <= bytes_.size() && count <= bytes_.size() - at_;
    return ok_;
  }
  std::span<const std::byte> bytes_;
  std::uint64_t at_;
  bool ok_ = true;
};

struct Directory {
  std::uint64_t offset = 0, bytes = 0, count = 0;
};

std::optional<Directory> find_directory(std::span<const std::byte> archive) {
  if (archive.size() < kEndBytes) return std::nullopt;
  const std::uint64_t lowest =
      archive.size() - std::min<std::uint64_t>(archive.size(), kEndBytes + 0xffff);
  for (std::uint64_t at = archive.size() - kEndBytes + 1; at-- > lowest;) {
    Reader end(archive, at);
    if (end.get<std::uint32_t>() != kEnd) continue;
    end.skip(6);
    Directory out{.count = end.get<std::uint16_t>()};
    out.bytes = end.get<std::uint32_t>();
    out.offset = end.get<std::uint32_t>();
    if (at < kLocatorBytes) return out;
    Reader locator(archive, at - kLocatorBytes);
    if (locator.get<std::uint32_t>() != kLocator64) return out;
    locator.skip(4);
    Reader end64(archive, locator.get<std::uint64_t>());
    if (end64.get<std::uint32_t>() != kEnd64) return std::nullopt;
    end64.skip(28);
    out.count = end64.get<std::uint64_t>();
    out.bytes = end64.get<std::uint64_t>();
    out.offset = end64.get<std::uint64_t>();
    return out;
  }
  return std::nullopt;
}

// The fields of a central or local record. The reader uses the central record (of the directory);
// the local one must agree with it.
struct Record {
  std::uint16_t version = 0, flags = 0, method = 0;  // version: of the format, that a reader needs
  std::uint32_t crc = 0;
  std::uint64_t packed = 0, bytes = 0, offset = 0;
  std::string name, comment;
};

// Values too large for their fields stand in the extra field, in this order.
void take_extra(Reader extra, Record* out) {
  for (;;) {
    const auto kind = extra.get<std::uint16_t>();
    const auto size = extra.get<std::uint16_t>();
    if (!extra.ok()) return;
    if (kind != kExtra64) {
      extra.skip(size);
      continue;
    }
    for (std::uint64_t* field : {&out->bytes, &out->packed, &out->offset}) {
      if (*field == kInExtra) *field = extra.get<std::uint64_t>();
    }
    return;
  }
}

std::string take_text(Reader& from, std::uint64_t count) {
  const auto bytes = from.take(count);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The fields that both records have, up to the lengths.
void take_common(Reader& from, Record* out) {
  out->flags = from.get<std::uint16_t>();
  out->method = from.get<std::uint16_t>();
  from.skip(4);
  out->crc = from.get<std::uint32_t>();
  out->packed = from.get<std::uint32_t>();
  out->bytes = from.get<std::uint32_t>();
}

std::optional<Record> take_central(Reader& from) {
  Record out;
  if (from.get<std::uint32_t>() != kCentral) return std::nullopt;
  from.skip(2);
  out.version = from.get<std::uint16_t>();
  take_common(from, &out);
  const auto name = from.get<std::uint16_t>(), extra = from.get<std::uint16_t>(),
             comment = from.get<std::uint16_t>();
  from.skip(8);
  out.offset = from.get<std::uint32_t>();
  out.name = take_text(from, name);
  take_extra(Reader(from.take(extra), 0), &out);
  out.comment = take_text(from, comment);
  return from.ok() ? std::optional(out) : std::nullopt;
}

// Reads the local record at `from` and leaves `from` at the file's bytes.
std::optional<Record> take_local(Reader& from) {
  Record out;
  if (from.get<std::uint32_t>() != kLocal) return std::nullopt;
  from.skip(2);
  take_common(from, &out);
  const auto name = from.get<std::uint16_t>(), extra = from.get<std::uint16_t>();
  out.name = take_text(from, name);
  take_extra(Reader(from.take(extra), 0), &out);
  return from.ok() ? std::optional(out) : std::nullopt;
}

// Returns why a file is refused; empty if it is not.
std::string why_not(const Record& entry) {
  if ((entry.flags & kEncrypted) != 0) return "is encrypted, which is not supported";
  if (entry.version > kNewest)
    return fmt::format("requires format version {}.{}, expected at most {}.{}", entry.version / 10,
                       entry.version % 10, kNewest / 10, kNewest % 10);
  if (entry.method != 0)
    return fmt::format("is compressed (method {}), which is not supported", entry.method);
  if (entry.packed != entry.bytes)
    return fmt::format("takes {} bytes in the archive, but has {}", entry.packed, entry.bytes);
  if (entry.name.find('\0') != std::string::npos) return "has a byte 0 in its name";
  return "";
}

std::string why_not_same(const Record& entry, const Record& local) {
  if (local.name != entry.name)
    return fmt::format("has another name, {}, before its bytes", base::escaped(local.name));
  if (local.method != entry.method) return "is compressed in one of its two records";
  if (((local.flags ^ entry.flags) & kEncrypted) != 0)
    return "is encrypted in one of its two records";
  if ((local.flags & kSizesBehind) != 0) return "";
  if (local.bytes != entry.bytes || local.packed != entry.packed || local.crc != entry.crc)
    return "has another size or checksum before its bytes";
  return "";
}

using Members = std::vector<std::pair<Record, std::span<const std::byte>>>;

// Reads each file of the directory; no two may share bytes.
Result<Members> find_members(std::span<const std::byte> archive, const Directory& directory) {
  Members out;
  std::uint64_t total = 0;
  Reader at(archive, directory.offset);
  const auto wrong = [](const Record& entry, const std::string& why) {
    return base::invalid_argument(fmt::format("{} {}", base::escaped(entry.name), why));
  };
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;  // from, to
  for (std::uint64_t i = 0; i < directory.count; ++i) {
    auto entry = take_central(at);
    if (!entry) return base::invalid_argument("the file list is damaged");
    if (const std::string why = why_not(*entry); !why.empty()) return wrong(*entry, why);
    // If files could share bytes, the checksums of a few megabytes of names that all refer to the
    // same data would take hours.
    if (entry->bytes > archive.size() - total) return base::invalid_argument("files overlap");
    total += entry->bytes;
    Reader local(archive, entry->offset);
    const auto record = take_local(local);
    const auto bytes = local.take(entry->bytes);
    if (!record || !local.ok()) return wrong(*entry, "is not at the place in the file list");
    if (const std::string why = why_not_same(*entry, *record); !why.empty())
      return wrong(*entry, why);
    taken.emplace_back(entry->offset, local.at());
    out.emplace_back(std::move(*entry), bytes);
  }
  if (at.at() != directory.offset + directory.bytes)
    return base::invalid_argument(
        fmt::format("the file list has {} files and then other bytes", directory.count));
  taken.emplace_back(directory.offset, at.at());
  std::ranges::sort(taken);
  for (std::size_t i = 1; i < taken.size(); ++i) {
    if (taken[i].first < taken[i - 1].second) return base::invalid_argument("files overlap");
  }
  return out;
}

}  // namespace

Result<std::vector<ZipMember>> read_zip(std::span<const std::byte> archive,
                                        const std::string& name) {
  const auto directory = find_directory(archive);
  if (!directory) return base::invalid_argument(name + ": not a zip archive, or truncated");
  auto members = find_members(archive, *directory);
  if (!members.ok()) return base::invalid_argument(name + ": " + members.status().message());
  std::vector<ZipMember> out;
  std::unordered_set<std::string_view> names;
  for (auto& [entry, bytes] : *members) {
    if (!names.insert(entry.name).second)
      return base::invalid_argument(
          fmt::format("{}: {} is listed twice", name, base::escaped(entry.name)));
    if (crc_of(0, bytes) != entry.crc)
      return base::data_loss(fmt::format("{}: {} is damaged", name, base::escaped(entry.name)));
    out.push_back({entry.name, bytes, entry.comment});
  }
  return out;
}

}  // namespace regroup::checkpoint_tool
