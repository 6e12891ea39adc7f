// The writer's thread outlives its Timeline where the file system does not answer, so it owns all
// that it uses. Events are lines of one array that nobody closes: both viewers read it so, and a
// killed member leaves a file that is whole. For that no line lies in two pages of the file: the
// kernel looks for a SIGKILL between the pages of a write, and then ends it.
#include "elastic/timeline.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "base/status.h"
#include "base/uninterrupted.h"

namespace regroup::elastic {
namespace {

using base::Status;
using base::uninterrupted;

constexpr std::size_t kMostPending = 8 << 20;  // bytes; more are left out
constexpr std::chrono::seconds kFlush(10);
constexpr std::size_t kPage = 4096;  // of the page cache, at least

Status write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t count = uninterrupted([&] { return ::write(fd, text.data(), text.size()); });
    if (count < 0) return base::system_error("write", path, errno);
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

// Writes lines, each of which lies in one page; blank ones fill the page before one that would not.
// Other members append to the file, too: where they do so at the same instant a line may still lie
// in two pages, and so does one that is longer than a page.
Status write_lines(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) return base::system_error("fstat", path, errno);
    const std::size_t room = kPage - static_cast<std::size_t>(info.st_size) % kPage;
    std::size_t size = text.size();
    if (size > room) size = text.rfind('\n', room - 1) + 1;  // 0: no line fits
    const std::size_t line = text.find('\n') + 1;
    if (size == 0 && line <= kPage) {
      REGROUP_RETURN_IF_ERROR(write_all(fd, std::string(room, '\n'), path));
      continue;
    }
    if (size == 0) size = line;
    REGROUP_RETURN_IF_ERROR(write_all(fd, text.substr(0, size), path));
    text.remove_prefix(size);
  }
  return {};
}

// The job of a process outside one: it shares the file with no other.
std::string job_or_process(std::string job) {
  if (!job.empty()) return job;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("process {} at {}", ::getpid(), now.count());
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte < 0x20)
      out += fmt::format("\\u{:04x}", byte);
    else
      out += byte < 0x7f ? c : '?';
  }
  return out + '"';
}

struct Timeline::Writer {
  std::string path;
  std::string head;  // the begin of the file
  std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  std::string pending;
  bool writing = false;
  bool stop = false;
  bool failed = false;

  [[nodiscard]] base::Status open(base::Fd* out) const;
  void run();
};

// The lock is held only as long as it takes to see whose file it is.
Status Timeline::Writer::open(base::Fd* out) const {
  // O_NONBLOCK: a FIFO must not hold up this thread.
  base::Fd file(uninterrupted([&] {
    return ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  }));
  if (!file.valid()) return base::system_error("open", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return base::system_error("fstat", path, errno);
  if (!S_ISREG(info.st_mode)) return base::unavailable(path + ": it is not a regular file");
  const bool locked = uninterrupted([&] { return ::flock(file.get(), LOCK_EX); }) == 0;
  std::string found(head.size(), '\0');
  const ssize_t count =
      uninterrupted([&] { return ::pread(file.get(), found.data(), found.size(), 0); });
  Status status;
  if (count < 0) {
    status = base::system_error("pread", path, errno);
  } else if (found != head) {
    if (uninterrupted([&] { return ::ftruncate(file.get(), 0); }) != 0)
      status = base::system_error("ftruncate", path, errno);
    else
      status = write_all(file.get(), head, path);
  }
  if (locked) ::flock(file.get(), LOCK_UN);
  *out = std::move(file);
  return status;
}

void Timeline::Writer::run() {
  base::Fd file;
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return stop || !pending.empty(); });
    if (pending.empty()) return;
    const std::string text = std::exchange(pending, {});
    writing = true;
    lock.unlock();
    Status status = file.valid() ? Status() : open(&file);
    if (status.ok()) status = write_lines(file.get(), text, path);
    lock.lock();
    writing = false;
    failed = !status.ok();
    changed.notify_all();
    if (failed) {
      pending.clear();
      fmt::print(stderr, "regroup: timeline: {}; the training goes on without\n", status.message());
      return;
    }
  }
}

Timeline::Timeline(const std::string& file, std::string job, proto::NodeId node,
                   proto::MemberId member)
    : member_(member),
      offset_(std::chrono::duration_cast<base::Duration>(
                  std::chrono::system_clock::now().time_since_epoch()) -
              base::SystemClock().now().time_since_epoch()),
      writer_(std::make_shared<Writer>()) {
  writer_->path = node == 0 ? file : fmt::format("{}.{}", file, node);
  writer_->head = fmt::format(
      "[\n{{\"name\":\"job\",\"ph\":\"M\",\"pid\":0,\"args\":{{\"job\":{},\"host\":{}}}}},\n",
      json_string(job_or_process(std::move(job))), node);
  add(R"("name":"process_name","ph":"M")",
      fmt::format(R"x("name":"member {} (pid {})")x", member, ::getpid()));
  add(R"("name":"process_sort_index","ph":"M")", fmt::format(R"("sort_index":{})", member));
  try {
    std::thread([writer = writer_] { writer->run(); }).detach();
  } catch (const std::system_error&) {
    writer_->failed = true;
  }
}

Timeline::~Timeline() {
  end_to(0);
  flush();
  const std::lock_guard lock(writer_->mutex);
  writer_->stop = true;
  writer_->changed.notify_all();
}

void Timeline::add(std::string_view event, std::string_view args) {
  const base::Duration at = base::SystemClock().now().time_since_epoch() + offset_;
  const std::string line =
      fmt::format("{{{},\"ts\":{:.3f},\"pid\":{},\"tid\":0{}{}{}}},\n", event,
                  std::chrono::duration<double, std::micro>(at).count(), member_,
                  args.empty() ? "" : ",\"args\":{", args, args.empty() ? "" : "}");
  const std::lock_guard lock(writer_->mutex);
  if (writer_->failed || writer_->pending.size() + line.size() > kMostPending) return;
  writer_->pending += line;
  writer_->changed.notify_all();
}

void Timeline::begin(std::string_view name, std::string_view args) {
  depth_ += 1;
  add(fmt::format(R"("name":{},"ph":"B")", json_string(name)), args);
}

void Timeline::end(std::string_view args) {
  if (depth_ == 0) return;
  depth_ -= 1;
  add(R"("ph":"E")", args);
}

void Timeline::end_to(int depth) {
  while (depth_ > depth) end();
}

std::uint64_t Timeline::begin_overlapping(std::string_view name, std::string_view args) {
  const std::uint64_t span = ++overlapping_;
  add(fmt::format(R"("name":{},"cat":"regroup","ph":"b","id":"{}.{}")", json_string(name), member_,
                  span),
      args);
  return span;
}

void Timeline::end_overlapping(std::uint64_t span, std::string_view name) {
  add(fmt::format(R"("name":{},"cat":"regroup","ph":"e","id":"{}.{}")", json_string(name), member_,
                  span),
      {});
}

void Timeline::flush() {
  std::unique_lock lock(writer_->mutex);
  writer_->changed.wait_for(lock, kFlush, [&] {
    return writer_->failed || (writer_->pending.empty() && !writer_->writing);
  });
}

}  // namespace regroup::elastic
