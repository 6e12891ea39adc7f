// An agent that has the job's secret and means harm: it behaves until STATE, says WHAT, and waits for the
// head's answer: it ends the link, or it takes a line of output that followed WHAT, and leaves the link open
// for kSettled more. usage: hostile_agent STATE WHAT RESULT, and what an agent is called with.
//   STATE  linked (before Hello), hello (after it), setup, mute (as setup, without an answer before), start
//   (of a
//          member there), round (a Revoke), asked (by a new coordinator); of a job without rounds: space (its
//          members are to be started), running (it has said that they were)
//   WHAT   the rows of kAttacks
//   RESULT a file: "closed", "open", or "never" if STATE was not reached; in RESULT.gathered how many fences
//   it
//          was in, and the bytes that came of the first
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "core/wire.h"
#include "launcher/net/tcp.h"
#include "launcher/net/tls_session.h"
#include "launcher/node/wire.h"
#include "launcher/node/wire_generated.h"
#include "tests/node/hostile_wire.h"

namespace regroup::node {
namespace {

constexpr std::uint32_t kTooLong = core::kMaxFrameBytes + 1;
constexpr std::chrono::seconds kSettled{1};

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
  const auto relayed = fb::CreateRelayed(b, nodes, b.CreateVector(std::vector<std::uint8_t>(400'000)));
  const auto all = b.CreateVector(std::vector<flatbuffers::Offset<fb::Relayed>>(2000, relayed));
  const auto body = fb::CreateGathered(b, all);
  b.Finish(fb::CreateMessage(b, kWireVersion, fb::Body::Gathered, body.Union()), fb::MessageIdentifier());
  const auto bytes = std::as_bytes(std::span(b.GetBufferPointer(), b.GetSize()));
  return {bytes.begin(), bytes.end()};
}

constexpr core::Incarnation kNewest = 1000;  // at least that of whoever is told
constexpr core::MemberId kFirstMembers = 4;  // of the job; they are on other hosts, or in `own`

Message membership(core::Body body) { return Membership{{kNewest, std::move(body), 0}}; }

// Of members that run elsewhere: committed, finished, learned, and dead.
std::vector<core::LineReport> lines_of_others(const Wire& w) {
  std::vector<core::LineReport> lines;
  for (core::MemberId id = 0; id < kFirstMembers; ++id) {
    if (w.own.contains(id)) continue;
    lines.push_back({.member = id, .slot = 0, .alive = false, .finished = true});
    lines.back().state = {core::Phase::kCommitted, false, 1, core::Position::of(1'000'000)};
    lines.back().learned = 1'000'000;
  }
  return lines;
}

// A line of another host, and sequences that a terminal obeys: ESC, and one of C1.
constexpr char kForged[] =
    "gone\nregroup: forged\x1b[31m\xc2\x9b"
    "31m";

void of_nobody(Wire& w, core::MemberId id) {
  w.say(membership(core::MemberLost{.member = id, .joined = true, .signal = 9, .reaped = true}));
  w.say(membership(core::MemberReady{0, {.member = id, .elements = 1, .model = "evil"}}));
  w.say(membership(core::MemberDrained{id}));
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
  for (const auto end = Clock::now() + kPatience; w.open() && w.gathered.empty() && Clock::now() < end;) {
    w.say(Beat{});
    static_cast<void>(w.hear(Clock::now() + kBeat));
  }
  if (w.gathered.empty()) return;
  Bytes half = w.gathered.front();
  half.resize(half.size() / 2);
  bring(w, half, 2);
}

// What an attack waits for.
enum class Until {
  kTaken,     // the head's Taken
  kGathered,  // and the first fence
  kClosed,    // the end of the link, on which others than the head decide
};

constexpr struct {
  std::string_view name;
  void (*say)(Wire& wire);
  Until until = Until::kTaken;
} kAttacks[] = {
    {"frame", [](Wire& w) { w.frame(noise(64), kTooLong); }},
    {"flag", [](Wire& w) { w.part(9, noise(64)); }},
    {"noise", [](Wire& w) { w.part(0, noise(4096)); }},
    {"empty", [](Wire& w) { w.frame({}, 0); }},
    {"cut",
     [](Wire& w) {
       const Bytes whole = encode(Said{"half of it"});
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
       w.say(Relayed{{1}, encode(Said{"of another"})});
     }},
    {"news",
     [](Wire& w) {
       w.say(ChildNews{ChildNews::Kind::kLost, 1, "gone", core::Code::kPeerLost});
     }},
    {"nodes",
     [](Wire& w) {
       w.say(membership(core::NodeLost{1, "gone"}));
     }},
    {"agents", [](Wire& w) { w.say(membership(core::Revoke{1'000'000})); }},
    {"flood",
     [](Wire& w) {
       // A head that keeps pace, as one may on a busy machine, sees no fault.
       for (int i = 0; i < 128 && w.open(); ++i) w.say(Data{1, false, Bytes(kWindow)});
     }},
    // Not refused, and of no effect.
    {"members",
     [](Wire& w) {
       for (core::MemberId id = 0; id < 8; ++id) {
         w.say(membership(core::MemberLost{.member = id, .joined = true, .signal = 9, .reaped = true}));
         w.say(membership(core::MemberDrained{id}));
         w.say(membership(core::Learned{1, id, 1'000'000, ""}));
       }
     }},
    // Members that nobody started: one that leaves no number behind it, and a great many.
    {"id_max", [](Wire& w) { of_nobody(w, 0xffffffff); }},
    {"id_flood",
     [](Wire& w) {
       for (core::MemberId id = 10'000; id < 12'000 && w.open(); ++id) of_nobody(w, id);
     }},
    {"ready",
     [](Wire& w) {
       for (core::MemberId id = 0; id < kFirstMembers; ++id) {
         if (w.own.contains(id)) continue;
         w.say(membership(core::MemberReady{0, {.member = id, .elements = 1, .model = "evil"}}));
       }
     }},
    {"reports",
     [](Wire& w) {
       w.say(membership(core::Report{0, lines_of_others(w)}));
       w.say(membership(core::Report{w.generation, lines_of_others(w)}));
     }},
    {"contacts",
     [](Wire& w) {
       core::Contacts all;
       for (core::MemberId id = 0; id < 8; ++id) all.members.push_back({id, noise(64)});
       for (int i = 0; i < 20; ++i) {
         all.generation = w.generation + static_cast<core::Generation>(i);
         w.say(membership(all));
       }
     }},
    {"taught",
     [](Wire& w) {
       for (core::LessonId lesson = 1; lesson < 10'000; lesson += lesson == 99 ? 3998 : 1)
         w.say(membership(core::Taught{lesson, 5, "", "forged"}));
     }},
    {"suspects",
     [](Wire& w) {
       for (core::MemberId id = 0; id < 80; ++id) w.say(membership(core::PeerSuspect{id % 8, kForged}));
     }},
    {"claims",
     [](Wire& w) {
       w.say(membership(core::HelloReply{0, 0, lines_of_others(w)}));
     }},
    // Numbers that nobody can have heard, and more than the coordinator takes at once.
    {"generations",
     [](Wire& w) {
       w.say(membership(core::HelloReply{core::kMaxGeneration, core::kMaxGeneration, {}}));
       w.say(membership(core::Report{core::kMaxGeneration, {}}));
     },
     Until::kClosed},
    {"long",
     [](Wire& w) {
       const core::LineReport line{.member = 1, .slot = 1, .step = 5, .loss = 1.5, .learned = 5};
       w.say(membership(core::Report{0, std::vector(40'000, line)}));
     }},
    // In the sentences that a user reads.
    {"notice",
     [](Wire& w) {
       w.say(HostNotice{2'000, kForged});
     },
     Until::kClosed},
    {"loss",
     [](Wire& w) {
       w.say(Said{kForged});
       const core::MemberId id = *w.own.rbegin();
       w.say(membership(core::MemberLost{.member = id,
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
    // What libpmix there would tell of ranks that are elsewhere, and a world without end.
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
    // Programs that are not its own meet and part, and a great many that are not there.
    {"spaces",
     [](Wire& w) {
       w.say(Services{pmi::Met{{7, 8}}});
       w.say(Services{pmi::Parted{{7, 8}}});
       std::vector<std::uint32_t> all(1 << 17);  // of what a frame may hold, the half
       std::iota(all.begin(), all.end(), 0U);
       for (int i = 0; i < 8 && w.open(); ++i) {
         w.say(Services{pmi::Met{all}});
         w.say(Services{pmi::Parted{all}});
       }
     }},
    // Its own rank has a child, and says before they have met that they have parted.
    {"parted",
     [](Wire& w) {
       w.say(Services{pmi::Spawn{1, {0, 1}, {{"sh", {"-c", "sleep 1; exit 3"}, {}, "", 1}}}});
       for (int i = 0; i < 3; ++i) w.say(Services{pmi::Parted{{0, 1}}});
       w.say(Services{pmi::Met{{0, 1}}});
       for (int i = 0; i < 3; ++i) w.say(Services{pmi::Parted{{0, 1}}});
     },
     Until::kClosed},
    // What the others' MPI is about to say to each other, said before them and to other hosts.
    {"fences",
     [](Wire& w) {
       const std::string all = fmt::format("regroup-{}.0:4294967294", w.job);
       for (int time = 1; time < 10; ++time) {
         for (const std::vector<std::uint32_t>& hosts :
              {std::vector<std::uint32_t>{w.host}, {w.host, 0}, {0, 1}, {0, 1, 2}, {1, w.host}}) {
           for (const std::string& what :
                {"fence " + all, "connect " + all, std::string("PMI-1 barrier of space 0")})
             w.say(Services{pmi::Contribute{fmt::format("{} #{}", what, time), hosts, w.host, noise(64)}});
         }
       }
     },
     Until::kClosed},
    // Its own part of what the others' MPI waits for, and nothing that libpmix could read.
    {"own_none", [](Wire& w) { bring(w, {}); }, Until::kGathered},
    {"own_half", bring_half, Until::kGathered},
    {"own_noise", [](Wire& w) { bring(w, noise(4096)); }, Until::kGathered},
    {"own_large", [](Wire& w) { bring(w, noise(8 << 20)); }, Until::kGathered},
    {"own_huge", [](Wire& w) { bring(w, Bytes(20 << 20)); }},
    // More than the head keeps for any host.
    {"guesses",
     [](Wire& w) {
       for (int i = 0; i < 3000 && w.open(); ++i)
         w.say(Services{pmi::Contribute{fmt::format("guess {}", i), {0, 1, 2}, 1, Bytes(32 << 10)}});
     }},
    {"questions",
     [](Wire& w) {
       for (std::uint64_t i = 0; i < 20'000 && w.open(); ++i) w.say(Services{pmi::Fetch{i, 1, {0, 2}}});
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
       w.say(Taken{0, 1, true});
     }},
};

bool reached(std::string_view state, const Message& message) {
  if (state == "setup" || state == "mute") return std::holds_alternative<Setup>(message);
  if (state == "space" || state == "running") return std::holds_alternative<StartSpace>(message);
  const auto* said = std::get_if<Membership>(&message);
  if (said == nullptr) return false;
  if (state == "start") return std::holds_alternative<core::Start>(said->message.body);
  if (state == "asked") return std::holds_alternative<core::Hello>(said->message.body);
  return state == "round" && std::holds_alternative<core::Revoke>(said->message.body);
}

// Answers as an agent whose host cannot be looked at, and has no members.
void behave(const Message& message, Wire& wire) {
  if (std::holds_alternative<Survey>(message))
    wire.say(Surveyed{{core::Code::kUnavailable, "nobody looks at this host"}, {}});
  const auto* said = std::get_if<Membership>(&message);
  const auto* revoke = said == nullptr ? nullptr : std::get_if<core::Revoke>(&said->message.body);
  if (revoke != nullptr) wire.say(membership(core::Report{revoke->generation, {}}));
}

bool come_to(std::string_view state, Wire& wire) {
  if (state == "linked") return true;
  wire.say(Hello{wire.build, "evil", 1, 4000});
  if (state == "hello") return true;
  const auto end = Clock::now() + kPatience;
  for (auto beat = Clock::now(); wire.open() && Clock::now() < end;) {
    if (Clock::now() >= beat) {
      wire.say(Beat{});
      beat += kBeat;
    }
    const auto message = wire.hear(beat);
    if (!message) continue;
    if (!reached(state, *message)) {
      if (state != "mute") behave(*message, wire);
      continue;
    }
    if (state == "running") wire.say(SpaceStarted{std::get<StartSpace>(*message).order.space.space, {}});
    return true;
  }
  return false;
}

std::unique_ptr<Wire> connect(char** argv) {
  const auto secret = launcher::JobSecret::read(STDIN_FILENO, kFirst);
  if (!secret.ok()) return nullptr;
  auto context = launcher::TlsContext::make(argv[0], static_cast<core::NodeId>(std::stoul(argv[1])), *secret);
  auto endpoints = launcher::parse_endpoints(argv[3]);
  if (!context.ok() || !endpoints.ok()) return nullptr;
  boost::asio::io_context loop;
  core::Fd socket;
  launcher::dial(loop, *endpoints, kFirst, [&](core::Result<core::Fd> connected) {
    if (connected.ok()) socket = std::move(*connected);
  });
  loop.run_for(kFirst);
  if (!socket.valid()) return nullptr;
  auto tls = launcher::TlsSession::client(*context, socket.get(), 0);
  if (!tls.ok()) return nullptr;
  auto wire = std::make_unique<Wire>(std::move(*tls), std::move(socket));
  wire->job = argv[0];
  wire->build = argv[4];
  if (!wire->shake_hands()) wire.reset();
  return wire;
}

bool has_come(Until what, const Wire& wire) {
  if (what == Until::kClosed) return false;
  return wire.taken && (what == Until::kTaken || !wire.gathered.empty());
}

std::string attack(std::string_view state, std::string_view what, Wire& wire) {
  if (!come_to(state, wire)) return "never";
  const auto* const row = std::ranges::find(kAttacks, what, [](const auto& each) { return each.name; });
  if (row == std::end(kAttacks)) return "unknown";
  row->say(wire);
  if (row->until != Until::kClosed) wire.say(Data{1, false, Bytes(1, std::byte{'\n'})});
  auto end = Clock::now() + kAnswer;
  for (bool settling = false; wire.open() && Clock::now() < end;) {
    wire.say(Beat{});
    const auto heard = wire.hear(std::min(end, Clock::now() + kBeat));
    if (heard && std::holds_alternative<EndHost>(*heard)) wire.say(Done{});  // the job was not harmed
    if (!settling && has_come(row->until, wire)) {
      settling = true;
      end = Clock::now() + kSettled;
    }
  }
  return wire.open() ? "open" : "closed";
}

}  // namespace
}  // namespace regroup::node

int main(int argc, char** argv) {
  using namespace regroup::node;
  if (argc != 11) return 2;
  auto wire = connect(argv + 6);  // behind STATE WHAT RESULT REGROUP --node-agent
  const std::string result = wire ? attack(argv[1], argv[2], *wire) : "never";
  const std::string path = argv[3];
  if (wire && !wire->gathered.empty())
    std::ofstream(path + ".gathered") << wire->gathered.size() << ' ' << wire->gathered.front().size();
  std::ofstream(path + ".new") << result;
  std::rename((path + ".new").c_str(), path.c_str());
}
