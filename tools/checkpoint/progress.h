// A progress bar on standard error; draws nothing if that is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace regroup::checkpoint_tool {

class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();  // erases the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void show(std::uint64_t done, std::uint64_t total);

 private:
  const std::string what_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point drawn_{};
};

[[nodiscard]] std::string human(std::uint64_t bytes);  // "1.5 GiB"

}  // namespace regroup::checkpoint_tool
