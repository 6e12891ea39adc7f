// Answers as MPICH's hydra does, word for word in what clients parse.
#include "tools/pmi/pmi1_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/status.h"

namespace regroup::pmi {
namespace {

constexpr std::int64_t kMostApps = 1024;
constexpr std::int64_t kMostStrings = 65536;
constexpr std::int64_t kMostProcesses = 65536;
constexpr std::string_view kEnds{"\n\0", 2};
constexpr std::size_t kMostNames = 65536;
constexpr std::size_t kMaxNameBytes = 1024;  // of a service, and of a port
constexpr std::size_t kMostSpaces = 1024;    // key-value spaces that a program creates

// True if a value holds neither a newline, which would end an answer, nor a zero byte, which ends
// each value between hosts.
bool is_value(std::string_view text) { return text.find_first_of(kEnds) == std::string_view::npos; }
bool fits(std::string_view key, std::string_view value) {
  return !key.empty() && key.size() <= kMaxKeyBytes && value.size() <= kMaxValueBytes &&
         is_value(key) && is_value(value);
}

Effects answer(std::uint32_t rank, std::string line) {
  return {Answer{rank, std::move(line) + "\n"}};
}

// Reads the arguments PREFIX<first>, PREFIX<first+1>, ...; `count_key` holds their number.
base::Result<std::vector<std::string>> numbered(const Pmi1Command& command,
                                                const std::string& count_key,
                                                const std::string& prefix, int first) {
  std::vector<std::string> out;
  if (!command.arguments.contains(count_key)) return out;
  REGROUP_ASSIGN_OR_RETURN(const auto count, command.number(count_key));
  if (count < 0 || count > kMostStrings) {
    return base::invalid_argument(fmt::format("PMI-1 spawn: {}={}", count_key, count));
  }
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(command.get(prefix + std::to_string(first + i)));
  return out;
}

base::Result<SpawnApp> spawn_app(const Pmi1Command& command) {
  REGROUP_ASSIGN_OR_RETURN(const auto count, command.number("nprocs"));
  if (count < 1 || count > kMostProcesses) {
    return base::invalid_argument(fmt::format("PMI-1 spawn: nprocs={}", count));
  }
  auto arguments = numbered(command, "argcnt", "arg", 1);
  auto keys = numbered(command, "info_num", "info_key_", 0);
  auto values = numbered(command, "info_num", "info_val_", 0);
  for (const auto* part : {&arguments, &keys, &values}) {
    if (!part->ok()) return part->status();
  }
  SpawnApp app{
      command.get("execname"), std::move(*arguments), {}, "", static_cast<std::uint32_t>(count)};
  for (std::size_t i = 0; i < keys->size(); ++i) {
    if ((*keys)[i] == "wdir" || (*keys)[i] == "wd") app.wdir = (*values)[i];
  }
  return app;
}

}  // namespace

std::optional<std::string> act_on_names(PublishedNames& names, const AskNames& ask,
                                        std::uint32_t space) {
  if (ask.operation == NameOperation::kPmi1Publish) {
    const bool room = names.size() < kMostNames && ask.service.size() <= kMaxNameBytes &&
                      ask.port.size() <= kMaxNameBytes;
    if (!room || !names.try_emplace(ask.service, PublishedName{ask.port, space}).second)
      return std::nullopt;
    return "";
  }
  const auto found = names.find(ask.service);
  if (found == names.end()) return std::nullopt;
  if (ask.operation == NameOperation::kPmi1Lookup) return found->second.port;
  names.erase(found);
  return "";
}

Pmi1Group::Pmi1Group(GroupOptions options, PublishedNames& names)
    : options_(std::move(options)),
      names_(names),
      size_(std::accumulate(options_.app_sizes.begin(), options_.app_sizes.end(), 0U)) {
  if (options_.here.empty()) {
    options_.here.resize(size_);
    std::iota(options_.here.begin(), options_.here.end(), 0U);
  }
  KeyValues& own = spaces_[options_.kvs_name];
  for (const auto& [key, value] : options_.values) {
    if (fits(key, value)) own[key] = value;
  }
  own["PMI_process_mapping"] = options_.mapping;
}

const std::map<std::string, Pmi1Group::Handler>& Pmi1Group::handlers() {
  static const std::map<std::string, Handler> kTable{
      {"init", &Pmi1Group::init},
      {"get_maxes", &Pmi1Group::maxes},
      {"get_appnum", &Pmi1Group::appnum},
      {"get_universe_size", &Pmi1Group::universe},
      {"get_my_kvsname", &Pmi1Group::my_kvs},
      {"create_kvs", &Pmi1Group::create_kvs},
      {"destroy_kvs", &Pmi1Group::destroy_kvs},
      {"put", &Pmi1Group::put},
      {"get", &Pmi1Group::get},
      {"getbyidx", &Pmi1Group::get_by_index},
      {"barrier_in", &Pmi1Group::barrier},
      {"publish_name", &Pmi1Group::publish},
      {"unpublish_name", &Pmi1Group::unpublish},
      {"lookup_name", &Pmi1Group::lookup},
      {"spawn", &Pmi1Group::spawn},
      {"finalize", &Pmi1Group::finalize},
      {"abort", &Pmi1Group::abort},
  };
  return kTable;
}

Effects Pmi1Group::on_command(std::uint32_t rank, const Pmi1Command& command) {
  const auto handler = handlers().find(command.name);
  if (handler == handlers().end()) {
    return answer(rank, fmt::format("cmd={}_result rc=-1 msg=unknown_command", command.name));
  }
  return (this->*handler->second)(rank, command);
}

Effects Pmi1Group::init(std::uint32_t rank, const Pmi1Command& command) {
  const bool known = command.get("pmi_version") == "1";
  Effects effects = answer(
      rank,
      fmt::format("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={}", known ? 0 : -1));
  if (known) effects.insert(effects.begin(), Begun{rank});
  return effects;
}

Effects Pmi1Group::maxes(std::uint32_t rank, const Pmi1Command&) {
  return answer(rank, fmt::format("cmd=maxes kvsname_max={} keylen_max={} vallen_max={}",
                                  kMaxKvsNameBytes, kMaxKeyBytes, kMaxValueBytes));
}

Effects Pmi1Group::appnum(std::uint32_t rank, const Pmi1Command&) {
  std::size_t app = 0;
  for (std::uint32_t end = 0; app < options_.app_sizes.size(); ++app) {
    if (rank < (end += options_.app_sizes[app])) break;
  }
  return answer(rank, fmt::format("cmd=appnum appnum={}", app));
}

Effects Pmi1Group::universe(std::uint32_t rank, const Pmi1Command&) {
  return answer(rank, fmt::format("cmd=universe_size size={}", options_.universe));
}

Effects Pmi1Group::my_kvs(std::uint32_t rank, const Pmi1Command&) {
  return answer(rank, "cmd=my_kvsname kvsname=" + options_.kvs_name);
}

Effects Pmi1Group::create_kvs(std::uint32_t rank, const Pmi1Command&) {
  if (spaces_.size() >= kMostSpaces) return answer(rank, "cmd=newkvs rc=-1 msg=too_many_kvs");
  const std::string name = fmt::format("{}_{}", options_.kvs_name, spaces_.size());
  spaces_[name];
  return answer(rank, "cmd=newkvs kvsname=" + name);
}

Effects Pmi1Group::destroy_kvs(std::uint32_t rank, const Pmi1Command& command) {
  const std::string name = command.get("kvsname");
  const bool gone = name != options_.kvs_name && spaces_.erase(name) > 0;
  return answer(rank, fmt::format("cmd=kvs_destroyed rc={}", gone ? 0 : -1));
}

Effects Pmi1Group::put(std::uint32_t rank, const Pmi1Command& command) {
  const auto space = spaces_.find(command.get("kvsname"));
  if (space == spaces_.end()) return answer(rank, "cmd=put_result rc=-1 msg=kvs_not_found");
  const std::string key = command.get("key");
  const std::string value = command.get("value");
  if (!fits(key, value)) return answer(rank, "cmd=put_result rc=-1 msg=bad_key_or_value");
  space->second[key] = value;
  if (!alone()) {
    for (const std::string* part : {&space->first, &key, &value})
      fresh_.append(*part).push_back('\0');
  }
  return answer(rank, "cmd=put_result rc=0 msg=success");
}

Effects Pmi1Group::get(std::uint32_t rank, const Pmi1Command& command) {
  const std::string key = command.get("key");
  const auto space = spaces_.find(command.get("kvsname"));
  if (space == spaces_.end())
    return answer(rank, "cmd=get_result rc=-1 msg=kvs_not_found value=unknown");
  const auto found = space->second.find(key);
  if (found == space->second.end()) {
    return answer(rank,
                  fmt::format("cmd=get_result rc=-1 msg=key_{}_not_found value=unknown", key));
  }
  return answer(rank, "cmd=get_result rc=0 msg=success value=" + found->second);
}

Effects Pmi1Group::get_by_index(std::uint32_t rank, const Pmi1Command& command) {
  const auto index = command.number("idx");
  const auto space = spaces_.find(command.get("kvsname"));
  if (!index.ok() || space == spaces_.end() || *index < 0 ||
      static_cast<std::size_t>(*index) >= space->second.size()) {
    return answer(rank, "cmd=getbyidx_results rc=-2 reason=no_more_keyvals");
  }
  const auto& [key, value] = *std::next(space->second.begin(), *index);
  return answer(rank, fmt::format("cmd=getbyidx_results rc=0 nextidx={} key={} val={}", *index + 1,
                                  key, value));
}

Effects Pmi1Group::barrier(std::uint32_t rank, const Pmi1Command&) {
  in_barrier_.insert(rank);
  if (in_barrier_.size() < options_.here.size()) return {};
  if (alone()) return leave_barrier();
  return {EnterBarrier{std::exchange(fresh_, {})}};
}

Effects Pmi1Group::leave_barrier() {
  in_barrier_.clear();
  Effects effects;
  for (const std::uint32_t rank : options_.here)
    effects.emplace_back(Answer{rank, "cmd=barrier_out\n"});
  return effects;
}

Effects Pmi1Group::barrier_done(std::string_view values) {
  const auto next = [&values] {
    const std::size_t end = std::min(values.find('\0'), values.size());
    std::string part(values.substr(0, end));
    values.remove_prefix(std::min(end + 1, values.size()));
    return part;
  };
  while (!values.empty()) {
    const std::string space = next();
    const std::string key = next();
    learn(space, key, next());
  }
  return leave_barrier();
}

// A key-value space that is unknown here was created on another host.
void Pmi1Group::learn(const std::string& space, const std::string& key, const std::string& value) {
  const bool named = !space.empty() && space.size() <= kMaxKvsNameBytes && is_value(space);
  if (!named || !fits(key, value)) return;
  if (spaces_.contains(space) || spaces_.size() < kMostSpaces) spaces_[space][key] = value;
}

Effects Pmi1Group::publish(std::uint32_t rank, const Pmi1Command& command) {
  return on_names({rank, NameOperation::kPmi1Publish, command.get("service"), command.get("port")});
}

Effects Pmi1Group::unpublish(std::uint32_t rank, const Pmi1Command& command) {
  return on_names({rank, NameOperation::kPmi1Unpublish, command.get("service"), ""});
}

Effects Pmi1Group::lookup(std::uint32_t rank, const Pmi1Command& command) {
  return on_names({rank, NameOperation::kPmi1Lookup, command.get("service"), ""});
}

Effects Pmi1Group::on_names(AskNames ask) {
  if (options_.names_elsewhere) return {std::move(ask)};
  return named(ask, act_on_names(names_, ask, options_.space));
}

Effects Pmi1Group::named(const AskNames& ask, const std::optional<std::string>& port) {
  if (ask.operation == NameOperation::kPmi1Publish)
    return answer(ask.rank, port ? "cmd=publish_result rc=0 info=ok"
                                 : "cmd=publish_result rc=-1 msg=duplicate_service");
  if (ask.operation == NameOperation::kPmi1Unpublish)
    return answer(ask.rank, port ? "cmd=unpublish_result rc=0 info=ok"
                                 : "cmd=unpublish_result rc=-1 msg=service_not_found");
  if (!port || !is_value(*port))
    return answer(ask.rank, "cmd=lookup_result rc=-1 msg=service_not_found");
  return answer(ask.rank, fmt::format("cmd=lookup_result rc=0 info=ok port={}", *port));
}

Effects Pmi1Group::spawn(std::uint32_t rank, const Pmi1Command& command) {
  const auto blocks = command.number("totspawns");
  auto app = spawn_app(command);
  const auto keys = numbered(command, "preput_num", "preput_key_", 0);
  const auto values = numbered(command, "preput_num", "preput_val_", 0);
  if (!blocks.ok() || *blocks < 1 || *blocks > kMostApps || !app.ok() || !keys.ok() ||
      !values.ok()) {
    spawns_.erase(rank);
    return answer(rank, "cmd=spawn_result rc=-1 status=bad_spawn");
  }
  StartMore& more = spawns_[rank];
  more.rank = rank;
  more.apps.push_back(std::move(*app));
  for (std::size_t i = 0; i < keys->size(); ++i) more.values[(*keys)[i]] = (*values)[i];
  if (more.apps.size() < static_cast<std::size_t>(*blocks)) return {};
  Effects effects{std::move(more)};
  spawns_.erase(rank);
  return effects;
}

Effects Pmi1Group::spawned(std::uint32_t rank, const std::string& error) {
  return answer(rank, fmt::format("cmd=spawn_result rc={}", error.empty() ? 0 : -1));
}

Effects Pmi1Group::finalize(std::uint32_t rank, const Pmi1Command&) {
  return {Ended{rank}, Answer{rank, "cmd=finalize_ack\n"}};
}

Effects Pmi1Group::abort(std::uint32_t rank, const Pmi1Command& command) {
  const auto status = command.number("exitcode");
  return {
      AbortAll{rank, status.ok() ? static_cast<std::int32_t>(*status) : 1, command.get("message")}};
}

}  // namespace regroup::pmi
