// The invariant that makes this work: rank 0 of a World writes the line of step s before it votes
// for step s + 1. So when a rank 0 dies, at most the line of the last committed step is missing or
// torn, and every survivor has committed that step and keeps its line.
//
// A member that is excluded may run on for a while, and write. The line of a step has the same
// bytes and the same place whichever member writes it, so its lines do no harm, and a member that
// has committed a step of this run need never cut: the file has no line of a later step, unless
// another member has written it that this one knows nothing of. Only a member that has committed
// none cuts what an earlier attempt of the job has left.
#include "elastic/ledger_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "base/lock_owner.h"
#include "base/uninterrupted.h"

namespace regroup::elastic {
namespace {

using base::Result;
using base::Status;
using base::uninterrupted;
using proto::Step;

constexpr off_t kWindow = 64 << 10;  // bytes that are read at once
constexpr std::chrono::milliseconds kLockRetry(50);

void tell(const std::string& text) { fmt::print(stderr, "regroup: ledger: {}\n", text); }

// True if `text` can be the begin of a header, of which a kill has left no more.
bool torn_header(std::string_view text) {
  constexpr std::string_view kBegin = R"({"format":"regroup ledger")";
  return text.starts_with(kBegin) || kBegin.starts_with(text);
}

// The text of a lock file, of base::lock_owner(); empty: it has none, or cannot be read.
std::string owner_of(const std::string& path) {
  std::string text;
  std::getline(std::ifstream(path), text);
  return text;
}

}  // namespace

LedgerFile::LedgerFile(std::string folder, LedgerHeader header, base::Duration lock_limit,
                       std::function<bool()> excluded)
    : folder_(std::move(folder)),
      path_(folder_ + "/" + kLedgerFile),
      lock_limit_(lock_limit),
      header_(std::move(header)),
      excluded_(std::move(excluded)) {}

Status LedgerFile::write_through(Step last, const Line& kept) {
  if (!file_.valid()) {
    Status opened = open(last, kept);
    if (!opened.ok()) return file_.reset(), lock_.reset(), opened;
  }
  REGROUP_RETURN_IF_ERROR(lock());  // another member of this job may have had it until now
  if (*written_ >= last) return {};
  // Only possible for the step that was committed last: see the head of this file.
  if (kept.step != last || *written_ + 1 != last)
    return base::internal_error(
        fmt::format("{}: the line of step {} is not known", path_, *written_ + 1));
  REGROUP_RETURN_IF_ERROR(put(kept.text));
  written_ = last;
  return {};
}

std::optional<Step> LedgerFile::written() const { return written_; }

void LedgerFile::cut_torn_line() {
  if (file_.valid() && end_ > 0) (void)cut(end_);  // if it fails, a reader sees that it is torn
}

void LedgerFile::close() {
  file_.reset();
  // Children that this process has forked have copies of the descriptor.
  if (lock_) ::flock(lock_->descriptor(), LOCK_UN);
  lock_.reset();
}

void LedgerFile::abandon() {
  const std::lock_guard guard(mutex_);
  abandoned_ = true;
}

// Call it right before what must not be done late. What remains is a member that is stopped between
// this call and the change.
Status LedgerFile::may_change() const {
  const std::lock_guard guard(mutex_);
  if (abandoned_ || excluded_()) return base::revoked(path_ + ": another member writes it");
  return {};
}

Status LedgerFile::cut(off_t to) {
  REGROUP_ASSIGN_OR_RETURN(const off_t length, size());
  if (length <= to) return {};
  REGROUP_RETURN_IF_ERROR(may_change());
  if (uninterrupted([&] { return ::ftruncate(file_.get(), to); }) != 0)
    return base::system_error("ftruncate", path_, errno);
  return {};
}

Status LedgerFile::refused(const std::string& why) const {
  return base::invalid_argument(fmt::format("{}: {}", path_, why));
}

// A member of the same job may have the lock: one that is excluded and does not know it. Then this
// one goes on without, and takes it when that one has ended.
Status LedgerFile::lock() {
  if (lock_ || !lockable_) return {};
  const std::string path = folder_ + "/" + kLedgerLock;
  const base::SystemClock clock;
  bool told = false;
  for (const base::TimePoint until = clock.now() + lock_limit_; lockable_ && !lock_;) {
    auto taken = base::FileLock::take(path, base::lock_owner(header_.job));
    if (taken.ok()) {
      lock_.emplace(std::move(*taken));
    } else if (taken.code() == base::Code::kUnavailable) {
      const std::string owner = owner_of(path);
      if (!header_.job.empty() && owner.starts_with(fmt::format("job {} ", header_.job))) return {};
      if (clock.now() >= until) {
        held_ = true;
        return base::unavailable(fmt::format(
            "{}: another job writes there: {}; give another folder with --ledger, or end that job",
            path_, taken.status().message()));
      }
      if (!std::exchange(told, true))
        tell(fmt::format("{}: another job writes there: {}; waiting for its end", path_,
                         taken.status().message()));
      std::this_thread::sleep_for(kLockRetry);
      REGROUP_RETURN_IF_ERROR(may_change());
    } else {
      lockable_ = false;
      tell(fmt::format("{}; nothing keeps another job from writing there",
                       taken.status().message()));
    }
  }
  return {};
}

Status LedgerFile::open_file() {
  // O_NONBLOCK: a FIFO must not hold up the job.
  base::Fd file(uninterrupted(
      [&] { return ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666); }));
  if (!file.valid()) return base::system_error("open", path_, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return base::system_error("fstat", path_, errno);
  if (!S_ISREG(info.st_mode)) return base::unavailable(path_ + ": it is not a regular file");
  file_ = std::move(file);
  end_ = 0;
  return {};
}

Status LedgerFile::open(Step last, const Line& kept) {
  written_.reset();
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return base::system_error("mkdir", folder_, error.value());
  REGROUP_RETURN_IF_ERROR(lock());
  REGROUP_RETURN_IF_ERROR(open_file());
  const bool joins = kept.step == 0;  // no step of this run is known to this member
  REGROUP_ASSIGN_OR_RETURN(const auto first, first_line());
  const auto& [text, lines] = first;
  REGROUP_ASSIGN_OR_RETURN(const off_t length, size());
  if (lines == 0 && length < kWindow && torn_header(text))
    return joins ? begin(last + 1) : begin_anew(last, kept, "it has no lines");
  const auto header = parse_ledger_header(text);
  std::string other = header.ok() ? other_run(*header, header_) : header.status().message();
  if (other.empty() && joins && last == 0) {
    if (lines == length) return begin(1);  // that run has committed no step
    // A scheduler may have started the job again, with another id, before its first checkpoint.
    return begin_anew(last, kept,
                      fmt::format("it is of an earlier training (job {:?})", header->job));
  }
  if (other.empty()) return take_over(*header, lines, last, kept);
  other = fmt::format("it is of another run ({})", other);
  if (!joins) return begin_anew(last, kept, other);
  return refused(other +
                 "; give another folder with --ledger, or resume that run from its checkpoint");
}

Status LedgerFile::take_over(const LedgerHeader& header, off_t lines, Step last, const Line& kept) {
  REGROUP_ASSIGN_OR_RETURN(const Found found, find(header, lines, last));
  if (kept.step > 0 && kept.step == found.step && found.text != kept.text)
    return begin_anew(last, kept, fmt::format("its line of step {} is of another run", found.step));
  if (header.first > last + 1)
    return begin_anew(last, kept, fmt::format("it begins with step {}", header.first));
  if (found.step < last && !(kept.step == last && found.step + 1 == last))
    return begin_anew(last, kept, fmt::format("it ends with step {}", found.step));
  LedgerHeader resumed = header;
  resumed.epochs = header_.epochs;
  const auto room = static_cast<std::size_t>(lines);
  std::string text = text_of(resumed);
  if (resumed != header && text.size() > room)
    return begin_anew(last, kept,
                      fmt::format("its header has no room for {} epochs", resumed.epochs));
  header_.first = header.first;
  end_ = found.end;
  written_ = found.step;
  if (kept.step == 0) REGROUP_RETURN_IF_ERROR(cut(end_));
  // A job that resumes may have more epochs than before.
  return resumed == header ? Status() : write_at(0, with_room(std::move(text), room));
}

Status LedgerFile::begin(Step first) {
  REGROUP_RETURN_IF_ERROR(cut(0));
  header_.first = first;
  end_ = 0;
  REGROUP_RETURN_IF_ERROR(put(text_with_room(header_)));
  written_ = first - 1;
  return {};
}

Status LedgerFile::begin_anew(Step last, const Line& kept, const std::string& why) {
  REGROUP_ASSIGN_OR_RETURN(const off_t length, size());
  std::string old;
  if (length > 0) {
    int number = 1;
    std::error_code error;
    do {
      old = fmt::format("{}.{}", path_, number++);
    } while (std::filesystem::exists(old, error));
    if (error) return base::system_error("stat", old, error.value());
    REGROUP_RETURN_IF_ERROR(may_change());
    if (::rename(path_.c_str(), old.c_str()) != 0)
      return base::system_error("rename", path_, errno);
  }
  REGROUP_RETURN_IF_ERROR(open_file());
  const Step first = kept.step == last && last > 0 ? last : last + 1;
  REGROUP_RETURN_IF_ERROR(begin(first));
  tell(fmt::format("{}: {}; a new file begins with step {}{}", path_, why, first,
                   old.empty() ? "" : fmt::format(", the old one is {}", old)));
  return {};
}

Result<off_t> LedgerFile::size() const {
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0) return base::system_error("fstat", path_, errno);
  return info.st_size;
}

