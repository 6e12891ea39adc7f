// Serves the tests of state transfers between agents.
#include "tests/membership/catchup/transfer_harness.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/crc32c.h"
#include "elastic/state_donation.h"

namespace regroup::catchup {

using elastic::testing::Bytes;
using elastic::testing::random_bytes;
using membership::AgentCore;
using membership::AgentEffects;
using proto::NodeId;
using proto::Step;
using shmem::kSnapshotChunk;
using transport::run_until;
using transport::SecureChannel;

AgentCore make_core(NodeId node, std::size_t state) {
  AgentCore core({.node = node, .slots = 1, .shards = 1, .kept_results = 4});
  (void)core.handle({}, {1, proto::Start{.member = 0}});
  const proto::Join join{.elements = kResult / 4,
                         .element_bytes = 4,
                         .state_bytes = state,
                         .model = "m",
                         .fingerprint = "f"};
  (void)core.handle({proto::MemberId{0}}, {0, join});
  (void)core.handle({proto::MemberId{0}}, {0, proto::Ready{}});
  return core;
}

Payload true_state(std::size_t state) { return random_bytes(state, 1); }
Payload true_result(Step step) { return random_bytes(kResult, step); }

TestSource::TestSource(boost::asio::io_context& loop,
                       std::shared_ptr<const transport::TlsContext> context, NodeId node,
                       std::size_t state)
    : core_(make_core(node, state)), exchange_(loop, std::move(context)) {
  exchange_.attach(core_, [](const AgentEffects&) {});
  EXPECT_TRUE(exchange_.listen().ok());
  proto::World world{.incarnation = 1, .generation = 1, .shards = 1};
  world.members.push_back({.id = 0, .slot_id = {node, 0}});
  world.plan.push_back({node, 0});
  (void)core_.handle({}, {1, proto::Announce{world}});
  at(proto::Phase::kOpen, kMark.step - 2);
  (void)core_.handle({}, {1, proto::StartSource{kMark.transfer, 0}});
  EXPECT_EQ(core_.transfer_source().base(), kMark);
  write_state(state);
  for (Step step = kMark.step + 1; step <= kNewest; ++step) commit(step);
  EXPECT_EQ(core_.transfer_source().kept_up_to(), kNewest);
}

void TestSource::at(proto::Phase phase, Step step) {
  arena().member_slot(0).state.store(
      proto::StateWord{phase, false, 1, proto::Position::of(step)}.pack());
}

void TestSource::write_state(std::size_t state) {
  const auto to = arena().snapshot();
  std::ranges::copy(true_state(state), to.begin());
  for (std::size_t begin = 0, chunk = 0; begin < state; begin += kSnapshotChunk, ++chunk) {
    const auto part = to.subspan(begin, std::min(kSnapshotChunk, state - begin));
    arena().snapshot_crcs()[chunk].store(base::crc32c(part, proto::snapshot_salt(kMark.transfer)));
  }
  arena().snapshot_used().store(state);
  arena().member_slot(0).donated_step.store(kMark.pack());
}

void TestSource::commit(Step step) {
  std::ranges::copy(true_result(step), arena().result(step).begin());
  at(proto::Phase::kCommitted, step);
  for (bool more = true; more;) (void)core_.poll_transfer(&more);
}

FalseSource::FalseSource(boost::asio::io_context& loop,
                         std::shared_ptr<const transport::TlsContext> context)
    : listener_(loop, std::move(context), [this](std::shared_ptr<SecureChannel> channel) {
        if (channel_) channel_->close();
        channel_ = std::move(channel);
        channel_->set_handlers({.message = {},
                                .closed = [](const base::Status&) {},
                                .opened = {},
                                .payload = [this](std::span<const std::byte>) -> base::Status {
                                  for (const Payload& payload : says)
                                    channel_->send_payload(payload);
                                  if (hangs_up) channel_->close_when_sent();
                                  return {};
                                }});
      }) {
  EXPECT_TRUE(listener_.start(0).ok());
}

FalseSource::~FalseSource() {
  if (channel_) channel_->close();
}

std::string FalseSource::endpoints() const { return fmt::format("127.0.0.1:{}", listener_.port()); }

TransferFixture::TransferFixture(std::size_t state)
    : state_(state), core_(make_core(kTakes, state)) {
  exchange_.attach(core_, [this](const AgentEffects& effects) { perform(effects); });
  auto arena = shmem::Arena::open(base::Fd(::dup(core_.arena().memfd())));
  EXPECT_TRUE(arena.ok()) << arena.status().to_string();
  members_.emplace(std::move(*arena));
  std::jthread welcome([this] { members_->welcome_all(); });
  elastic::Environment env;
  env.agent_socket = members_->path();
  auto learner = elastic::Participant::connect(env, {}, {}, elastic::testing::kTimeout);
  EXPECT_TRUE(learner.ok()) << learner.status().to_string();
  learner_ = std::move(*learner);
}

void TransferFixture::perform(const AgentEffects& effects) {
  for (const auto& effect : effects) {
    if (const auto* fetch = std::get_if<membership::Fetch>(&effect))
      exchange_.fetch(fetch->transfer);
    if (std::holds_alternative<membership::StopFetch>(effect)) exchange_.stop_fetch();
    const auto* said = std::get_if<membership::ToCoordinator>(&effect);
    if (said == nullptr) continue;
    if (const auto* learned = std::get_if<proto::TargetStatus>(&said->body)) why_ = learned->why;
  }
}

// Nothing of an earlier state transfer passes for a part of this one.
void TransferFixture::clean() {
  const shmem::Arena& arena = core_.arena();
  std::ranges::fill(arena.snapshot(), std::byte{0});
  for (auto& crc : arena.snapshot_crcs()) crc.store(0);
  arena.snapshot_used().store(0);
  for (Step step = kMark.step + 1; step <= kNewest; ++step) {
    std::ranges::fill(arena.kept_result(step), std::byte{0});
    std::ranges::fill(arena.kept_crcs(step), 0U);
    arena.kept_step(step).store(0);
  }
  shmem::MemberSlot& member_slot = arena.member_slot(0);
  for (auto* word : {&member_slot.transfer, &member_slot.replayed}) word->store(0);
  why_.clear();
}

bool TransferFixture::all_there() {
  bool more = false;
  poll_sources();
  exchange_.poll();
  perform(core_.poll_transfer(&more));
  const shmem::Arena& arena = core_.arena();
  return arena.member_slot(0).transfer.load() == kMark.pack() &&
         arena.kept_step(kNewest).load() == kNewest;
}

End TransferFixture::learn_from(const std::vector<proto::SourceAgent>& sources) {
  clean();
  perform(core_.handle({}, {1, proto::StartTarget{kMark.transfer, kMark.step, {0}, sources}}));
  End end = End::kWaits;
  const auto limit = std::chrono::steady_clock::now() + transport::kDeadline;
  for (bool idle = false; why_.empty() && !all_there() && !idle;) {
    loop_.restart();
    idle = loop_.run_one_for(std::chrono::milliseconds(200)) == 0;  // all senders run in this loop
    if (std::chrono::steady_clock::now() > limit) break;
  }
  if (!why_.empty())
    end = core_.arena().member_slot(0).transfer.load() == 0 ? End::kRefused : End::kWrong;
  else if (all_there())
    end = look();
  perform(core_.handle({}, {1, proto::EndTransfer{kMark.transfer}}));
  return end;
}

End TransferFixture::look() {
  const shmem::Arena& ours = core_.arena();
  Bytes state;
  if (!elastic::load_snapshot(*learner_, state).ok())
    return state.loads == 0 ? End::kFound : End::kWrong;
  bool same = std::ranges::equal(state.bytes(), true_state(state_));
  for (Step step = kMark.step + 1; step <= kNewest; ++step) {
    if (!elastic::result_is_sound(ours, step)) return End::kFound;
    same = same && std::ranges::equal(ours.kept_result(step), true_result(step));
  }
  return same ? End::kLearned : End::kWrong;
}

Payloads TransferFixture::recorded(const TestSource& source, NodeId node, std::uint32_t part,
                                   std::uint32_t parts, std::size_t payloads) {
  Payloads all;
  auto reader = call(source.endpoints(), node);
  reader->start({.message = {},
                 .closed = [](const base::Status& why) { FAIL() << why.to_string(); },
                 .opened = {},
                 .payload = [&](std::span<const std::byte> payload) -> base::Status {
                   all.emplace_back(payload.begin(), payload.end());
                   return {};
                 }});
  reader->send_payload(encode(TransferRequest{kMark.transfer, part, parts, part == 0}));
  EXPECT_TRUE(run_until(loop_, [&] { return all.size() == payloads; }));
  reader->close();
  return all;
}

std::shared_ptr<SecureChannel> TransferFixture::call(const std::string& endpoints, NodeId source) {
  const auto to = transport::parse_endpoints(endpoints);
  auto channel = SecureChannel::client(loop_, transport::node(secret_, kReads),
                                       transport::connect_to(to->at(0).port()), source);
  EXPECT_TRUE(channel.ok()) << channel.status().to_string();
  return *channel;
}

}  // namespace regroup::catchup
