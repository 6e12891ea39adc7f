// A name server may not answer, and getaddrinfo() cannot be interrupted: a child process asks, and
// is left alone after a second. Its answer has a line for each name of which something is to be
// known, since it may have 8 KiB only.
#include "launcher/job/host_names.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "base/text.h"
#include "launcher/process/run_in_subprocess.h"

namespace regroup::job {
namespace {

constexpr std::size_t kMostKnownHosts = 100'000;
constexpr std::size_t kAskers = 32;  // threads
constexpr std::chrono::milliseconds kNamesLimit{1000};
constexpr std::chrono::milliseconds kNamesChildLimit{1500};

std::string address_text(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET)
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  if (address->sa_family == AF_INET6)
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (bytes == nullptr) return "";
  const char* out = ::inet_ntop(address->sa_family, bytes, text.data(), text.size());
  return out != nullptr ? out : "";
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> out;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return out;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    std::string text = each->ifa_addr != nullptr ? address_text(each->ifa_addr) : "";
    if (!text.empty()) out.push_back(std::move(text));
  }
  ::freeifaddrs(all);
  return out;
}

// The lines of /etc/hosts: an address and its names.
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
  std::vector<std::string> out{host_name()};
  if (out[0].empty()) return {};
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

NameAnswer ask(const std::string& name) {
  NameAnswer out;
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* all = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &all) != 0) return out;
  if (all->ai_canonname != nullptr) out.name = all->ai_canonname;
  for (const addrinfo* each = all; each != nullptr; each = each->ai_next)
    out.addresses.push_back(address_text(each->ai_addr));
  ::freeaddrinfo(all);
  return out;
}

// Threads outlive the deadline, so all that they touch is theirs.
struct NameLookups {
  explicit NameLookups(std::vector<std::string> all)
      : names(std::move(all)), answers(names.size()) {}
  const std::vector<std::string> names;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t next = 0, done = 0;
  std::vector<NameAnswer> answers;
};

void ask_some(const std::shared_ptr<NameLookups>& asked) {
  std::unique_lock lock(asked->mutex);
  while (asked->next < asked->names.size()) {
    const std::size_t mine = asked->next++;
    lock.unlock();
    NameAnswer answer = ask(asked->names[mine]);
    lock.lock();
    asked->answers[mine] = std::move(answer);
    ++asked->done;
    asked->changed.notify_one();
  }
}

std::vector<NameAnswer> ask_all(const std::vector<std::string>& names) {
  const auto asked = std::make_shared<NameLookups>(names);
  for (std::size_t i = 0; i < std::min(kAskers, names.size()); ++i)
    std::thread(ask_some, asked).detach();
  std::unique_lock lock(asked->mutex);
  asked->changed.wait_for(lock, kNamesLimit, [&] { return asked->done == names.size(); });
  return asked->answers;
}

// What add_answers() has added, a line each: "= NAME" is this host, "NAME FIRST" are of one host.
std::string text_of(const spec::HostNames& known, std::size_t own_before,
                    const std::vector<std::string>& asked) {
  std::string out;
  for (std::size_t i = own_before; i < known.own.size(); ++i) out += "= " + known.own[i] + "\n";
  for (const std::string& name : asked) {
    const auto alias = known.aliases.find(spec::host_key(name));
    if (alias != known.aliases.end()) out += alias->first + " " + alias->second + "\n";
  }
  return out;
}

// A line without an end was cut.
void add_text(std::string_view text, spec::HostNames& known) {
  text = text.substr(0, text.rfind('\n') + 1);
  for (std::string_view line; base::next_part(text, '\n', line);) {
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos) continue;
    const std::string first(line.substr(0, blank)), second(line.substr(blank + 1));
    if (first == "=") {
      known.own.push_back(second);
    } else {
      known.aliases.try_emplace(first, second);
    }
  }
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::vector<std::string> host_names() { return names_of_this(known_hosts()); }

std::vector<std::string> unknown_names(const std::vector<std::string>& named,
                                       const spec::HostNames& known) {
  std::vector<std::string> out;
  std::set<std::string> seen;
  std::vector<spec::HostRequest> hosts;
  for (const std::string& name : named) {
    const std::string key = spec::host_key(name);
    const bool address = key.find(':') != std::string::npos ||
                         key.find_first_not_of("0123456789.") == std::string::npos;
    if (!address && !known.aliases.contains(key) && seen.insert(key).second)
      hosts.push_back({.name = name});
  }
  for (const spec::HostRequest& host : hosts) {
    if (!spec::is_this_host(known.own, host.name)) out.push_back(host.name);
  }
  return out;
}

void add_answers(const std::vector<std::string>& asked, const std::vector<NameAnswer>& answers,
                 spec::HostNames& known) {
  const std::set<std::string> own(known.own.begin(), known.own.end());
  const auto is_own = [&](const std::string& address) {
    return own.contains(address) || spec::is_this_host({}, address);
  };
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const NameAnswer& answer = answers[i];
    if (std::ranges::any_of(answer.addresses, is_own)) {
      known.own.push_back(asked[i]);
      continue;
    }
    const std::string key = spec::host_key(asked[i]), first = spec::host_key(answer.name);
    if (first.empty() || first == key || first.starts_with(key + ".")) continue;
    const auto listed = known.aliases.find(first);
    known.aliases.try_emplace(key, listed == known.aliases.end() ? first : listed->second);
  }
}

spec::HostNames look_up_hosts(const std::vector<std::string>& named) {
  const KnownHosts listed = known_hosts();
  spec::HostNames out{names_of_this(listed), {}};
  for (const std::vector<std::string>& names : listed) {
    const std::string first = spec::host_key(names[0]);
    for (const std::string& name : names) out.aliases.try_emplace(spec::host_key(name), first);
  }
  const std::vector<std::string> unknown = unknown_names(named, out);
  if (unknown.empty() || unknown.size() > kMostAsked) return out;
  const auto added = process::run_in_subprocess(
      [&]() -> base::Result<std::string> {
        spec::HostNames found = out;
        add_answers(unknown, ask_all(unknown), found);
        return text_of(found, out.own.size(), unknown);
      },
      "names of hosts", kNamesChildLimit);
  if (added.ok()) add_text(*added, out);  // else the names are taken as they are
  return out;
}

}  // namespace regroup::job
