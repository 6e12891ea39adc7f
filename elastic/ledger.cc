// The invariant that makes this work: rank 0 of a World writes the line of step s before it votes
// for step s + 1. So when a rank 0 dies, at most the line of the last committed step is missing or
// torn, and every survivor has committed that step and keeps its line.
#include "elastic/ledger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

namespace regroup::elastic {
namespace {

using base::Result;
using base::Status;
using proto::Step;

constexpr off_t kWindow = 64 << 10;  // bytes at the end of the file in which lines are sought first

void tell(const std::string& text) { fmt::print(stderr, "regroup: ledger: {}\n", text); }

// True if `text` can be the begin of a header, of which a kill has left no more.
bool torn_header(std::string_view text) {
  constexpr std::string_view kBegin = R"({"format":"regroup ledger")";
  return text.starts_with(kBegin) || kBegin.starts_with(text);
}

}  // namespace

Ledger::Ledger(std::string folder, LedgerHeader header)
    : folder_(std::move(folder)), path_(folder_ + "/" + kLedgerFile), header_(std::move(header)) {}

Status Ledger::write_through(Step last) {
  if (failed_ || (file_.valid() && written_ == last)) return {};
  Status status = file_.valid() ? Status() : open(last);
  if (status.ok() && written_ < last) {
    // Only possible for the step that was committed last: see the head of this file.
    status = keeps(last) && written_ + 1 == last
                 ? put(text_of(*kept_))
                 : base::internal_error(
                       fmt::format("{}: the line of step {} is not known", path_, written_ + 1));
    if (status.ok()) written_ = last;
  }
  return status.ok() || status.code() == base::Code::kInvalidArgument ? status : end_with(status);
}

Status Ledger::end_with(const Status& cause) {
  failed_ = true;
  tell(fmt::format("{}; the ledger ends with step {}, the training goes on without",
                   cause.message(), written_));
  // What was written of an unfinished line; if this fails as well, a reader sees that it is torn.
  if (file_.valid() && end_ > 0) (void)!::ftruncate(file_.get(), end_);
  file_.reset();
  return {};
}

Status Ledger::refused(const std::string& why) const {
  return base::invalid_argument(fmt::format("ledger: {}: {}", path_, why));
}

Status Ledger::open_file() {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return base::system_error("mkdir", folder_, error.value());
  // O_NONBLOCK: a FIFO must not hold up the job.
  base::Fd file(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!file.valid()) return base::system_error("open", path_, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return base::system_error("fstat", path_, errno);
  if (!S_ISREG(info.st_mode)) return base::unavailable(path_ + ": it is not a regular file");
  file_ = std::move(file);
  end_ = 0;
  return {};
}

Status Ledger::open(Step last) {
  written_ = 0;
  REGROUP_RETURN_IF_ERROR(open_file());
  const bool joins = !kept_;  // no step of this run is known to this member
  REGROUP_ASSIGN_OR_RETURN(const auto first, first_line());
  const auto& [text, lines] = first;
  REGROUP_ASSIGN_OR_RETURN(const off_t length, size());
  if (lines == 0 && length < kWindow && torn_header(text))
    return joins ? begin(last + 1) : begin_anew(last, "it has no lines");
  const auto header = parse_ledger_header(text);
  std::string other = header.ok() ? other_run(*header, header_) : header.status().message();
  if (other.empty() && joins && last == 0) {
    if (lines == length) return begin(1);  // that run has committed no step
    if (header->job == header_.job && !header_.job.empty())
      return begin_anew(last, "it is of an earlier training of this job");
    other = fmt::format("job {:?}", header->job);
  }
  if (other.empty()) return take_over(*header, lines, last);
  other = fmt::format("it is of another run ({})", other);
  if (!joins) return begin_anew(last, other);
  return refused(other +
                 "; give another folder with --ledger, or resume that run from its checkpoint");
}

Status Ledger::take_over(const LedgerHeader& header, off_t lines, Step last) {
  REGROUP_ASSIGN_OR_RETURN(const Found found, find(header, lines, last));
  if (keeps(found.step) && found.text != text_of(*kept_))
    return begin_anew(last, fmt::format("its line of step {} is of another run", found.step));
  if (header.first > last + 1)
    return begin_anew(last, fmt::format("it begins with step {}", header.first));
  if (found.step < last && !(keeps(last) && found.step + 1 == last))
    return begin_anew(last, fmt::format("it ends with step {}", found.step));
  header_.first = header.first;
  end_ = found.end;
  written_ = found.step;
  if (::ftruncate(file_.get(), end_) != 0) return base::system_error("ftruncate", path_, errno);
  return header.epochs == header_.epochs ? Status() : update_epochs(header, lines);
}

// A job that resumes may have more epochs than before.
Status Ledger::update_epochs(const LedgerHeader& found, off_t lines) {
  LedgerHeader header = found;
  header.epochs = header_.epochs;
  const std::string temporary = path_ + ".new";
  const base::Fd old = std::exchange(
      file_, base::Fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)));
  if (!file_.valid()) return base::system_error("open", temporary, errno);
  const off_t until = std::exchange(end_, 0);
  REGROUP_RETURN_IF_ERROR(put(text_of(header)));
  std::string part(1 << 20, '\0');
  for (off_t at = lines; at < until;) {
    const auto most = std::min<off_t>(until - at, static_cast<off_t>(part.size()));
    const ssize_t count = ::pread(old.get(), part.data(), static_cast<std::size_t>(most), at);
    if (count <= 0) return base::system_error("pread", path_, count == 0 ? EIO : errno);
    REGROUP_RETURN_IF_ERROR(put(part.substr(0, static_cast<std::size_t>(count))));
    at += count;
  }
  if (::rename(temporary.c_str(), path_.c_str()) != 0)
    return base::system_error("rename", temporary, errno);
  return {};
}

