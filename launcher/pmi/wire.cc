// Between messages.h and FlatBuffers, in the manner of proto/wire.cc.
#include "launcher/pmi/wire.h"

#include <fmt/format.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "launcher/pmi/wire_generated.h"
#include "proto/flat_budget.h"

namespace regroup::pmi {
namespace {

using base::Result;

// One overload pair per message.
fb::OpenSpaceT table(const OpenSpace& m) {
  fb::OpenSpaceT t;
  t.space = m.space, t.slots = m.slots, t.oversubscribed = m.oversubscribed;
  t.app_sizes = m.app_sizes, t.spawn = m.spawn;
  for (const Binding& binding : m.bindings) {
    fb::BindingT b;
    b.cpus = binding.cpus, b.locality = binding.locality;
    t.bindings.push_back(std::make_unique<fb::BindingT>(std::move(b)));
  }
  if (m.parent) {
    t.parent = std::make_unique<fb::ProcIdT>();
    t.parent->space = m.parent->space, t.parent->rank = m.parent->rank;
  }
  t.hosts = m.hosts, t.host_of = m.host_of, t.host = m.host, t.values = m.values;
  return t;
}
OpenSpace plain(const fb::OpenSpaceT& t) {
  OpenSpace m{t.space, t.slots, t.oversubscribed, t.app_sizes, t.spawn, {},
              {},      t.hosts, t.host_of,        t.host,      t.values};
  for (const auto& binding : t.bindings) m.bindings.push_back({binding->cpus, binding->locality});
  if (t.parent) m.parent = ProcId{t.parent->space, t.parent->rank};
  return m;
}
fb::ReplaceRankT table(const ReplaceRank& m) {
  fb::ReplaceRankT t;
  t.space = m.process.space, t.rank = m.process.rank;
  return t;
}
ReplaceRank plain(const fb::ReplaceRankT& t) { return {{t.space, t.rank}}; }
fb::MemberGoneT table(const MemberGone& m) {
  fb::MemberGoneT t;
  t.space = m.process.space, t.rank = m.process.rank, t.code = m.code, t.signal = m.signal,
  t.failed = m.failed;
  return t;
}
MemberGone plain(const fb::MemberGoneT& t) {
  return {{t.space, t.rank}, t.code, t.signal, t.failed};
}
fb::CloseSpaceT table(const CloseSpace& m) {
  fb::CloseSpaceT t;
  t.space = m.space;
  return t;
}
CloseSpace plain(const fb::CloseSpaceT& t) { return {t.space}; }
fb::PingT table(const Ping&) { return {}; }
Ping plain(const fb::PingT&) { return {}; }
fb::SpawnDoneT table(const SpawnDone& m) {
  fb::SpawnDoneT t;
  t.request = m.request, t.space = m.space, t.error = m.error;
  return t;
}
SpawnDone plain(const fb::SpawnDoneT& t) { return {t.request, t.space, t.error}; }
fb::ServicesT table(const Services& m) {
  fb::ServicesT t;
  t.pmix = m.pmix, t.note = m.note;
  return t;
}
Services plain(const fb::ServicesT& t) { return {t.pmix, t.note}; }
fb::RankReadyT table(const RankReady& m) {
  fb::RankReadyT t;
  t.space = m.process.space, t.rank = m.process.rank, t.environment = m.environment;
  return t;
}
RankReady plain(const fb::RankReadyT& t) { return {{t.space, t.rank}, t.environment}; }
fb::ConnectedT table(const Connected& m) {
  fb::ConnectedT t;
  t.space = m.process.space, t.rank = m.process.rank;
  return t;
}
Connected plain(const fb::ConnectedT& t) { return {{t.space, t.rank}}; }
fb::FinalizedT table(const Finalized& m) {
  fb::FinalizedT t;
  t.space = m.process.space, t.rank = m.process.rank;
  return t;
}
Finalized plain(const fb::FinalizedT& t) { return {{t.space, t.rank}}; }
fb::AbortedT table(const Aborted& m) {
  fb::AbortedT t;
  t.space = m.process.space, t.rank = m.process.rank, t.status = m.status, t.message = m.message;
  return t;
}
Aborted plain(const fb::AbortedT& t) { return {{t.space, t.rank}, t.status, t.message}; }
fb::GroupsConnectedT table(const GroupsConnected& m) {
  fb::GroupsConnectedT t;
  t.spaces = m.spaces;
  return t;
}
GroupsConnected plain(const fb::GroupsConnectedT& t) { return {t.spaces}; }
fb::GroupsDisconnectedT table(const GroupsDisconnected& m) {
  fb::GroupsDisconnectedT t;
  t.spaces = m.spaces;
  return t;
}
GroupsDisconnected plain(const fb::GroupsDisconnectedT& t) { return {t.spaces}; }
fb::SpawnAppT table(const SpawnApp& m) {
  fb::SpawnAppT t;
  t.command = m.command, t.arguments = m.arguments, t.environment = m.environment;
  t.wdir = m.wdir, t.count = m.count;
  return t;
}
SpawnApp plain(const fb::SpawnAppT& t) {
  return {t.command, t.arguments, t.environment, t.wdir, t.count};
}
fb::SpawnT table(const Spawn& m) {
  fb::SpawnT t;
  t.request = m.request, t.space = m.parent.space, t.rank = m.parent.rank;
  t.values = m.values;
  for (const SpawnApp& app : m.apps) t.apps.push_back(std::make_unique<fb::SpawnAppT>(table(app)));
  return t;
}
Spawn plain(const fb::SpawnT& t) {
  Spawn m{t.request, {t.space, t.rank}, {}, t.values};
  for (const auto& app : t.apps) m.apps.push_back(plain(*app));
  return m;
}

using Octets = std::vector<std::uint8_t>;
Octets octets(const std::vector<std::byte>& bytes) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {begin, begin + bytes.size()};
}
std::vector<std::byte> bytes_of(const Octets& octets) {
  const auto* begin = reinterpret_cast<const std::byte*>(octets.data());
  return {begin, begin + octets.size()};
}
fb::ContributeT table(const Contribute& m) {
  fb::ContributeT t;
  t.key = m.key, t.hosts = m.hosts, t.host = m.host, t.data = octets(m.data), t.space = m.space;
  return t;
}
Contribute plain(const fb::ContributeT& t) {
  return {t.key, t.hosts, t.host, bytes_of(t.data), t.space};
}
fb::GatheredT table(const Gathered& m) {
  fb::GatheredT t;
  t.key = m.key, t.data = octets(m.data);
  return t;
}
Gathered plain(const fb::GatheredT& t) { return {t.key, bytes_of(t.data)}; }
fb::FetchT table(const Fetch& m) {
  fb::FetchT t;
  t.request = m.request, t.host = m.host, t.space = m.of.space, t.rank = m.of.rank;
  return t;
}
Fetch plain(const fb::FetchT& t) { return {t.request, t.host, {t.space, t.rank}}; }
fb::FetchedT table(const Fetched& m) {
  fb::FetchedT t;
  t.request = m.request, t.host = m.host, t.status = m.status, t.data = octets(m.data);
  return t;
}
Fetched plain(const fb::FetchedT& t) { return {t.request, t.host, t.status, bytes_of(t.data)}; }
fb::NameCallT table(const NameCall& m) {
  fb::NameCallT t;
  t.request = m.request, t.host = m.host, t.space = m.from.space, t.rank = m.from.rank;
  t.operation = static_cast<std::uint8_t>(m.operation), t.data = octets(m.data);
  return t;
}
// An unknown operation is refused where it is acted on.
NameCall plain(const fb::NameCallT& t) {
  return {t.request,
          t.host,
          {t.space, t.rank},
          static_cast<NameOperation>(t.operation),
          bytes_of(t.data)};
}

// The union member for alternative I of Message, tried from I on.
template <std::size_t I = 0>
Result<Message> body_from_wire(const fb::BodyUnion& in) {
  if constexpr (I == std::variant_size_v<Message>) {
    return base::invalid_argument("message between agent and regroup-pmi: unknown body");
  } else {
    using Table = decltype(table(std::declval<std::variant_alternative_t<I, Message>>()));
    if (static_cast<std::size_t>(in.type) != I + 1) return body_from_wire<I + 1>(in);
    // The verifier lets a type without its table pass.
    if (in.value == nullptr) return base::data_loss("message of regroup-pmi: its body is missing");
    return Message(plain(*static_cast<const Table*>(in.value)));
  }
}

// Offsets may name the same string many times, so a small buffer could unpack to a large message:
// limit it.
bool fits(const fb::Message& message, proto::FlatBudget budget) {
  if (const auto* m = message.body_as_OpenSpace())
    return budget.strings(m->hosts()) && budget.strings(m->values()) &&
           budget.tables(m->bindings(), [&](const fb::Binding& binding) {
             return budget.values(binding.cpus()) && budget.values(binding.locality());
           });
  if (const auto* m = message.body_as_RankReady()) return budget.strings(m->environment());
  const auto* spawn = message.body_as_Spawn();
  return spawn == nullptr || (budget.strings(spawn->values()) &&
                              budget.tables(spawn->apps(), [&](const fb::SpawnApp& app) {
                                return budget.values(app.command()) && budget.values(app.wdir()) &&
                                       budget.strings(app.arguments()) &&
                                       budget.strings(app.environment());
                              }));
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  fb::MessageT wire;
  wire.version = kWireVersion;
  std::visit([&](const auto& body) { wire.body.Set(table(body)); }, message);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::Message::Pack(builder, &wire), fb::MessageIdentifier());
  const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {bytes, bytes + builder.GetSize()};
}

Result<Message> decode(std::span<const std::byte> packet) {
  const std::vector<std::byte> aligned(packet.begin(),
                                       packet.end());  // numbers are read where they lie
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(bytes, aligned.size());
  if (!fb::VerifyMessageBuffer(verifier) ||
      !fits(*fb::GetMessage(bytes), proto::FlatBudget(aligned.size()))) {
    return base::data_loss(
        fmt::format("message of {} bytes of regroup-pmi does not verify", packet.size()));
  }
  fb::MessageT wire;
  fb::GetMessage(bytes)->UnPackTo(&wire);
  if (wire.version != kWireVersion) {
    return base::invalid_argument(fmt::format("regroup-pmi uses message version {}, expected {}",
                                              wire.version, kWireVersion));
  }
  return body_from_wire(wire.body);
}

}  // namespace regroup::pmi
