// Addresses carry what rails need: the GPU and the version of NCCL of each member, and an unused id
// of NCCL of each member that may be the first of a rail. A communicator is begun by all its ranks
// after the same vote, since NCCL gives up if they come at very different times.
#include "elastic/host_rails.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/printable.h"

namespace regroup::elastic {

using base::Status;
using collective::nccl::Comm;
using collective::nccl::UniqueId;

namespace {

// What a member publishes with its address: the GPU, the host, the version of NCCL, and its id
// unless it cannot be the first of a rail.
struct Note {
  std::string gpu;
  std::string host;
  std::int32_t version = 0;  // 0: no NCCL is loaded
  std::optional<UniqueId> id = {};
};

// {length, GPU, length, host, version, id if there is one}
std::vector<std::byte> bytes_of(const Note& note) {
  std::vector<std::byte> out;
  const auto append = [&](std::span<const std::byte> bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  for (const std::string* text : {&note.gpu, &note.host}) {
    const auto length = static_cast<std::uint8_t>(std::min<std::size_t>(text->size(), 255));
    out.push_back(std::byte{length});
    append(std::as_bytes(std::span(*text)).first(length));
  }
  append(std::as_bytes(std::span(&note.version, 1)));
  if (note.id) append(std::as_bytes(std::span(note.id->internal)));
  return out;
}

// Empty for other bytes.
std::optional<Note> parse_note(std::span<const std::byte> bytes) {
  Note out;
  for (std::string* text : {&out.gpu, &out.host}) {
    if (bytes.empty() || bytes.size() <= std::to_integer<std::size_t>(bytes[0]))
      return std::nullopt;
    const auto length = std::to_integer<std::size_t>(bytes[0]);
    text->assign(reinterpret_cast<const char*>(bytes.data()) + 1, length);
    bytes = bytes.subspan(1 + length);
  }
  if (bytes.size() < sizeof out.version) return std::nullopt;
  std::memcpy(&out.version, bytes.data(), sizeof out.version);
  bytes = bytes.subspan(sizeof out.version);
  if (bytes.empty()) return out;
  if (bytes.size() != sizeof(UniqueId)) return std::nullopt;
  std::memcpy(out.id.emplace().internal, bytes.data(), bytes.size());
  return out;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// "member 0 (host a) has NCCL 2.28.9, member 3 (host b) has 2.30.7"; "" if all have the same. A
// member without NCCL says so itself.
std::string why_versions_differ(const std::vector<proto::WorldMember>& members,
                                const std::vector<Note>& notes) {
  std::optional<std::size_t> first;
  for (std::size_t rank = 0; rank < notes.size(); ++rank) {
    if (notes[rank].version == 0) continue;
    if (!first) first = rank;
    if (notes[rank].version == notes[*first].version) continue;
    const auto text = [&](std::size_t of, const char* library) {
      return fmt::format("member {} (host {}) has {}{}", members[of].id,
                         base::escaped(notes[of].host), library,
                         collective::nccl::version_text(notes[of].version));
    };
    return text(*first, "NCCL ") + ", " + text(rank, "");
  }
  return "";
}

std::string late_call(const std::string& call, proto::Generation generation, base::Duration limit) {
  return fmt::format("{} of generation {} did not return within {} s", call, generation,
                     std::chrono::duration<double>(limit).count());
}

}  // namespace

HostRails::~HostRails() {
  if (comm_ && !comm_->close().ok()) stream_.abandon();  // first transfers may be under way
}

Status HostRails::enter() {
  REGROUP_RETURN_IF_ERROR(plane_.answers());
  plane_.disconnect_hosts();
  end_comm();
  watch();
  rails_.reset();
  id_.reset();
  told_ = false;
  phase_ = Phase::kOff;
  data_plane_.set_note({});
  if (self_.world().plane != proto::Plane::kNccl || !spans_hosts(self_)) return {};
  phase_ = Phase::kAsking;
  const Status published = publish(late() == nullptr);
  if (late() != nullptr)
    tell_host(late()->late);
  else if (!published.ok())
    tell_host(published.message());
  return {};
}

void HostRails::end_comm() {
  comm_.reset();
  if (own_) ended_.push_back(*std::exchange(own_, std::nullopt));
}

// Work of sums is over, so what hangs holds memory and a thread. The member goes on: all members
// may hang alike, and a job without members is lost.
void HostRails::watch() {
  std::erase_if(ended_, [](const Ended& one) { return one.ending.over(); });
  for (Ended& one : ended_) {
    if (!one.late.empty()) continue;
    const std::string call = one.ending.overdue(limit_);
    if (call.empty()) continue;
    one.late = late_call(call, one.generation, limit_);
    fmt::print(stderr,
               "regroup: nccl: {}: its memory on the GPU stays in use, and gradients of later "
               "generations go through the host until it returns\n",
               one.late);
  }
}

const HostRails::Ended* HostRails::late() const {
  const auto found =
      std::ranges::find_if(ended_, [](const Ended& one) { return !one.late.empty(); });
  return found == ended_.end() ? nullptr : &*found;
}

void HostRails::tell_host(const std::string& why) {
  told_ = true;
  self_.tell_carrier_lost(self_.world().generation, why);
  fmt::print(stderr,
             "regroup: nccl: generation {} is not connected: {}; gradients go through the host\n",
             self_.world().generation, why);
}

// Without an id of the rail's leader, and without the vote of a member that has no library, nobody
// begins to connect. All publish notes, since an address is read by that.
Status HostRails::publish(bool with_id) {
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
  const bool wanted =
      library_ && with_id && std::ranges::find(leaders, self_.rank()) != leaders.end();
  // For each id NCCL starts a thread with a socket, which end only after the id has been used.
  if (wanted && !spare_id_) {
    status = library_->status(library_->get_unique_id(&spare_id_.emplace()), "ncclGetUniqueId");
    if (!status.ok()) spare_id_.reset();
  }
  data_plane_.set_note(
      bytes_of({gpus[static_cast<std::size_t>(self_.rank())], host_name(),
                library_ ? library_->version : 0, wanted ? spare_id_ : std::nullopt}));
  return status;
}

// True once the notes of all members, and the memory of this one, are there.
bool HostRails::learn() {
  if (told_) return false;
  if (rails_) return true;
  // A start that blocks in a call is the last one, so that one thread and one communicator leak.
  if (late() != nullptr) tell_host(late()->late);
  if (std::ranges::any_of(
          ended_, [](const Ended& one) { return !one.late.empty() || one.ending.starting(); }))
    return false;
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
  if (const std::string why = why_versions_differ(members, notes); !why.empty()) {
    told_ = true;  // all members find the same, so one line is enough
    if (self_.rank() == 0) tell_host(why);
    return false;
  }
  auto rails = collective::nccl::rails_of(self_.world(), gpus);
  if (const auto rail = rails.rail_of(self_.rank())) {
    id_ = notes[static_cast<std::size_t>(rails.ranks[static_cast<std::size_t>(*rail)].front())].id;
    if (!id_) return false;
  }
  rails_ = std::move(rails);
  const Status reserved = reserve();
  if (!reserved.ok()) tell_host(reserved.message());
  return reserved.ok();
}

// Before NCCL takes memory: a start that fails for want of it leaves the gradients to the host, a
// step would fail.
Status HostRails::reserve() {
  const auto rail = rails_->rail_of(self_.rank());
  if (!rail) return {};
  const int host = rails_->host_of[static_cast<std::size_t>(self_.rank())];
  REGROUP_ASSIGN_OR_RETURN(bytes_, plane_.reserve_hosts(static_cast<int>(rails_->ranks.size()),
                                                        *rail, host, rails_->hosts()));
  return {};
}

bool HostRails::is_ready() {
  if (told_) return false;
  if (!comm_) return true;  // on no rail
  if (comm_->phase() == Comm::Phase::kFailed) tell_host(comm_->failure());
  return comm_->phase() == Comm::Phase::kReady;
}

HostRails::Vote HostRails::vote() {
  if (phase_ == Phase::kOff || phase_ == Phase::kConnected) return {};
  Vote out{.knows = learn()};
  // All begin after a vote in which this member says so, too, and this one may not see its result.
  // So an id may be used from here on, and is never published again.
  if (out.knows && id_ && spare_id_ && std::ranges::equal(id_->internal, spare_id_->internal))
    spare_id_.reset();
  out.connected = phase_ == Phase::kConnecting && is_ready();
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
                       std::move(comm_), limit_ / 3);
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
                                  .bytes = bytes_,
                                  .connect_limit = limit_};
  REGROUP_RETURN_IF_ERROR(
      stream_.check(stream_.driver().context_get(&spec.context), "cuCtxGetCurrent"));
  comm_ = std::make_unique<Comm>(std::move(spec));
  own_ = Ended{.generation = self_.world().generation, .ending = comm_->ending()};
  return {};
}

}  // namespace regroup::elastic
