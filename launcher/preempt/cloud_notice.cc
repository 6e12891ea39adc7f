// Formats: docs.aws.amazon.com "Spot Instance interruption notices", "EC2 instance rebalance
// recommendations" and "Scheduled events for your instances", cloud.google.com "Query the metadata
// server for maintenance event notices", learn.microsoft.com "Scheduled Events", as of 2026.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/values.h"
#include "launcher/preempt/notice.h"

namespace regroup::preempt {
namespace {

using base::invalid_argument;
using nlohmann::json;
using Kind = Notice::Kind;
using Found = base::Result<std::vector<Notice>>;

constexpr double kMostAhead = 86'400 * 365.0;

base::Duration at_most_a_year(double count) {
  return std::chrono::duration_cast<base::Duration>(
      std::chrono::duration<double>(std::clamp(count, 0.0, kMostAhead)));
}

std::string text_in(const json& value, const char* name) {
  return value.is_object() && value.contains(name) && value[name].is_string()
             ? value[name].get<std::string>()
             : "";
}

// Sets when the host goes. Once that time has passed the cloud does not say how much time is left:
// `begun`.
void set_time(Notice& notice, const std::string& text, std::int64_t now) {
  const auto at = parse_time(text);
  if (!at) return;
  notice.begun = *at <= now;
  notice.within = at_most_a_year(static_cast<double>(*at - now));
}

bool is_over(const std::string& status) {
  static constexpr const char* kOver[] = {"completed", "complete", "canceled", "cancelled"};
  return std::ranges::find(kOver, base::lower(status)) != std::end(kOver);
}

Found parse_ec2(const json& value, std::int64_t now) {
  const std::string action = base::lower(text_in(value, "action"));
  Notice notice{Kind::kKill};
  set_time(notice, text_in(value, "time"), now);
  notice.what = action;
  if (action == "stop" || action == "hibernate") notice.kind = Kind::kSuspend;
  if (action == "terminate" || notice.kind == Kind::kSuspend) return std::vector{notice};
  return invalid_argument(
      fmt::format("unknown \"action\" '{}'", base::printable_word(text_in(value, "action"))));
}

// events/maintenance/scheduled: a list, of which some are over.
Found parse_ec2_plans(const json& plans, std::int64_t now) {
  std::vector<Notice> out;
  for (const json& plan : plans) {
    const std::string code = text_in(plan, "Code"),
                      description = base::lower(text_in(plan, "Description"));
    if (code.empty())
      return invalid_argument("malformed notice: expected a \"Code\" in each event of the list");
    const bool over = is_over(text_in(plan, "State")) || description.starts_with("[completed]") ||
                      description.starts_with("[canceled]");
    if (over) continue;
    // A reboot, a stop and a retirement end what runs; the rest is maintenance of network or power.
    Notice notice{code == "system-maintenance" ? Kind::kSuspend : Kind::kKill};
    set_time(notice, text_in(plan, "NotBefore"), now);
    notice.planned = true;
    notice.what = base::printable_word(code);
    out.push_back(std::move(notice));
  }
  return out;
}

std::optional<base::Duration> duration_of(const json& event) {
  const json seconds = event.value("DurationInSeconds", json());
  if (!seconds.is_number() || seconds.get<double>() < 0) return std::nullopt;  // -1: not known
  return at_most_a_year(seconds.get<double>());
}

std::optional<Notice> azure_event(const json& event, std::int64_t now) {
  const std::string type = base::lower(text_in(event, "EventType")),
                    status = text_in(event, "EventStatus");
  if (type.empty() || is_over(status)) return std::nullopt;
  Notice notice{Kind::kAdvice};
  notice.what = base::printable_word(text_in(event, "EventType"));
  notice.lasts = duration_of(event);
  if (type == "freeze") notice.kind = Kind::kPause;
  if (type == "preempt" || type == "terminate" || type == "reboot" || type == "redeploy")
    notice.kind = Kind::kKill;
  if (notice.kind == Kind::kPause && notice.lasts == base::Duration::zero()) return std::nullopt;
  const std::string at = text_in(event, "NotBefore");
  set_time(notice, at, now);
  const bool started =
      base::lower(status) == "started" || (at.empty() && event.contains("NotBefore"));
  if (started) notice.begun = true, notice.within = base::Duration::zero();
  notice.planned = notice.machines = true;
  for (const json& machine : event.value("Resources", json::array())) {
    if (machine.is_string()) notice.hosts.push_back(machine.get<std::string>());
  }
  return notice;
}

Found parse_azure(const json& events, std::int64_t now) {
  std::vector<Notice> out;
  for (const json& event : events) {
    if (!event.is_object()) continue;
    if (auto notice = azure_event(event, now)) out.push_back(std::move(*notice));
  }
  return out;
}

// upcoming-maintenance, with either spelling of its names.
Found parse_google(const json& value, std::int64_t now) {
  const auto field = [&](const char* snake, const char* camel) {
    const std::string text = text_in(value, snake);
    return text.empty() ? text_in(value, camel) : text;
  };
  const std::string status = field("maintenance_status", "maintenanceStatus");
  if (is_over(status)) return std::vector<Notice>();
  Notice notice{Kind::kKill};
  set_time(notice, field("window_start_time", "windowStartTime"), now);
  if (base::lower(status) == "ongoing") notice.begun = true, notice.within = base::Duration::zero();
  notice.planned = true;
  notice.what = "maintenance";
  return std::vector{notice};
}

}  // namespace

Found parse_cloud_notices(std::string_view text, std::int64_t now) {
  const json value = json::parse(text, nullptr, false);
  const auto has = [&](const char* name) { return value.is_object() && value.contains(name); };
  if (has("Events") && value["Events"].is_array()) return parse_azure(value["Events"], now);
  if (has("action")) return parse_ec2(value, now);
  if (has("noticeTime")) {
    Notice advice{Kind::kAdvice};
    advice.what = "a rebalance recommendation: this machine may be interrupted";
    return std::vector{advice};
  }
  if (has("window_start_time") || has("windowStartTime") || has("maintenance_status") ||
      has("maintenanceStatus"))
    return parse_google(value, now);
  if (value.is_array()) return parse_ec2_plans(value, now);
  return invalid_argument(
      fmt::format("unknown notice '{}': expected an answer of EC2, Azure or Google Cloud",
                  base::printable_word(text)));
}

std::vector<std::string> parse_machine_names(std::string_view text) {
  std::vector<std::string> out;
  const auto add = [&out](const std::string& name) {
    if (!name.empty() && std::ranges::find(out, name) == out.end()) out.push_back(name);
  };
  const json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) {  // the name alone, as format=text gives it
    const std::string_view word = base::trimmed_word(text);
    if (word.find_first_of(base::kBlanks) == std::string_view::npos && word.size() < 256)
      add(std::string(word));
    return out;
  }
  if (!value.is_object()) return out;
  const json compute = value.value("compute", value);
  add(text_in(compute, "name"));
  if (compute.is_object()) add(text_in(compute.value("osProfile", json()), "computerName"));
  return out;
}

}  // namespace regroup::preempt
