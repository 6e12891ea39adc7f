// Messages between controller and agents survive the wire, and invalid ones are refused.
#include "launcher/agent/wire.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "launcher/agent/wire_bounds.h"
#include "launcher/agent/wire_generated.h"
#include "tests/base/often.h"
#include "tests/launcher/agent/wire_samples.h"

namespace regroup::agent {
namespace {

using base::often;

template <class Body>
Body through(const Body& body) {
  const auto message = decode(encode(body));
  EXPECT_TRUE(message.ok()) << message.status().to_string();
  return std::get<Body>(*message);
}

TEST(NodeWire, SetupKeepsOutputInputAndMaster) {
  agent::Setup setup;
  setup.host = 3;
  setup.name = "node3";
  setup.output.tag = spec::OutputRequest::Tag::kRank;
  setup.output.timestamp = setup.output.merge_stderr = setup.output.raw = true;
  setup.output.folder = "logs";
  setup.output.job_folder = setup.output.copy = false;
  setup.output.stdout_pattern = "o%r";
  setup.output.stderr_pattern = "e%r";
  setup.stdin_to = {spec::StdinRequest::To::kNone, 2};
  setup.verbose = setup.quiet = setup.services = true;
  setup.master = {"10.0.0.1", 4711};
  setup.suspended_by = {"--notice-file /run/notice", "--notice-url http://m/"};
  const agent::Setup out = through(setup);
  EXPECT_EQ(out.suspended_by, setup.suspended_by);
  EXPECT_EQ(out.host, 3U);
  EXPECT_EQ(out.name, "node3");
  EXPECT_EQ(out.output.tag, setup.output.tag);
  EXPECT_TRUE(out.output.timestamp && out.output.merge_stderr && out.output.raw);
  EXPECT_FALSE(out.output.job_folder || out.output.copy || out.output.terminals);
  EXPECT_EQ(out.output.folder + out.output.stdout_pattern + out.output.stderr_pattern,
            "logso%re%r");
  EXPECT_EQ(out.stdin_to.to, spec::StdinRequest::To::kNone);
  EXPECT_EQ(out.stdin_to.rank, 2U);
  EXPECT_TRUE(out.verbose && out.quiet && out.services);
  EXPECT_EQ(out.master.address, "10.0.0.1");
  EXPECT_EQ(out.master.port, 4711);
}

TEST(NodeWire, TheFactorOfTimeLimitsIsKeptAndBounded) {
  agent::Setup setup;
  EXPECT_EQ(through(setup).time_limit(std::chrono::seconds(20)), std::chrono::seconds(20));
  setup.time_limit_factor = 0.25;
  EXPECT_EQ(through(setup).time_limit(std::chrono::seconds(20)), std::chrono::seconds(5));
  for (const double factor : {0.0, -1.0, 1001.0, std::numeric_limits<double>::quiet_NaN()}) {
    setup.time_limit_factor = factor;
    EXPECT_EQ(decode(encode(Message(setup))).code(), base::Code::kDataLoss) << factor;
  }
}

TEST(NodeWire, SurveysSeatsAndUsageAreKept) {
  EXPECT_TRUE(through(InventoryRequest{true, "/x.topo"}).devices);
  EXPECT_EQ(through(InventoryRequest{false, "/x.topo"}).topology, "/x.topo");
  const InventoryRequest claims = through(InventoryRequest{true, "", {}, {"scope", "", "outer"}});
  EXPECT_EQ(claims.claims.name + claims.claims.outer, "scopeouter");
  EXPECT_EQ(through(InventoryReply{{}, "{}"}).host, "{}");
  const InventoryReply refused =
      through(InventoryReply{{base::Code::kUnavailable, "no hwloc"}, ""});
  EXPECT_EQ(refused.status.code(), base::Code::kUnavailable);
  EXPECT_EQ(refused.status.message(), "no hwloc");
  EXPECT_EQ(through(UsageReport{"{\"members\":[]}"}).json, "{\"members\":[]}");
  agent::Setup setup;
  setup.usage = true;
  setup.claims = {"scope", "", "outer"};
  setup.memory = spec::MemoryPolicy::kInterleave;
  const spec::CheckpointPlan plan = sample_plan();
  setup.elastic = ElasticSetup{.arena_slots = 3,
                               .shards = 4,
                               .slots = {{{0, 2}, {{"A", "1"}}}, {{}, {}}},
                               .checkpoints = plan};
  const agent::Setup out = through(setup);
  EXPECT_TRUE(out.usage);
  EXPECT_EQ(out.memory, spec::MemoryPolicy::kInterleave);
  EXPECT_EQ(out.claims.name + out.claims.outer, "scopeouter");
  EXPECT_EQ(out.elastic->checkpoints, setup.elastic->checkpoints);
  ASSERT_EQ(out.elastic->slots.size(), 2U);
  EXPECT_EQ(out.elastic->slots[0].cores, (std::vector<int>{0, 2}));
  EXPECT_EQ(out.elastic->slots[0].environment.at("A"), "1");
  EXPECT_TRUE(out.elastic->slots[1].cores.empty());
}

TEST(NodeWire, AnotherVersionIsNamedAndNotRead) {
  flatbuffers::FlatBufferBuilder b;
  const auto body = fb::CreateHeartbeat(b);
  b.Finish(fb::CreateMessage(b, kWireVersion + 1, fb::Body::Heartbeat, body.Union()),
           fb::MessageIdentifier());
  const auto message = decode(std::as_bytes(std::span(b.GetBufferPointer(), b.GetSize())));
  EXPECT_EQ(message.code(), base::Code::kInvalidArgument);
  EXPECT_EQ(message.status().message(),
            fmt::format("the peer uses message version {}, this regroup uses version {}",
                        kWireVersion + 1, kWireVersion));
}

TEST(NodeWire, KeepsTheLocalCheckpointOfAHost) {
  const QueryLocalCheckpoint ask{
      {.directory = "/local",
       .shared = "/shared",
       .job = "j1",
       .seed = 7,
       .shards = 4,
       .resume = spec::Resume{"/shared/step-00000200", 200, 7, 4, "isa=avx2"}},
      300};
  const QueryLocalCheckpoint asked = through(ask);
  EXPECT_EQ(asked.plan, ask.plan);
  EXPECT_EQ(asked.copy, 300U);
  EXPECT_FALSE(decode(encode(QueryLocalCheckpoint{})).ok());
  flatbuffers::FlatBufferBuilder b;  // a plan without a directory is none
  const auto nowhere = fb::CreateQueryLocalCheckpoint(b, fb::CreateCheckpoints(b));
  b.Finish(fb::CreateMessage(b, kWireVersion, fb::Body::QueryLocalCheckpoint, nowhere.Union()),
           fb::MessageIdentifier());
  EXPECT_EQ(decode(std::as_bytes(std::span(b.GetBufferPointer(), b.GetSize()))).code(),
            base::Code::kDataLoss);
  const LocalCheckpointReply out = through(
      LocalCheckpointReply{true, {base::Code::kDeadlineExceeded, "/local: late"}, 300, "a line"});
  EXPECT_TRUE(out.busy);
  EXPECT_EQ(out.status.code(), base::Code::kDeadlineExceeded);
  EXPECT_EQ(out.status.message(), "/local: late");
  EXPECT_EQ(out.step, 300U);
  EXPECT_EQ(out.said, "a line");
}

TEST(NodeWire, AStoreOfAHostIsOneOfThoseOfTheJobAndHasAServer) {
  EXPECT_TRUE(
      decode(encode(StartStore{.store = 1, .stores = 2, .servers = 2, .most_servers = 2})).ok());
  EXPECT_FALSE(
      decode(encode(StartStore{.store = 2, .stores = 2, .servers = 2, .most_servers = 2})).ok());
  EXPECT_FALSE(
      decode(encode(StartStore{.store = 0, .stores = 0, .servers = 2, .most_servers = 2})).ok());
  EXPECT_FALSE(
      decode(encode(StartStore{.store = 1, .stores = 2, .servers = 1, .most_servers = 2})).ok());
  EXPECT_FALSE(
      decode(encode(StartStore{.store = 1, .stores = 2, .servers = 3, .most_servers = 2})).ok());
}

TEST(NodeWire, AStoreOfAHostIsToldOfCheckpoints) {
  const StartStore start = through(StartStore{.store = 1,
                                              .stores = 2,
                                              .servers = 2,
                                              .most_servers = 2,
                                              .directory = "/d",
                                              .owner = "j1",
                                              .resume = "/d/step-00000007"});
  EXPECT_EQ(start.directory, "/d");
  EXPECT_EQ(start.owner, "j1");
  EXPECT_EQ(start.resume, "/d/step-00000007");
  EXPECT_EQ(through(QueryStore{.query = 3, .save = "{}"}).save, "{}");
  EXPECT_EQ(through(QueryStore{.query = 3, .lost = {2, 0}}).lost,
            (std::vector<std::uint32_t>{2, 0}));
  EXPECT_FALSE(decode(encode(QueryStore{.save = std::string(9 << 20, '[')})).ok());
  EXPECT_EQ(through(StoreStarted{{}, "a", "b", 1ULL << 40}).version, 1ULL << 40);
}

TEST(NodeWire, ProgramsKeepWhatTheyAreStartedWith) {
  const AddApp add{
      7, {"/bin/a", {"a", "-x"}, {{"A", "1"}, {"EMPTY", ""}}, "/tmp", "worker", {1.5, 1 << 20}}};
  const AddApp out = through(add);
  EXPECT_EQ(out.number, 7U);
  EXPECT_EQ(out.app.path, "/bin/a");
  EXPECT_EQ(out.app.argv, add.app.argv);
  EXPECT_EQ(out.app.environment, add.app.environment);
  EXPECT_EQ(out.app.wdir, "/tmp");
  EXPECT_EQ(out.app.role, "worker");
  EXPECT_EQ(out.app.limits, add.app.limits);
}

TEST(NodeWire, OrdersKeepPlacesAndTheSpace) {
  StartSpace start;
  start.order.space.space = 1;
  start.order.space.app_sizes = {3};
  start.order.space.hosts = {"a", "b"};
  start.order.space.host_of = {0, 1, 1};
  start.order.space.host = 1;
  start.order.space.parent = pmi::ProcId{0, 4};
  process::Place place{11, 2, 3, 5, 1, 1};
  place.host = 1, place.local_rank = 1, place.local_size = 2;
  start.order.members = {{place, 4, {6, 7}, {{"CUDA_VISIBLE_DEVICES", "GPU-1"}, {"EMPTY", ""}}}};
  const StartSpace out = through(start);
  EXPECT_EQ(out.order.space.host_of, start.order.space.host_of);
  EXPECT_EQ(out.order.space.parent, start.order.space.parent);
  EXPECT_TRUE(out.order.space.here(2) && !out.order.space.here(0));
  ASSERT_EQ(out.order.members.size(), 1U);
  const auto& [there, threads, cores, environment] = out.order.members[0];
  EXPECT_EQ(there.member, 11U);
  EXPECT_EQ(there.rank, 2U);
  EXPECT_EQ(there.world_size, 3U);
  EXPECT_EQ(there.app, 5U);
  EXPECT_EQ(there.index, 1U);
  EXPECT_EQ(there.space, 1U);
  EXPECT_EQ(there.host, 1U);
  EXPECT_EQ(there.local_rank, 1U);
  EXPECT_EQ(there.local_size, 2U);
  EXPECT_EQ(threads, 4U);
  EXPECT_EQ(cores, (std::vector<int>{6, 7}));
  EXPECT_EQ(environment, start.order.members[0].environment);
}

TEST(NodeWire, KeepsReportsAboutMembers) {
  const Exited exited{{4, 2, 4711, 0, 9, 64 << 20, ""}};
  const Exited out = through(exited);
  EXPECT_EQ(out.exit.member, 4U);
  EXPECT_EQ(out.exit.rank, 2U);
  EXPECT_EQ(out.exit.pid, 4711);
  EXPECT_EQ(out.exit.signal, 9);
  EXPECT_EQ(out.exit.exceeded_memory, 64U << 20);
  EXPECT_TRUE(through(SpaceStarted{3, {}}).status.ok());
  const SpaceStarted failed = through(SpaceStarted{3, {base::Code::kNotFound, "program x"}});
  EXPECT_EQ(failed.status.code(), base::Code::kNotFound);
  EXPECT_EQ(failed.status.message(), "program x");
  const Services services = through(Services{pmi::Aborted{{1, 2}, 3, "why"}});
  EXPECT_EQ(std::get<pmi::Aborted>(services.message).message, "why");
}

TEST(NodeWire, SmallMessagesAreKept) {
  EXPECT_EQ(through(DropApp{3}).number, 3U);
  EXPECT_EQ(through(Signal{false, 5, 15}).signal, 15);
  EXPECT_TRUE(through(Signal{true, 0, 9}).all);
  through(EndHost{});
  through(Heartbeat{});
  EXPECT_TRUE(through(Done{true}).output_lost);
  EXPECT_EQ(through(Done{false, "a checkpoint"}).unsaved, "a checkpoint");
  EXPECT_EQ(through(UserMessage{"a"}).text, "a");
  const Hello hello = through(Hello{"0.1", "b", 8, 99});
  EXPECT_EQ(hello.version + hello.host_name, "0.1b");
  EXPECT_EQ(hello.slots + hello.port, 107U);
  const StreamData data = through(StreamData{2, true, {std::byte{1}, std::byte{2}}});
  EXPECT_EQ(data.stream, 2);
  EXPECT_TRUE(data.end);
  EXPECT_EQ(data.bytes.size(), 2U);
  EXPECT_TRUE(through(WindowUpdate{1, 10, true}).broken);
  EXPECT_EQ(through(HostNotice{9000, "", HostNotice::Kind::kPauses}).kind,
            HostNotice::Kind::kPauses);
  const HostNotice notice = through(HostNotice{500, "suspend", HostNotice::Kind::kSuspended});
  EXPECT_EQ(notice.within_ms, 500U);
  EXPECT_EQ(notice.why, "suspend");
  EXPECT_EQ(notice.kind, HostNotice::Kind::kSuspended);
}

TEST(NodeWire, KeepsMulticastMessages) {
  const StartAgents start = through(
      StartAgents{"a", {"ssh", "-p", "22"}, "/bin/r", "/w", 5000, {{7, "b", "u"}}, "/opt/r"});
  EXPECT_EQ(start.from + start.program + start.wdir, "a/bin/r/w");
  EXPECT_EQ(start.ssh, (std::vector<std::string>{"ssh", "-p", "22"}));
  EXPECT_EQ(start.limit_ms, 5000U);
  ASSERT_EQ(start.children.size(), 1U);
  EXPECT_EQ(start.children[0].node, 7U);
  EXPECT_EQ(start.children[0].name + start.children[0].user + start.preferred, "bu/opt/r");
  EXPECT_EQ(through(AddRoute{3, {4, 5}}).nodes, (std::vector<proto::NodeId>{4, 5}));
  EXPECT_EQ(through(AddRoute{3, {4, 5}}).via, 3U);
  EXPECT_EQ(through(EndAgent{9}).node, 9U);
  const ChildEvent lost =
      through(ChildEvent{ChildEvent::Kind::kLost, 4, "why", base::Code::kPeerLost});
  EXPECT_EQ(lost.kind, ChildEvent::Kind::kLost);
  EXPECT_EQ(lost.node, 4U);
  EXPECT_EQ(lost.text, "why");
  EXPECT_EQ(lost.code, base::Code::kPeerLost);
  const Relayed relayed = through(Relayed{{1, 2}, encode(UserMessage{"a"})});
  EXPECT_EQ(relayed.nodes, (std::vector<proto::NodeId>{1, 2}));
  EXPECT_EQ(std::get<UserMessage>(*decode(relayed.message)).text, "a");
}

TEST(NodeWire, RefusesInconsistentValues) {
  EXPECT_EQ(decode(encode(StartAgents{"a", {}, "/bin/r", "", 5000, {}})).code(),
            base::Code::kDataLoss);
  EXPECT_EQ(decode(encode(Relayed{{}, encode(Heartbeat{})})).code(), base::Code::kDataLoss);
  EXPECT_EQ(decode(encode(ChildEvent{ChildEvent::Kind::kLost, 4, "", base::Code::kOk})).code(),
            base::Code::kDataLoss);
  EXPECT_EQ(
      decode(encode(ChildEvent{static_cast<ChildEvent::Kind>(9), 4, "", base::Code::kOk})).code(),
      base::Code::kDataLoss);
  EXPECT_EQ(decode(encode(HostNotice{0, "", static_cast<HostNotice::Kind>(5)})).code(),
            base::Code::kDataLoss);
  EXPECT_EQ(decode(encode(StreamData{3, false, {}})).code(), base::Code::kDataLoss);
  EXPECT_EQ(decode(encode(StreamData{1, false, std::vector<std::byte>(kWindow + 1)})).code(),
            base::Code::kDataLoss);
  EXPECT_EQ(decode(encode(WindowUpdate{1, kWindow + 1, false})).code(), base::Code::kDataLoss);
  EXPECT_EQ(decode(encode(AddApp{1, {}})).code(), base::Code::kDataLoss);
  EXPECT_EQ(decode(encode(Hello{"1", "b", proto::kMaxMembers + 1, 1})).code(),
            base::Code::kDataLoss);
  EXPECT_EQ(decode(encode(Exited{{.code = 256}})).code(), base::Code::kDataLoss);
  EXPECT_EQ(decode(encode(Exited{{.signal = -1}})).code(), base::Code::kDataLoss);
  EXPECT_EQ(decode(encode(Services{pmi::Aborted{{}, 1, std::string(17 << 20, 'x')}})).code(),
            base::Code::kDataLoss);
  EXPECT_EQ(decode({}).code(), base::Code::kDataLoss);
  std::vector<std::byte> bytes = encode(Hello{"0.1", "b", 8, 99});
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode(std::span(bytes).first(size)).ok()) << size;
}

TEST(NodeWire, JsonOfAHostIsBounded) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + R"("a[\"[")" + std::string(depth, ']');
  };
  EXPECT_TRUE(bounded_json(nested(64) + nested(64)));
  EXPECT_FALSE(bounded_json(nested(65)));
  EXPECT_EQ(decode(encode(InventoryReply{{}, nested(1'000'000)})).code(), base::Code::kDataLoss);
  EXPECT_EQ(decode(encode(UsageReport{nested(1'000'000)})).code(), base::Code::kDataLoss);
  EXPECT_EQ(decode(encode(UsageReport{std::string(9 << 20, ' ')})).code(), base::Code::kDataLoss);
}

