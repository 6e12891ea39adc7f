// Asks the coordinator for its status again and again. The speed in it is the coordinator's, so
// that the first line has one, too.
#include "launcher/cli/top.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/printable.h"
#include "base/status.h"
#include "launcher/cli/control_client.h"
#include "launcher/job/job_files.h"
#include "launcher/job/progress_text.h"
#include "launcher/process/terminal_line.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::cli {
namespace {

using nlohmann::json;
using process::TerminalLine;

constexpr base::Duration kRedraw = std::chrono::seconds(1);
constexpr base::Duration kLines = std::chrono::seconds(10);
// A coordinator that was restarted answers again after this time at most.
constexpr base::Duration kRestartLimit = std::chrono::seconds(5);
constexpr std::chrono::milliseconds kAgain{50};

volatile std::sig_atomic_t g_drawn = 0;

// Ends this process by the signal; first completes the drawn line, so that a prompt follows it.
void on_stop(int signal) {
  if (g_drawn != 0) {
    [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, "\n", 1);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Writes the lines of this command to standard output.
class Page {
 public:
  explicit Page(bool redraws) : redraws_(redraws) {}

  [[nodiscard]] bool redraws() const { return redraws_; }
  // On a terminal in place of the line before; else a line, unless it is that before.
  void show(const std::string& text) {
    if (redraws_) {
      if (!TerminalLine::in_foreground(STDOUT_FILENO)) return;
      g_drawn = 1;
      fmt::print("{}{}", TerminalLine::kErase, text);
    } else if (text != before_) {
      fmt::print("{}\n", text);
    }
    std::fflush(stdout);
    before_ = text;
  }
  void end() {
    if (std::exchange(g_drawn, 0) != 0) fmt::print("\n");
    std::fflush(stdout);
  }

 private:
  const bool redraws_;
  std::string before_;
};

// Before the first World: "starting", or why the job waits.
std::string text_without_progress(const json& status) {
  const std::string held = status.value("held", "");
  return base::escaped_lines(held.empty() ? status.value("stage", "") : "waiting: " + held);
}

std::string text_of(const std::string& status, const Page& page) {
  const bool bar = page.redraws();
  const std::size_t width = bar ? TerminalLine::columns(STDOUT_FILENO) - 1 : job::kAnyWidth;
  if (const auto progress = job::progress_in(status))
    return job::progress_text(*progress, bar ? job::ProgressBar::kYes : job::ProgressBar::kNo,
                              width);
  return text_without_progress(json::parse(status)).substr(0, width);
}

base::Result<ControlClient> connect_to(const job::JobFiles& files) {
  REGROUP_ASSIGN_OR_RETURN(auto socket, transport::connect_unix(files.control_socket()));
  return ControlClient(std::move(socket));
}

// The status, of a coordinator that may be restarted meanwhile. kNotFound: the job has ended.
base::Result<std::string> status_of(const CommandLine& command, const job::JobFiles& files,
                                    std::optional<ControlClient>& client) {
  base::SystemClock clock;
  const base::TimePoint limit = clock.now() + kRestartLimit;
  for (;;) {
    if (!client) {
      auto made = connect_to(files);
      if (made.ok()) client.emplace(std::move(*made));
      if (!made.ok() && clock.now() >= limit) return made.status();
    }
    if (client) {
      auto status = client->status();
      if (status.ok() || clock.now() >= limit) return status;
      client.reset();
    }
    REGROUP_RETURN_IF_ERROR(job::find_job(command.environment, files.id()).status());
    std::this_thread::sleep_for(kAgain);
  }
}

// Asks each second at least, so that the last line is at most a second older than the job's end.
int follow(const CommandLine& command, const job::JobFiles& files, Page& page) {
  const base::Duration interval =
      command.control.interval.value_or(page.redraws() ? kRedraw : kLines);
  std::optional<ControlClient> client;
  base::SystemClock clock;
  base::TimePoint next{};
  std::string text;
  for (;;) {
    const auto status = status_of(command, files, client);
    if (status.code() == base::Code::kNotFound && !text.empty()) {
      page.show(text);
      page.end();
      fmt::print(stderr, "regroup: job {} has ended\n", files.id());
      return 0;
    }
    if (!status.ok()) return page.end(), command_failed(status.status().message());
    text = text_of(*status, page);
    if (const base::TimePoint now = clock.now(); now >= next) {
      page.show(text);
      next = now + interval;
    }
    if (command.control.once) return 0;
    std::this_thread::sleep_for(std::min(interval, kRedraw));
  }
}

}  // namespace

int run_top(const CommandLine& command) {
  const auto files = job::find_job(command.environment, command.control.job);
  if (!files.ok()) return command_failed(files.status().message());
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, on_stop);
  const auto terminal = command.environment.find("TERM");
  const bool dumb = terminal != command.environment.end() && terminal->second == "dumb";
  Page page(!dumb && !command.control.once && ::isatty(STDOUT_FILENO) == 1);
  return follow(command, *files, page);
}

}  // namespace regroup::cli
