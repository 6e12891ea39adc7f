// A driver for fuzz targets where there is no libFuzzer: mutates and splices the files of a corpus for some
// seconds. Blind to coverage, so it finds less than libFuzzer; the sanitizers make it worth running. usage:
// fuzz_NAME [SECONDS [SEED]] | fuzz_NAME FILE...   (FILE: run it once, as when a crash is looked at) The
// input that is being run stands in `fuzz-last-input`, in the system's temporary directory.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;
constexpr std::size_t kLargest = 1 << 16;

Bytes read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Bytes> corpus() {
  std::vector<Bytes> out;
  for (const auto& entry : fs::directory_iterator(FUZZ_CORPUS)) out.push_back(read(entry.path()));
  return out;
}

// A file that holds the input now running: it outlives the crash, and nothing else.
struct LastInput {
  LastInput() : path(fs::temp_directory_path() / ("fuzz-last-input-" + std::to_string(::getpid()))) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ::ftruncate(fd, kLargest) != 0) return;
    void* base = ::mmap(nullptr, kLargest, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base != MAP_FAILED) memory = static_cast<std::uint8_t*>(base);
    ::close(fd);
  }
  ~LastInput() { fs::remove(path); }
  LastInput(const LastInput&) = delete;
  LastInput& operator=(const LastInput&) = delete;
  void keep(const Bytes& bytes) const {
    if (memory != nullptr && !bytes.empty()) std::memcpy(memory, bytes.data(), bytes.size());
  }
  fs::path path;
  std::uint8_t* memory = nullptr;
};

class Mutator {
 public:
  Mutator(std::vector<Bytes> seeds, std::uint64_t seed) : seeds_(std::move(seeds)), random_(seed) {}

  Bytes next() {
    Bytes bytes = pick();
    for (std::uint64_t n = 1 + below(6); n > 0; --n) mutate(&bytes);
    bytes.resize(std::min(bytes.size(), kLargest));
    return bytes;
  }

 private:
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : random_() % n; }
  const Bytes& pick() { return seeds_[below(seeds_.size())]; }

  void mutate(Bytes* bytes) {
    constexpr std::uint32_t kInteresting[] = {0,    1,      2,      4,          0x7f,      0x80,
                                              0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff};
    const std::size_t at = below(bytes->size());
    switch (below(6)) {
      case 0:
        if (!bytes->empty()) (*bytes)[at] ^= static_cast<std::uint8_t>(1U << below(8));
        break;
      case 1:
        if (!bytes->empty()) (*bytes)[at] = static_cast<std::uint8_t>(random_());
        break;
      case 2: {  // a number, of 1, 2 or 4 bytes
        const std::uint32_t value = kInteresting[below(std::size(kInteresting))];
        const std::size_t width = std::size_t{1} << below(3);
        if (bytes->size() >= at + width) std::memcpy(bytes->data() + at, &value, width);
        break;
      }
      case 3:
        bytes->resize(at);
        break;
      case 4: {  // the tail of another file
        const Bytes& other = pick();
        const std::size_t from = below(other.size());
        bytes->resize(at);
        bytes->insert(bytes->end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
        break;
      }
      default:
        bytes->insert(bytes->begin() + static_cast<std::ptrdiff_t>(at), 1 + below(8),
                      static_cast<std::uint8_t>(random_()));
    }
  }

  std::vector<Bytes> seeds_;
  std::mt19937_64 random_;
};

int run_for(std::chrono::duration<double> budget, std::uint64_t seed) {
  std::vector<Bytes> seeds = corpus();
  if (seeds.empty()) return std::fprintf(stderr, "no corpus in %s\n", FUZZ_CORPUS), 2;
  for (const Bytes& bytes : seeds) LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  Mutator mutator(std::move(seeds), seed);
  const LastInput last;
  const auto end = std::chrono::steady_clock::now() + budget;
  std::uint64_t runs = 0;
  do {
    const Bytes bytes = mutator.next();
    last.keep(bytes);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  } while (++runs % 256 != 0 || std::chrono::steady_clock::now() < end);
  std::printf("%llu inputs, seed %llu, no crash\n", static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(seed));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "60";
  if (!fs::exists(first)) {
    return run_for(std::chrono::duration<double>(std::strtod(first.c_str(), nullptr)),
                   argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  }
  for (int i = 1; i < argc; ++i) {
    const Bytes bytes = read(argv[i]);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::puts("no crash");
  return 0;
}
