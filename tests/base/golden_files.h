// Files of tests/golden, as the tests that own them read and write them, in the repository root.
// They are written by a test of the name WriteGoldenFiles that is disabled:
//   build/tests/bin/TEST --gtest_also_run_disabled_tests --gtest_filter='*WriteGoldenFiles'
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace regroup::base {

[[nodiscard]] inline std::filesystem::path golden_file(const std::string& folder,
                                                       const std::string& name) {
  return std::filesystem::path("tests/golden") / folder / (name + ".bin");
}

[[nodiscard]] inline std::vector<std::byte> read_golden(const std::string& folder,
                                                        const std::string& name) {
  std::ifstream file(golden_file(folder, name), std::ios::binary);
  EXPECT_TRUE(file.is_open()) << golden_file(folder, name);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline void write_golden(const std::string& folder, const std::string& name,
                         std::span<const std::byte> bytes) {
  const std::filesystem::path path = golden_file(folder, name);
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

}  // namespace regroup::base
