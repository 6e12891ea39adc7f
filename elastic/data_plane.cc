// Serves docs/design/elastic_hosts.md, Peer addresses, and docs/design/ucx.md.
#include "elastic/data_plane.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "collective/backends/backends.h"
#include "collective/mpi/factory.h"
#include "collective/shm/factory.h"
#include "collective/ucx/factory.h"
#include "elastic/carrier_settings.h"
#include "elastic/options.h"

namespace regroup::elastic {

namespace {

// An address with a note is {bytes of the mesh's address, that address, note}.
using LengthOfAddress = std::uint32_t;

}  // namespace

bool spans_hosts(Participant& self) {
  return std::ranges::any_of(self.world().members, [&](const proto::WorldMember& member) {
    return member.slot_id.node != self.slot_id().node;
  });
}

base::Status DataPlane::enter() {
  const proto::World& world = self_.world();
  // The mesh of the last World is closed when this one's is open (docs/design/ucx.md).
  const auto before = std::exchange(mesh_, nullptr);
  spans_hosts_ = elastic::spans_hosts(self_);
  if (spans_hosts_ || world.plane == proto::Plane::kUcx) REGROUP_RETURN_IF_ERROR(open_mesh());
  if (spans_hosts_ && world.plane == proto::Plane::kMpi) REGROUP_RETURN_IF_ERROR(open_carrier());
  REGROUP_ASSIGN_OR_RETURN(steps_, collective::backends::open_communicator(
                                       {self_.arena(), world, self_.slot_id(), mesh_}));
  return {};
}

base::Status DataPlane::open_mesh() {
  if (!ucx_) {
    REGROUP_ASSIGN_OR_RETURN(ucx_, collective::ucx::open_ucx());
  }
  collective::ucx::Addresses addresses{
      .publish = [this](std::span<const std::byte> own) { return publish(own); },
      .find = [this](proto::MemberId member) { return address_of(member); },
      .on_peer_lost = [this](proto::MemberId member,
                             const std::string& why) { self_.suspect(member, why); },
      // If its host answers, the member is slow, or its own agent will report it.
      .on_peer_silent =
          [this](proto::MemberId member, bool host_answers, const std::string& why) {
            if (!host_answers) self_.suspect(member, why);
          }};
  REGROUP_ASSIGN_OR_RETURN(
      mesh_, collective::ucx::open_peer_mesh(ucx_, self_.arena(), self_.world(), self_.slot_id(),
                                             std::move(addresses)));
  return {};
}

base::Status DataPlane::publish(std::span<const std::byte> address) {
  if (note_.empty()) return self_.publish_address(address);
  const auto length = static_cast<LengthOfAddress>(address.size());
  const auto front = std::as_bytes(std::span(&length, 1));
  std::vector<std::byte> all(front.begin(), front.end());
  all.insert(all.end(), address.begin(), address.end());
  all.insert(all.end(), note_.begin(), note_.end());
  return self_.publish_address(all);
}

// All members of a World publish notes, or none does.
std::optional<std::vector<std::byte>> DataPlane::address_of(proto::MemberId member) {
  auto all = self_.address_of(member);
  if (!all || note_.empty()) return all;
  LengthOfAddress length = 0;
  if (all->size() < sizeof length) return std::vector<std::byte>();
  std::memcpy(&length, all->data(), sizeof length);
  all->erase(all->begin(), all->begin() + sizeof length);
  all->resize(std::min<std::size_t>(all->size(), length));
  return all;
}

std::optional<std::vector<std::byte>> DataPlane::note_of(proto::MemberId member) {
  auto all = self_.address_of(member);
  if (!all) return std::nullopt;
  LengthOfAddress length = 0;
  if (all->size() < sizeof length) return std::vector<std::byte>();
  std::memcpy(&length, all->data(), sizeof length);
  const std::size_t before = std::min(all->size(), sizeof length + length);
  return std::vector<std::byte>(all->begin() + static_cast<std::ptrdiff_t>(before), all->end());
}

base::Status DataPlane::open_carrier() {
  REGROUP_ASSIGN_OR_RETURN(const Environment env, read_environment());
  const auto settings = carrier_settings(env);
  if (!settings)
    return base::unavailable("plane mpi: this process was not started with --plane mpi");
  REGROUP_ASSIGN_OR_RETURN(
      auto carrier, collective::mpi::open_carrier(
                        *settings, self_.arena(), self_.world(), self_.slot_id(),
                        [this, generation = self_.world().generation](const std::string& why) {
                          self_.tell_carrier_lost(generation, why);
                        }));
  collective::ucx::attach_carrier(*mesh_, std::move(carrier));
  return {};
}

base::Result<std::unique_ptr<collective::Communicator>> DataPlane::open_section(
    proto::Position at, std::vector<int> ranks) {
  const collective::CommunicatorOptions options{shmem::ChannelKind::kSections, at,
                                                std::move(ranks)};
  return collective::backends::open_communicator(
      {self_.arena(), self_.world(), self_.slot_id(), mesh_}, options);
}

base::Result<std::unique_ptr<collective::Communicator>> DataPlane::open_section_alone(
    proto::Position at) {
  if (!alone_.mapped()) {
    REGROUP_ASSIGN_OR_RETURN(alone_, shmem::Arena::create({.elements = 1}));
    alone_.assign_slot(0, 0);
    REGROUP_RETURN_IF_ERROR(alone_.reserve_slot(0));
  }
  proto::World world{.generation = 1, .shards = alone_.spec().shards};
  world.members.push_back({});
  return collective::shm::make_shm(alone_, world, {}, {shmem::ChannelKind::kSections, at, {0}});
}

}  // namespace regroup::elastic
