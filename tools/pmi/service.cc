// Spawn requests of both servers are numbered here and answered when the agent has started the
// processes.
#include "tools/pmi/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "launcher/pmi/mpi.h"

namespace regroup::pmi {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

}  // namespace

Service::Service(boost::asio::io_context& loop, base::Fd agent, ServiceOptions options)
    : loop_(loop),
      options_(std::move(options)),
      agent_(
          loop, std::move(agent), [this](const Message& message, base::Fd) { on_message(message); },
          [this](const base::Status&) { loop_.stop(); }),
      pmi1_(loop, options_.job, pmi1_events()) {}

void Service::start() {
  Services services;
  auto pmix = PmixServer::start(
      loop_, {options_.job, options_.folder, options_.library, options_.host}, pmix_events());
  services.pmix = pmix.ok();
  if (pmix.ok()) pmix_ = std::move(*pmix);
  if (!pmix.ok()) services.note = pmix.status().message();
  tell(services);
}

void Service::tell(const Message& message, base::Fd fd) {
  agent_.send(message, std::move(fd));
  agent_.flush();
}

void Service::on_message(const Message& message) {
  std::visit([this](const auto& body) { on(body); }, message);
}

void Service::on(const OpenSpace& open) {
  KeyValues values;
  for (std::size_t i = 0; i + 1 < open.values.size(); i += 2)
    values[open.values[i]] = open.values[i + 1];
  pmi1_.open_space(open, std::move(values));
  std::vector<std::vector<std::string>> environments;
  if (pmix_) {
    auto opened = pmix_->open_space(open);
    if (opened.ok()) environments = std::move(*opened);
    if (!opened.ok()) tell(Services{false, opened.status().message()});
  }
  std::uint32_t size = 0;
  for (const std::uint32_t app : open.app_sizes) size += app;
  environments.resize(size);
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    if (open.here(rank))
      make_ready({open.space, rank}, std::move(environments[rank]), open.parent.has_value());
  }
}

// The process gets its own PMI-1 connection, independent of that of a predecessor.
void Service::make_ready(ProcId process, std::vector<std::string> environment, bool spawned) {
  RankReady ready{process, std::move(environment)};
  auto client = pmi1_.connect(process, spawned);
  if (!client.ok()) return tell(ready);
  ready.environment.insert(ready.environment.end(), client->environment.begin(),
                           client->environment.end());
  tell(ready, std::move(client->fd));
}

void Service::on(const ReplaceRank& replace) {
  std::vector<std::string> environment;
  if (pmix_) {
    auto variables = pmix_->environment_of(replace.process);
    if (variables.ok()) environment = std::move(*variables);
    if (!variables.ok()) tell(Services{false, variables.status().message()});
  }
  make_ready(replace.process, std::move(environment), false);
}

void Service::on(const MemberGone& gone) {
  if (pmix_) pmix_->member_gone(gone);
}

void Service::on(const CloseSpace& close) {
  protocols_.erase(close.space);
  pmi1_.close_space(close.space);
  if (pmix_) pmix_->close_space(close.space);
}

void Service::on(const SpawnDone& done) {
  const auto found = pending_.find(done.request);
  if (found == pending_.end()) return;
  const auto answer = std::move(found->second.answer);
  pending_.erase(found);
  answer(done.error.empty() ? base::Result<std::uint32_t>(done.space)
                            : base::Result<std::uint32_t>(base::internal_error(done.error)));
}

// All hosts do the same operations in the same order, so their counts are equal. The key of a group
// names it and its members, and libpmix makes no two of one name at once, so its count begins anew.
void Service::gather(std::uint32_t space, const std::string& what, std::vector<std::uint32_t> hosts,
                     std::vector<std::byte> data, OnGathered then) {
  std::string key = fmt::format("{} #{}", what, ++times_[what]);
  gathering_[key] = std::move(then);
  tell(Contribute{std::move(key), std::move(hosts), options_.host, std::move(data), space});
}

void Service::on(const Gathered& gathered) {
  if (gathered.key.starts_with(kGroup))
    times_.erase(gathered.key.substr(0, gathered.key.rfind(" #")));
  const auto found = gathering_.extract(gathered.key);
  if (!found.empty()) found.mapped()(gathered.data);
}

void Service::on(const Fetch& fetch) {
  if (!pmix_) return tell(Fetched{fetch.request, fetch.host, kPmixNotFound, {}});
  pmix_->fetch(fetch.of, [this, fetch](std::int32_t status, std::vector<std::byte> data) {
    tell(Fetched{fetch.request, fetch.host, status, std::move(data)});
  });
}

void Service::on(const Fetched& fetched) {
  const auto found = fetching_.extract(fetched.request);
  if (!found.empty()) found.mapped()(fetched.status, fetched.data);
}

void Service::ask_names(NameOperation operation, ProcId from, std::vector<std::byte> data,
                        PmixEvents::OnFetched then) {
  fetching_[++requests_] = std::move(then);
  tell(NameCall{requests_, options_.host, from, operation, std::move(data)});
}

