// Draws the bar at most ten times a second.
#include "tools/checkpoint/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace regroup::checkpoint_tool {
namespace {

constexpr auto kPause = std::chrono::milliseconds(100);
constexpr std::size_t kWidth = 30;

}  // namespace

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (terminal_ && drawn_ != std::chrono::steady_clock::time_point())
    fmt::print(stderr, "\r\033[K");
}

void ProgressBar::show(std::uint64_t done, std::uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now - drawn_ < kPause) return;
  drawn_ = now;
  const double part = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  const auto filled = std::min(kWidth, static_cast<std::size_t>(part * kWidth));
  const double seconds = std::chrono::duration<double>(now - since_).count();
  fmt::print(
      stderr, "\r\033[K{} [{:#<{}}{:.<{}}] {:3.0f} %  {} of {}  {}/s", what_, "", filled, "",
      kWidth - filled, 100 * part, human(done), human(total),
      human(static_cast<std::uint64_t>(static_cast<double>(done) / std::max(seconds, 1e-3))));
  std::fflush(stderr);
}

std::string human(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace regroup::checkpoint_tool
