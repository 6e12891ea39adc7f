// Polls a source again only after its reply, so that a source that hangs occupies only one process.
#include "launcher/preempt/notice_watch.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <set>
#include <utility>

#include "base/text.h"
#include "launcher/preempt/http.h"
#include "launcher/process/hook.h"

namespace regroup::preempt {
namespace {

constexpr std::chrono::seconds kLimit{10};  // for a command or an HTTP request
constexpr std::size_t kMostText = 64 << 10;
constexpr std::chrono::seconds kNamesLimit{
    2};                                     // of an address that is asked for this machine's names
constexpr std::chrono::seconds kSooner{2};  // times that differ by less are equal
constexpr const char* kTokenHeader = "X-aws-ec2-metadata-token";

}  // namespace

struct NoticeWatch::Source {
  enum class Kind { kFile, kCommand, kAddress };
  Source(boost::asio::io_context& loop, Kind kind, std::string option, std::string what)
      : kind(kind), option(std::move(option)), what(std::move(what)), timer(loop) {}
  const Kind kind;
  const std::string option, what;  // "--notice-file", "/run/notice"
  boost::asio::steady_timer timer;
  std::shared_ptr<process::Hook> hook;  // that runs
  std::string last_failure, token;
  bool over = false;       // the watch was destroyed
  bool suspended = false;  // the source says that the host is, or will be, suspended
  bool paused = false;     // the source says that the host is, or will be, paused
  // The end of the host that was reported last.
  std::optional<std::chrono::steady_clock::time_point> reported_end;
  std::set<std::string> remarks;  // the sentences about it that Events::said has had
  [[nodiscard]] std::string name() const { return option + " " + what; }
};

NoticeWatch::NoticeWatch(boost::asio::io_context& loop, spec::NoticeRequest sources,
                         std::string host, spec::Environment environment, Events events)
    : loop_(loop),
      request_(std::move(sources)),
      host_(std::move(host)),
      environment_(std::move(environment)),
      events_(std::move(events)) {
  const auto add = [&](Source::Kind kind, const char* option, const std::string& what) {
    if (!what.empty()) sources_.push_back(std::make_shared<Source>(loop_, kind, option, what));
  };
  add(Source::Kind::kFile, "--notice-file", request_.file);
  add(Source::Kind::kCommand, "--notice-command", request_.command);
  add(Source::Kind::kAddress, "--notice-url", request_.address);
}

NoticeWatch::~NoticeWatch() { stop(); }

void NoticeWatch::start(const std::vector<std::string>& suspended_by) {
  for (const auto& source : sources_)
    source->suspended = std::ranges::find(suspended_by, source->name()) != suspended_by.end();
  for (const auto& source : sources_) ask(*source);
}

void NoticeWatch::stop() {
  for (const auto& source : sources_) {
    source->over = true;
    source->timer.cancel();
    if (source->hook) std::exchange(source->hook, nullptr)->abandon();
  }
}

void NoticeWatch::ask_later(Source& source) {
  if (source.over) return;
  source.timer.expires_after(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(request_.every));
  source.timer.async_wait([this, &source](const boost::system::error_code& error) {
    if (!error && !source.over) ask(source);
  });
}

void NoticeWatch::ask(Source& source) {
  if (source.kind == Source::Kind::kFile) return ask_file(source);
  if (source.kind == Source::Kind::kCommand) return ask_command(source);
  ask_address(source, source.token);
}

// Ignores an empty file, because its writer creates it before it writes.
void NoticeWatch::ask_file(Source& source) {
  struct stat info {};
  if (::stat(source.what.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return on_text(source, "");
    return failed(source, base::system_error("stat", source.what, errno).message());
  }
  if (!S_ISREG(info.st_mode)) return failed(source, "not a regular file");
  std::ifstream file(source.what, std::ios::binary);
  if (!file) return failed(source, base::system_error("open", source.what, errno).message());
  std::string text(kMostText, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file ? kMostText
                   : static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  on_text(source, text);
}

void NoticeWatch::ask_command(Source& source) {
  source.hook = process::Hook::start(loop_, {"/bin/sh", "-c", source.what}, environment_, kLimit,
                                     [this, &source](base::Result<std::string> text) {
                                       source.hook.reset();
                                       if (!text.ok())
                                         return failed(source, text.status().message());
                                       on_text(source, *text);
                                     });
}

// Status 404 means no notice. EC2 needs a token first, Google and Azure need a header.
void NoticeWatch::ask_address(Source& source, const std::string& token) {
  auto address = parse_http_address(source.what);
  if (!address.ok()) return failed(source, address.status().message());
  HttpQuestion question{
      "GET", std::move(*address), {{"Metadata-Flavor", "Google"}, {"Metadata", "true"}}};
  if (!token.empty()) question.headers.emplace_back(kTokenHeader, token);
  ask_http(loop_, question, kLimit,
           [this, keep = sources_, &source](base::Result<HttpAnswer> answer) {
             if (source.over) return;
             if (!answer.ok()) return failed(source, answer.status().message());
             if (answer->status == 200) return on_text(source, answer->body);
             if (answer->status == 404 || answer->status == 204) return on_text(source, "");
             if (answer->status == 401 && source.token.empty()) return ask_token(source);
             source.token.clear();  // it may have expired
             failed(source, fmt::format("HTTP status {}", answer->status));
           });
}

void NoticeWatch::ask_token(Source& source) {
  auto address = parse_http_address(source.what);
  if (!address.ok()) return failed(source, address.status().message());
  address->target = "/latest/api/token";
  const HttpQuestion question{
      "PUT", std::move(*address), {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}}};
  ask_http(
      loop_, question, kLimit, [this, keep = sources_, &source](base::Result<HttpAnswer> answer) {
        if (source.over) return;
        if (!answer.ok()) return failed(source, answer.status().message());
        if (answer->status != 200 || answer->body.empty() ||
            answer->body.find_first_of("\r\n") != std::string::npos)
          return failed(source, fmt::format("a token is required, but none is provided (status {})",
                                            answer->status));
        source.token = answer->body;
        ask_address(source, source.token);
      });
}

bool NoticeWatch::any_suspended() const {
  return std::ranges::any_of(sources_, [](const auto& source) { return source->suspended; });
}

// Azure lists machines of a whole scale set by names that may differ from host names.
void NoticeWatch::on_text(Source& source, const std::string& text) {
  if (source.over) return;
  auto notices = parse_notices(text, static_cast<std::int64_t>(::time(nullptr)));
  if (!notices.ok()) return failed(source, notices.status().message());
  source.last_failure.clear();
  if (notices->empty()) source.remarks.clear();
  const bool unknown = std::ranges::any_of(
      *notices, [this](const Notice& notice) { return notice.machines && !is_for(notice, host_); });
  if (unknown && machine_names_.empty() && source.kind == Source::Kind::kAddress)
    return ask_names(source, std::move(*notices));
  decide(source, *notices);
}

// The instance metadata lie beside the events.
void NoticeWatch::ask_names(Source& source, std::vector<Notice> notices) {
  auto address = parse_http_address(source.what);
  if (!address.ok()) return failed(source, address.status().message());
  const std::size_t base = address->target.find("/metadata/");
  address->target = (base == std::string::npos ? "" : address->target.substr(0, base)) +
                    "/metadata/instance?api-version=2021-02-01";
  const HttpQuestion question{"GET", std::move(*address), {{"Metadata", "true"}}};
  ask_http(loop_, question, kNamesLimit,
           [this, keep = sources_, &source,
            notices = std::move(notices)](base::Result<HttpAnswer> answer) {
             if (source.over) return;
             why_nameless_ = !answer.ok()            ? answer.status().message()
                             : answer->status != 200 ? fmt::format("status {}", answer->status)
                                                     : "";
             if (why_nameless_.empty()) machine_names_ = parse_machine_names(answer->body);
             if (why_nameless_.empty() && machine_names_.empty())
               why_nameless_ = "the answer contains no name";
             decide(source, notices);
           });
}

bool NoticeWatch::is_ours(Source& source, const Notice& notice) {
  if (is_for(notice, host_, machine_names_)) return true;
  if (notice.machines && machine_names_.empty()) {
    const std::string named = base::printable_word(notice.hosts.front());
    remark(source, named,
           fmt::format(
               "{} of {} is assumed to concern another machine; this host is {}{}", notice.what,
               named, host_,
               why_nameless_.empty()
                   ? ""
                   : fmt::format(", and its name in the cloud is unknown ({})", why_nameless_)));
  }
  return false;
}

void NoticeWatch::decide(Source& source, const std::vector<Notice>& notices) {
  const auto keep = sources_;  // a handler may destroy this object
  std::vector<Notice> ends;
  std::optional<Notice> pause;
  for (const Notice& notice : notices) {
    if (!is_ours(source, notice)) continue;
    const double left = std::chrono::duration<double>(time_left(notice)).count();
    if (notice.kind == Notice::Kind::kAdvice) {
      remark(source, notice.what, notice.what + ": no action");
    } else if (notice.planned && time_left(notice) > kAhead) {
      remark(source, notice.what + " later",
             fmt::format("{} in {:.0f} s: acted upon {} minutes before", notice.what, left,
                         kAhead.count()));
    } else if (notice.kind != Notice::Kind::kPause) {
      ends.push_back(notice);
    } else if (events_.over && notice.lasts.value_or(base::Duration::zero()) > kLongPause) {
      ends.push_back(notice);
      ends.back().kind = Notice::Kind::kSuspend;
    } else if (!pause) {
      pause = notice;
    }
    if (source.over) return;
  }
  on_pause(source, pause);
  if (!source.over) on_end(source, gravest(ends));
  ask_later(source);
}

void NoticeWatch::on_pause(Source& source, const std::optional<Notice>& pause) {
  if (pause) {
    const std::string what = pause->what.empty() ? "a pause" : pause->what;
    const auto seconds = [](base::Duration time) {
      return std::chrono::duration<double>(time).count();
    };
    const std::string when = pause->begun     ? "now"
                             : !pause->within ? "soon"
                                              : fmt::format("in {:.0f} s", seconds(*pause->within));
    remark(source, what,
           fmt::format("{} of this host {}{}: the job continues", what, when,
                       pause->lasts ? fmt::format(", for {:.0f} s", seconds(*pause->lasts)) : ""));
  }
  const bool near =
      pause && (pause->begun || pause->within.value_or(base::Duration::zero()) <= kPauseLead);
  const bool was = std::exchange(source.paused, near);
  if (near && !was && events_.paused) events_.paused(*pause, source.name());
  if (was && !near && events_.moves) events_.moves(source.name());
}

void NoticeWatch::on_end(Source& source, const std::optional<Notice>& end) {
  const bool suspends = end && events_.over && end->kind == Notice::Kind::kSuspend;
  const bool was_suspended = std::exchange(source.suspended, suspends);
  if (!end) {
    if (was_suspended && !any_suspended()) events_.over(source.name());
    return;
  }
  if (suspends) {
    if (!was_suspended) events_.noticed(*end, source.name());
    return;
  }
  const auto at = std::chrono::steady_clock::now() +
                  std::chrono::duration_cast<std::chrono::steady_clock::duration>(time_left(*end));
  if (source.reported_end && at + kSooner >= *source.reported_end) return;
  source.reported_end = at;
  events_.noticed(*end, source.name());
}

// Reports `sentence` once per `about`, its constant part (without times that change).
void NoticeWatch::remark(Source& source, const std::string& about, const std::string& sentence) {
  constexpr std::size_t kMostRemarks = 64;
  if (source.remarks.size() >= kMostRemarks || !source.remarks.insert(about).second) return;
  events_.said(fmt::format("{}: {}", source.name(), sentence));
}

void NoticeWatch::failed(Source& source, const std::string& why) {
  if (source.over) return;
  if (std::exchange(source.last_failure, why) != why)
    events_.said(fmt::format("{} {}: {}; polled again every {:g} s", source.option, source.what,
                             why, std::chrono::duration<double>(request_.every).count()));
  ask_later(source);
}

}  // namespace regroup::preempt
