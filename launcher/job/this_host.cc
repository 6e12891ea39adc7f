// Files may be pipes.
#include "launcher/job/this_host.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/plain_text.h"

namespace regroup::job {
namespace {

constexpr std::size_t kLargestFile = 16 << 20;
constexpr std::size_t kMostKnownHosts = 100'000;

std::vector<std::string> own_addresses() {
  std::vector<std::string> out;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return out;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const int family = each->ifa_addr->sa_family;
    const void* address = nullptr;
    if (family == AF_INET)
      address = &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
    if (family == AF_INET6)
      address = &reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address != nullptr && ::inet_ntop(family, address, text.data(), text.size()) != nullptr)
      out.emplace_back(text.data());
  }
  ::freeifaddrs(all);
  return out;
}

// The lines of /etc/hosts: an address and its names. No name server is asked.
using KnownHosts = std::vector<std::vector<std::string>>;
KnownHosts known_hosts() {
  KnownHosts out;
  std::ifstream file("/etc/hosts");
  for (std::string line; out.size() < kMostKnownHosts && std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::vector<std::string> names;
    for (std::string word; words >> word;) names.push_back(word);
    if (names.size() > 1) out.push_back(std::move(names));
  }
  return out;
}

std::vector<std::string> names_of_this(const KnownHosts& known) {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == 0) return {};
  std::vector<std::string> out{name.data()};
  for (std::string& address : own_addresses()) out.push_back(std::move(address));
  const std::vector<std::string> addresses = out;
  for (const std::vector<std::string>& names : known) {
    const std::string key = spec::host_key(names[0]);
    const bool own =
        key.starts_with("127.") || std::ranges::find(addresses, key) != addresses.end();
    if (own) out.insert(out.end(), names.begin() + 1, names.end());
  }
  return out;
}

}  // namespace

std::vector<std::string> host_names() { return names_of_this(known_hosts()); }

HostNames all_host_names() {
  const KnownHosts known = known_hosts();
  HostNames out{names_of_this(known), {}};
  for (const std::vector<std::string>& names : known) {
    const std::string first = spec::host_key(names[0]);
    for (const std::string& name : names) out.aliases.try_emplace(spec::host_key(name), first);
  }
  return out;
}

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
