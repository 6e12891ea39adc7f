// The grammars differ in how they write slots; one reader takes all of them in any line.
#include "launcher/spec/hosts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/printable.h"
#include "base/values.h"

namespace regroup::spec {

using base::invalid_argument;
using base::Status;

namespace {

HostRequest* find_host(std::vector<HostRequest>& hosts, std::string_view name) {
  const auto found =
      std::find_if(hosts.begin(), hosts.end(), [&](const auto& host) { return host.name == name; });
  return found == hosts.end() ? nullptr : &*found;
}

// Where each name stands: files may name ten thousand.
using Index = std::unordered_map<std::string, std::size_t>;

constexpr std::size_t kLongestName = 255;

bool is_user(std::string_view text) {
  return !text.empty() && text.front() != '-' &&
         text.find_first_of("=^,;'\"\\") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > ' ' && c != 127; });
}

bool consists_of(std::string_view text, std::string_view others) {
  return std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return std::isalnum(c) != 0 || others.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

// The address in its one form, "::1" for "0:0:0:0:0:0:0:1", without a zone; "": it is none.
std::string address_form(std::string_view text) {
  const std::string address(text.substr(0, text.find('%')));
  std::array<unsigned char, 16> bytes{};
  std::array<char, INET6_ADDRSTRLEN> out{};
  constexpr std::array<unsigned char, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (::inet_pton(AF_INET, address.c_str(), bytes.data()) == 1)
    return ::inet_ntop(AF_INET, bytes.data(), out.data(), out.size());
  if (::inet_pton(AF_INET6, address.c_str(), bytes.data()) != 1) return "";
  const bool mapped = std::equal(kMapped.begin(), kMapped.end(), bytes.begin());
  return mapped ? ::inet_ntop(AF_INET, bytes.data() + kMapped.size(), out.data(), out.size())
                : ::inet_ntop(AF_INET6, bytes.data(), out.data(), out.size());
}

std::string_view short_name(std::string_view name) { return name.substr(0, name.find('.')); }

bool is_dotted(std::string_view name) { return name.find('.') != std::string_view::npos; }

// A name of this host that any host has for itself.
bool is_loopback(const std::string& key) {
  return key == "localhost" || key.starts_with("localhost.") || key == "::1" ||
         (key.starts_with("127.") && !address_form(key).empty());
}

// All names of this host.
class OwnNames {
 public:
  explicit OwnNames(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const std::string key = host_key(name);
      exact_.insert(key);
      if (address_form(key).empty()) (is_dotted(key) ? dotted_ : short_).emplace(short_name(key));
    }
  }
  [[nodiscard]] bool contains(std::string_view name) const {
    const std::string key = host_key(name);
    if (is_loopback(key) || exact_.contains(key)) return true;
    if (!address_form(key).empty()) return false;
    return (is_dotted(key) ? short_ : dotted_).contains(std::string(short_name(key)));
  }

 private:
  std::unordered_set<std::string> exact_;
  std::unordered_set<std::string> short_, dotted_;  // short forms of names without and with dots
};

// "+n2", "+e", "+E": a host of the allocation by its number, or each that is not named otherwise.
bool is_relative(std::string_view name) {
  std::uint32_t number = 0;
  if (name.size() < 2 || name[0] != '+') return false;
  if (name[1] == 'e' || name[1] == 'E') return name.size() == 2;
  return (name[1] == 'n' || name[1] == 'N') && base::read_number(name.substr(2), number);
}

// Where a host stands in a list, by any of its names. Of those that share the short form of a name
// with dots, a name without dots means neither.
class NameIndex {
 public:
  explicit NameIndex(const HostAliases& aliases) : aliases_(aliases) {}
  [[nodiscard]] std::optional<std::size_t> find(const HostRequest& host) const {
    if (host.here && here_) return here_;
    const std::string key = key_of(host.name);
    if (const auto at = exact_.find(key); at != exact_.end()) return at->second;
    if (!address_form(key).empty()) return std::nullopt;
    if (is_dotted(key)) return at_or_none(exact_, std::string(short_name(key)));
    return ambiguous_.contains(key) ? std::nullopt : at_or_none(dotted_, key);
  }
  void add(const HostRequest& host, std::size_t at) {
    if (host.here && !here_) here_ = at;
    const std::string key = key_of(host.name);
    exact_.try_emplace(key, at);
    if (!is_dotted(key) || !address_form(key).empty()) return;
    const std::string brief(short_name(key));
    if (!dotted_.try_emplace(brief, at).second && dotted_[brief] != at) ambiguous_.insert(brief);
  }

