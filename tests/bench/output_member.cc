// Writes MB megabytes of 80-byte lines, "rank R line N xxx...", as fast as a program can that
// buffers: 64 KiB at a time, without regard to line ends. usage: output_member MB
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace {

constexpr std::size_t kLine = 80;
constexpr std::size_t kDigits = 9;
constexpr std::size_t kLines = 1 << 16;  // made at a time
constexpr std::size_t kPiece = 64 << 10;

const char* rank() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (const char* value = std::getenv(name)) return value;
  }
  return "0";
}

bool write_all(const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::write(STDOUT_FILENO, bytes, size);
    if (count <= 0) return false;
    bytes += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

void set_number(char* digits, std::size_t number) {
  for (std::size_t i = kDigits; i-- > 0; number /= 10)
    digits[i] = static_cast<char>('0' + number % 10);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::size_t total = std::strtoull(argv[1], nullptr, 10) * 1'000'000 / kLine;
  const std::string head = fmt::format("rank {} line ", rank());
  std::string line = head + std::string(kDigits, '0') + " ";
  line += std::string(kLine - 1 - line.size(), 'x') + "\n";
  std::string block;
  for (std::size_t i = 0; i < kLines; ++i) block += line;
  for (std::size_t first = 0; first < total; first += kLines) {
    const std::size_t lines = std::min(kLines, total - first);
    for (std::size_t i = 0; i < lines; ++i) set_number(&block[i * kLine + head.size()], first + i);
    for (std::size_t at = 0; at < lines * kLine; at += kPiece) {
      if (!write_all(&block[at], std::min(kPiece, lines * kLine - at))) return 1;
    }
  }
  return 0;
}
