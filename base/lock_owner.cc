// LOCK files are read by other versions and by users: a text that cannot be parsed gives no
// information.
#include "base/lock_owner.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <string_view>

namespace regroup::base {
namespace {

std::string own_host() {
  std::array<char, 256> name{};
  std::string host = ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
  struct stat pids {};
  if (::stat("/proc/self/ns/pid", &pids) != 0) return host;
  return fmt::format("{}, PID namespace {}", host, pids.st_ino);
}

}  // namespace

std::string lock_owner(const std::string& job) {
  return fmt::format("job {} (process {} on {})", job, ::getpid(), own_host());
}

std::optional<std::pair<pid_t, std::string>> process_in_owner(const std::string& owner) {
  constexpr std::string_view kBefore = " (process ", kBetween = " on ";
  const std::size_t at = owner.find(kBefore);
  const std::size_t end = owner.rfind(')');
  if (!owner.starts_with("job ") || at == std::string::npos || end == std::string::npos)
    return std::nullopt;
  const char* const digits = owner.data() + at + kBefore.size();
  pid_t pid = 0;
  const auto [rest, error] = std::from_chars(digits, owner.data() + owner.size(), pid);
  const auto host = static_cast<std::size_t>(rest - owner.data()) + kBetween.size();
  if (error != std::errc() || pid <= 0 || host > end ||
      owner.substr(host - kBetween.size(), kBetween.size()) != kBetween)
    return std::nullopt;
  return std::pair(pid, owner.substr(host, end - host));
}

bool owner_has_ended(const std::string& owner) {
  const auto process = process_in_owner(owner);
  if (!process || process->second != own_host()) return false;
  return ::kill(process->first, 0) != 0 && errno == ESRCH;
}

}  // namespace regroup::base
