// Both ends belong to the same user and may have different versions: unknown members are ignored.
#include "launcher/lease/grant_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_input.h"
#include "launcher/agent/remote_script.h"
#include "proto/node_message.h"
#include "proto/world.h"

namespace regroup::lease {
namespace {

using base::invalid_argument;
using nlohmann::json;

constexpr std::int64_t kMostMilliseconds = 86'400'000;
constexpr std::uint64_t kMostCores = 1 << 20;
constexpr std::string_view kNews[] = {"up", "line", "ended"};  // AgentNews::What

std::string line_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::int64_t milliseconds(base::Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

base::Duration duration_in(const json& value, const char* name) {
  const json& number = value.contains(name) ? value[name] : json();
  if (!number.is_number_integer()) return {};
  return std::chrono::milliseconds(
      std::clamp<std::int64_t>(number.get<std::int64_t>(), 0, kMostMilliseconds));
}

std::string text_in(const json& value, const char* name) {
  return value.contains(name) && value[name].is_string() ? value[name].get<std::string>() : "";
}

std::vector<std::string> texts_in(const json& value, const char* name) {
  std::vector<std::string> out;
  if (!value.contains(name) || !value[name].is_array()) return out;
  for (const json& each : value[name]) {
    if (each.is_string()) out.push_back(each.get<std::string>());
  }
  return out;
}

std::vector<int> numbers_in(const json& value, const char* name) {
  std::vector<int> out;
  if (!value.contains(name) || !value[name].is_array()) return out;
  for (const json& each : value[name]) {
    if (each.is_number_unsigned() && each.get<std::uint64_t>() < kMostCores)
      out.push_back(each.get<int>());
  }
  return out;
}

std::optional<proto::NodeId> node_in(const json& value, const char* name) {
  if (!value.contains(name) || !value[name].is_number_unsigned()) return std::nullopt;
  const auto number = value[name].get<std::uint64_t>();
  if (number >= proto::kEveryNode) return std::nullopt;
  return static_cast<proto::NodeId>(number);
}

base::Result<json> parse(std::string_view line, std::string_view what) {
  json value = base::parse_json(line);
  if (!value.is_object()) return invalid_argument(fmt::format("{}: expected a JSON object", what));
  return value;
}

json list_of(const std::vector<spec::HostRequest>& hosts) {
  json out = json::array();
  for (const spec::HostRequest& host : hosts) {
    out.push_back({{"name", host.name},
                   {"slots", host.slots},
                   {"user", host.user},
                   {"address", host.address},
                   {"cores", host.cores},
                   {"gpus", host.gpus}});
  }
  return out;
}

base::Result<std::vector<spec::HostRequest>> hosts_in(const json& value, const std::string& what) {
  const base::Status none = invalid_argument(fmt::format("{}: expected at least one host", what));
  if (!value.contains("hosts") || !value["hosts"].is_array() || value["hosts"].empty()) return none;
  std::vector<spec::HostRequest> out;
  for (const json& each : value["hosts"]) {
    spec::HostRequest host;
    if (each.is_object()) {
      host.name = text_in(each, "name");
      host.user = text_in(each, "user");
      host.address = text_in(each, "address");
      const auto slots = each.contains("slots") && each["slots"].is_number_unsigned()
                             ? each["slots"].get<std::uint64_t>()
                             : 0;
      if (slots > proto::kMaxMembers)
        return invalid_argument(fmt::format("{}: expected at most {} slots on a host, got {}", what,
                                            proto::kMaxMembers, slots));
      host.slots = static_cast<std::uint32_t>(slots);
      host.cores = numbers_in(each, "cores");
      host.gpus = texts_in(each, "gpus");
    }
    if (host.name.empty()) return none;
    out.push_back(std::move(host));
  }
  return out;
}

}  // namespace

std::string to_line(const LeaseOffer& offer) {
  return line_of({{"by", offer.grant.by},
                  {"before", offer.grant.before},
                  {"after", offer.grant.after},
                  {"grace_ms", milliseconds(offer.grace)},
                  {"own", offer.own},
                  {"request", offer.request},
                  {"token", offer.token},
                  {"starts", offer.starts},
                  {"hosts", list_of(offer.grant.hosts)}});
}

base::Result<LeaseOffer> parse_offer(std::string_view line) {
  REGROUP_ASSIGN_OR_RETURN(const auto value, parse(line, "LeaseOffer"));
  LeaseOffer offer;
  offer.grant.by = text_in(value, "by");
  offer.grant.before = texts_in(value, "before");
  offer.grant.after = texts_in(value, "after");
  offer.grace = duration_in(value, "grace_ms");
  offer.own = value.value("own", json()) == json(true);
  offer.request = text_in(value, "request");
  offer.token = text_in(value, "token");
  offer.starts = value.value("starts", json()) == json(true);
  REGROUP_ASSIGN_OR_RETURN(offer.grant.hosts, hosts_in(value, "LeaseOffer"));
  return offer;
}

std::string to_line(const LeaseRevoke& revoke) {
  json line = {{"recall", revoke.why}, {"within_ms", milliseconds(revoke.within)}};
  if (!revoke.hosts.empty()) line["hosts"] = list_of(revoke.hosts);
  return line_of(line);
}

base::Result<LeaseRevoke> parse_revoke(std::string_view line) {
  REGROUP_ASSIGN_OR_RETURN(const auto value, parse(line, "LeaseRevoke"));
  if (!value.contains("recall")) return invalid_argument("LeaseRevoke: expected a reason");
  LeaseRevoke revoke{duration_in(value, "within_ms"), text_in(value, "recall")};
  if (!value.contains("hosts")) return revoke;
  REGROUP_ASSIGN_OR_RETURN(revoke.hosts, hosts_in(value, "LeaseRevoke"));
  return revoke;
}

std::string to_line(const LeaseReconnect& reconnect) {
  return line_of({{"again", reconnect.token},
                  {"recall", reconnect.revoke.why},
                  {"within_ms", milliseconds(reconnect.revoke.within)}});
}

base::Result<LeaseReconnect> parse_reconnect(std::string_view line) {
  REGROUP_ASSIGN_OR_RETURN(const auto value, parse(line, "LeaseReconnect"));
  LeaseReconnect reconnect{text_in(value, "again"),
                           {duration_in(value, "within_ms"), text_in(value, "recall")}};
  if (reconnect.token.empty()) return invalid_argument("LeaseReconnect: expected a token");
  return reconnect;
}

std::string to_line(const Resized& resized) { return line_of({{"members", resized.members}}); }

base::Result<Resized> parse_resized(std::string_view line) {
  REGROUP_ASSIGN_OR_RETURN(const auto value, parse(line, "Resized"));
  if (!value.contains("members") || !value["members"].is_number_unsigned() ||
      value["members"].get<std::uint64_t>() > proto::kMaxMembers)
    return invalid_argument("Resized: expected a number of members");
  return Resized{value["members"].get<std::uint32_t>()};
}

std::string to_line(const AgentStart& start) {
  const agent::AgentOrder& order = start.order;
  return line_of({{"start", order.node},
                  {"host", order.host},
                  {"program", order.program},
                  {"preferred", order.preferred},
                  {"arguments", order.arguments},
                  {"wdir", order.wdir},
                  {"secret", start.secret}});
}

base::Result<AgentStart> parse_agent_start(std::string_view line) {
  REGROUP_ASSIGN_OR_RETURN(const auto value, parse(line, "AgentStart"));
  const auto node = node_in(value, "start");
  AgentStart start;
  start.order.host = text_in(value, "host");
  start.order.program = text_in(value, "program");
  if (!node || start.order.host.empty() || start.order.program.empty())
    return invalid_argument("AgentStart: expected a node, a host and a program");
  start.order.node = *node;
  start.order.preferred = text_in(value, "preferred");
  start.order.arguments = texts_in(value, "arguments");
  start.order.wdir = text_in(value, "wdir");
  start.secret = value.value("secret", json()) == json(true);
  return start;
}

std::string to_line(const AgentEnd& end) { return line_of({{"end", end.node}}); }

base::Result<AgentEnd> parse_agent_end(std::string_view line) {
  REGROUP_ASSIGN_OR_RETURN(const auto value, parse(line, "AgentEnd"));
  const auto node = node_in(value, "end");
  if (!node) return invalid_argument("AgentEnd: expected a node");
  return AgentEnd{*node};
}

std::string to_line(const AgentNews& news) {
  return line_of({{"agent", news.node},
                  {"is", kNews[static_cast<std::size_t>(news.what)]},
                  {"text", news.what == AgentNews::What::kEnded ? news.why.message() : news.line},
                  {"code", static_cast<int>(news.why.code())}});
}

base::Result<AgentNews> parse_agent_news(std::string_view line) {
  REGROUP_ASSIGN_OR_RETURN(const auto value, parse(line, "AgentNews"));
  const auto node = node_in(value, "agent");
  const auto* const what = std::ranges::find(kNews, text_in(value, "is"));
  if (!node || what == std::end(kNews))
    return invalid_argument("AgentNews: expected a node and an event");
  AgentNews news{.node = *node, .what = static_cast<AgentNews::What>(what - std::begin(kNews))};
  const std::string text = text_in(value, "text");
  if (news.what == AgentNews::What::kLine) news.line = agent::printable(text);
  if (news.what != AgentNews::What::kEnded) return news;
  const json code = value.value("code", json());
  constexpr auto kLast = static_cast<std::uint64_t>(base::Code::kInternal);
  const std::uint64_t number =
      code.is_number_unsigned() ? std::min(code.get<std::uint64_t>(), kLast) : kLast;
  if (number != 0) news.why = {static_cast<base::Code>(number), agent::printable(text)};
  return news;
}

std::string to_line(const LeaseReply& reply) {
  return line_of({{"text", reply.text}, {"over", reply.over}, {"ok", reply.ok}});
}

base::Result<LeaseReply> parse_reply(std::string_view line) {
  REGROUP_ASSIGN_OR_RETURN(const auto value, parse(line, "LeaseReply"));
  return LeaseReply{text_in(value, "text"), value.value("over", json()) == json(true),
                    value.value("ok", json()) == json(true)};
}

}  // namespace regroup::lease