// FlatBuffers verifies where a vector's size lies, not where its numbers do.
TEST(NodeWire, RefusesMisalignedNumbers) {
  int refused = 0;
  for (int more = 0; more < 2; ++more) {
    flatbuffers::FlatBufferBuilder b;
    b.StartVector(4, sizeof(std::uint32_t));  // two numbers of 64 bits, in four halves
    for (std::uint32_t half = 0; half < 4; ++half) b.PushElement(half);
    const flatbuffers::Offset<flatbuffers::Vector<std::uint64_t>> numbers(b.EndVector(2));
    const std::vector<std::uint32_t> nodes = {1, 2};
    const std::vector<std::uint8_t> text(more == 0 ? 4 : 8, 'x');
    const auto at = b.CreateVector(nodes);
    const auto said = b.CreateVector(text);
    const auto relayed = fb::CreateRelayed(b, at, said, false, numbers);
    b.Finish(fb::CreateMessage(b, kWireVersion, fb::Body::Relayed, relayed.Union()),
             fb::MessageIdentifier());
    const auto bytes = std::as_bytes(std::span(b.GetBufferPointer(), b.GetSize()));
    const auto* message = fb::GetMessage(bytes.data())->body_as_Relayed();
    const auto offset = message->numbers()->Data() - b.GetBufferPointer();
    EXPECT_EQ(decode(bytes).ok(), offset % 8 == 0) << offset;
    refused += offset % 8 == 0 ? 0 : 1;
  }
  EXPECT_EQ(refused, 1);
}

