// The table of attacks, by name.
#include "tests/launcher/agent/hostile_attacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <random>
#include <vector>

#include "launcher/agent/wire_generated.h"
#include "proto/wire.h"

namespace regroup::agent {
namespace {

constexpr std::uint32_t kTooLong = proto::kMaxFrameBytes + 1;

Bytes noise(std::size_t size) {
  std::mt19937 random(4711);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Small, and a thousand times that once each offset is followed.
Bytes swollen() {
  flatbuffers::FlatBufferBuilder b;
  const auto nodes = b.CreateVector(std::vector<std::uint32_t>{1});
  const auto relayed =
      fb::CreateRelayed(b, nodes, b.CreateVector(std::vector<std::uint8_t>(400'000)));
  const auto all = b.CreateVector(std::vector<flatbuffers::Offset<fb::Relayed>>(2000, relayed));
  const auto body = fb::CreateGathered(b, all);
  b.Finish(fb::CreateMessage(b, kWireVersion, fb::Body::Gathered, body.Union()),
           fb::MessageIdentifier());
  const auto bytes = std::as_bytes(std::span(b.GetBufferPointer(), b.GetSize()));
  return {bytes.begin(), bytes.end()};
}

constexpr proto::MemberId kFirstMembers = 4;  // of the job; they are on other hosts, or in `own`

// Slot reports of members on other hosts: committed, finished, learned, and dead.
std::vector<proto::SlotReport> lines_of_others(const Wire& w) {
  std::vector<proto::SlotReport> lines;
  for (proto::MemberId id = 0; id < kFirstMembers; ++id) {
    if (w.own.contains(id)) continue;
    lines.push_back({.member = id, .slot = 0, .alive = false, .finished = true});
    lines.back().state = {proto::Phase::kCommitted, false, 1, proto::Position::of(1'000'000)};
    lines.back().caught_up_to = 1'000'000;
  }
  return lines;
}

// A line of another host, and sequences that a terminal obeys: ESC, and one of C1.
constexpr char kForged[] =
    "gone\nregroup: forged\x1b[31m\xc2\x9b"
    "31m";

void of_nobody(Wire& w, proto::MemberId id) {
  w.say(membership(proto::MemberLost{.member = id, .joined = true, .signal = 9, .reaped = true}));
  w.say(membership(proto::MemberReady{0, {.member = id, .elements = 1, .model = "evil"}}));
  w.say(membership(proto::MemberDrained{id}));
}

// Its own part of each fence of all ranks, of which there are fewer.
void bring(Wire& w, const Bytes& bytes, int first = 1) {
  for (int time = first; time < 10; ++time) {
    const std::string key = fmt::format("fence regroup-{}.0:4294967294 #{}", w.job, time);
    w.say(Services{pmi::Contribute{key, {0, 1, 2}, w.host, bytes}});
  }
}

// The half of what the others bring to the first, to which it brings nothing.
void bring_half(Wire& w) {
  const std::string first = fmt::format("fence regroup-{}.0:4294967294 #1", w.job);
  w.say(Services{pmi::Contribute{first, {0, 1, 2}, w.host, {}}});
  for (const auto end = Clock::now() + kTimeout;
       w.open() && w.gathered.empty() && Clock::now() < end;) {
    w.say(Heartbeat{});
    static_cast<void>(w.hear(Clock::now() + kHeartbeatInterval));
  }
  if (w.gathered.empty()) return;
  Bytes half = w.gathered.front();
  half.resize(half.size() / 2);
  bring(w, half, 2);
}

constexpr Attack kAttacks[] = {
    {"frame", [](Wire& w) { w.frame(noise(64), kTooLong); }},
    {"flag", [](Wire& w) { w.part(9, noise(64)); }},
    {"noise", [](Wire& w) { w.part(0, noise(4096)); }},
    {"empty", [](Wire& w) { w.frame({}, 0); }},
    {"cut",
     [](Wire& w) {
       const Bytes whole = encode(UserMessage{"half of it"});
       w.part(0, std::span(whole).first(whole.size() / 2));
     }},
    {"endless",
     [](Wire& w) {
       for (int i = 0; i < 140 && w.open(); ++i) w.part(1, noise(1 << 19));  // 64 MiB are allowed
     }},
    {"swollen", [](Wire& w) { w.part(0, swollen()); }},
    {"slots",
     [](Wire& w) {
       w.say(Hello{w.build, "evil", 4'000'000'000, 4000});
     }},
    {"others",
     [](Wire& w) {
       w.say(Relayed{{1}, encode(UserMessage{"of another"})});
     }},
    {"news",
     [](Wire& w) {
       w.say(ChildEvent{ChildEvent::Kind::kLost, 1, "gone", base::Code::kPeerLost});
     }},
    {"nodes",
     [](Wire& w) {
       w.say(membership(proto::NodeLost{1, "gone"}));
     }},
    {"agents", [](Wire& w) { w.say(membership(proto::Revoke{1'000'000})); }},
    {"flood",
     [](Wire& w) {
       // A controller that keeps pace, as one may on a busy machine, sees no fault.
       for (int i = 0; i < 128 && w.open(); ++i) w.say(StreamData{1, false, Bytes(kWindow)});
     }},
    // Not refused, and of no effect.
    {"members",
     [](Wire& w) {
       for (proto::MemberId id = 0; id < 8; ++id) {
         w.say(membership(
             proto::MemberLost{.member = id, .joined = true, .signal = 9, .reaped = true}));
         w.say(membership(proto::MemberDrained{id}));
         w.say(membership(proto::TargetStatus{1, id, 1'000'000, ""}));
       }
     }},
    // Members that nobody started: one that leaves no number behind it, and a great many.
    {"id_max", [](Wire& w) { of_nobody(w, 0xffffffff); }},
    {"id_flood",
     [](Wire& w) {
       for (proto::MemberId id = 10'000; id < 12'000 && w.open(); ++id) of_nobody(w, id);
     }},
    {"ready",
     [](Wire& w) {
       for (proto::MemberId id = 0; id < kFirstMembers; ++id) {
         if (w.own.contains(id)) continue;
         w.say(membership(proto::MemberReady{0, {.member = id, .elements = 1, .model = "evil"}}));
       }
     }},
    {"reports",
     [](Wire& w) {
       w.say(membership(proto::Report{0, lines_of_others(w)}));
       w.say(membership(proto::Report{w.generation, lines_of_others(w)}));
     }},
    {"peer_addresses",
     [](Wire& w) {
       proto::PeerAddresses all;
       for (proto::MemberId id = 0; id < 8; ++id) all.members.push_back({id, noise(64)});
       for (int i = 0; i < 20; ++i) {
         all.generation = w.generation + static_cast<proto::Generation>(i);
         w.say(membership(all));
       }
     }},
    {"source_status",
     [](Wire& w) {
       for (proto::TransferId transfer = 1; transfer < 10'000;
            transfer += transfer == 99 ? 3998 : 1)
         w.say(membership(proto::SourceStatus{transfer, 5, "", "forged"}));
     }},
    {"suspects",
     [](Wire& w) {
       for (proto::MemberId id = 0; id < 80; ++id)
         w.say(membership(proto::PeerSuspect{id % 8, kForged}));
     }},
    {"claims",
     [](Wire& w) {
       w.say(membership(proto::HelloReply{0, 0, lines_of_others(w)}));
     }},
    // Numbers that nobody can have heard, and more than the coordinator takes at once.
    {"generations",
     [](Wire& w) {
       w.say(membership(proto::HelloReply{proto::kMaxGeneration, proto::kMaxGeneration, {}}));
       w.say(membership(proto::Report{proto::kMaxGeneration, {}}));
     },
     Until::kClosed},
    {"long",
     [](Wire& w) {
       const proto::SlotReport line{
           .member = 1, .slot = 1, .step = 5, .loss = 1.5, .caught_up_to = 5};
       w.say(membership(proto::Report{0, std::vector(40'000, line)}));
     }},
    // In the sentences that a user reads.
    {"notice",
     [](Wire& w) {
       w.say(HostNotice{2'000, kForged});
     },
     Until::kClosed},
    {"loss",
     [](Wire& w) {
       w.say(UserMessage{kForged});
       const proto::MemberId id = *w.own.rbegin();
       w.say(membership(proto::MemberLost{.member = id,
                                          .joined = true,
                                          .exit_code = 3,
                                          .reaped = true,
                                          .why = fmt::format("member {}: {}", id, kForged)}));
     }},
    {"orders",
     [](Wire& w) {
       w.say(Setup{});
       w.say(EndHost{});
       w.say(EndAgent{1});
       w.say(Signal{true, 0, 9});
     }},
    // Reports of libpmix about ranks of other hosts, and a spawn of far too many processes.
    {"ranks",
     [](Wire& w) {
       w.say(Services{pmi::Aborted{{0, 0}, 3, "forged"}});
       w.say(Services{pmi::Connected{{0, 0}}});
       w.say(Services{pmi::Spawn{1, {0, 0}, {{"true", {}, {}, "", 4'000'000'000}}}});
       w.say(Services{pmi::Contribute{"fence", {0, 1, 2}, 0, noise(64)}});
       w.say(Services{pmi::Contribute{"fence", {0, 2}, 1, noise(64)}});
       w.say(Services{pmi::Contribute{"fence", {1, 9}, 1, noise(64)}});
       w.say(Services{pmi::Contribute{"fence", {1, 1}, 1, noise(64)}});
       w.say(Services{pmi::Fetched{1, 0, 0, noise(64)}});
     }},
    // Connects and disconnects spaces without a rank of its own, and a great many that do not
    // exist.
    {"spaces",
     [](Wire& w) {
       w.say(Services{pmi::GroupsConnected{{7, 8}}});
       w.say(Services{pmi::GroupsDisconnected{{7, 8}}});
       std::vector<std::uint32_t> all(1 << 17);  // of what a frame may hold, the half
       std::iota(all.begin(), all.end(), 0U);
       for (int i = 0; i < 8 && w.open(); ++i) {
         w.say(Services{pmi::GroupsConnected{all}});
         w.say(Services{pmi::GroupsDisconnected{all}});
       }
     }},
    // Its own rank has a child, and it reports their disconnect before they have connected.
    {"parted",
     [](Wire& w) {
       w.say(Services{pmi::Spawn{1, {0, 1}, {{"sh", {"-c", "sleep 1; exit 3"}, {}, "", 1}}}});
       for (int i = 0; i < 3; ++i) w.say(Services{pmi::GroupsDisconnected{{0, 1}}});
       w.say(Services{pmi::GroupsConnected{{0, 1}}});
       for (int i = 0; i < 3; ++i) w.say(Services{pmi::GroupsDisconnected{{0, 1}}});
     },
     Until::kClosed, std::chrono::seconds(20)},
    // What the others' MPI is about to say to each other, said before them and to other hosts.
    {"fences",
     [](Wire& w) {
       const std::string all = fmt::format("regroup-{}.0:4294967294", w.job);
       for (int time = 1; time < 10; ++time) {
         for (const std::vector<std::uint32_t>& hosts :
              {std::vector<std::uint32_t>{w.host}, {w.host, 0}, {0, 1}, {0, 1, 2}, {1, w.host}}) {
           for (const std::string& what :
                {"fence " + all, "connect " + all, std::string("PMI-1 barrier of space 0")})
             w.say(Services{
                 pmi::Contribute{fmt::format("{} #{}", what, time), hosts, w.host, noise(64)}});
         }
       }
     },
     Until::kClosed},
    // Its own part of what the others' MPI waits for, and nothing that libpmix could read.
    {"own_none", [](Wire& w) { bring(w, {}); }, Until::kGathered},
    {"own_half", bring_half, Until::kGathered},
    {"own_noise", [](Wire& w) { bring(w, noise(4096)); }, Until::kGathered},
    // All of it at once stays below what a host may contribute to incomplete fences: the others may
    // be slower than it.
    {"own_large", [](Wire& w) { bring(w, noise(6 << 20)); }, Until::kGathered},
    // Not to the first, which would be complete, and so taken away, where the others are faster.
    {"own_huge", [](Wire& w) { bring(w, Bytes(20 << 20), 2); }},
    // More than the controller keeps for any host.
    {"guesses",
     [](Wire& w) {
       for (int i = 0; i < 3000 && w.open(); ++i)
         w.say(
             Services{pmi::Contribute{fmt::format("guess {}", i), {0, 1, 2}, 1, Bytes(32 << 10)}});
     }},
    {"questions",
     [](Wire& w) {
       for (std::uint64_t i = 0; i < 20'000 && w.open(); ++i)
         w.say(Services{pmi::Fetch{i, 1, {0, 2}}});
     }},
    {"spawn",
     [](Wire& w) {
       const pmi::SpawnApp many{"true", {}, {}, "", 4'000'000'000};
       w.say(Services{pmi::Spawn{1, {0, 1}, {many, many}}});
     }},
    {"none",
     [](Wire& w) {
       w.say(Services{pmi::Spawn{1, {0, 1}, {}}});
       w.say(Services{pmi::Spawn{2, {0, 1}, {{"true", {}, {}, "", 0}}}});
     }},
    {"leave", [](Wire& w) { w.say(Done{}); }},
    {"again",
     [](Wire& w) {
       w.say(Hello{"0", "nowhere", 4000, 1});
       w.say(Exited{{.member = 0}});
       w.say(WindowUpdate{0, 1, true});
     }},
};

}  // namespace

const Attack* find_attack(std::string_view name) {
  const auto* const row = std::ranges::find(kAttacks, name, &Attack::name);
  return row == std::end(kAttacks) ? nullptr : row;
}

}  // namespace regroup::agent
