// Formats: docs.aws.amazon.com "Spot Instance interruption notices", cloud.google.com "Preemptible VM
// instances" and "Host maintenance events", learn.microsoft.com "Scheduled Events", as of 2026.
#include "launcher/notice/notice.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "launcher/alloc/text.h"

namespace regroup::launcher {
namespace {

using core::invalid_argument;
using nlohmann::json;
using Found = core::Result<std::optional<Notice>>;

constexpr double kMostSeconds = 86'400 * 365.0;
constexpr std::size_t kMostHosts = 4096;

core::Duration seconds(double count) {
  return std::chrono::duration_cast<core::Duration>(
      std::chrono::duration<double>(std::clamp(count, 0.0, kMostSeconds)));
}

std::optional<core::Duration> until(const json& value, const char* name, std::int64_t now) {
  if (!value.contains(name) || !value[name].is_string()) return std::nullopt;
  const auto at = parse_time(value[name].get<std::string>());
  if (!at) return std::nullopt;
  return seconds(static_cast<double>(*at - now));
}

std::string text_in(const json& value, const char* name) {
  return value.is_object() && value.contains(name) && value[name].is_string() ? value[name].get<std::string>()
                                                                              : "";
}

Found parse_ec2(const json& value, std::int64_t now) {
  const std::string action = text_in(value, "action");
  Notice notice{Notice::Kind::kKill, {}, until(value, "time", now)};
  if (action == "stop" || action == "hibernate") notice.kind = Notice::Kind::kSuspend;
  if (action == "terminate" || action == "stop" || action == "hibernate") return std::optional(notice);
  return invalid_argument(fmt::format("\"action\": '{}' is none that is known", printable_word(action)));
}

// The first that takes the machine away or stops it; "NotBefore" is empty once it has begun.
Found parse_azure(const json& events, std::int64_t now) {
  for (const json& event : events) {
    const std::string type = text_in(event, "EventType");
    if (type != "Preempt" && type != "Terminate" && type != "Reboot" && type != "Redeploy" &&
        type != "Freeze")
      continue;
    Notice notice{type == "Freeze" ? Notice::Kind::kSuspend : Notice::Kind::kKill, {}, {}};
    notice.within = until(event, "NotBefore", now);
    if (!notice.within && text_in(event, "EventStatus") == "Started") notice.within = core::Duration::zero();
    // "Resources" are names of virtual machines, which need not be names of hosts: the address tells of its
    // own.
    return std::optional(notice);
  }
  return std::optional<Notice>();
}

Found parse_json(std::string_view text, std::int64_t now) {
  const json value = json::parse(text, nullptr, false);
  if (value.is_object() && value.contains("Events") && value["Events"].is_array())
    return parse_azure(value["Events"], now);
  if (value.is_object() && value.contains("action")) return parse_ec2(value, now);
  return invalid_argument(fmt::format("'{}' is no notice that is known", printable_word(text)));
}

core::Status parse_field(std::string_view word, Notice* notice) {
  const std::size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  std::string_view rest = equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
  if (name == "within") {
    double count = 0;
    if (!whole(rest, count) || !(count >= 0)) {
      return invalid_argument(fmt::format("'{}': a number of seconds is wanted", printable_word(word)));
    }
    notice->within = seconds(count);
    return {};
  }
  if (name != "who" || rest.empty())
    return invalid_argument(
        fmt::format("'{}': within=SECONDS or who=HOST,... is wanted", printable_word(word)));
  for (std::string_view host; next_part(rest, ',', host);) {
    if (host.empty() || notice->who.size() == kMostHosts)
      return invalid_argument(fmt::format("'{}': names of hosts are wanted", printable_word(word)));
    notice->who.emplace_back(host);
  }
  return {};
}

}  // namespace

const char* kind_name(Notice::Kind kind) {
  static constexpr const char* kNames[] = {"shrink", "suspend", "kill"};
  return kNames[static_cast<std::size_t>(kind)];
}

Found parse_notice(std::string_view text, std::int64_t now) {
  text = trimmed_word(text);
  if (text.empty() || text == "FALSE" || text == "NONE" || text == "MIGRATE_ON_HOST_MAINTENANCE")
    return std::optional<Notice>();
  if (text == "TRUE" || text == "TERMINATE_ON_HOST_MAINTENANCE")
    return std::optional(Notice{Notice::Kind::kKill, {}, {}});
  if (text.front() == '{') return parse_json(text, now);
  std::string_view rest = text, word;
  static_cast<void>(next_blank_word(rest, word));
  for (const auto kind : {Notice::Kind::kShrink, Notice::Kind::kSuspend, Notice::Kind::kKill}) {
    if (word != kind_name(kind)) continue;
    Notice notice{kind, {}, {}};
    while (next_blank_word(rest, word)) REGROUP_RETURN_IF_ERROR(parse_field(word, &notice));
    return std::optional(std::move(notice));
  }
  return invalid_argument(
      fmt::format("'{}' is no notice: shrink, suspend or kill [within=SECONDS] [who=HOST,...] is wanted",
                  printable_word(text)));
}

std::optional<std::int64_t> parse_time(const std::string& text) {
  for (const char* format : {"%Y-%m-%dT%H:%M:%S", "%a, %d %b %Y %H:%M:%S"}) {
    std::tm tm{};
    const char* end = ::strptime(text.c_str(), format, &tm);
    if (end == nullptr) continue;
    const std::string_view zone = end;
    if (zone == "Z" || zone == " GMT" || zone.empty() || zone.starts_with('.')) return ::timegm(&tm);
  }
  return std::nullopt;
}

bool is_for(const Notice& notice, std::string_view host) {
  const auto short_form = [](std::string_view name) { return name.substr(0, name.find('.')); };
  return notice.who.empty() || std::ranges::any_of(notice.who, [&](const std::string& name) {
           return name == host ||
                  ((name.find('.') == std::string::npos) != (host.find('.') == std::string_view::npos) &&
                   short_form(name) == short_form(host));
         });
}

}  // namespace regroup::launcher
