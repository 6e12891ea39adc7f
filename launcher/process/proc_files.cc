// Entries of an environment are separated by zero bytes, and the last may lack its own.
#include "launcher/process/proc_files.h"

#include <dirent.h>

#include <charconv>
#include <cstring>
#include <memory>

namespace regroup::process {

std::vector<pid_t> all_processes() {
  std::vector<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const char* end = entry->d_name + std::strlen(entry->d_name);
    pid_t pid = 0;
    const auto parsed = std::from_chars(entry->d_name, end, pid);
    if (parsed.ec == std::errc() && parsed.ptr == end) found.push_back(pid);
  }
  return found;
}

bool has_variable(std::string_view environment, std::string_view entry) {
  for (std::size_t at = 0; (at = environment.find(entry, at)) != std::string_view::npos; ++at) {
    const std::size_t end = at + entry.size();
    const bool begins = at == 0 || environment[at - 1] == '\0';
    if (begins && (end == environment.size() || environment[end] == '\0')) return true;
  }
  return false;
}

}  // namespace regroup::process