 private:
  using Places = std::unordered_map<std::string, std::size_t>;
  static std::optional<std::size_t> at_or_none(const Places& places, const std::string& key) {
    const auto at = places.find(key);
    return at == places.end() ? std::nullopt : std::optional(at->second);
  }
  [[nodiscard]] std::string key_of(const std::string& name) const {
    const std::string key = host_key(name);
    const auto alias = aliases_.find(key);
    return alias == aliases_.end() ? key : alias->second;
  }

  const HostAliases& aliases_;
  std::optional<std::size_t> here_;
  Places exact_, dotted_;
  std::unordered_set<std::string> ambiguous_;
};

// NAME[:SLOTS], where an IPv6 address (two colons or more) has no slots and [address] may have
// some.
Status read_host(std::string_view word, HostRequest& out) {
  std::string_view name = word;
  std::string_view slots;
  const std::size_t bracket = word.find(']');
  const std::size_t colon = word.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos && word.find(':', colon + 1) == std::string_view::npos) {
    name = word.substr(0, colon);
    slots = word.substr(colon + 1);
    if (slots != "*" && !base::read_number(slots, out.slots))
      return invalid_argument(
          fmt::format("'{}': expected HOST:SLOTS with SLOTS a whole number", word));
    out.no_slots = slots != "*" && out.slots == 0;
  }
  if (const std::size_t at = name.rfind('@'); at != std::string_view::npos) {
    out.user = name.substr(0, at);
    if (!is_user(out.user)) return invalid_argument(fmt::format("'{}': expected USER@HOST", word));
    name.remove_prefix(at + 1);
  }
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  if (!is_host_name(name) && !is_relative(name))
    return invalid_argument(fmt::format("'{}' is not a host name", word));
  out.name = name;
  return {};
}

// slots=2 and its relatives, after the host's name.
Status read_field(std::string_view word, HostRequest& out) {
  const std::size_t equals = word.find('=');
  const std::string key = base::lower(word.substr(0, equals));
  const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
  if (key == "user" || key == "username") {
    out.user = value;
    return is_user(value) ? Status()
                          : invalid_argument(fmt::format("field '{}': expected a user name", word));
  }
  if (key == "ifhn" || key == "binding" || key == "port") return {};
  std::uint32_t* number = nullptr;
  if (key == "slots" || key == "slot" || key == "count" || key == "cpu") number = &out.slots;
  if (key == "max_slots" || key == "max-slots" || key == "slots_max" || key == "slots-max")
    number = &out.max_slots;
  if (number == nullptr) {
    return invalid_argument(
        fmt::format("field '{}': unknown; expected slots=N, max_slots=N or user=NAME", word));
  }
  const std::uint32_t least = number == &out.max_slots ? 1 : 0;
  if (!base::read_number(value, *number) || *number < least) {
    return invalid_argument(
        fmt::format("field '{}': expected a whole number{}", word, least == 0 ? "" : " >= 1"));
  }
  if (number == &out.slots) out.no_slots = *number == 0;
  return {};
}

struct Line {
  HostRequest host;
  bool exclude = false;
};

// "slots = 2" is one field: mpirun takes it so.
std::string without_blanks_at_equals(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '=') {
      while (!out.empty() && (out.back() == ' ' || out.back() == '\t')) out.pop_back();
    }
    const bool blank = c == ' ' || c == '\t';
    if (!(blank && !out.empty() && out.back() == '=')) out += c;
  }
  return out;
}

base::Result<Line> read_line(std::string_view text) {
  Line line;
  bool named = false;
  for (const std::string& word : base::split(without_blanks_at_equals(text), " \t")) {
    if (word.empty()) continue;
    if (named) {
      if (Status status = read_field(word, line.host); !status.ok()) return status;
      continue;
    }
    line.exclude = word.starts_with('^');
    if (Status status = read_host(std::string_view(word).substr(line.exclude ? 1 : 0), line.host);
        !status.ok()) {
      return status;
    }
    named = true;
  }
  if (line.host.max_slots != 0 && line.host.max_slots < line.host.slots) {
    return invalid_argument(
        fmt::format("max_slots={} is less than slots={}", line.host.max_slots, line.host.slots));
  }
  if (line.host.slots == 0 && !line.host.no_slots) line.host.slots = line.host.max_slots;
  return line;
}