Result<std::string> LedgerFile::read(off_t from, off_t to) const {
  std::string out(static_cast<std::size_t>(to - from), '\0');
  std::size_t got = 0;
  while (got < out.size()) {
    const ssize_t count = uninterrupted([&] {
      return ::pread(file_.get(), out.data() + got, out.size() - got,
                     from + static_cast<off_t>(got));
    });
    if (count < 0) return base::system_error("pread", path_, errno);
    if (count == 0) break;  // it was cut meanwhile
    got += static_cast<std::size_t>(count);
  }
  out.resize(got);
  return out;
}

Result<std::pair<std::string, off_t>> LedgerFile::first_line() const {
  REGROUP_ASSIGN_OR_RETURN(std::string text, read(0, kWindow));
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return std::pair(text, off_t{0});
  return std::pair(text.substr(0, end), static_cast<off_t>(end + 1));
}

// `text` is what begins at `at`; of it only the begin of a line is kept that ends in a later part
// of the file, so the memory does not depend on the length of the file.
Result<LedgerFile::Found> LedgerFile::find(const LedgerHeader& header, off_t lines,
                                           Step last) const {
  REGROUP_ASSIGN_OR_RETURN(off_t at, size());
  std::string text;
  bool whole = false;  // the last line of `text` has an end
  while (at > lines) {
    const off_t from = std::max(lines, at - kWindow);
    REGROUP_ASSIGN_OR_RETURN(std::string part, read(from, at));
    text.insert(0, part);
    at = from;
    for (;;) {
      // The end of the line before the last one.
      const std::size_t end = whole && text.size() < 2
                                  ? std::string::npos
                                  : text.rfind('\n', whole ? text.size() - 2 : text.size());
      const bool begins = end != std::string::npos || at == lines;
      if (!begins) break;
      const std::size_t begin = end == std::string::npos ? 0 : end + 1;
      if (whole) {
        const auto line =
            parse_ledger_line(std::string_view(text).substr(begin, text.size() - begin - 1));
        if (!line.ok())
          return base::data_loss(fmt::format("{}: a line near byte {} is damaged: {}", path_,
                                             at + static_cast<off_t>(begin),
                                             line.status().message()));
        if (line->step <= last)
          return Found{line->step, text.substr(begin), at + static_cast<off_t>(text.size())};
      }
      if (end == std::string::npos) break;
      text.resize(end + 1);
      whole = true;
    }
    if (text.size() > kLongestLedgerLine)
      return base::data_loss(fmt::format("{}: a line near byte {} is longer than {} bytes", path_,
                                         at, kLongestLedgerLine));
  }
  return Found{std::min(header.first - 1, last), "", lines};
}

Status LedgerFile::write_at(off_t at, std::string_view text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = uninterrupted([&] {
      return ::pwrite(file_.get(), text.data() + done, text.size() - done,
                      at + static_cast<off_t>(done));
    });
    if (count < 0) return base::system_error("write", path_, errno);
    done += static_cast<std::size_t>(count);
  }
  return {};
}

Status LedgerFile::put(const std::string& text) {
  REGROUP_RETURN_IF_ERROR(write_at(end_, text));
  end_ += static_cast<off_t>(text.size());
  return {};
}

}  // namespace regroup::elastic