Status Ledger::begin(Step first) {
  header_.first = first;
  written_ = first - 1;
  if (::ftruncate(file_.get(), 0) != 0) return base::system_error("ftruncate", path_, errno);
  end_ = 0;
  return put(text_of(header_));
}

Status Ledger::begin_anew(Step last, const std::string& why) {
  REGROUP_ASSIGN_OR_RETURN(const off_t length, size());
  std::string old;
  if (length > 0) {
    int number = 1;
    do {
      old = fmt::format("{}.{}", path_, number++);
    } while (std::filesystem::exists(old));
    if (::rename(path_.c_str(), old.c_str()) != 0)
      return base::system_error("rename", path_, errno);
  }
  REGROUP_RETURN_IF_ERROR(open_file());
  const Step first = keeps(last) ? last : last + 1;
  tell(fmt::format("{}: {}; a new file begins with step {}{}", path_, why, first,
                   old.empty() ? "" : fmt::format(", the old one is {}", old)));
  return begin(first);
}

Result<off_t> Ledger::size() const {
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0) return base::system_error("fstat", path_, errno);
  return info.st_size;
}

Result<std::string> Ledger::read(off_t from, off_t to) const {
  std::string out(static_cast<std::size_t>(to - from), '\0');
  std::size_t got = 0;
  while (got < out.size()) {
    const ssize_t count =
        ::pread(file_.get(), out.data() + got, out.size() - got, from + static_cast<off_t>(got));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return base::system_error("pread", path_, errno);
    if (count == 0) break;  // it was cut meanwhile
    got += static_cast<std::size_t>(count);
  }
  out.resize(got);
  return out;
}

Result<std::pair<std::string, off_t>> Ledger::first_line() const {
  REGROUP_ASSIGN_OR_RETURN(std::string text, read(0, kWindow));
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return std::pair(text, off_t{0});
  return std::pair(text.substr(0, end), static_cast<off_t>(end + 1));
}

Result<Ledger::Found> Ledger::find(const LedgerHeader& header, off_t lines, Step last) const {
  REGROUP_ASSIGN_OR_RETURN(const off_t length, size());
  for (off_t window = kWindow;; window *= 4) {
    const off_t from = std::max(lines, length - window);
    REGROUP_ASSIGN_OR_RETURN(std::string text, read(from, length));
    // Where a whole line begins for certain.
    const std::size_t begin = from == lines ? 0 : text.find('\n') + 1;
    for (std::size_t end = text.rfind('\n'); end != std::string::npos && end + 1 > begin;) {
      const std::size_t before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
      const std::size_t at = before == std::string::npos || before + 1 < begin ? begin : before + 1;
      const auto line = parse_ledger_line(std::string_view(text).substr(at, end - at));
      if (!line.ok())
        return base::data_loss(fmt::format("{}: a line near byte {} is damaged: {}", path_,
                                           from + static_cast<off_t>(at), line.status().message()));
      if (line->step <= last)
        return Found{line->step, text.substr(at, end + 1 - at), from + static_cast<off_t>(end) + 1};
      if (at == begin) break;
      end = at - 1;
    }
    if (from == lines) return Found{std::min(header.first - 1, last), "", lines};
  }
}

Status Ledger::put(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::pwrite(file_.get(), text.data() + done, text.size() - done,
                                   end_ + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return base::system_error("write", path_, errno);
    done += static_cast<std::size_t>(count);
  }
  end_ += static_cast<off_t>(text.size());
  return {};
}

}  // namespace regroup::elastic
