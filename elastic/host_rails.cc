// Addresses carry what rails need: the GPU of each member, and a fresh id of NCCL of each member
// that may be the first of a rail. A communicator is begun by all its ranks after the same vote,
// since NCCL gives up if they come at very different times.
#include "elastic/host_rails.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/printable.h"

namespace regroup::elastic {

using base::Status;
using collective::nccl::Comm;
using collective::nccl::UniqueId;

namespace {

// {length of the GPU's name, name, id if there is one}
std::vector<std::byte> note_of(const std::string& gpu, const std::optional<UniqueId>& id) {
  std::vector<std::byte> out{static_cast<std::byte>(gpu.size())};
  const auto name = std::as_bytes(std::span(gpu));
  out.insert(out.end(), name.begin(), name.end());
  if (!id) return out;
  const auto bytes = std::as_bytes(std::span(id->internal));
  out.insert(out.end(), bytes.begin(), bytes.end());
  return out;
}

struct Note {
  std::string gpu;
  std::optional<UniqueId> id = {};
};

// Empty for other bytes.
std::optional<Note> parse_note(std::span<const std::byte> bytes) {
  if (bytes.empty() || bytes.size() <= std::to_integer<std::size_t>(bytes[0])) return std::nullopt;
  const auto length = std::to_integer<std::size_t>(bytes[0]);
  Note out{std::string(reinterpret_cast<const char*>(bytes.data()) + 1, length)};
  const auto rest = bytes.subspan(1 + length);
  if (rest.empty()) return out;
  if (rest.size() != sizeof(UniqueId)) return std::nullopt;
  std::memcpy(out.id.emplace().internal, rest.data(), rest.size());
  return out;
}

}  // namespace

HostRails::~HostRails() {
  if (comm_) static_cast<void>(comm_->close());
}

Status HostRails::enter() {
  REGROUP_RETURN_IF_ERROR(plane_.answers());
  plane_.disconnect_hosts();
  comm_.reset();
  rails_.reset();
  id_.reset();
  told_ = false;
  phase_ = Phase::kOff;
  data_plane_.set_note({});
  if (self_.world().plane != proto::Plane::kNccl || !spans_hosts(self_)) return {};
  phase_ = Phase::kAsking;
  if (const Status published = publish(); !published.ok()) tell_host(published.message());
  return {};
}

void HostRails::tell_host(const std::string& why) {
  fmt::print(stderr,
             "regroup: nccl: generation {} is not connected: {}; gradients go through the host\n",
             self_.world().generation, why);
}

// Without an id of the rail's leader, and without the vote of a member that has no library, nobody
// begins to connect. All publish notes, since an address is read by that.
Status HostRails::publish() {
  Status status;
  if (!library_) {
    if (auto loaded = collective::nccl::load_nccl(); loaded.ok())
      library_ = std::move(*loaded);
    else
      status = loaded.status(), phase_ = Phase::kOff;
  }
  const auto& members = self_.world().members;
  std::vector<std::string> gpus(members.size());  // of this host
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const auto* line = members[rank].slot_id.node == self_.slot_id().node
                           ? self_.device_lines().of(members[rank].slot_id.slot)
                           : nullptr;
    if (line != nullptr) gpus[rank] = line->line.gpu;
  }
  const auto leaders = collective::nccl::possible_leaders(self_.world(), gpus);
  std::optional<UniqueId> own;
  if (library_ && std::ranges::find(leaders, self_.rank()) != leaders.end()) {
    status = library_->status(library_->get_unique_id(&own.emplace()), "ncclGetUniqueId");
    if (!status.ok()) own.reset();
  }
  data_plane_.set_note(note_of(gpus[static_cast<std::size_t>(self_.rank())], own));
  return status;
}

// True once the notes of all members are there.
bool HostRails::learn() {
  if (rails_) return true;
  const auto& members = self_.world().members;
  std::vector<std::string> gpus;
  std::vector<Note> notes;
  for (const proto::WorldMember& member : members) {
    const auto bytes = data_plane_.note_of(member.id);
    auto note = bytes ? parse_note(*bytes) : std::nullopt;
    if (!note) return false;
    gpus.push_back(note->gpu);
    notes.push_back(std::move(*note));
  }
  auto rails = collective::nccl::rails_of(self_.world(), gpus);
  if (const auto rail = rails.rail_of(self_.rank())) {
    id_ = notes[static_cast<std::size_t>(rails.ranks[static_cast<std::size_t>(*rail)].front())].id;
    if (!id_) return false;
  }
  rails_ = std::move(rails);
  return true;
}

HostRails::Vote HostRails::vote() {
  if (phase_ == Phase::kOff || phase_ == Phase::kConnected) return {};
  Vote out{.knows = learn()};
  if (phase_ != Phase::kConnecting) return out;
  if (comm_ && comm_->phase() == Comm::Phase::kFailed && !std::exchange(told_, true))
    tell_host(comm_->failure());
  out.connected = !comm_ || comm_->phase() == Comm::Phase::kReady;
  return out;
}

Status HostRails::on_vote(Vote all) {
  if (phase_ == Phase::kAsking && all.knows) {
    phase_ = Phase::kConnecting;
    return connect();
  }
  if (phase_ != Phase::kConnecting || !all.connected) return {};
  const int host = rails_->host_of[static_cast<std::size_t>(self_.rank())];
  plane_.connect_hosts(static_cast<int>(rails_->ranks.size()), host, rails_->hosts(),
                       std::move(comm_));
  phase_ = Phase::kConnected;
  if (self_.rank() == 0)
    fmt::print(stderr, "regroup: nccl {} connects {} hosts in generation {}, {} each\n",
               collective::nccl::version_text(library_->version), rails_->hosts(),
               self_.world().generation, base::counted(rails_->ranks.size(), "GPU"));
  return {};
}

Status HostRails::connect() {
  const auto rail = rails_->rail_of(self_.rank());
  if (!rail) return {};
  const int host = rails_->host_of[static_cast<std::size_t>(self_.rank())];
  collective::nccl::CommSpec spec{.library = *library_,
                                  .driver = stream_.driver(),
                                  .rank = host,
                                  .size = rails_->hosts(),
                                  .id = *id_,
                                  .connect_limit = connect_limit_};
  REGROUP_RETURN_IF_ERROR(
      stream_.check(stream_.driver().context_get(&spec.context), "cuCtxGetCurrent"));
  comm_ = std::make_unique<Comm>(std::move(spec));
  return {};
}

}  // namespace regroup::elastic
