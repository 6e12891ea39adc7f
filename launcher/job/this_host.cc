// Files may be pipes.
#include "launcher/job/this_host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>

#include "base/plain_text.h"

namespace regroup::job {
namespace {

constexpr std::size_t kLargestFile = 16 << 20;

}  // namespace

bool runs_by_itself(const std::string& path) {
  if (::access(path.c_str(), X_OK) != 0) return false;
  std::array<char, 2> first{};
  std::ifstream(path, std::ios::binary).read(first.data(), first.size());
  return first[0] == '#' ? first[1] == '!' : first[0] == '\x7f';
}

// Any file, a pipe too: -hostfile <(...) is usual.
base::Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (!file) return base::system_error("open", path, errno);
  std::array<char, 65536> part{};
  do {
    errno = 0;
    file.read(part.data(), part.size());
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
    if (file.bad()) return base::system_error("read", path, errno != 0 ? errno : EIO);
    if (text.size() > kLargestFile)
      return base::invalid_argument(fmt::format("{}: larger than 16 MiB", path));
  } while (file);
  return base::plain_text(text, path);
}

}  // namespace regroup::job
