// A line "regroup-machine VERSION KEY CRC32C", then JSON.
#include "launcher/topology/machine_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "base/crc32c.h"
#include "base/fd.h"
#include "launcher/topology/machine_json.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {

namespace {

constexpr int kVersion = 4;

std::string path_in(const std::string& folder) { return folder + "/machine.json"; }

std::string header(const std::string& key, std::string_view body) {
  const std::uint32_t crc = base::crc32c(std::as_bytes(std::span(body.data(), body.size())));
  return fmt::format("regroup-machine {} {} {:08x}\n", kVersion, key, crc);
}

// True: no other user can have written the file.
bool is_ours(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & 077) == 0;
}

}  // namespace

std::optional<Machine> read_machine_cache(const std::string& folder, const std::string& key) {
  if (!is_ours(path_in(folder))) return {};
  const auto text = read_text_file(path_in(folder));
  if (!text.ok()) return {};
  const std::size_t end = text->find('\n');
  if (end == std::string::npos) return {};
  const std::string_view body = std::string_view(*text).substr(end + 1);
  if (std::string_view(*text).substr(0, end + 1) != header(key, body)) return {};
  auto machine = machine_from_json(body);
  return machine.ok() ? std::optional(std::move(*machine)) : std::nullopt;
}

void write_machine_cache(const std::string& folder, const std::string& key,
                         const Machine& machine) {
  const std::string body = machine_to_json(machine);
  const std::string text = header(key, body) + body;
  std::string name = path_in(folder) + ".XXXXXX";
  const base::Fd file(::mkostemp(name.data(), O_CLOEXEC));  // mode 0600
  if (!file.valid()) return;
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()) ||
      ::rename(name.c_str(), path_in(folder).c_str()) != 0)
    ::unlink(name.c_str());
}

}  // namespace regroup::topology
