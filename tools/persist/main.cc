// regroup-persist: writes a checkpoint out of an agent's arena while training goes on.
// usage: regroup-persist write FD < description   FD: the arena; the checkpoint's step on standard output
//        regroup-persist newest DIRECTORY         the newest good checkpoint, in JSON; the caller has its
//        lock
// Exit status 0: it is done, and no crash takes it back. 1: not, for the reason on standard error.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"
#include "checkpoint/hdf5/factory.h"
#include "tools/persist/description.h"

namespace {

using namespace regroup;
using core::Status;

constexpr std::size_t kLargest = 256 << 20;  // of a description

int fail(const Status& status) {
  fmt::print(stderr, "{}\n", status.message());
  return 1;
}

core::Result<std::string> read_description() {
  std::string text;
  std::array<char, 65536> part{};
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return core::system_error("read", "description", errno);
    if (count == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(count));
    if (text.back() == '\n') return text;  // the agent keeps its end open
    if (text.size() > kLargest) return core::invalid_argument("description: too large");
  }
}

core::Result<std::span<const std::byte>> map(int fd) {
  struct stat of {};
  if (::fstat(fd, &of) != 0) return core::system_error("fstat", "arena", errno);
  if (of.st_size == 0) return std::span<const std::byte>();
  // All of it is memory that is there: mapping it at once is cheaper than a fault for each page.
  void* base =
      ::mmap(nullptr, static_cast<std::size_t>(of.st_size), PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (base == MAP_FAILED) return core::system_error("mmap", "arena", errno);
  return std::span(static_cast<const std::byte*>(base), static_cast<std::size_t>(of.st_size));
}

Status write(int fd) {
  const auto memory = map(fd);
  if (!memory.ok()) return memory.status();
  const auto text = read_description();
  if (!text.ok()) return text.status();
  const auto what = persist::parse(*text, *memory);
  if (!what.ok()) return what.status();
  const auto store = checkpoint::hdf5::make_store(what->directory, what->writing);
  REGROUP_RETURN_IF_ERROR(store->write(what->snapshot));
  if (!what->commit) return {};
  REGROUP_RETURN_IF_ERROR(store->commit(what->snapshot));
  fmt::print("{}\n", what->snapshot.about.step);
  std::fflush(stdout);  // the checkpoint is there: what follows cannot take it back
  const auto pruned = checkpoint::prune(what->directory, what->retention);
  if (!pruned.ok()) fmt::print(stderr, "{}\n", pruned.status().message());
  return {};
}

Status newest(const std::string& directory) {
  const auto say = [](const std::string& sentence) { fmt::print(stderr, "{}\n", sentence); };
  const auto found = checkpoint::newest_good(directory, /*aside=*/true, say);
  if (!found.ok()) return found.status();
  nlohmann::json out = nlohmann::json::object();
  if (found->has_value()) {
    auto opened = checkpoint::Checkpoint::open((*found)->path);
    if (!opened.ok()) return opened.status();
    const checkpoint::Manifest& manifest = opened->manifest();
    out = {{"path", (*found)->path},
           {"step", manifest.step},
           {"seed", manifest.seed},
           {"shards", manifest.shards}};
  }
  fmt::print("{}\n", out.dump());
  const Status cleaned = checkpoint::clean(directory);
  return cleaned.code() == core::Code::kNotFound ? Status() : cleaned;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view verb = argc == 3 ? argv[1] : "";
  const std::string_view word = argc == 3 ? argv[2] : "";
  int fd = -1;
  if (verb == "newest") {
    const Status status = newest(std::string(word));
    return status.ok() ? 0 : fail(status);
  }
  if (verb != "write" || std::from_chars(word.data(), word.data() + word.size(), fd).ec != std::errc()) {
    fmt::print(stderr, "usage: regroup-persist write FD < description | newest DIRECTORY\n");
    return 2;
  }
  const Status status = write(fd);
  return status.ok() ? 0 : fail(status);
}
