// Converts the messages of messages.h to FlatBuffers and back, as proto/wire.cc does.
#include "launcher/agent/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "launcher/agent/checkpoint_wire.h"
#include "launcher/agent/notice_wire.h"
#include "launcher/agent/store_wire.h"
#include "launcher/agent/tree_wire.h"
#include "launcher/agent/wire_bounds.h"
#include "launcher/agent/wire_generated.h"
#include "launcher/agent/wire_parts.h"
#include "launcher/pmi/wire.h"
#include "proto/wire.h"
#include "proto/world.h"

namespace regroup::agent {
namespace {

using agent::plain;
using agent::table;
using base::Code;
using base::Result;
using base::Status;

std::unique_ptr<fb::StreamsT> streams(const spec::StreamChoice& choice) {
  auto out = std::make_unique<fb::StreamsT>();
  out->all = choice.all, out->of = choice.of;
  return out;
}
spec::StreamChoice plain_streams(const std::unique_ptr<fb::StreamsT>& t) {
  return t ? spec::StreamChoice{t->all, t->of} : spec::StreamChoice();
}

// One pair of overloads per message: table() encodes, plain() decodes and checks ranges.
fb::SetupT table(const Setup& m) {
  fb::SetupT t;
  t.host = m.host, t.name = m.name;
  t.output = std::make_unique<fb::OutputT>();
  t.output->tag = static_cast<std::uint8_t>(m.output.tag);
  t.output->timestamp = m.output.timestamp, t.output->merge_stderr = m.output.merge_stderr;
  t.output->folder = m.output.folder, t.output->job_folder = m.output.job_folder;
  t.output->copy = m.output.copy, t.output->raw = m.output.raw;
  t.output->stdout_pattern = m.output.stdout_pattern,
  t.output->stderr_pattern = m.output.stderr_pattern;
  const spec::LogRequest& log = m.output.log;
  if (log.any() || !log.shown.empty() || !log.prefix.empty()) {
    t.output->redirect = streams(log.redirect), t.output->tee = streams(log.tee);
    t.output->shown = log.shown;
    t.output->log_folder = log.folder, t.output->log_prefix = log.prefix;
  }
  t.stdin_to = static_cast<std::uint8_t>(m.stdin_to.to), t.stdin_rank = m.stdin_to.rank;
  t.verbose = m.verbose, t.quiet = m.quiet, t.services = m.services;
  t.usage = m.usage, t.memory = static_cast<std::uint8_t>(m.memory);
  t.master_address = m.master.address, t.master_port = m.master.port;
  t.notice = table(m.notice);
  t.suspended_by = m.suspended_by;
  t.time_limit_factor = m.time_limit_factor;
  t.claims = claims(m.claims);
  if (m.elastic) {
    t.elastic = std::make_unique<fb::ElasticT>();
    t.elastic->arena_slots = m.elastic->arena_slots, t.elastic->shards = m.elastic->shards;
    t.elastic->seed = m.elastic->seed, t.elastic->any_fingerprint = m.elastic->any_fingerprint;
    t.elastic->controller = m.elastic->controller;
    t.elastic->finished_limit_ms = static_cast<std::uint32_t>(m.elastic->finished_limit.count());
    t.elastic->leaf_buffers = m.elastic->leaf_buffers;
    t.elastic->kept_results = m.elastic->kept_results,
    t.elastic->learn_above = m.elastic->learn_above;
    for (const SlotResources& slot : m.elastic->slots) {
      t.elastic->slots.push_back(std::make_unique<fb::SlotResourcesT>());
      t.elastic->slots.back()->cores = slot.cores;
      t.elastic->slots.back()->environment = variables(slot.environment);
    }
    t.elastic->checkpoints = checkpoints(m.elastic->checkpoints);
  }
  return t;
}
Result<Setup> plain(const fb::SetupT& t) {
  constexpr auto kMostTag = static_cast<std::uint8_t>(spec::OutputRequest::Tag::kRank);
  constexpr auto kMostMemory = static_cast<std::uint8_t>(spec::MemoryPolicy::kInterleave);
  constexpr auto kMostStdin = static_cast<std::uint8_t>(spec::StdinRequest::To::kNone);
  if (!t.output || t.output->tag > kMostTag || t.stdin_to > kMostStdin || t.memory > kMostMemory)
    return base::data_loss("Setup: unknown kind of output tag, input or memory policy");
  constexpr double kMostFactor = 1000;
  if (!(t.time_limit_factor > 0 && t.time_limit_factor <= kMostFactor))  // NaN is refused too
    return base::data_loss("Setup: the factor of the time limits is out of range");
  Setup m;
  m.host = t.host, m.name = t.name;
  m.output = {static_cast<spec::OutputRequest::Tag>(t.output->tag),
              t.output->timestamp,
              t.output->merge_stderr,
              t.output->folder,
              t.output->job_folder,
              t.output->copy,
              t.output->stdout_pattern,
              t.output->stderr_pattern,
              false,
              t.output->raw,
              {plain_streams(t.output->redirect), plain_streams(t.output->tee), t.output->shown,
               t.output->log_folder, t.output->log_prefix, "", m.host}};
  m.stdin_to = {static_cast<spec::StdinRequest::To>(t.stdin_to), t.stdin_rank};
  m.verbose = t.verbose, m.quiet = t.quiet, m.services = t.services;
  m.usage = t.usage, m.memory = static_cast<spec::MemoryPolicy>(t.memory);
  m.master = {t.master_address, t.master_port};
  if (t.notice) m.notice = plain(*t.notice);
  m.suspended_by = t.suspended_by;
  m.time_limit_factor = t.time_limit_factor;
  m.claims = plain_claims(t.claims);
  if (!t.elastic) return m;
  m.elastic = {t.elastic->arena_slots,     t.elastic->shards,       t.elastic->seed,
               t.elastic->any_fingerprint, t.elastic->kept_results, t.elastic->learn_above};
  m.elastic->controller = t.elastic->controller;
  m.elastic->leaf_buffers = t.elastic->leaf_buffers;
  m.elastic->finished_limit = std::chrono::milliseconds(t.elastic->finished_limit_ms);
  for (const auto& slot : t.elastic->slots)
    m.elastic->slots.push_back({slot->cores, plain_environment(slot->environment)});
  if (t.elastic->checkpoints) m.elastic->checkpoints = plain_checkpoints(*t.elastic->checkpoints);
  const bool possible = m.elastic->arena_slots >= 1 && m.elastic->arena_slots < proto::kMaxSlots &&
                        m.elastic->shards >= 1 && m.elastic->shards <= proto::kMaxShards &&
                        m.elastic->kept_results <= proto::kMaxKeptResults &&
                        m.elastic->leaf_buffers <= proto::kMaxLeafBuffers;
  if (!possible) return base::data_loss("Setup: arena parameters out of range");
  return m;
}
fb::AddAppT table(const AddApp& m) {
  fb::AddAppT t;
  t.number = m.number, t.path = m.app.path, t.argv = m.app.argv, t.wdir = m.app.wdir,
  t.role = m.app.role;
  t.cpus = m.app.limits.cpus, t.memory_bytes = m.app.limits.memory_bytes;
  t.environment = variables(m.app.environment);
  return t;
}
Result<AddApp> plain(const fb::AddAppT& t) {
  constexpr std::uint32_t kMostApps = 1 << 20;
  if (t.argv.empty() || t.number > kMostApps)
    return base::data_loss("AddApp: expected a program and a number below the limit");
  AddApp m{t.number, {t.path, t.argv, {}, t.wdir, t.role, {t.cpus, t.memory_bytes}}};
  m.app.environment = plain_environment(t.environment);
  return m;
}
fb::DropAppT table(const DropApp& m) {
  fb::DropAppT t;
  t.number = m.number;
  return t;
}
Result<DropApp> plain(const fb::DropAppT& t) { return DropApp{t.number}; }
fb::StartSpaceT table(const StartSpace& m) {
  fb::StartSpaceT t;
  t.space = to_bytes(pmi::encode(m.order.space)), t.again = m.order.again;
  for (const auto& [place, threads, cores, environment] : m.order.members) {
    auto member = std::make_unique<fb::MemberT>();
    member->member = place.member, member->rank = place.rank, member->world_size = place.world_size;
    member->app = place.app, member->index = place.index, member->space = place.space;
    member->local_rank = place.local_rank.value_or(place.rank);
    member->local_size = place.local_size.value_or(place.world_size);
    member->threads = threads, member->cores = cores;
    member->environment = variables(environment);
    t.members.push_back(std::move(member));
  }
  return t;
}
Result<StartSpace> plain(const fb::StartSpaceT& t) {
  REGROUP_ASSIGN_OR_RETURN(auto space, pmi::decode(from_bytes(t.space)));
  auto* open = std::get_if<pmi::OpenSpace>(&space);
  if (open == nullptr) return base::data_loss("StartSpace: expected OpenSpace");
  if (t.again && t.members.size() != 1)
    return base::data_loss("StartSpace: expected one member to start again");
  StartSpace m{{std::move(*open), {}, t.again}};
  for (const auto& in : t.members) {
    MemberOrder order{{in->member, in->rank, in->world_size, in->app, in->index, in->space},
                      in->threads,
                      in->cores,
                      plain_environment(in->environment)};
    order.place.host = m.order.space.host;
    order.place.local_rank = in->local_rank, order.place.local_size = in->local_size;
    m.order.members.push_back(std::move(order));
  }
  return m;
}
fb::SignalT table(const Signal& m) {
  fb::SignalT t;
  t.all = m.all, t.member = m.member, t.signal = m.signal;
  return t;
}
Result<Signal> plain(const fb::SignalT& t) { return Signal{t.all, t.member, t.signal}; }
fb::EndHostT table(const EndHost&) { return {}; }
Result<EndHost> plain(const fb::EndHostT&) { return EndHost{}; }
fb::HelloT table(const Hello& m) {
  fb::HelloT t;
  t.version = m.version, t.host_name = m.host_name, t.slots = m.slots, t.port = m.port;
  return t;
}
Result<Hello> plain(const fb::HelloT& t) {
  if (t.slots > proto::kMaxMembers)
    return base::data_loss("Hello: more slots than the limit of members");
  return Hello{t.version, t.host_name, t.slots, t.port};
}
fb::SpaceStartedT table(const SpaceStarted& m) {
  fb::SpaceStartedT t;
  t.space = m.space;
  set_status(m.status, t);
  return t;
}
Result<SpaceStarted> plain(const fb::SpaceStartedT& t) {
  SpaceStarted m{t.space, {}};
  REGROUP_RETURN_IF_ERROR(plain_status(t, "SpaceStarted: code", &m.status));
  return m;
}
fb::InventoryRequestT table(const InventoryRequest& m) {
  fb::InventoryRequestT t;
  t.devices = m.devices, t.topology = m.topology, t.ports = m.ports;
  t.claims = claims(m.claims);
  return t;
}
Result<InventoryRequest> plain(const fb::InventoryRequestT& t) {
  return InventoryRequest{t.devices, t.topology, t.ports, plain_claims(t.claims)};
}
fb::InventoryReplyT table(const InventoryReply& m) {
  fb::InventoryReplyT t;
  t.host = m.host;
  set_status(m.status, t);
  return t;
}
Result<InventoryReply> plain(const fb::InventoryReplyT& t) {
  if (!bounded_json(t.host)) return base::data_loss("InventoryReply: JSON too long or too deep");
  InventoryReply m{{}, t.host};
  REGROUP_RETURN_IF_ERROR(plain_status(t, "InventoryReply: code", &m.status));
  return m;
}
fb::ExitedT table(const Exited& m) {
  fb::ExitedT t;
  t.member = m.exit.member, t.rank = m.exit.rank, t.pid = m.exit.pid, t.code = m.exit.code;
  t.signal = m.exit.signal, t.exceeded_memory = m.exit.exceeded_memory;
  return t;
}
Result<Exited> plain(const fb::ExitedT& t) {
  if (t.code < 0 || t.code > 255 || t.signal < 0 || t.signal > 127)
    return base::data_loss("Exited: exit code or signal out of range");
  return Exited{{t.member, t.rank, t.pid, t.code, t.signal, t.exceeded_memory, {}}};
}
fb::UserMessageT table(const UserMessage& m) {
  fb::UserMessageT t;
  t.text = m.text;
  return t;
}
Result<UserMessage> plain(const fb::UserMessageT& t) { return UserMessage{t.text}; }
fb::UsageReportT table(const UsageReport& m) {
  fb::UsageReportT t;
  t.json = m.json;
  return t;
}
Result<UsageReport> plain(const fb::UsageReportT& t) {
  if (!bounded_json(t.json)) return base::data_loss("UsageReport: JSON too long or too deep");
  return UsageReport{t.json};
}
fb::HeartbeatT table(const Heartbeat&) { return {}; }
Result<Heartbeat> plain(const fb::HeartbeatT&) { return Heartbeat{}; }
fb::DoneT table(const Done& m) {
  fb::DoneT t;
  t.output_lost = m.output_lost, t.unsaved = m.unsaved;
  return t;
}
Result<Done> plain(const fb::DoneT& t) { return Done{t.output_lost, t.unsaved}; }
fb::ServicesT table(const Services& m) {
  fb::ServicesT t;
  t.message = to_bytes(pmi::encode(m.message));
  return t;
}
Result<Services> plain(const fb::ServicesT& t) {
  if (t.message.size() > pmi::kMaxMessageBytes)
    return base::data_loss("Services: message too long");
  REGROUP_ASSIGN_OR_RETURN(auto message, pmi::decode(from_bytes(t.message)));
  return Services{std::move(message)};
}
fb::StreamDataT table(const StreamData& m) {
  fb::StreamDataT t;
  t.stream = m.stream, t.end = m.end, t.bytes = to_bytes(m.bytes);
  return t;
}
Result<StreamData> plain(const fb::StreamDataT& t) {
  if (t.stream > 2 || t.bytes.size() > kWindow)
    return base::data_loss("StreamData: unknown stream or more bytes than the window");
  return StreamData{t.stream, t.end, from_bytes(t.bytes)};
}
fb::WindowUpdateT table(const WindowUpdate& m) {
  fb::WindowUpdateT t;
  t.stream = m.stream, t.bytes = m.bytes, t.broken = m.broken;
  return t;
}
Result<WindowUpdate> plain(const fb::WindowUpdateT& t) {
  if (t.stream > 2 || t.bytes > kWindow)
    return base::data_loss("WindowUpdate: unknown stream or more bytes than the window");
  return WindowUpdate{t.stream, t.bytes, t.broken};
}

fb::MembershipT table(const Membership& m) {
  fb::MembershipT t;
  const std::vector<std::byte> frame = proto::encode(m.message);
  // Without the length prefix: the vector has its own.
  t.message = to_bytes(std::span(frame).subspan(sizeof(std::uint32_t)));
  return t;
}
Result<Membership> plain(const fb::MembershipT& t) {
  REGROUP_ASSIGN_OR_RETURN(auto message, proto::decode(std::as_bytes(std::span(t.message))));
  return Membership{std::move(message)};
}
fb::StartAgentsT table(const StartAgents& m) {
  fb::StartAgentsT t;
  t.from = m.from, t.ssh = m.ssh, t.program = m.program, t.wdir = m.wdir, t.limit_ms = m.limit_ms;
  t.preferred = m.preferred;
  for (const StartAgents::Child& child : m.children) {
    auto out = std::make_unique<fb::ChildT>();
    out->node = child.node, out->name = child.name, out->user = child.user;
    t.children.push_back(std::move(out));
  }
  return t;
}
Result<StartAgents> plain(const fb::StartAgentsT& t) {
  if (t.children.empty() || t.program.empty() || t.limit_ms == 0)
    return base::data_loss("StartAgents: expected children, a program and a limit");
  StartAgents m{t.from, t.ssh, t.program, t.wdir, t.limit_ms, {}, t.preferred};
  for (const auto& child : t.children)
    m.children.push_back({child->node, child->name, child->user});
  return m;
}
fb::AddRouteT table(const AddRoute& m) {
  fb::AddRouteT t;
  t.via = m.via, t.nodes = m.nodes;
  return t;
}
Result<AddRoute> plain(const fb::AddRouteT& t) { return AddRoute{t.via, t.nodes}; }
fb::EndAgentT table(const EndAgent& m) {
  fb::EndAgentT t;
  t.node = m.node;
  return t;
}
Result<EndAgent> plain(const fb::EndAgentT& t) { return EndAgent{t.node}; }
// Decodes the union member of alternative I of Message, tried from I on.
template <std::size_t I = 0>
Result<Message> body_from_wire(const fb::BodyUnion& in) {
  if constexpr (I == std::variant_size_v<Message>) {
    return base::invalid_argument("message between controller and agent: unknown body");
  } else {
    using Table = decltype(table(std::declval<std::variant_alternative_t<I, Message>>()));
    if (static_cast<std::size_t>(in.type) != I + 1) return body_from_wire<I + 1>(in);
    // The verifier accepts a union type without its table.
    if (in.value == nullptr)
      return base::data_loss("message between controller and agent: no body");
    REGROUP_ASSIGN_OR_RETURN(auto body, plain(*static_cast<const Table*>(in.value)));
    return Message(std::move(body));
  }
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

Result<Message> decode(std::span<const std::byte> payload) {
  // FlatBuffers reads numbers in place and needs alignment.
  const std::vector<std::byte> aligned(payload.begin(), payload.end());
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(bytes, aligned.size());
  if (!fb::VerifyMessageBuffer(verifier) ||
      !unpacks_within(*fb::GetMessage(bytes), aligned.size())) {
    return base::data_loss(fmt::format(
        "message of {} bytes between controller and agent does not verify", payload.size()));
  }
  fb::MessageT wire;
  fb::GetMessage(bytes)->UnPackTo(&wire);
  if (wire.version != kWireVersion) {
    return base::invalid_argument(
        fmt::format("the peer uses message version {}, this regroup uses version {}", wire.version,
                    kWireVersion));
  }
  return body_from_wire(wire.body);
}

}  // namespace regroup::agent
