// Replays the inputs that are kept: each file of tests/golden/NAME and tests/fuzz/corpus/NAME once,
// in order of their names. Nothing is mutated: libFuzzer looks for new inputs
// (docs/dev/fuzzing.md). usage, in the repository root: fuzz_replay NAME [FILE...]. The last line
// names the input that crashed.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

// Made by CMake: FUZZ_TARGET(NAME) for each target, whose LLVMFuzzerTestOneInput is compiled as
// fuzz_NAME.
#define FUZZ_TARGET(name) extern "C" int fuzz_##name(const std::uint8_t* data, std::size_t size);
#include "tests/fuzz/fuzz_targets.inc"
#undef FUZZ_TARGET

namespace {

namespace fs = std::filesystem;

struct Target {
  std::string_view name;
  int (*run)(const std::uint8_t* data, std::size_t size);
};
#define FUZZ_TARGET(name) {#name, fuzz_##name},
constexpr Target kTargets[] = {
#include "tests/fuzz/fuzz_targets.inc"
};
#undef FUZZ_TARGET

std::vector<fs::path> files_of(const std::string& target) {
  std::vector<fs::path> out;
  for (const fs::path& folder :
       {fs::path("tests/golden") / target, fs::path("tests/fuzz/corpus") / target}) {
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path());
  }
  std::ranges::sort(out);
  return out;
}

bool replay(const Target& target, const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file) return std::fprintf(stderr, "fuzz_replay: cannot read %s\n", path.c_str()), false;
  std::printf("%s\n", path.c_str());
  std::fflush(stdout);
  target.run(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  const auto* target = std::ranges::find(kTargets, name, &Target::name);
  if (target == std::end(kTargets)) {
    std::fprintf(stderr, "fuzz_replay: no target \"%s\"; usage: fuzz_replay NAME [FILE...]\n",
                 name.c_str());
    return 2;
  }
  const std::vector<fs::path> files =
      argc > 2 ? std::vector<fs::path>(argv + 2, argv + argc) : files_of(name);
  if (files.empty()) {
    std::fprintf(stderr, "fuzz_replay: no input in tests/golden/%s and tests/fuzz/corpus/%s\n",
                 name.c_str(), name.c_str());
    return 1;
  }
  const bool all =
      std::ranges::all_of(files, [&](const fs::path& path) { return replay(*target, path); });
  if (all) std::printf("%zu inputs, no crash\n", files.size());
  return all ? 0 : 1;
}
