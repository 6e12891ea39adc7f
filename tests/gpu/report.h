// What gpu_kernels found: lines for people on standard output, and for tests/gpu/run.py a file with
// a JSON array, a row a line, that is complete after each row.
#pragma once

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tests/gpu/device.h"

namespace regroup::gpu {

class Report {
 public:
  // `file` "" : no JSON.
  Report(const std::string& file, double seconds)
      : end_(std::chrono::steady_clock::now() +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                 std::chrono::duration<double>(seconds))) {
    if (file.empty()) return;
    json_ = std::fopen(file.c_str(), "w");
    if (json_ == nullptr) stop("cannot write " + file);
  }
  ~Report() {
    if (json_ != nullptr) std::fclose(json_);
  }
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  void add(const nlohmann::json& row, const std::string& text) {
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
    record(row);
  }
  // A row that the lines for people leave out.
  void record(const nlohmann::json& row) {
    if (json_ == nullptr) return;
    if (rows_++ > 0) std::fseek(json_, -static_cast<long>(kEnd.size()), SEEK_CUR);
    std::fprintf(json_, "%s%s%s", rows_ == 1 ? "[\n" : ",\n", row.dump().c_str(), kEnd.data());
    std::fflush(json_);
  }
  // Counts results that are wrong: the program fails.
  void wrong(std::size_t count) { wrong_ += count; }
  [[nodiscard]] std::size_t wrong() const { return wrong_; }
  [[nodiscard]] double seconds_left() const {
    return std::chrono::duration<double>(end_ - std::chrono::steady_clock::now()).count();
  }

 private:
  const std::chrono::steady_clock::time_point end_;
  static constexpr std::string_view kEnd = "\n]\n";
  std::FILE* json_ = nullptr;
  std::size_t rows_ = 0;
  std::size_t wrong_ = 0;
};

}  // namespace regroup::gpu
