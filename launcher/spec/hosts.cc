// The grammars differ in how they write slots; one reader takes all of them in any line.
#include "launcher/spec/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

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

bool is_name(std::string_view text) {
  return !text.empty() && text.find_first_of("=^,;'\"\\") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > ' ' && c != 127; });
}

bool is_user(std::string_view text) { return is_name(text) && !text.starts_with('-'); }

// NAME[:SLOTS], where an IPv6 address (two colons or more) has no slots and [address] may have some.
Status read_host(std::string_view word, HostRequest& out) {
  std::string_view name = word;
  std::string_view slots;
  const std::size_t bracket = word.find(']');
  const std::size_t colon = word.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos && word.find(':', colon + 1) == std::string_view::npos) {
    name = word.substr(0, colon);
    slots = word.substr(colon + 1);
    if (slots != "*" && !base::read_number(slots, out.slots))
      return invalid_argument(fmt::format("'{}': expected HOST:SLOTS with SLOTS a whole number", word));
    out.no_slots = slots != "*" && out.slots == 0;
  }
  if (const std::size_t at = name.find('@'); at != std::string_view::npos) {
    out.user = name.substr(0, at);
    if (!is_user(out.user)) return invalid_argument(fmt::format("'{}': expected USER@HOST", word));
    name.remove_prefix(at + 1);
  }
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  if (!is_name(name)) return invalid_argument(fmt::format("'{}' is not a host name", word));
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

// Whom the first mention names, who says anything.
void take_user(HostRequest& known, const HostRequest& host) {
  if (known.user.empty()) known.user = host.user;
}

// Of a host that is named twice; all of its slots, if one of them says no number.
void add_slots(HostRequest& known, const HostRequest& host) {
  if (host.no_slots) return;
  const bool all = (known.slots == 0 && !known.no_slots) || host.slots == 0;
  known.slots = all ? 0 : known.slots + host.slots;
  known.no_slots = false;
}

// What a line adds to what stands already.
void add(std::vector<HostRequest>& hosts, const HostRequest& host, std::unordered_set<std::string>& unsized,
         Index& index) {
  const auto [at, fresh] = index.try_emplace(host.name, hosts.size());
  const bool repeated = unsized.contains(host.name);
  if (host.slots == 0 && !host.no_slots) unsized.insert(host.name);
  if (fresh) return hosts.push_back(host);
  HostRequest& known = hosts[at->second];
  take_user(known, host);
  known.max_slots = std::max(known.max_slots, host.max_slots);
  if (host.no_slots) return;
  known.no_slots = false;
  known.slots += (repeated && known.slots == 0 ? 1 : 0) + std::max(host.slots, 1U);
}

std::string_view short_name(std::string_view name) { return name.substr(0, name.find('.')); }

bool same_host(const HostRequest& a, const HostRequest& b) {
  if (a.name == b.name || (a.here && b.here)) return true;
  const bool one_is_short =
      (a.name.find('.') == std::string::npos) != (b.name.find('.') == std::string::npos);
  return one_is_short && short_name(a.name) == short_name(b.name);
}

}  // namespace

base::Result<std::vector<HostRequest>> parse_host_list(std::string_view text,
                                                       std::vector<std::string>* mentions) {
  std::vector<HostRequest> hosts;
  for (const std::string& word : base::split(text, ",")) {
    HostRequest host;
    if (base::trim(word).empty()) return invalid_argument(fmt::format("'{}': a host name is missing", text));
    if (Status status = read_host(base::trim(word), host); !status.ok()) return status;
    if (mentions != nullptr) mentions->push_back(host.name);
    const bool all = word.ends_with(":*");
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
      return invalid_argument(fmt::format("{}, line {}: {}", file, number, line.status().message()));
    }
    if (line->exclude) {
      excluded.push_back(line->host.name);
    } else {
      add(hosts, line->host, unsized, index);
      lines.push_back(line->host.name);
    }
  }
  const auto is_excluded = [&](const std::string& name) {
    return std::count(excluded.begin(), excluded.end(), name) > 0;
  };
  if (!excluded.empty()) {
    std::erase_if(hosts, [&](const auto& host) { return is_excluded(host.name); });
    std::erase_if(lines, is_excluded);
  }
  if (hosts.empty()) return invalid_argument(fmt::format("{}: contains no host", file));
  if (mentions != nullptr) mentions->insert(mentions->end(), lines.begin(), lines.end());
  return hosts;
}

