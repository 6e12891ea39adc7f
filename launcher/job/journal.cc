// Append and fdatasync. Numbers are written as they lie in memory: journals never leave the
// machine.
#include "launcher/job/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "proto/wire.h"

namespace regroup::job {
namespace {

using membership::JournalEntry;
using membership::MemberState;

struct FileHead {
  std::uint32_t magic = 0x4a524752;  // "RGRJ"
  std::uint32_t version = 6;
};

enum class Kind : std::uint32_t {
  kWorld = 1,
  kIntent = 2,
  kSentence = 3,
  kFailures = 4,
  kRefused = 5
};

// Its CRC is apart from that of the body: a length that is damaged must not look like a record that
// is torn.
struct RecordHead {
  std::uint32_t bytes = 0;
  Kind kind = Kind::kWorld;
  std::uint32_t head_crc = 0;  // of the two before
  std::uint32_t body_crc = 0;
};

// An intent on disk: this, then its marks; a sentence: its time, then its text.
struct IntentHead {
  std::int64_t began = 0;
  std::uint32_t target = 0;
  std::uint32_t desired = 0;
  std::uint32_t restarts = 0;
  std::uint32_t next_member = 0;
  std::uint32_t first_member = 0;
  std::uint32_t said = 0;
};
struct DiskMark {
  std::uint32_t member = 0;
  std::uint16_t state = 0;
  std::uint16_t leave_wanted = 0;
};

// A row of failures on disk: this, its slots, its members, `what`, and its failure as a frame of
// proto/wire.h.
struct RowHead {
  std::uint64_t at = 0;
  std::uint32_t length = 0;
  std::uint32_t launches = 0;
  std::uint32_t passed_on = 0;
  std::uint32_t slots = 0;
  std::uint32_t members = 0;
  std::uint32_t what = 0;  // bytes
};

// A refused GPU on disk: this, then its UUID and why.
struct RefusedHead {
  std::uint32_t node = 0;
  std::uint32_t member = 0;
  std::uint32_t told_from = 0;
  std::uint32_t slots_lost = 0;
  std::uint32_t gpu = 0;  // bytes
  std::uint32_t why = 0;  // bytes
};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::uint32_t crc_of_head(const RecordHead& head) {
  return base::crc32c(bytes_of(head).first(offsetof(RecordHead, head_crc)));
}

template <class T>
void put(std::vector<std::byte>& out, const T& value) {
  out.insert(out.end(), bytes_of(value).begin(), bytes_of(value).end());
}

// The next T in `in`, which shrinks by it. There must be one.
template <class T>
T take(std::span<const std::byte>& in) {
  T value;
  std::memcpy(&value, in.data(), sizeof value);
  in = in.subspan(sizeof value);
  return value;
}

base::TimePoint time_of(std::int64_t count) { return base::TimePoint(base::Duration(count)); }

std::vector<std::byte> body_of(const membership::FailureStreak& row) {
  std::vector<std::byte> out;
  put(out, RowHead{row.at, row.length, row.launches, row.passed_on,
                   static_cast<std::uint32_t>(row.slots.size()),
                   static_cast<std::uint32_t>(row.members.size()),
                   static_cast<std::uint32_t>(row.what.size())});
  for (const std::uint32_t slot : row.slots) put(out, slot);
  for (const proto::MemberId member : row.members) put(out, member);
  const auto what = std::as_bytes(std::span(row.what));
  out.insert(out.end(), what.begin(), what.end());
  const auto failure = proto::encode({0, row.failure});
  out.insert(out.end(), failure.begin(), failure.end());
  return out;
}

std::vector<std::byte> body_of(const membership::RefusedDevices& refused) {
  std::vector<std::byte> out;
  for (const membership::RefusedDevice& one : refused.all) {
    put(out, RefusedHead{one.node, one.member, one.told_from, one.slots_lost,
                         static_cast<std::uint32_t>(one.gpu.size()),
                         static_cast<std::uint32_t>(one.why.size())});
    for (const std::string* text : {&one.gpu, &one.why}) {
      const auto bytes = std::as_bytes(std::span(*text));
      out.insert(out.end(), bytes.begin(), bytes.end());
    }
  }
  return out;
}

std::pair<Kind, std::vector<std::byte>> body_of(const JournalEntry& entry) {
  if (const auto* world = std::get_if<proto::World>(&entry))
    return {Kind::kWorld, proto::encode_world(*world)};
  if (const auto* row = std::get_if<membership::FailureStreak>(&entry))
    return {Kind::kFailures, body_of(*row)};
  if (const auto* refused = std::get_if<membership::RefusedDevices>(&entry))
    return {Kind::kRefused, body_of(*refused)};
  std::vector<std::byte> out;
  if (const auto* sentence = std::get_if<membership::JobEvent>(&entry)) {
    put(out, std::int64_t{sentence->at.time_since_epoch().count()});
    const auto text = std::as_bytes(std::span(sentence->text));
    out.insert(out.end(), text.begin(), text.end());
    return {Kind::kSentence, out};
  }
  const auto& intent = std::get<membership::Intent>(entry);
  put(out, IntentHead{intent.began.time_since_epoch().count(), intent.target, intent.desired,
                      intent.restarts, intent.next_member, intent.first_member, intent.said});
  for (const auto& mark : intent.marks) {
    put(out, DiskMark{mark.member, static_cast<std::uint16_t>(mark.state), mark.leave_wanted});
  }
  return {Kind::kIntent, out};
}

base::Result<JournalEntry> intent_of(std::span<const std::byte> body) {
  const base::Status senseless(base::Code::kDataLoss, "malformed intent");
  if (body.size() < sizeof(IntentHead)) return senseless;
  const auto head = take<IntentHead>(body);
  membership::Intent out{time_of(head.began), head.target,       head.desired, head.restarts,
                         head.next_member,    head.first_member, head.said,    {}};
  if (body.size() % sizeof(DiskMark) != 0) return senseless;
  while (!body.empty()) {
    const auto mark = take<DiskMark>(body);
    constexpr auto kFirst = static_cast<std::uint16_t>(MemberState::kActive);
    constexpr auto kLast = static_cast<std::uint16_t>(MemberState::kLost);
    if (mark.state < kFirst || mark.state > kLast || mark.leave_wanted > 1) return senseless;
    out.marks.push_back(
        {mark.member, static_cast<MemberState>(mark.state), mark.leave_wanted == 1});
  }
  return JournalEntry(std::move(out));
}

base::Result<JournalEntry> row_of(std::span<const std::byte> body) {
  const base::Status senseless(base::Code::kDataLoss, "malformed row of failures");
  if (body.size() < sizeof(RowHead)) return senseless;
  const auto head = take<RowHead>(body);
  const std::uint64_t numbers = std::uint64_t{head.slots} + head.members;
  if (body.size() < numbers * sizeof(std::uint32_t) + head.what) return senseless;
  membership::FailureStreak out{.at = head.at,
                                .length = head.length,
                                .launches = head.launches,
                                .passed_on = head.passed_on == 1};
  for (std::uint32_t i = 0; i < head.slots; ++i) out.slots.insert(take<std::uint32_t>(body));
  for (std::uint32_t i = 0; i < head.members; ++i)
    out.members.push_back(take<proto::MemberId>(body));
  out.what.assign(reinterpret_cast<const char*>(body.data()), head.what);
  proto::FrameReader frame;
  frame.append(body.subspan(head.what));
  auto message = frame.next();
  if (!message.ok() || !*message) return senseless;
  const auto* failure = std::get_if<proto::Failure>(&(*message)->body);
  if (failure == nullptr) return senseless;
  out.failure = *failure;
  return JournalEntry(std::move(out));
}

base::Result<JournalEntry> refused_of(std::span<const std::byte> body) {
  membership::RefusedDevices out;
  while (!body.empty()) {
    const base::Status senseless(base::Code::kDataLoss, "malformed list of refused GPUs");
    if (body.size() < sizeof(RefusedHead)) return senseless;
    const auto head = take<RefusedHead>(body);
    if (body.size() < std::uint64_t{head.gpu} + head.why) return senseless;
    const char* const text = reinterpret_cast<const char*>(body.data());
    out.all.push_back({.node = head.node,
                       .gpu = {text, head.gpu},
                       .member = head.member,
                       .told_from = head.told_from,
                       .slots_lost = head.slots_lost,
                       .why = {text + head.gpu, head.why}});
    body = body.subspan(std::size_t{head.gpu} + head.why);
  }
  return JournalEntry(std::move(out));
}

base::Result<JournalEntry> entry_of(Kind kind, std::span<const std::byte> body) {
  if (kind == Kind::kIntent) return intent_of(body);
  if (kind == Kind::kFailures) return row_of(body);
  if (kind == Kind::kRefused) return refused_of(body);
  if (kind == Kind::kSentence && body.size() >= sizeof(std::int64_t)) {
    const auto at = time_of(take<std::int64_t>(body));
    return JournalEntry(
        membership::JobEvent{at, {reinterpret_cast<const char*>(body.data()), body.size()}});
  }
  if (kind != Kind::kWorld) return base::data_loss("unknown kind of record");
  auto world = proto::decode_world(body);
  return world.ok() ? base::Result<JournalEntry>(std::move(*world)) : world.status();
}

base::Status damaged(const std::string& path, std::size_t at, const std::string& what) {
  return base::data_loss(fmt::format("journal {}: damaged at byte {}: {}", path, at, what));
}

base::Result<std::vector<std::byte>> read_all(int fd, const std::string& path) {
  std::vector<std::byte> all;
  std::array<std::byte, 64 << 10> block;
  for (;;) {
    const ssize_t count = ::read(fd, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return base::system_error("read", path, errno);
    if (count == 0) return all;
    all.insert(all.end(), block.begin(), block.begin() + count);
  }
}

base::Status write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) return base::system_error("write", path, errno);
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

base::Status check_file_head(std::span<const std::byte> all, const std::string& path) {
  FileHead head;
  std::memcpy(&head, all.data(), sizeof head);
  if (head.magic != FileHead{}.magic) return damaged(path, 0, "not a journal");
  if (head.version == FileHead{}.version) return {};
  return base::invalid_argument(
      fmt::format("journal {}: version {}, expected {}", path, head.version, FileHead{}.version));
}

struct Contents {
  std::size_t whole = 0;  // bytes, up to where the file was torn
  membership::JournaledState past;
};

base::Result<Contents> parse(std::span<const std::byte> all, const std::string& path) {
  Contents out;
  if (all.size() < sizeof(FileHead)) return out;
  REGROUP_RETURN_IF_ERROR(check_file_head(all, path));
  out.whole = sizeof(FileHead);
  for (RecordHead head; all.size() - out.whole >= sizeof head;
       out.whole += sizeof head + head.bytes) {
    std::memcpy(&head, all.data() + out.whole, sizeof head);
    if (crc_of_head(head) != head.head_crc || head.bytes > proto::kMaxFrameBytes) {
      return damaged(path, out.whole, "malformed header of a record");
    }
    const auto rest = all.subspan(out.whole + sizeof head);
    if (rest.size() < head.bytes) break;
    const auto body = rest.first(head.bytes);
    if (base::crc32c(body) != head.body_crc) return damaged(path, out.whole, "a record");
    auto entry = entry_of(head.kind, body);
    if (!entry.ok()) return damaged(path, out.whole, entry.status().message());
    out.past.add(std::move(*entry));
  }
  return out;
}

}  // namespace

base::Result<JournalFile> JournalFile::open(const std::string& path) {
  JournalFile out;
  out.path_ = path;
  out.fd_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!out.fd_.valid()) return base::system_error("open", path, errno);
  REGROUP_ASSIGN_OR_RETURN(auto all, read_all(out.fd_.get(), path));
  REGROUP_ASSIGN_OR_RETURN(auto contents, parse(all, path));
  out.past_ = std::move(contents.past);
  out.whole_ = static_cast<off_t>(contents.whole);
  if (contents.whole < all.size()) REGROUP_RETURN_IF_ERROR(out.cut());
  if (contents.whole == 0) {
    REGROUP_RETURN_IF_ERROR(write_all(out.fd_.get(), bytes_of(FileHead{}), path));
    out.whole_ = sizeof(FileHead);
  }
  return out;
}

