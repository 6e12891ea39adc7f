// Both forms show the same line; that of a terminal has a picture and the width of the terminal.
#include "launcher/job/progress_printer.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "launcher/job/progress_text.h"

namespace regroup::job {
namespace {

constexpr std::chrono::milliseconds kRedraw{500};
constexpr std::chrono::seconds kLines{10};

// The last column stays free: a terminal may begin a new line when it is filled.
std::string drawn_text(const membership::TrainingProgress& progress) {
  return progress_text(progress, ProgressBar::kYes,
                       process::TerminalLine::columns(STDERR_FILENO) - 1);
}

}  // namespace

ProgressPrinter::ProgressPrinter(boost::asio::io_context& loop, process::Sink& err, Source progress)
    : err_(err), progress_(std::move(progress)), timer_(loop) {}

void ProgressPrinter::wait() {
  timer_.expires_after(err_.draws() ? std::chrono::milliseconds(kRedraw) : kLines);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    show();
    wait();
  });
}

void ProgressPrinter::show() {
  if (!err_.draws()) return print_line();
  const auto progress = progress_();
  if (progress && process::TerminalLine::in_foreground(STDERR_FILENO))
    err_.draw(drawn_text(*progress));
}

void ProgressPrinter::print_line() {
  const auto progress = progress_();
  if (!progress || err_.congested()) return;
  const std::string text = progress_text(*progress, ProgressBar::kNo);
  if (text == printed_) return;
  err_.write("regroup: " + text + "\n");
  printed_ = text;
}

void ProgressPrinter::end() {
  timer_.cancel();
  if (!err_.draws()) return print_line();
  if (const auto progress = progress_()) err_.write(drawn_text(*progress) + "\n");
}

}  // namespace regroup::job