base::Result<std::vector<HostRequest>> filter_hosts(const std::vector<HostRequest>& listed,
                                                    const std::vector<HostRequest>& wanted) {
  if (listed.empty()) return wanted;
  if (wanted.empty()) return listed;
  std::vector<HostRequest> out;
  for (const HostRequest& want : wanted) {
    const auto found =
        std::find_if(listed.begin(), listed.end(), [&](const auto& host) { return host.name == want.name; });
    if (found == listed.end()) {
      return invalid_argument(fmt::format("-H {}: not in the host file", want.name));
    }
    out.push_back(*found);
    if (!want.user.empty()) out.back().user = want.user;
    if (want.slots > 1) out.back().slots = want.slots;
    if (want.slots > 1 || want.no_slots) out.back().no_slots = want.no_slots;
  }
  return out;
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
      "host {}: no slots (slots=0), expected at least 1 on some host; --oversubscribe needs none", names));
}

base::Result<std::vector<HostRequest>> within_grant(const Grant& grant,
                                                    const std::vector<HostRequest>& wanted,
                                                    bool oversubscribe) {
  if (wanted.empty()) return grant.hosts;
  std::vector<HostRequest> out;
  for (const HostRequest& want : wanted) {
    const auto found =
        std::ranges::find_if(grant.hosts, [&](const auto& host) { return same_host(host, want); });
    if (found == grant.hosts.end()) {
      return invalid_argument(
          fmt::format("host {}: not granted by {} (`regroup allocation` shows the granted hosts; --allocator "
                      "none permits other hosts)",
                      want.name, grant.by));
    }
    HostRequest& host = out.emplace_back(*found);
    host.max_slots = want.max_slots;
    if (!want.user.empty()) host.user = want.user;
    if (want.slots == 0) continue;
    if (want.slots > found->slots && !oversubscribe) {
      return invalid_argument(
          fmt::format("host {}: {} slots requested, {} grants {}; --oversubscribe allows more", want.name,
                      want.slots, grant.by, found->slots));
    }
    host.slots = want.slots;
  }
  return out;
}

bool is_this_host(const std::vector<std::string>& host_names, const std::string& given) {
  const std::string name = base::lower(given);
  if (name == "localhost" || name.starts_with("localhost.") || name.starts_with("127.") || name == "::1" ||
      name == "+n0") {
    return true;
  }
  const bool address = name.find_first_not_of("0123456789.") == std::string::npos;
  return std::any_of(host_names.begin(), host_names.end(), [&](const std::string& known) {
    const std::string mine = base::lower(known);
    if (mine == name) return true;
    const bool one_is_short = (mine.find('.') == std::string::npos) != (name.find('.') == std::string::npos);
    return !address && one_is_short && mine.substr(0, mine.find('.')) == name.substr(0, name.find('.'));
  });
}

std::vector<HostRequest> by_one_name(const std::vector<std::string>& host_names,
                                     const std::vector<HostRequest>& hosts) {
  std::vector<HostRequest> out;
  std::unordered_map<std::string, std::size_t> index;
  for (HostRequest host : hosts) {
    host.here = is_this_host(host_names, host.name);
    if (host.here) host.name = host_names.empty() ? "localhost" : host_names[0];
    const auto [at, fresh] = index.try_emplace(host.name, out.size());
    if (fresh) {
      out.push_back(host);
    } else {
      HostRequest& known = out[at->second];
      take_user(known, host);
      add_slots(known, host);
      known.max_slots = std::max(known.max_slots, host.max_slots);
    }
  }
  return out;
}

}  // namespace regroup::spec