TEST(NodeWire, RefusesRepeatedReferences) {
  using Builder = flatbuffers::FlatBufferBuilder;
  const auto refused = [](fb::Body type, const auto& body) {
    Builder b;
    const std::string text(10'000, 'x');
    b.Finish(fb::CreateMessage(b, kWireVersion, type, body(b, text).Union()),
             fb::MessageIdentifier());
    const auto bytes = std::as_bytes(std::span(b.GetBufferPointer(), b.GetSize()));
    const auto message = decode(bytes);
    EXPECT_EQ(message.code(), base::Code::kDataLoss) << fb::EnumNameBody(type);
    EXPECT_NE(message.status().message().find("does not verify"), std::string::npos)
        << message.status().message();
    EXPECT_LT(bytes.size(), 30'000U);
  };
  const auto variables = [](Builder& b, const std::string& text) {
    return b.CreateVector(often(fb::CreateVariable(b, 0, b.CreateString(text))));
  };
  refused(fb::Body::Setup, [&](Builder& b, const std::string& text) {
    const auto slots = b.CreateVector(often(fb::CreateSlotResources(b, 0, variables(b, text))));
    return fb::CreateSetup(b, 0, 0, 0, 0, 0, false, false, false, 0, 0,
                           fb::CreateElastic(b, 0, 0, 0, false, 0, 0, slots));
  });
  refused(fb::Body::Setup, [](Builder& b, const std::string& text) {
    const auto sources = b.CreateVector(often(b.CreateString(text)));
    fb::SetupBuilder setup(b);
    setup.add_suspended_by(sources);
    return setup.Finish();
  });
  refused(fb::Body::AddApp, [](Builder& b, const std::string& text) {
    return fb::CreateAddApp(b, 0, 0, b.CreateVector(often(b.CreateString(text))));
  });
  refused(fb::Body::AddApp, [&](Builder& b, const std::string& text) {
    return fb::CreateAddApp(b, 0, 0, 0, variables(b, text));
  });
  refused(fb::Body::StartSpace, [](Builder& b, const std::string&) {
    const auto cores = b.CreateVector(std::vector<std::int32_t>(2500));
    const auto member = fb::CreateMember(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, cores);
    return fb::CreateStartSpace(b, 0, b.CreateVector(often(member)));
  });
  refused(fb::Body::StartAgents, [](Builder& b, const std::string& text) {
    return fb::CreateStartAgents(b, 0, b.CreateVector(often(b.CreateString(text))));
  });
  refused(fb::Body::StartAgents, [](Builder& b, const std::string& text) {
    const auto child = fb::CreateChild(b, 1, b.CreateString(text));
    return fb::CreateStartAgents(b, 0, 0, 0, 0, 0, b.CreateVector(often(child)));
  });
  refused(fb::Body::Gathered, [](Builder& b, const std::string&) {
    const auto message = b.CreateVector(std::vector<std::uint8_t>(10'000));
    const auto relayed =
        fb::CreateRelayed(b, b.CreateVector(std::vector<std::uint32_t>{1}), message);
    return fb::CreateGathered(b, b.CreateVector(often(relayed)));
  });
}

}  // namespace
}  // namespace regroup::agent
