// Regroup's own notice format, host names and times. cloud_notice.cc parses the formats of clouds.
#include "launcher/preempt/notice.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/text.h"
#include "base/values.h"

namespace regroup::preempt {
namespace {

using base::invalid_argument;
using Kind = Notice::Kind;
using Found = base::Result<std::vector<Notice>>;

constexpr double kMostSeconds = 86'400 * 365.0;
constexpr std::size_t kMostHosts = 4096, kMostNotices = 4096;
constexpr base::Duration kUsual = std::chrono::seconds(30);

base::Duration seconds(double count) {
  return std::chrono::duration_cast<base::Duration>(
      std::chrono::duration<double>(std::clamp(count, 0.0, kMostSeconds)));
}

base::Status parse_field(std::string_view word, Notice* notice) {
  const std::size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  std::string_view rest =
      equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
  if (name == "within" || name == "for") {
    double count = 0;
    if (!base::whole(rest, count) || !(count >= 0)) {
      return invalid_argument(
          fmt::format("'{}': expected a number of seconds", base::printable_word(word)));
    }
    (name == "within" ? notice->within : notice->lasts) = seconds(count);
    return {};
  }
  const bool names_hosts = name == "hosts" || name == "who";  // "who": its former name
  if (!names_hosts || rest.empty())
    return invalid_argument(
        fmt::format("'{}': expected within=SECONDS, for=SECONDS or hosts=HOST,...",
                    base::printable_word(word)));
  for (std::string_view host; base::next_part(rest, ',', host);) {
    if (host.empty() || notice->hosts.size() == kMostHosts)
      return invalid_argument(fmt::format("'{}': expected host names", base::printable_word(word)));
    notice->hosts.emplace_back(host);
  }
  return {};
}

std::optional<Kind> kind_of(std::string_view word) {
  for (const Kind kind : {Kind::kShrink, Kind::kSuspend, Kind::kKill, Kind::kPause}) {
    if (word == kind_name(kind)) return kind;
  }
  return std::nullopt;
}

// Parses one notice per line; fields may continue on the next line.
Found parse_words(std::string_view text) {
  std::vector<Notice> out;
  std::string_view rest = text;
  for (std::string_view line; base::next_part(rest, '\n', line);) {
    line = base::trimmed_word(line);
    if (line.empty() || line.front() == '#') continue;
    std::string_view words = line, word;
    const bool goes_on =
        !out.empty() && line.substr(0, line.find_first_of(base::kBlanks)).find('=') != line.npos;
    if (!goes_on) {
      static_cast<void>(base::next_blank_word(words, word));
      const auto kind = kind_of(word);
      if (!kind || out.size() == kMostNotices)
        return invalid_argument(fmt::format(
            "malformed notice '{}': expected shrink, suspend, kill or pause, then [within=SECONDS] "
            "[for=SECONDS] [hosts=HOST,...]",
            base::printable_word(line)));
      out.push_back(Notice{*kind});
    }
    while (base::next_blank_word(words, word))
      REGROUP_RETURN_IF_ERROR(parse_field(word, &out.back()));
  }
  return out;
}

// Parses Google's and EC2's one-word notices, also in the quotation marks that alt=json adds.
std::optional<std::vector<Notice>> parse_word(std::string_view text, std::int64_t now) {
  if (text.size() > 1 && text.front() == '"' && text.back() == '"')
    text = text.substr(1, text.size() - 2);
  const std::string word = base::lower(text);
  Notice notice{Kind::kKill};
  for (const char* none : {"", "false", "none", "inservice"}) {
    if (word == none) return std::vector<Notice>();
  }
  if (word == "migrate_on_host_maintenance") {
    notice.kind = Kind::kPause;
    notice.what = "live migration";
    return std::vector{notice};
  }
  if (word == "true" || word == "terminate_on_host_maintenance" || word == "terminated")
    return std::vector{notice};
  const auto at = parse_time(std::string(text));  // the format of spot/termination-time
  if (!at) return std::nullopt;
  notice.begun = *at <= now;
  notice.within = seconds(static_cast<double>(*at - now));
  return std::vector{notice};
}

// Seconds east of Greenwich: "", "Z", "GMT", "+02:00", "-0530".
std::optional<std::int64_t> zone_offset(std::string_view zone) {
  const std::string word = base::lower(zone);
  for (const char* utc : {"", "z", "gmt", "utc", "ut"}) {
    if (word == utc) return 0;
  }
  if (word.size() < 3 || (word[0] != '+' && word[0] != '-')) return std::nullopt;
  std::string digits = word.substr(1);
  std::erase(digits, ':');
  int number = 0;
  if (!base::whole(digits, number) || (digits.size() != 2 && digits.size() != 4))
    return std::nullopt;
  const int hours = digits.size() == 2 ? number : number / 100,
            minutes = digits.size() == 2 ? 0 : number % 100;
  return (word[0] == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
}

std::string_view short_form(std::string_view name) { return name.substr(0, name.find('.')); }

bool is_same_host(std::string one, std::string other) {
  for (std::string* name : {&one, &other}) {
    *name = base::lower(*name);
    if (name->ends_with('.')) name->pop_back();
  }
  const bool one_is_short = one.find('.') == std::string::npos;
  const bool other_is_short = other.find('.') == std::string::npos;
  return one == other || (one_is_short != other_is_short && short_form(one) == short_form(other));
}

// In an Azure scale set, machine number 36 is called "name_36", and its host "name000010" (six
// digits in base 36).
std::string scale_set_host(const std::string& machine) {
  const std::size_t mark = machine.rfind('_');
  std::uint64_t number = 0;
  if (mark == std::string::npos || !base::whole(std::string_view(machine).substr(mark + 1), number))
    return "";
  std::string digits;
  for (; number > 0 || digits.size() < 6; number /= 36)
    digits.insert(digits.begin(), "0123456789abcdefghijklmnopqrstuvwxyz"[number % 36]);
  return machine.substr(0, mark) + digits;
}

// "/subscriptions/.../virtualMachines/NAME" and "_NAME" (a role's instance) are NAME.
std::string machine_name(std::string_view text) {
  text = text.substr(text.rfind('/') + 1);
  if (text.starts_with('_')) text.remove_prefix(1);
  return base::lower(text);
}

bool is_machine(std::string_view resource, std::string_view host,
                const std::vector<std::string>& names) {
  const std::string machine = machine_name(resource);
  if (machine.empty()) return false;
  const auto same = [&](const std::string& name) { return machine_name(name) == machine; };
  return std::ranges::any_of(names, same) || is_same_host(machine, std::string(host)) ||
         is_same_host(scale_set_host(machine), std::string(host));
}

int gravity(Kind kind) {
  return kind == Kind::kKill ? 3 : kind == Kind::kShrink ? 2 : kind == Kind::kSuspend;
}

}  // namespace

const char* kind_name(Kind kind) {
  static constexpr const char* kNames[] = {"shrink", "suspend", "kill", "pause", "advice"};
  return kNames[static_cast<std::size_t>(kind)];
}

base::Duration time_left(const Notice& notice) {
  return notice.begun ? base::Duration::zero() : notice.within.value_or(kUsual);
}

Found parse_notices(std::string_view text, std::int64_t now) {
  text = base::trimmed_word(text);
  if (auto found = parse_word(text, now)) return std::move(*found);
  auto found = text.front() == '{' || text.front() == '[' ? parse_cloud_notices(text, now)
                                                          : parse_words(text);
  if (found.ok()) std::ranges::stable_sort(*found, {}, time_left);
  return found;
}

std::optional<Notice> gravest(const std::vector<Notice>& notices) {
  std::optional<Notice> out;
  for (const Notice& notice : notices) {
    if (gravity(notice.kind) == 0) continue;
    if (!out) {
      out = notice;
      continue;
    }
    const bool graver = gravity(notice.kind) > gravity(out->kind);
    const Notice& sooner = time_left(notice) < time_left(*out) ? notice : *out;
    const std::optional<base::Duration> within = sooner.within;
    const bool begun = sooner.begun;
    if (graver) out = notice;
    out->within = within, out->begun = begun;
  }
  return out;
}

std::optional<std::int64_t> parse_time(const std::string& text) {
  for (const char* format :
       {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%a, %d %b %Y %H:%M:%S", "%d %b %Y %H:%M:%S"}) {
    std::tm tm{};
    const char* end = ::strptime(text.c_str(), format, &tm);
    if (end == nullptr) continue;
    std::string_view zone = end;
    if (zone.starts_with('.'))
      zone = zone.substr(std::min(zone.find_first_not_of("0123456789", 1), zone.size()));
    const auto east = zone_offset(base::trimmed_word(zone));
    if (east) return ::timegm(&tm) - *east;
  }
  return std::nullopt;
}

bool is_for(const Notice& notice, std::string_view host,
            const std::vector<std::string>& machine_names) {
  return notice.hosts.empty() || std::ranges::any_of(notice.hosts, [&](const std::string& name) {
           return notice.machines ? is_machine(name, host, machine_names)
                                  : is_same_host(name, std::string(host));
         });
}

}  // namespace regroup::preempt