// The first mention that names a user counts.
void take_user(HostRequest& known, const HostRequest& host) {
  if (known.user.empty()) known.user = host.user;
}

// Adds the slots of a host that is named twice: all of its slots if one entry gives no number.
void add_slots(HostRequest& known, const HostRequest& host) {
  if (host.no_slots) return;
  const bool all = (known.slots == 0 && !known.no_slots) || host.slots == 0;
  known.slots = all ? 0 : known.slots + host.slots;
  known.no_slots = false;
}

// Adds the host of a line to the hosts of the lines before.
void add(std::vector<HostRequest>& hosts, const HostRequest& host,
         std::unordered_set<std::string>& unsized, Index& index) {
  const std::string key = host_key(host.name);
  const auto [at, fresh] = index.try_emplace(key, hosts.size());
  const bool repeated = unsized.contains(key);
  if (host.slots == 0 && !host.no_slots) unsized.insert(key);
  if (fresh) return hosts.push_back(host);
  HostRequest& known = hosts[at->second];
  take_user(known, host);
  known.max_slots = std::max(known.max_slots, host.max_slots);
  if (host.no_slots) return;
  known.no_slots = false;
  known.slots += (repeated && known.slots == 0 ? 1 : 0) + std::max(host.slots, 1U);
}

NameIndex index_of(const std::vector<HostRequest>& hosts, const HostAliases& aliases) {
  NameIndex index(aliases);
  for (std::size_t i = 0; i < hosts.size(); ++i) index.add(hosts[i], i);
  return index;
}

}  // namespace

bool is_host_name(std::string_view text) {
  if (text.empty() || text.size() > kLongestName) return false;
  if (text.find(':') != std::string_view::npos)
    return !address_form(text).empty() && consists_of(text, ".:%_-");
  const char first = text.front();
  return (std::isalnum(static_cast<unsigned char>(first)) != 0 || first == '_') &&
         consists_of(text, ".-_") && text.find("..") == std::string_view::npos;
}

std::string host_key(std::string_view name) {
  std::string key = base::lower(name);
  if (const std::string address = address_form(key); !address.empty()) return address;
  if (key.ends_with('.')) key.pop_back();
  return key;
}

base::Result<std::vector<HostRequest>> parse_host_list(std::string_view text,
                                                       std::vector<std::string>* mentions) {
  std::vector<HostRequest> hosts;
  for (const std::string& word : base::split(text, ",")) {
    HostRequest host;
    if (base::trim(word).empty())
      return invalid_argument(fmt::format("'{}': a host name is missing", text));
    if (Status status = read_host(base::trim(word), host); !status.ok()) return status;
    if (mentions != nullptr) mentions->push_back(host.name);
    const bool all = word.ends_with(":*") || is_relative(host.name);
    if (!all && host.slots == 0 && !host.no_slots) host.slots = 1;
    add_mention(hosts, host);
  }
  return hosts;
}

void add_mention(std::vector<HostRequest>& hosts, const HostRequest& host) {
  HostRequest* known = find_host(hosts, host.name);
  if (known == nullptr) return hosts.push_back(host);
  take_user(*known, host);
  add_slots(*known, host);
}

