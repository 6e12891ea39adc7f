// Between proto/message.h and FlatBuffers. Serves docs/reference/formats/wire.md. Nothing here
// trusts a length or an offset: the verifier runs first, and counts are bounded by the frame.
#include "proto/wire.h"

#include <fmt/format.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "proto/flat_budget.h"
#include "proto/message_check.h"
#include "proto/node_wire.h"
#include "proto/wire_generated.h"

namespace regroup::proto {
namespace {

using proto::plain, proto::table;  // of node_wire.h

fb::WorldT to_wire(const World& in) {
  fb::WorldT out;
  out.version = kWireVersion;
  out.incarnation = in.incarnation;
  out.generation = in.generation;
  out.resume = in.resume.value;
  out.shards = in.shards;
  for (const WorldMember& m : in.members) {
    out.members.emplace_back(m.id, fb::SlotId(m.slot_id.node, m.slot_id.slot), m.needs_state,
                             m.replays, m.from_step);
  }
  for (const SlotId& slot_id : in.plan) out.plan.emplace_back(slot_id.node, slot_id.slot);
  out.why = in.why;
  if (in.plane) out.plane = static_cast<std::uint8_t>(*in.plane);
  out.plane_why = in.plane_why;
  return out;
}

World from_wire(const fb::WorldT& in) {
  World out;
  out.incarnation = in.incarnation;
  out.generation = in.generation;
  out.resume = {in.resume};
  out.shards = in.shards;
  for (const fb::Member& m : in.members) {
    out.members.push_back({m.id(),
                           {m.slot_id().node(), m.slot_id().slot()},
                           m.needs_state(),
                           m.from_step(),
                           m.replays()});
  }
  for (const fb::SlotId& slot_id : in.plan) out.plan.push_back({slot_id.node(), slot_id.slot()});
  out.why = in.why;
  if (in.plane) out.plane = static_cast<Plane>(*in.plane);
  out.plane_why = in.plane_why;
  return out;
}

// A plane that the writer does not know cannot work in it.
constexpr const char* kUnknownPlane = "its version has no such plane";

std::unique_ptr<fb::PlaneFactsT> to_wire(const PlaneFacts& in) {
  auto out = std::make_unique<fb::PlaneFactsT>();
  out->device = in.device;
  out->reasons.assign(in.reasons.begin(), in.reasons.end());
  return out;
}

std::unique_ptr<fb::PlaneFactsT> to_wire(const std::optional<PlaneFacts>& in) {
  return in ? to_wire(*in) : nullptr;
}

PlaneFacts from_wire(const fb::PlaneFactsT& in) {
  PlaneFacts out{.device = in.device, .reasons = {}};
  for (std::size_t i = 0; i < kPlanes; ++i)
    out.reasons[i] = i < in.reasons.size() ? in.reasons[i] : kUnknownPlane;
  return out;
}

std::optional<PlaneFacts> from_wire(const std::unique_ptr<fb::PlaneFactsT>& in) {
  return in ? std::optional(from_wire(*in)) : std::nullopt;
}

std::unique_ptr<fb::DeviceHealthT> to_wire(const std::optional<DeviceHealth>& in) {
  if (!in) return nullptr;
  auto out = std::make_unique<fb::DeviceHealthT>();
  out->gpu = in->gpu, out->chip = in->chip, out->faults = in->faults;
  return out;
}

std::optional<DeviceHealth> from_wire(const std::unique_ptr<fb::DeviceHealthT>& in) {
  if (!in) return std::nullopt;
  return DeviceHealth{in->gpu, in->chip, in->faults};
}

std::unique_ptr<fb::SlotReportT> to_wire(const SlotReport& in) {
  auto out = std::make_unique<fb::SlotReportT>();
  out->member = in.member;
  out->slot = in.slot;
  out->alive = in.alive;
  out->finished = in.finished;
  out->state = in.state.pack();
  out->step = in.step;
  out->loss = in.loss;
  out->proved = in.proved;
  out->caught_up_to = in.caught_up_to;
  for (const Seal& s : in.seals) out->seals.emplace_back(s.step, s.leaves.begin, s.leaves.end);
  return out;
}

SlotReport from_wire(const fb::SlotReportT& in) {
  SlotReport out{in.member, in.slot, in.alive, in.finished, StateWord::unpack(in.state),
                 in.step,   in.loss, {}};
  for (const fb::Seal& s : in.seals) out.seals.push_back({s.step(), {s.begin(), s.end()}});
  out.proved = in.proved;
  out.caught_up_to = in.caught_up_to;
  return out;
}

std::vector<std::unique_ptr<fb::SlotReportT>> to_wire(const std::vector<SlotReport>& in) {
  std::vector<std::unique_ptr<fb::SlotReportT>> out;
  for (const SlotReport& report : in) out.push_back(to_wire(report));
  return out;
}

std::vector<SlotReport> from_wire(const std::vector<std::unique_ptr<fb::SlotReportT>>& in) {
  std::vector<SlotReport> out;
  for (const auto& report : in) out.push_back(from_wire(*report));
  return out;
}

// One overload pair per message.
fb::JoinT table(const Join& m) {
  fb::JoinT t;
  t.member = m.member, t.elements = m.elements, t.element_bytes = m.element_bytes,
  t.state_bytes = m.state_bytes;
  t.model = m.model, t.fingerprint = m.fingerprint;
  t.samples = m.plan.samples, t.batch = m.plan.batch, t.substeps = m.plan.substeps,
  t.epochs = m.plan.epochs;
  t.gpu = m.gpu, t.gpu_free = m.gpu_free;
  return t;
}
Join plain(const fb::JoinT& t) {
  return {t.member,
          t.elements,
          t.element_bytes,
          t.state_bytes,
          t.model,
          t.fingerprint,
          {t.samples, t.batch, t.substeps, t.epochs},
          t.gpu,
          t.gpu_free};
}
fb::ReadyT table(const Ready& m) {
  fb::ReadyT t;
  t.planes = to_wire(m.planes);
  t.health = to_wire(m.health);
  return t;
}
Ready plain(const fb::ReadyT& t) { return {from_wire(t.planes), from_wire(t.health)}; }
fb::DrainedT table(const Drained&) { return {}; }
Drained plain(const fb::DrainedT&) { return {}; }
fb::WelcomeT table(const Welcome& m) {
  fb::WelcomeT t;
  t.slot = m.slot, t.shards = m.shards, t.seed = m.seed;
  t.device_lines = m.device_lines, t.no_device_line = m.no_device_line;
  return t;
}
Welcome plain(const fb::WelcomeT& t) {
  return {t.slot, t.shards, t.seed, t.device_lines, t.no_device_line};
}
fb::DeviceLineT table(const DeviceLine& m) {
  fb::DeviceLineT t;
  t.line = m.line, t.slot = m.slot, t.gpu = m.gpu, t.leaf_bytes = m.leaf_bytes;
  t.leaf_buffers = m.leaf_buffers, t.slice_bytes = m.slice_bytes, t.bytes = m.bytes;
  return t;
}
DeviceLine plain(const fb::DeviceLineT& t) {
  return {t.line, t.slot, t.gpu, t.leaf_bytes, t.leaf_buffers, t.slice_bytes, t.bytes};
}
fb::AllocateDeviceMemoryT table(const AllocateDeviceMemory& m) {
  fb::AllocateDeviceMemoryT t;
  t.request = m.request, t.gpu = m.gpu, t.bytes = m.bytes;
  return t;
}
AllocateDeviceMemory plain(const fb::AllocateDeviceMemoryT& t) {
  return {t.request, t.gpu, t.bytes};
}
fb::DeviceMemoryT table(const DeviceMemory& m) {
  fb::DeviceMemoryT t;
  t.request = m.request, t.bytes = m.bytes, t.device = m.device, t.full = m.full, t.why = m.why;
  return t;
}
DeviceMemory plain(const fb::DeviceMemoryT& t) {
  return {t.request, t.bytes, t.device, t.full, t.why};
}
fb::RefusedT table(const Refused& m) {
  fb::RefusedT t;
  t.reason = m.reason;
  return t;
}
Refused plain(const fb::RefusedT& t) { return {t.reason}; }
fb::ExcludedT table(const Excluded& m) {
  fb::ExcludedT t;
  t.reason = m.reason;
  return t;
}
Excluded plain(const fb::ExcludedT& t) { return {t.reason}; }
fb::MemberReadyT table(const MemberReady& m) {
  fb::MemberReadyT t;
  t.member = m.join.member, t.slot = m.slot;
  t.join = std::make_unique<fb::JoinT>(table(m.join));
  t.planes = to_wire(m.planes);
  t.health = to_wire(m.health);
  return t;
}
MemberReady plain(const fb::MemberReadyT& t) {
  return {t.slot, t.join ? plain(*t.join) : Join{t.member}, from_wire(t.planes),
          from_wire(t.health)};
}
fb::MemberDrainedT table(const MemberDrained& m) {
  fb::MemberDrainedT t;
  t.member = m.member;
  return t;
}
MemberDrained plain(const fb::MemberDrainedT& t) { return {t.member}; }
fb::FailureT table(const Failure& m) {
  fb::FailureT t;
  t.member = m.member, t.kind = m.kind, t.place = m.place, t.message = m.message, t.final = m.final;
  t.trace = m.trace;
  return t;
}
Failure plain(const fb::FailureT& t) {
  return {t.member, t.kind, t.place, t.message, t.final, t.trace};
}
fb::MemberLostT table(const MemberLost& m) {
  fb::MemberLostT t;
  t.member = m.member, t.joined = m.joined, t.finished = m.finished, t.exit_code = m.exit_code,
  t.signal = m.signal;
  t.reaped = m.reaped, t.why = m.why, t.step = m.step;
  if (m.failure.known()) t.failure = std::make_unique<fb::FailureT>(table(m.failure));
  if (m.loss) t.loss = *m.loss;
  return t;
}
MemberLost plain(const fb::MemberLostT& t) {
  return {t.member,
          t.joined,
          t.finished,
          t.exit_code,
          t.signal,
          t.reaped,
          t.why,
          t.step,
          t.failure ? plain(*t.failure) : Failure{},
          t.loss ? std::optional(*t.loss) : std::nullopt};
}
fb::ReportT table(const Report& m) {
  fb::ReportT t;
  t.generation = m.generation, t.slots = to_wire(m.slots);
  return t;
}
Report plain(const fb::ReportT& t) { return {t.generation, from_wire(t.slots)}; }
fb::HelloReplyT table(const HelloReply& m) {
  fb::HelloReplyT t;
  t.world = m.world, t.revoked_up_to = m.revoked_up_to, t.slots = to_wire(m.slots);
  if (m.declared) t.declared = std::make_unique<fb::JoinT>(table(*m.declared));
  for (const MemberPlanes& one : m.planes) {
    auto& entry = t.planes.emplace_back(std::make_unique<fb::MemberPlanesT>());
    entry->member = one.member, entry->planes = to_wire(one.planes);
  }
  return t;
}
HelloReply plain(const fb::HelloReplyT& t) {
  HelloReply m{t.world, t.revoked_up_to, from_wire(t.slots), {}};
  if (t.declared) m.declared = plain(*t.declared);
  for (const auto& one : t.planes) {
    if (one->planes) m.planes.push_back({one->member, from_wire(*one->planes)});
  }
  return m;
}
fb::StartT table(const Start& m) {
  fb::StartT t;
  t.member = m.member, t.rank = m.rank, t.world_size = m.world_size, t.restart = m.restart;
  t.refused_gpus = m.refused_gpus;
  return t;
}
Start plain(const fb::StartT& t) {
  return {t.member, t.rank, t.world_size, t.restart, t.refused_gpus};
}
fb::RevokeT table(const Revoke& m) {
  fb::RevokeT t;
  t.generation = m.generation;
  return t;
}
Revoke plain(const fb::RevokeT& t) { return {t.generation}; }
fb::AnnounceT table(const Announce& m) {
  fb::AnnounceT t;
  t.world = std::make_unique<fb::WorldT>(to_wire(*m.world));
  return t;
}
Announce plain(const fb::AnnounceT& t) { return Announce(t.world ? from_wire(*t.world) : World{}); }
fb::NoticeT table(const Notice& m) {
  fb::NoticeT t;
  t.member = m.member;
  return t;
}
Notice plain(const fb::NoticeT& t) { return {t.member}; }
fb::KillT table(const Kill& m) {
  fb::KillT t;
  t.member = m.member, t.gently = m.gently, t.reason = m.reason;
  return t;
}
Kill plain(const fb::KillT& t) { return {t.member, t.gently, t.reason}; }
fb::QueryT table(const Query&) { return {}; }
Query plain(const fb::QueryT&) { return {}; }
fb::HelloT table(const Hello&) { return {}; }
Hello plain(const fb::HelloT&) { return {}; }
fb::JobDoneT table(const JobDone& m) {
  fb::JobDoneT t;
  t.exit_code = m.exit_code, t.reason = m.reason, t.state_lost = m.state_lost;
  t.save_state = m.save_state;
  return t;
}
JobDone plain(const fb::JobDoneT& t) { return {t.exit_code, t.reason, t.state_lost, t.save_state}; }
fb::StatusRequestT table(const StatusRequest&) { return {}; }
StatusRequest plain(const fb::StatusRequestT&) { return {}; }
fb::StatusReplyT table(const StatusReply& m) {
  fb::StatusReplyT t;
  t.json = m.json;
  return t;
}
StatusReply plain(const fb::StatusReplyT& t) { return {t.json}; }
fb::ResizeRequestT table(const ResizeRequest& m) {
  fb::ResizeRequestT t;
  t.members = m.members;
  return t;
}
ResizeRequest plain(const fb::ResizeRequestT& t) { return {t.members}; }
fb::NoticeRequestT table(const NoticeRequest& m) {
  fb::NoticeRequestT t;
  t.member = m.member;
  return t;
}
NoticeRequest plain(const fb::NoticeRequestT& t) { return {t.member}; }
fb::KillRequestT table(const KillRequest& m) {
  fb::KillRequestT t;
  t.member = m.member;
  return t;
}
KillRequest plain(const fb::KillRequestT& t) { return {t.member}; }
fb::ReplyT table(const Reply& m) {
  fb::ReplyT t;
  t.ok = m.ok, t.message = m.message;
  return t;
}
Reply plain(const fb::ReplyT& t) { return {t.ok, t.message}; }

// The union member for alternative I of Body, tried from I on.
template <std::size_t I = 0>
base::Result<Body> body_from_wire(const fb::BodyUnion& in) {
  if constexpr (I == std::variant_size_v<Body>) {
    return base::invalid_argument("control message: unknown body");
  } else {
    using Table = decltype(table(std::declval<std::variant_alternative_t<I, Body>>()));
    if (static_cast<std::size_t>(in.type) != I + 1) return body_from_wire<I + 1>(in);
    // The verifier lets a type without its table pass.
    if (in.value == nullptr) return base::data_loss("control message: its body is missing");
    return Body(plain(*static_cast<const Table*>(in.value)));
  }
}

std::span<const std::byte> bytes_of(const flatbuffers::FlatBufferBuilder& builder) {
  return {reinterpret_cast<const std::byte*>(builder.GetBufferPointer()), builder.GetSize()};
}

// The verifier and the accessors read numbers in place, so an unaligned payload is copied first.
bool misaligned(std::span<const std::byte> bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(std::uint64_t) != 0;
}

flatbuffers::Verifier verifier_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

bool aligned(const fb::World* world) {
  return world == nullptr || (proto::aligned(world->members()) && proto::aligned(world->plan()));
}

bool fits(const flatbuffers::Vector<flatbuffers::Offset<fb::SlotReport>>* slots,
          FlatBudget& budget) {
  return budget.tables(slots,
                       [&](const fb::SlotReport& report) { return budget.values(report.seals()); });
}

bool fits(const fb::PlaneFacts* planes, FlatBudget& budget) {
  return planes == nullptr || budget.strings(planes->reasons());
}

bool fits(const fb::DeviceHealth* health, FlatBudget& budget) {
  return health == nullptr || (budget.values(health->gpu()) && budget.values(health->chip()) &&
                               budget.strings(health->faults()));
}

bool fits(const fb::HelloReply& reply, FlatBudget& budget) {
  return fits(reply.slots(), budget) &&
         budget.tables(reply.planes(),
                       [&](const fb::MemberPlanes& one) { return fits(one.planes(), budget); });
}

// True if the message is within its FlatBudget and its vectors are aligned.
bool fits(const fb::Message& message, FlatBudget budget) {
  if (const auto* m = message.body_as_Announce()) return aligned(m->world());
  if (const auto* m = message.body_as_Report()) return fits(m->slots(), budget);
  if (const auto* m = message.body_as_HelloReply()) return fits(*m, budget);
  if (const auto* m = message.body_as_Ready())
    return fits(m->planes(), budget) && fits(m->health(), budget);
  if (const auto* m = message.body_as_MemberReady())
    return fits(m->planes(), budget) && fits(m->health(), budget);
  if (const auto* m = message.body_as_Start()) return budget.strings(m->refused_gpus());
  if (const auto* m = message.body_as_PeerAddresses())
    return budget.tables(
        m->members(), [&](const fb::MemberAddress& one) { return budget.values(one.address()); });
  if (const auto* m = message.body_as_StartTarget())
    return budget.tables(m->sources(), [&](const fb::SourceAgent& one) {
      return budget.values(one.endpoints()) && budget.values(one.name());
    });
  return true;
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  fb::MessageT wire;
  wire.version = kWireVersion;
  wire.incarnation = message.incarnation;
  wire.node = message.node;
  std::visit([&](const auto& body) { wire.body.Set(table(body)); }, message.body);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::Message::Pack(builder, &wire), fb::MessageIdentifier());
  const auto payload = bytes_of(builder);
  std::vector<std::byte> frame(sizeof(std::uint32_t) + payload.size());
  const auto length = static_cast<std::uint32_t>(payload.size());
  std::memcpy(frame.data(), &length, sizeof length);
  std::memcpy(frame.data() + sizeof length, payload.data(), payload.size());
  return frame;
}

base::Result<Message> decode(std::span<const std::byte> payload) {
  if (misaligned(payload)) return decode(std::vector(payload.begin(), payload.end()));
  auto verifier = verifier_of(payload);
  if (!fb::VerifyMessageBuffer(verifier) ||
      !fits(*fb::GetMessage(payload.data()), FlatBudget(payload.size()))) {
    return base::data_loss(
        fmt::format("control message of {} bytes does not verify", payload.size()));
  }
  fb::MessageT wire;
  fb::GetMessage(payload.data())->UnPackTo(&wire);
  if (wire.version != kWireVersion) {
    return base::invalid_argument(
        fmt::format("control message: version {}, expected {}", wire.version, kWireVersion));
  }
  REGROUP_ASSIGN_OR_RETURN(auto body, body_from_wire(wire.body));
  REGROUP_RETURN_IF_ERROR(check(body));
  return Message{wire.incarnation, std::move(body), wire.node};
}

std::vector<std::byte> encode_world(const World& world) {
  flatbuffers::FlatBufferBuilder builder;
  const fb::WorldT wire = to_wire(world);
  builder.Finish(fb::World::Pack(builder, &wire));
  const auto bytes = bytes_of(builder);
  return {bytes.begin(), bytes.end()};
}

base::Result<World> decode_world(std::span<const std::byte> bytes) {
  if (misaligned(bytes)) return decode_world(std::vector(bytes.begin(), bytes.end()));
  auto verifier = verifier_of(bytes);
  if (!verifier.VerifyBuffer<fb::World>(nullptr) ||
      !aligned(flatbuffers::GetRoot<fb::World>(bytes.data()))) {
    return base::data_loss(fmt::format("World of {} bytes does not verify", bytes.size()));
  }
  fb::WorldT wire;
  flatbuffers::GetRoot<fb::World>(bytes.data())->UnPackTo(&wire);
  if (wire.version != kWireVersion) {
    return base::invalid_argument(
        fmt::format("World: version {}, expected {}", wire.version, kWireVersion));
  }
  World world = from_wire(wire);
  REGROUP_RETURN_IF_ERROR(check(world));
  return world;
}

}  // namespace regroup::proto