base::Result<membership::JournaledState> JournalFile::written() const {
  if (::lseek(fd_.get(), 0, SEEK_SET) != 0) return base::system_error("lseek", path_, errno);
  REGROUP_ASSIGN_OR_RETURN(const auto all, read_all(fd_.get(), path_));
  auto contents = parse(all, path_);
  return contents.ok() ? base::Result<membership::JournaledState>(std::move(contents->past))
                       : contents.status();
}

base::Status JournalFile::cut() {
  torn_ = ::ftruncate(fd_.get(), whole_) != 0;
  return torn_ ? base::system_error("ftruncate", path_, errno) : base::Status();
}

base::Status JournalFile::append(const JournalEntry& entry) {
  if (torn_) REGROUP_RETURN_IF_ERROR(cut());
  const auto [kind, body] = body_of(entry);
  if (body.size() > proto::kMaxFrameBytes) {
    return base::invalid_argument(fmt::format("journal {}: record of {} bytes, expected at most {}",
                                              path_, body.size(), proto::kMaxFrameBytes));
  }
  RecordHead head{static_cast<std::uint32_t>(body.size()), kind, 0, base::crc32c(body)};
  head.head_crc = crc_of_head(head);
  std::vector<std::byte> record;
  put(record, head);
  record.insert(record.end(), body.begin(), body.end());
  if (base::Status status = write_all(fd_.get(), record, path_); !status.ok()) {
    (void)cut();  // else before the next record
    return status;
  }
  whole_ += static_cast<off_t>(record.size());
  if (kind == Kind::kSentence || kind == Kind::kFailures || ::fdatasync(fd_.get()) == 0) return {};
  return base::system_error("fdatasync", path_, errno);
}

}  // namespace regroup::job