base::Result<std::vector<HostRequest>> parse_host_file(std::string_view text, std::string_view file,
                                                       std::vector<std::string>* mentions) {
  std::vector<HostRequest> hosts;
  std::vector<std::string> lines;  // the name in each
  std::vector<std::string> excluded;
  std::unordered_set<std::string> unsized;  // hosts that stood in a line without slots
  Index index;
  std::size_t number = 0;
  for (const std::string& whole : base::split(text, "\n")) {
    ++number;
    const std::string_view content = base::trim(std::string_view(whole).substr(0, whole.find('#')));
    if (content.empty()) continue;
    auto line = read_line(content);
    if (!line.ok()) {
      return invalid_argument(
          fmt::format("{}, line {}: {}", file, number, line.status().message()));
    }
    if (line->exclude) {
      excluded.push_back(host_key(line->host.name));
    } else {
      add(hosts, line->host, unsized, index);
      lines.push_back(line->host.name);
    }
  }
  const auto is_excluded = [&](const std::string& name) {
    return std::count(excluded.begin(), excluded.end(), host_key(name)) > 0;
  };
  if (!excluded.empty()) {
    std::erase_if(hosts, [&](const auto& host) { return is_excluded(host.name); });
    std::erase_if(lines, is_excluded);
  }
  if (hosts.empty()) return invalid_argument(fmt::format("{}: contains no host", file));
  if (mentions != nullptr) mentions->insert(mentions->end(), lines.begin(), lines.end());
  return hosts;
}

base::Result<std::vector<HostRequest>> resolve_relative(const std::vector<HostRequest>& hosts,
                                                        const std::vector<HostRequest>& base,
                                                        const std::vector<std::string>& host_names,
                                                        const HostAliases& aliases) {
  std::vector<HostRequest> out;
  NameIndex named(aliases);
  const OwnNames own(host_names);
  std::uint32_t number = 0;
  for (HostRequest host : hosts) {
    if (is_relative(host.name) &&
        base::read_number(std::string_view(host.name).substr(2), number)) {
      if (base.empty())
        return invalid_argument(
            fmt::format("{}: requires an allocation or a host file", host.name));
      if (number >= base.size()) {
        return invalid_argument(fmt::format("{}: expected a number below {}, the number of hosts",
                                            host.name, base.size()));
      }
      host.name = base[number].name;
      host.here = base[number].here;
    }
    host.here = host.here || own.contains(host.name);
    if (!is_relative(host.name)) named.add(host, out.size());
    out.push_back(std::move(host));
  }
  const auto empty =
      std::find_if(out.begin(), out.end(), [](const auto& h) { return is_relative(h.name); });
  if (empty == out.end()) return out;
  const std::size_t most = empty->slots == 0 ? base.size() : empty->slots;
  std::vector<HostRequest> rest;
  for (const HostRequest& host : base) {
    if (rest.size() < most && !named.find(host))
      rest.push_back({.name = host.name, .here = host.here});
  }
  if (rest.empty())
    return invalid_argument(
        fmt::format("{}: every host is named already; expected one more", empty->name));
  const auto at = empty - out.begin();
  std::erase_if(out, [](const auto& h) { return is_relative(h.name); });
  out.insert(out.begin() + at, rest.begin(), rest.end());
  return out;
}

base::Result<std::vector<HostRequest>> filter_hosts(const std::vector<HostRequest>& listed,
                                                    const std::vector<HostRequest>& wanted,
                                                    const HostAliases& aliases) {
  if (listed.empty()) return wanted;
  if (wanted.empty()) return listed;
  std::vector<HostRequest> out;
  const NameIndex index = index_of(listed, aliases);
  for (const HostRequest& want : wanted) {
    const auto found = index.find(want);
    if (!found) {
      out.push_back(want);
      continue;
    }
    out.push_back(listed[*found]);
    if (!want.user.empty()) out.back().user = want.user;
    if (want.slots > 1) out.back().slots = want.slots;
    if (want.slots > 1 || want.no_slots) out.back().no_slots = want.no_slots;
  }
  return out;
}

std::string unlisted_hosts(const std::vector<HostRequest>& listed,
                           const std::vector<HostRequest>& wanted, const HostAliases& aliases) {
  if (listed.empty()) return "";
  std::vector<std::string> names;
  const NameIndex index = index_of(listed, aliases);
  for (const HostRequest& want : wanted) {
    if (!index.find(want)) names.push_back(want.name);
  }
  if (names.empty()) return "";
  return fmt::format("named by -H, not listed (or excluded) by the host file, used: host {}",
                     fmt::join(names, ", "));
}