void Service::on(const NameCall& call) {
  const auto answer = [this, call](std::int32_t status, std::vector<std::byte> data) {
    tell(Fetched{call.request, call.host, status, std::move(data)});
  };
  if (call.operation > NameOperation::kPmi1Unpublish) return answer(kPmixNotFound, {});
  if (call.operation >= NameOperation::kPmi1Publish) {
    const std::string_view text(reinterpret_cast<const char*>(call.data.data()), call.data.size());
    const std::size_t end = std::min(text.find('\0'), text.size());
    const auto port =
        pmi1_.act_on_names({call.from.rank, call.operation, std::string(text.substr(0, end)),
                            std::string(text.substr(std::min(end + 1, text.size())))},
                           call.from.space);
    if (!port) return answer(kPmixNotFound, {});
    return answer(0, bytes_of(*port));
  }
  if (!pmix_) return answer(kPmixNotFound, {});
  pmix_->names(call, answer);
}

void Service::connected(ProcId process, Protocol protocol) {
  tell(Connected{process});
  const auto why = protocols_[process.space].speaks(name_of(process), protocol);
  if (why) tell(Aborted{process, kInitCannotComplete, *why});
}

void Service::ask_for_spawn(Pending pending, std::vector<SpawnApp> apps, const KeyValues& values) {
  Spawn spawn{++requests_, pending.parent, std::move(apps)};
  for (const auto& [key, value] : values) spawn.values.insert(spawn.values.end(), {key, value});
  const auto entry = pending_.emplace(spawn.request, std::move(pending)).first;
  const bool sent = agent_.send(spawn);
  agent_.flush();
  if (sent) return;
  const auto answer = std::move(entry->second.answer);
  pending_.erase(entry);
  answer(
      base::invalid_argument("MPI_Comm_spawn: more arguments than a message to the agent holds"));
}

PmixEvents Service::pmix_events() {
  PmixEvents events;
  events.connected = [this](ProcId process) { connected(process, Protocol::kPmix); };
  events.finalized = [this](ProcId process) { tell(Finalized{process}); };
  events.aborted = [this](ProcId process, std::int32_t status, std::string message) {
    tell(Aborted{process, status, std::move(message)});
  };
  events.groups_connected = [this](std::vector<std::uint32_t> spaces) {
    tell(GroupsConnected{std::move(spaces)});
  };
  events.groups_disconnected = [this](std::vector<std::uint32_t> spaces) {
    tell(GroupsDisconnected{std::move(spaces)});
  };
  events.gather = [this](std::uint32_t space, const std::string& what,
                         std::vector<std::uint32_t> hosts, std::vector<std::byte> data,
                         OnGathered then) {
    gather(space, what, std::move(hosts), std::move(data), std::move(then));
  };
  events.fetch = [this](ProcId of, PmixEvents::OnFetched then) {
    fetching_[++requests_] = std::move(then);
    tell(Fetch{requests_, options_.host, of});
  };
  events.ask_names = [this](NameOperation operation, ProcId from, std::vector<std::byte> data,
                            PmixEvents::OnFetched then) {
    ask_names(operation, from, std::move(data), std::move(then));
  };
  events.spawn = [this](ProcId parent, std::vector<SpawnApp> apps, PmixEvents::Answer answer) {
    ask_for_spawn({parent, std::move(answer)}, std::move(apps));
  };
  return events;
}

Pmi1Events Service::pmi1_events() {
  Pmi1Events events;
  events.gather = [this](std::uint32_t space, const std::string& what,
                         std::vector<std::uint32_t> hosts, std::vector<std::byte> data,
                         OnGathered then) {
    gather(space, what, std::move(hosts), std::move(data), std::move(then));
  };
  events.connected = [this](ProcId process) { connected(process, Protocol::kPmi1); };
  events.finalized = [this](ProcId process) { tell(Finalized{process}); };
  events.aborted = [this](ProcId process, std::int32_t status, std::string message) {
    tell(Aborted{process, status, std::move(message)});
  };
  events.spawn = [this](ProcId parent, std::vector<SpawnApp> apps, KeyValues values) {
    ask_for_spawn({parent,
                   [this, parent](const base::Result<std::uint32_t>& space) {
                     pmi1_.spawned(parent, space.ok() ? "" : space.status().message());
                   }},
                  std::move(apps), values);
  };
  events.ask_names = [this](ProcId process, const AskNames& ask, const auto& then) {
    const std::string text = ask.service + '\0' + ask.port;
    ask_names(
        ask.operation, process, bytes_of(text),
        [then](std::int32_t status, const std::vector<std::byte>& port) {
          const auto* begin = reinterpret_cast<const char*>(port.data());
          then(status == 0 ? std::optional(std::string(begin, begin + port.size())) : std::nullopt);
        });
  };
  return events;
}

}  // namespace regroup::pmi
