// The wire format: golden files, round trips and damaged input. docs/reference/formats/wire.md.
// The golden files are written once per format version, from the repository root, with
//   build/tests/bin/wire_test --gtest_also_run_disabled_tests --gtest_filter='*WriteGoldenFiles'
#include "proto/wire.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <set>

#include "proto/wire_generated.h"
#include "tests/base/often.h"
#include "tests/proto/wire_samples.h"

namespace regroup::proto {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;
constexpr std::size_t kPrefix = sizeof(std::uint32_t);

fs::path golden(const std::string& name) {
  return fs::path("tests/golden/wire") / (name + ".v1.bin");
}

Bytes read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void write(const fs::path& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

TEST(WireGolden, DISABLED_WriteGoldenFiles) {
  for (const WireSample& sample : wire_samples())
    write(golden(sample.name), encode(sample.message));
  write(golden("world"), encode_world(sample_world()));
}

TEST(WireGolden, EveryFileDecodesToItsSample) {
  for (const WireSample& sample : wire_samples()) {
    FrameReader reader;
    reader.append(read(golden(sample.name)));
    auto message = reader.next();
    ASSERT_TRUE(message.ok()) << sample.name << ": " << message.status().to_string();
    ASSERT_TRUE(message->has_value()) << sample.name;
    EXPECT_EQ(**message, sample.message) << sample.name;
  }
  auto world = decode_world(read(golden("world")));
  ASSERT_TRUE(world.ok()) << world.status().to_string();
  EXPECT_EQ(*world, sample_world());
}

TEST(Wire, SamplesHoldEveryBodyTypeOnce) {
  std::set<std::size_t> types;
  for (const WireSample& sample : wire_samples()) types.insert(sample.message.body.index());
  EXPECT_EQ(types.size(), std::variant_size_v<Body>);
  EXPECT_EQ(wire_samples().size(), std::variant_size_v<Body>);
}

World least_world() { return {.generation = 1, .members = {{}}, .plan = {{}}}; }

TEST(Wire, RoundTripOfSamplesAndOfDefaults) {
  for (const WireSample& sample : wire_samples()) {
    const Bytes frame = encode(sample.message);
    auto back = decode(std::span(frame).subspan(kPrefix));
    ASSERT_TRUE(back.ok()) << sample.name << ": " << back.status().to_string();
    EXPECT_EQ(*back, sample.message) << sample.name;
    std::visit(
        [&](const auto& body) {
          using Body = std::decay_t<decltype(body)>;
          Message plain{0, Body{}};
          if constexpr (std::is_same_v<Body, Announce>) plain.body = Announce{least_world()};
          const Bytes bytes = encode(plain);
          auto again = decode(std::span(bytes).subspan(kPrefix));
          ASSERT_TRUE(again.ok()) << sample.name;
          EXPECT_EQ(*again, plain) << sample.name;
        },
        sample.message.body);
  }
  EXPECT_EQ(*decode_world(encode_world(least_world())), least_world());
}

TEST(Wire, OfAHostItIsKeptThatItIsLentAndForHowLong) {
  for (const NodeUp& up : {NodeUp{2, "b", 16, true, false}, NodeUp{2, "b", 0, false, true}}) {
    const Bytes frame = encode({3, up});
    const auto decoded = decode(std::span(frame).subspan(kPrefix));
    ASSERT_TRUE(decoded.ok()) << decoded.status().message();
    EXPECT_EQ(std::get<NodeUp>(decoded->body), up);
  }
}

TEST(Wire, OfTheNodesItIsKeptWhatTheJobGoesOnFrom) {
  const Bytes frame = encode({7, NodesKnown{300, 8}});
  const auto back = decode(std::span(frame).subspan(kPrefix));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(std::get<NodesKnown>(back->body), (NodesKnown{300, 8}));
}

TEST(Wire, OfATrainingItsLengthIsKeptAndOfALossTheLastLoss) {
  const auto back = [](const Body& body) {
    const Bytes frame = encode({7, body});
    return decode(std::span(frame).subspan(kPrefix)).value().body;
  };
  const Join join{.member = 9, .model = "m", .fingerprint = "f", .plan = {50'000, 256, 2, 15}};
  EXPECT_EQ(std::get<Join>(back(join)), join);
  EXPECT_EQ(std::get<MemberReady>(back(MemberReady{1, join})).join.plan, join.plan);
  for (const std::optional<double> loss : {std::optional<double>(), {0.0}, {0.25}}) {
    EXPECT_EQ(std::get<MemberLost>(back(MemberLost{.member = 4, .loss = loss})).loss, loss);
  }
}

TEST(Wire, OfAMemberOnADeviceTheDeviceIsKeptAndWhyItHasNoDeviceLine) {
  const auto back = [](const Body& body) {
    const Bytes frame = encode({7, body});
    return decode(std::span(frame).subspan(kPrefix)).value().body;
  };
  const Join join{.member = 9, .gpu = "GPU-1", .gpu_free = 5'000'000'000};
  EXPECT_EQ(std::get<Join>(back(join)), join);
  const Welcome welcome{1, 4, 7, 3, "no libcuda.so.1"};
  EXPECT_EQ(std::get<Welcome>(back(welcome)), welcome);
}

TEST(Wire, OfPlanesTheReasonsAndTheMemoryAreKept) {
  const auto back = [](const Body& body) {
    const Bytes frame = encode({7, body});
    return decode(std::span(frame).subspan(kPrefix)).value().body;
  };
  PlaneFacts facts{.device = true, .reasons = {}};
  facts.reasons[static_cast<std::size_t>(Plane::kNccl)] = "no libnccl.so.2";
  EXPECT_EQ(std::get<Ready>(back(Ready{facts})), Ready{facts});
  EXPECT_EQ(std::get<MemberReady>(back(MemberReady{1, {.member = 9}, facts})).planes, facts);
  const HelloReply reply{5, 4, {}, {}, {{3, facts}, {4, PlaneFacts{}}}};
  EXPECT_EQ(std::get<HelloReply>(back(reply)), reply);
  EXPECT_EQ(std::get<Ready>(back(Ready{})).planes, std::nullopt) << "of an older version";
  World world = sample_world();
  for (std::size_t plane = 0; plane < kPlanes; ++plane) {
    world.plane = static_cast<Plane>(plane);
    world.plane_why = "a sentence";
    EXPECT_EQ(decode_world(encode_world(world)).value(), world);
  }
  world.plane = static_cast<Plane>(kPlanes);
  EXPECT_EQ(decode_world(encode_world(world)).status().message(),
            "malformed World 5: no plane 6 exists");
}

TEST(Wire, WhatAMemberFoundOfItsGpuIsKept) {
  const auto back = [](const Body& body) {
    const Bytes frame = encode({7, body});
    return decode(std::span(frame).subspan(kPrefix)).value().body;
  };
  const DeviceHealth health{"GPU-1", "H100", {"it is wrong", "it hangs"}};
  EXPECT_EQ(std::get<Ready>(back(Ready{{}, health})), (Ready{{}, health}));
  const MemberReady ready{1, {.member = 9}, {}, health};
  EXPECT_EQ(std::get<MemberReady>(back(ready)).health, health);
  const Start start{1, 0, 2, 0, {"GPU-1", "GPU-2"}};
  EXPECT_EQ(std::get<Start>(back(start)), start);
}

TEST(Wire, APlaneThatTheWriterDoesNotKnowCannotWorkInIt) {
  flatbuffers::FlatBufferBuilder b;
  const auto reasons = b.CreateVectorOfStrings(std::vector<std::string>{"", "no", ""});
  const auto ready = fb::CreateReady(b, fb::CreatePlaneFacts(b, false, reasons));
  b.Finish(fb::CreateMessage(b, kWireVersion, 1, fb::Body::Ready, ready.Union()),
           fb::MessageIdentifier());
  const auto message = decode(std::as_bytes(std::span(b.GetBufferPointer(), b.GetSize())));
  const PlaneFacts facts = std::get<Ready>(message.value().body).planes.value();
  EXPECT_EQ(facts.reason(Plane::kStaged), "no");
  EXPECT_EQ(facts.reason(Plane::kCuda), "");
  EXPECT_EQ(facts.reason(Plane::kMpi), "its version has no such plane");
}

TEST(Plane, EachHasANameOfItsOwn) {
  for (std::size_t plane = 0; plane < kPlanes; ++plane)
    EXPECT_EQ(plane_named(name_of(static_cast<Plane>(plane))), static_cast<Plane>(plane));
  EXPECT_EQ(plane_named("auto"), std::nullopt);
}

TEST(Wire, OfASourceItsHostIsKept) {
  const StartTarget order{1, 12, {5}, {{2, "10.0.0.1:4711", "b"}}};
  const Bytes frame = encode({7, order});
  const auto back = decode(std::span(frame).subspan(kPrefix));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(std::get<StartTarget>(back->body), order);
}

TEST(Wire, ALossThatIsNotANumberStaysOne) {
  Message message{1, Report{0, sample_slots()}};
  std::get<Report>(message.body).slots[0].loss = std::nan("");
  const Bytes frame = encode(message);
  auto back = decode(std::span(frame).subspan(kPrefix));
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(std::isnan(std::get<Report>(back->body).slots[0].loss));
}

TEST(Wire, WhatIsSaidManyTimesOverIsRefused) {
  using Builder = flatbuffers::FlatBufferBuilder;
  const auto refused = [](fb::Body type, const auto& body) {
    Builder b;
    b.Finish(fb::CreateMessage(b, kWireVersion, 1, type, body(b).Union()), fb::MessageIdentifier());
    const auto message = decode(std::as_bytes(std::span(b.GetBufferPointer(), b.GetSize())));
    EXPECT_EQ(message.code(), base::Code::kDataLoss) << fb::EnumNameBody(type);
    EXPECT_LT(b.GetSize(), 30'000U);
  };
  const auto lines = [](Builder& b) {
    const auto seals = b.CreateVectorOfStructs(std::vector<fb::Seal>(500));
    return b.CreateVector(base::often(fb::CreateSlotReport(b, 0, 0, false, false, 0, 0, 0, seals)));
  };
  refused(fb::Body::Report, [&](Builder& b) { return fb::CreateReport(b, 1, lines(b)); });
  refused(fb::Body::HelloReply,
          [&](Builder& b) { return fb::CreateHelloReply(b, 1, 1, lines(b)); });
  const auto planes = [](Builder& b) {
    return fb::CreatePlaneFacts(
        b, false, b.CreateVector(base::often(b.CreateString(std::string(10'000, 'x')))));
  };
  refused(fb::Body::Ready, [&](Builder& b) { return fb::CreateReady(b, planes(b)); });
  refused(fb::Body::MemberReady,
          [&](Builder& b) { return fb::CreateMemberReady(b, 0, 0, 0, planes(b)); });
  const auto health = [](Builder& b) {
    return fb::CreateDeviceHealth(
        b, 0, 0, b.CreateVector(base::often(b.CreateString(std::string(10'000, 'x')))));
  };
  refused(fb::Body::Ready, [&](Builder& b) { return fb::CreateReady(b, 0, health(b)); });
  refused(fb::Body::MemberReady,
          [&](Builder& b) { return fb::CreateMemberReady(b, 0, 0, 0, 0, health(b)); });
  refused(fb::Body::Start, [](Builder& b) {
    const auto gpu = b.CreateString(std::string(10'000, 'x'));
    return fb::CreateStart(b, 1, 0, 1, 0, b.CreateVector(base::often(gpu)));
  });
  refused(fb::Body::HelloReply, [](Builder& b) {
    const auto reasons =
        b.CreateVectorOfStrings(std::vector<std::string>{std::string(10'000, 'x')});
    const auto one = fb::CreateMemberPlanes(b, 1, fb::CreatePlaneFacts(b, false, reasons));
    return fb::CreateHelloReply(b, 1, 1, 0, 0, b.CreateVector(base::often(one)));
  });
  refused(fb::Body::PeerAddresses, [](Builder& b) {
    const auto address = b.CreateVector(std::vector<std::uint8_t>(10'000));
    return fb::CreatePeerAddresses(
        b, 1, b.CreateVector(base::often(fb::CreateMemberAddress(b, 1, address))));
  });
  refused(fb::Body::StartTarget, [](Builder& b) {
    const auto text = b.CreateString(std::string(10'000, 'x'));
    return fb::CreateStartTarget(b, 1, 1, 0,
                                 b.CreateVector(base::often(fb::CreateSourceAgent(b, 1, text))));
  });
  refused(fb::Body::StartTarget, [](Builder& b) {
    const auto text = b.CreateString(std::string(10'000, 'x'));
    return fb::CreateStartTarget(b, 1, 1, 0,
                                 b.CreateVector(base::often(fb::CreateSourceAgent(b, 1, 0, text))));
  });
}

// Decoding must end with a message or an error, whatever the bytes; what it returns must be fit to
// be sent again.
void survive(const Bytes& payload, bool is_world) {
  if (is_world) {
    if (auto world = decode_world(payload); world.ok()) (void)encode_world(*world);
  } else if (auto message = decode(payload); message.ok()) {
    (void)encode(*message);
  }
}

std::vector<std::pair<Bytes, bool>> golden_payloads() {
  std::vector<std::pair<Bytes, bool>> out;
  for (const WireSample& sample : wire_samples()) {
    Bytes frame = read(golden(sample.name));
    out.emplace_back(Bytes(frame.begin() + kPrefix, frame.end()), false);
  }
  out.emplace_back(read(golden("world")), true);
  return out;
}

TEST(WireDamage, EveryTruncationIsSurvived) {
  for (const auto& [payload, is_world] : golden_payloads()) {
    for (std::size_t size = 0; size < payload.size(); ++size) {
      survive(Bytes(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(size)),
              is_world);
    }
  }
}

TEST(WireDamage, EveryBitFlipAndEveryExtremeByteIsSurvived) {
  for (const auto& [payload, is_world] : golden_payloads()) {
    for (std::size_t at = 0; at < payload.size(); ++at) {
      Bytes damaged = payload;
      for (int bit = 0; bit < 8; ++bit) {
        damaged[at] = payload[at] ^ std::byte(1 << bit);
        survive(damaged, is_world);
      }
      for (const int value : {0x00, 0x7f, 0x80, 0xff}) {
        damaged[at] = std::byte(value);
        survive(damaged, is_world);
      }
    }
  }
}

TEST(WireDamage, ManyBytesAtOnceAreSurvived) {
  std::mt19937_64 random(7);
  const auto payloads = golden_payloads();
  for (int round = 0; round < 20000; ++round) {
    auto [payload, is_world] = payloads[random() % payloads.size()];
    for (std::uint64_t n = 1 + random() % 8; n > 0; --n)
      payload[random() % payload.size()] = std::byte(random());
    survive(payload, is_world);
  }
}

// A body type without its body verifies; it must not be taken for one.
TEST(WireDamage, ABodyThatIsNotThereIsRefused) {
  std::size_t refused = 0;
  for (const WireSample& sample : wire_samples()) {
    const Bytes frame = encode(sample.message);
    Bytes payload(frame.begin() + kPrefix, frame.end());
    std::uint32_t root = 0;
    std::int32_t back = 0;
    std::memcpy(&root, payload.data(), 4);
    std::memcpy(&back, payload.data() + root, 4);
    const std::size_t vtable = root - static_cast<std::size_t>(back);
    // After the two sizes: version, incarnation, body_type, body.
    constexpr std::size_t kBodyEntry = 4 + 2 * 3;
    ASSERT_LT(vtable + kBodyEntry + 1, payload.size());
    payload[vtable + kBodyEntry] = payload[vtable + kBodyEntry + 1] = std::byte{0};
    const auto message = decode(payload);
    EXPECT_FALSE(message.ok()) << sample.name;
    refused += message.code() == base::Code::kDataLoss ? 1 : 0;
  }
  EXPECT_EQ(refused, wire_samples().size());
}

// Where field `index` of the root table lies.
std::size_t field(const Bytes& bytes, std::size_t index) {
  std::uint32_t root = 0;
  std::int32_t back = 0;
  std::uint16_t entry = 0;
  std::memcpy(&root, bytes.data(), 4);
  std::memcpy(&back, bytes.data() + root, 4);
  std::memcpy(&entry, bytes.data() + root - back + 4 + 2 * index, 2);
  EXPECT_NE(entry, 0);
  return root + entry;
}

// The verifier lets structs at odd addresses pass.
TEST(WireDamage, MisalignedStructsAreRefused) {
  World world = sample_world();
  world.members.front().id = 1;  // read as the length, once the vector begins 4 bytes later
  Bytes bytes = encode_world(world);
  ASSERT_TRUE(decode_world(bytes).ok());
  std::uint32_t offset = 0;
  std::memcpy(&offset, bytes.data() + field(bytes, 5), 4);
  offset += 4;
  std::memcpy(bytes.data() + field(bytes, 5), &offset, 4);
  EXPECT_EQ(decode_world(bytes).code(), base::Code::kDataLoss);
}

TEST(Wire, APayloadMayStartAnywhere) {
  const Bytes frame = encode({3, Announce{sample_world()}});
  for (std::size_t shift = 0; shift < 8; ++shift) {
    Bytes moved(shift);
    moved.insert(moved.end(), frame.begin() + kPrefix, frame.end());
    auto message = decode(std::span(moved).subspan(shift));
    ASSERT_TRUE(message.ok()) << shift;
    EXPECT_EQ(*message, (Message{3, Announce{sample_world()}}));
  }
}

TEST(WireDamage, AnotherVersionIsNamed) {
  Bytes bytes = encode_world(sample_world());
  bytes[field(bytes, 0)] = std::byte{99};
  const auto decoded = decode_world(bytes);
  EXPECT_EQ(decoded.code(), base::Code::kInvalidArgument);
  EXPECT_THAT(decoded.status().message(), testing::HasSubstr("version 99, expected 1"));
}

// Well-formed messages that could not exist: one change each.
template <class T>
using Change = std::pair<const char*, std::function<void(T&)>>;

TEST(WireSense, OfAWorldIsAskedWhereverItIsDecoded) {
  const std::vector<Change<World>> changes = {
      {"no such generation exists", [](World& w) { w.generation = 0; }},
      {"no such generation exists", [](World& w) { w.generation = kMaxGeneration + 1; }},
      {"it has 0 shards", [](World& w) { w.shards = 0; }},
      {"it has 4294967295 shards", [](World& w) { w.shards = 0xffffffff; }},
      {"it resumes after step 4294967296", [](World& w) { w.resume = Position::of(kMaxStep + 1); }},
      {"its plan is of 3 leaves, it has 4 shards", [](World& w) { w.plan.pop_back(); }},
      {"its plan is of 5 leaves, it has 4 shards", [](World& w) { w.plan.emplace_back(); }},
      {"its plan names slot 128", [](World& w) { w.plan[3].slot = kMaxSlots; }},
      {"it has no members", [](World& w) { w.members.clear(); }},
      {"member 9 is at slot 128", [](World& w) { w.members[1].slot_id.slot = kMaxSlots; }},
      {"member 9 begins with step 4294967296",
       [](World& w) { w.members[1].from_step = kMaxStep + 1; }},
      {"member 3 is in it twice", [](World& w) { w.members[1].id = 3; }},
      {"two members are at slot 1", [](World& w) { w.members[1].slot_id = w.members[0].slot_id; }},
      {"none of its members has the state", [](World& w) { w.members[0].needs_state = true; }}};
  for (const auto& [why, change] : changes) {
    World world = sample_world();
    change(world);
    const Bytes frame = encode({1, Announce{world}});
    for (const base::Status& status : {decode(std::span(frame).subspan(kPrefix)).status(),
                                       decode_world(encode_world(world)).status()}) {
      EXPECT_EQ(status.code(), base::Code::kDataLoss) << why;
      EXPECT_EQ(status.message(), fmt::format("malformed World {}: {}", world.generation, why));
    }
  }
}

TEST(WireSense, OfASlotIsChecked) {
  const std::vector<Change<SlotReport>> changes = {
      {"slot 128 is out of range", [](SlotReport& l) { l.slot = kMaxSlots; }},
      {"slot 1 has 33 seals",
       [](SlotReport& l) {
         l.seals.resize(kMaxBuffers + 1, {1, {0, 1}});
       }},
      {"slot 1 has a seal of leaves 2 to 2 of step 1",
       [](SlotReport& l) {
         l.seals = {{1, {2, 2}}};
       }},
      {"slot 1 has a seal of leaves 3 to 2 of step 1",
       [](SlotReport& l) {
         l.seals = {{1, {3, 2}}};
       }},
      {"slot 1 has a seal of leaves 0 to 16385 of step 1",
       [](SlotReport& l) {
         l.seals = {{1, {0, kMaxShards + 1}}};
       }},
      {"slot 1 has a seal of leaves 0 to 1 of step 4294967296", [](SlotReport& l) {
         l.seals = {{kMaxStep + 1, {0, 1}}};
       }}};
  for (const auto& [why, change] : changes) {
    auto lines = sample_slots();
    change(lines[0]);
    const Bytes report = encode({1, Report{5, lines}}),
                hello = encode({1, HelloReply{5, 4, lines}});
    EXPECT_EQ(decode(std::span(report).subspan(kPrefix)).status().message(),
              fmt::format("malformed Report: {}", why));
    EXPECT_EQ(decode(std::span(hello).subspan(kPrefix)).status().message(),
              fmt::format("malformed HelloReply: {}", why));
  }
}

TEST(WireSense, OfTheNumbersInMessagesIsAsked) {
  const std::vector<std::pair<Body, const char*>> bodies = {
      {Welcome{kMaxSlots, 4, 1}, "malformed Welcome: slot 128, 4 shards"},
      {Welcome{1, 0, 1}, "malformed Welcome: slot 1, 0 shards"},
      {Welcome{1, kMaxShards + 1, 1}, "malformed Welcome: slot 1, 16385 shards"},
      {MemberReady{kMaxSlots, {.member = 7}}, "malformed MemberReady: member 7 at slot 128"},
      {Start{1, 3, 3, 0}, "malformed Start: rank 3 of 3"},
      {DeviceLine{1, kMaxSlots, "g", 8, 2, 8, 4096},
       "malformed DeviceLine: slot 128, 2 leaf buffers of 8 bytes and a slice of 8 in 4096 bytes"},
      {DeviceLine{1, 0, "g", 8, 2, 8, 1024},
       "malformed DeviceLine: slot 0, 2 leaf buffers of 8 bytes and a slice of 8 in 1024 bytes"},
      {DeviceLine{1, 0, "g", std::uint64_t{1} << 63, 2, 8, 4096},
       "malformed DeviceLine: slot 0, 2 leaf buffers of 9223372036854775808 bytes and a slice of 8 "
       "in 4096 bytes"},
      {MemberLost{.member = 4, .signal = 128},
       "malformed MemberLost: member 4 with status 0, signal 128"},
      {MemberLost{.member = 4, .exit_code = 256},
       "malformed MemberLost: member 4 with status 256, signal 0"},
      {MemberLost{.member = 4, .exit_code = -1},
       "malformed MemberLost: member 4 with status -1, signal 0"},
      {Report{5, {{.member = 4, .slot = kNoSlot}}},
       "malformed Report: a member that has not joined has a slot"},
      {StartSource{1 << 24, 5}, "malformed StartSource: transfer 16777216 after step 5"},
      {SourceStatus{1 << 24, 5, "", ""}, "malformed SourceStatus: transfer 16777216 after step 5"},
      {StartTarget{1, kMaxStep + 1, {2}, {{0, ""}}},
       "malformed StartTarget: transfer 1 after step 4294967296"},
      {TargetStatus{1 << 24, 2, 5, ""}, "malformed TargetStatus: transfer 16777216 after step 5"},
      {Revoke{kMaxGeneration + 1}, "malformed Revoke: no generation 2097152 exists"},
      {Report{kMaxGeneration + 1, {}}, "malformed Report: no generation 2097152 exists"},
      {HelloReply{kMaxGeneration + 1, 0, {}}, "malformed HelloReply: no generation 2097152 exists"},
      {HelloReply{0, kMaxGeneration + 1, {}},
       "malformed HelloReply: no generation 2097152 exists"}};
  for (const auto& [body, why] : bodies) {
    const Bytes frame = encode({1, body});
    const auto message = decode(std::span(frame).subspan(kPrefix));
    EXPECT_EQ(message.code(), base::Code::kDataLoss) << why;
    EXPECT_EQ(message.status().message(), why);
  }
}

}  // namespace
}  // namespace regroup::proto