base::Status drop_without_slots(std::vector<HostRequest>& hosts, bool oversubscribe) {
  std::string names;
  for (HostRequest& host : hosts) {
    if (!host.no_slots) continue;
    names += (names.empty() ? "" : ", ") + host.name;
    if (oversubscribe) host.slots = 1;
  }
  if (oversubscribe || names.empty()) return {};
  std::erase_if(hosts, [](const HostRequest& host) { return host.no_slots; });
  if (!hosts.empty()) return {};
  return invalid_argument(fmt::format(
      "host {}: no slots (slots=0), expected at least 1 on some host; --oversubscribe needs none",
      names));
}

base::Result<std::vector<HostRequest>> within_grant(const Grant& grant,
                                                    const std::vector<HostRequest>& wanted,
                                                    bool oversubscribe,
                                                    const HostAliases& aliases) {
  if (wanted.empty()) return grant.hosts;
  std::vector<HostRequest> out;
  const NameIndex index = index_of(grant.hosts, aliases);
  for (const HostRequest& want : wanted) {
    const auto at = index.find(want);
    if (!at) {
      return invalid_argument(fmt::format(
          "host {}: not granted by {} (`regroup allocation` shows the granted hosts; --allocator "
          "none permits other hosts)",
          want.name, grant.by));
    }
    const HostRequest& found = grant.hosts[*at];
    HostRequest& host = out.emplace_back(found);
    host.max_slots = want.max_slots;
    if (!want.user.empty()) host.user = want.user;
    if (want.slots == 0) continue;
    if (want.slots > found.slots && !oversubscribe) {
      return invalid_argument(
          fmt::format("host {}: {} requested, {} grants {}; --oversubscribe allows more", want.name,
                      base::counted(want.slots, "slot"), grant.by, found.slots));
    }
    host.slots = want.slots;
  }
  return out;
}

bool is_this_host(const std::vector<std::string>& host_names, const std::string& given) {
  return OwnNames(host_names).contains(given);
}

std::string unlike_names(const std::vector<std::string>& host_names,
                         const std::vector<HostRequest>& hosts) {
  std::vector<std::string> names, keys;
  const OwnNames own(host_names);
  for (const HostRequest& host : hosts) {
    const std::string key = host_key(host.name);
    if (!is_dotted(key) || !address_form(key).empty() || is_loopback(key)) continue;
    if (!own.contains(host.name) || std::ranges::find(keys, key) != keys.end()) continue;
    keys.push_back(key);
    names.push_back(host.name);
  }
  if (names.size() < 2) return "";
  return fmt::format("{}: taken for this host, although the names differ after the first dot",
                     fmt::join(names, ", "));
}

void mark_here(const std::vector<std::string>& host_names, std::vector<HostRequest>& hosts) {
  if (std::ranges::any_of(hosts, [](const HostRequest& host) { return host.here; })) return;
  HostRequest* first = nullptr;
  const OwnNames own(host_names);
  for (HostRequest& host : hosts) {
    host.here = own.contains(host.name);
    if (!host.here) continue;
    if (first == nullptr) {
      first = &host;
      continue;
    }
    first->slots += host.slots;
    host.name.clear();
  }
  std::erase_if(hosts, [](const HostRequest& host) { return host.name.empty(); });
}

void spell_as(const std::vector<HostRequest>& hosts, const std::vector<std::string>& host_names,
              const HostAliases& aliases, const std::vector<std::string*>& names) {
  const NameIndex index = index_of(hosts, aliases);
  const OwnNames own(host_names);
  for (std::string* name : names) {
    const auto at = index.find({.name = *name, .here = own.contains(*name)});
    if (at) *name = hosts[*at].name;
  }
}

std::vector<HostRequest> by_one_name(const std::vector<std::string>& host_names,
                                     const std::vector<HostRequest>& hosts,
                                     const HostAliases& aliases) {
  std::vector<HostRequest> out;
  NameIndex index(aliases);
  const OwnNames own(host_names);
  for (HostRequest host : hosts) {
    host.here = own.contains(host.name);
    if (host.here) host.name = host_names.empty() ? "localhost" : host_names[0];
    const auto at = index.find(host);
    if (!at) {
      index.add(host, out.size());
      out.push_back(host);
      continue;
    }
    HostRequest& known = out[*at];
    index.add(host, *at);
    take_user(known, host);
    add_slots(known, host);
    known.max_slots = std::max(known.max_slots, host.max_slots);
  }
  return out;
}

}  // namespace regroup::spec
