// A store that says nothing, or something malformed, is named; the rest is shown.
#include "launcher/job/store_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
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

bool is_number(const json& value) { return value.is_number(); }
bool is_whole(const json& value) { return value.is_number_unsigned(); }
bool is_text(const json& value) { return value.is_string(); }
bool are_numbers(const json& value) {
  return value.is_array() && std::ranges::all_of(value, is_number);
}
bool are_texts(const json& value) {
  return value.is_object() && std::ranges::all_of(value, is_text);
}

// What a field must be, if it is there.
struct Field {
  std::string_view name;
  bool (*fits)(const json&);
};
constexpr Field kOfServer[] = {
    {"server", is_whole},         {"pid", is_whole},        {"shards", are_numbers},
    {"ranges", is_whole},         {"bytes", is_whole},      {"updates", is_whole},
    {"restarts", is_whole},       {"hangs", is_whole},      {"tables", are_texts},
    {"still_seconds", is_number}, {"still_shard", is_whole}};
constexpr Field kOfMove[] = {
    {"shard", is_whole}, {"from", is_whole}, {"to", is_whole}, {"why", is_text}};
constexpr Field kOfClock[] = {{"client", is_whole},  {"name", is_text},
                              {"host", is_text},     {"pid", is_whole},
                              {"clock", is_whole},   {"held_up_others", is_number},
                              {"waits_for", is_text}};
constexpr Field kOfStepClient[] = {
    {"client", is_whole}, {"name", is_text}, {"pid", is_whole}, {"leaves", are_numbers}};
constexpr Field kOfStatus[] = {{"staleness", is_whole},    {"turns_by_staleness", are_numbers},
                               {"step", is_whole},         {"leaves", is_whole},
                               {"leaves_there", is_whole}, {"leaves_taken_over", is_whole}};

bool fits(const json& object, std::span<const Field> fields) {
  return object.is_object() && std::ranges::all_of(fields, [&](const Field& field) {
           const auto found = object.find(field.name);
           return found == object.end() || field.fits(*found);
         });
}

// The lists and what a step or a clock adds; add_store() checks the rest as it adds up.
bool is_well_formed(const json& status) {
  constexpr std::pair<std::string_view, std::span<const Field>> kLists[] = {
      {"servers", kOfServer},
      {"moves", kOfMove},
      {"clocks", kOfClock},
      {"step_clients", kOfStepClient}};
  return fits(status, kOfStatus) && std::ranges::all_of(kLists, [&](const auto& list) {
           const auto found = status.find(list.first);
           if (found == status.end()) return true;
           return found->is_array() && std::ranges::all_of(*found, [&](const json& one) {
                    return fits(one, list.second);
                  });
         });
}

std::string malformed(const std::string& host) {
  return fmt::format("host {}: malformed status of its store", host);
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
  out["checkpoint"] = std::max(out.value("checkpoint", std::uint64_t{0}),
                               status.value("checkpoint", std::uint64_t{0}));
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

std::string stores_text(const std::vector<StorePlace>& stores, std::size_t host,
                        std::size_t replicas) {
  std::string out;
  for (std::size_t i = 0; i < stores.size(); ++i)
    out += (i == 0 ? "" : ";") + (i == host ? stores[i].socket : stores[i].address);
  if (replicas > 1) out += fmt::format(";replicas={}", replicas);
  return out;
}

std::string merged_status(const std::vector<StoreStatus>& stores, const StoreReplicas& replicas) {
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
        json status = sanitized(base::parse_json(*store.json));
        if (is_well_formed(status)) {
          add_store(with, store.host, std::move(status));
          out = std::move(with);
        } else {
          why = malformed(store.host);
        }
      } catch (const json::exception&) {
        why = malformed(store.host);
      }
    }
    if (!why.empty()) out["stores"].push_back({{"host", store.host}, {"why", why}});
    if (store.lost) out["stores"].back()["lost"] = true;
  }
  if (replicas.count() > 1) {
    out["replicas"] = replicas.count();
    out["may_be_lost"] = replicas.spare();
  }
  std::string text = out.dump();
  if (text.size() < base::kMostDescriptorText) return text;
  for (json& server : out["servers"]) server.erase("tables");  // too many to list
  return out.dump();
}

std::optional<std::uint64_t> version_of(const std::string& status) {
  try {
    const json said = sanitized(base::parse_json(status));
    if (!is_well_formed(said)) return std::nullopt;
    return said.at("ranges").get<std::uint64_t>() + said.at("updates").get<std::uint64_t>();
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace regroup::job
