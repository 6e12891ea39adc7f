// A store that says nothing, or something malformed, is named; the rest is shown.
#include "launcher/job/store_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/descriptor_message.h"
#include "base/json_input.h"
#include "launcher/agent/remote_script.h"

namespace regroup::job {
namespace {

using nlohmann::json;

constexpr const char* kSums[] = {"bytes", "ranges", "ranges_waiting", "updates", "restarts"};
constexpr const char* kOfClients[] = {
    "staleness",    "turns_by_staleness", "clocks",      "step", "leaves",
    "leaves_there", "leaves_taken_over",  "step_clients"};

constexpr std::size_t kLongestText = 4096;  // a list of ranges

// Text of another host reaches a terminal.
json sanitized(const json& value) {
  if (value.is_string()) return agent::printable(value.get<std::string>(), kLongestText);
  if (!value.is_structured()) return value;
  json out = value.is_array() ? json::array() : json::object();
  for (const auto& [key, one] : value.items()) {
    if (value.is_array())
      out.push_back(sanitized(one));
    else
      out[agent::printable(key)] = sanitized(one);
  }
  return out;
}

// Throws json::exception if the status is malformed.
void add_store(json& out, const std::string& host, json status) {
  json store{{"host", host}, {"view", status.at("view").get<std::uint64_t>()}};
  for (const char* const name : kSums) {
    const auto number = status.at(name).get<std::uint64_t>();
    store[name] = number;
    out[name] = out.value(name, std::uint64_t{0}) + number;
  }
  for (const char* const kind : {"tables", "free", "log"}) {
    out["store"][kind] = out["store"].value(kind, std::uint64_t{0}) +
                         status.at("store").at(kind).get<std::uint64_t>();
  }
  for (const char* const name : {"view", "clients"})
    out[name] = std::max(out.value(name, std::uint64_t{0}), status.at(name).get<std::uint64_t>());
  for (const char* const list : {"servers", "moves"}) {
    for (json& one : status.at(list)) {
      one["host"] = host;
      if (list == std::string_view("moves")) one["view"] = status["view"];
      out[list].push_back(std::move(one));
    }
  }
  for (const char* const name : kOfClients) {
    if (status.contains(name) && !out.contains(name)) out[name] = status[name];
  }
  out["stores"].push_back(std::move(store));
}

}  // namespace

std::string stores_text(const std::vector<StorePlace>& stores, std::size_t host) {
  std::string out;
  for (std::size_t i = 0; i < stores.size(); ++i)
    out += (i == 0 ? "" : ";") + (i == host ? stores[i].socket : stores[i].address);
  return out;
}

std::string merged_status(const std::vector<StoreStatus>& stores) {
  json out{{"stores", json::array()},
           {"servers", json::array()},
           {"moves", json::array()},
           {"store", json::object()},
           {"checkpoint", 0}};
  for (const StoreStatus& store : stores) {
    std::string why = store.json.ok() ? "" : store.json.status().message();
    if (why.empty()) {
      json with = out;
      try {
        add_store(with, store.host, sanitized(base::parse_json(*store.json)));
        out = std::move(with);
      } catch (const json::exception&) {
        why = fmt::format("host {}: malformed status of its store", store.host);
      }
    }
    if (!why.empty()) out["stores"].push_back({{"host", store.host}, {"why", why}});
  }
  std::string text = out.dump();
  if (text.size() < base::kMostDescriptorText) return text;
  for (json& server : out["servers"]) server.erase("tables");  // too many to list
  return out.dump();
}

}  // namespace regroup::job
