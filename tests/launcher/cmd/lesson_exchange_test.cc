// Lessons between two agents over real connections: a giver, and a taker whose learner is a real member. Then
// givers that have the secret and send what the true one sent, but for one byte, length or place; and readers
// that ask for what they should not. docs/design/learners.md.
#include "launcher/cmd/lesson_exchange.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

#include "core/crc32c.h"
#include "core/lesson_mark.h"
#include "elastic/migrate.h"
#include "tests/elastic/members.h"
#include "tests/net/net_test.h"

namespace regroup::cmd {
namespace {

using core::kSnapshotChunk;
using core::LessonMark;
using core::NodeId;
using core::Step;
using elastic::testing::Bytes;
using elastic::testing::random_bytes;
using launcher::run_until;
using launcher::SecureChannel;
using membership::AgentCore;
using membership::AgentEffects;
using testing::HasSubstr;

using Payload = std::vector<std::byte>;
using Payloads = std::vector<Payload>;

constexpr NodeId kGives = 0, kTakes = 1, kReads = 2;
constexpr LessonMark kMark{3, 7};
constexpr Step kNewest = 9;
constexpr std::uint32_t kKept = 4;
constexpr std::size_t kState = kSnapshotChunk + 777, kResult = kSnapshotChunk + 600;

// A node with one member.
AgentCore make_core(NodeId node) {
  AgentCore core({.node = node, .slots = 1, .shards = 1, .kept_results = kKept});
  (void)core.handle({}, {1, core::Start{.member = 0}});
  const core::Join join{
      .elements = kResult / 4, .element_bytes = 4, .state_bytes = kState, .model = "m", .fingerprint = "f"};
  (void)core.handle({core::MemberId{0}}, {0, join});
  (void)core.handle({core::MemberId{0}}, {0, core::Ready{}});
  return core;
}

// The true one, whose member has passed kMark and committed the steps up to kNewest.
class Giver {
 public:
  Giver(boost::asio::io_context& loop, std::shared_ptr<const launcher::TlsContext> context)
      : exchange_(loop, std::move(context)) {
    exchange_.attach(core_, [](const AgentEffects&) {});
    EXPECT_TRUE(exchange_.listen().ok());
    core::World world{.incarnation = 1, .generation = 1, .shards = 1};
    world.members.push_back({.id = 0, .seat = {kGives, 0}});
    world.plan.push_back({kGives, 0});
    (void)core_.handle({}, {1, core::Announce{world}});
    at(core::Phase::kOpen, kMark.step - 2);
    (void)core_.handle({}, {1, core::Teach{kMark.lesson, 0}});
    EXPECT_EQ(core_.giver().mark(), kMark);
    write_state();
    for (Step step = kMark.step + 1; step <= kNewest; ++step) commit(step);
    EXPECT_EQ(core_.giver().kept(), kNewest);
  }

  [[nodiscard]] const core::Arena& arena() const { return core_.arena(); }
  [[nodiscard]] const std::string& endpoints() const { return exchange_.endpoints(); }
  [[nodiscard]] bool gives() const { return core_.giver().active(); }

 private:
  void at(core::Phase phase, Step step) {
    arena().line(0).state.store(core::StateWord{phase, false, 1, core::Position::of(step)}.pack());
  }
  void write_state() {
    const auto to = arena().snapshot();
    std::ranges::copy(random_bytes(kState, 1), to.begin());
    for (std::size_t begin = 0, chunk = 0; begin < kState; begin += kSnapshotChunk, ++chunk) {
      const auto part = to.subspan(begin, std::min(kSnapshotChunk, kState - begin));
      arena().snapshot_crcs()[chunk].store(core::crc32c(part, core::snapshot_salt(kMark.lesson)));
    }
    arena().snapshot_used().store(kState);
    arena().line(0).donated_step.store(kMark.pack());
  }
  void commit(Step step) {
    std::ranges::copy(random_bytes(kResult, step), arena().result(step).begin());
    at(core::Phase::kCommitted, step);
    for (bool more = true; more;) (void)core_.poll_lesson(&more);
  }

  AgentCore core_ = make_core(kGives);
  LessonExchange exchange_;
};

// Has the secret, and sends to whoever asks what it is told to.
class FalseGiver {
 public:
  FalseGiver(boost::asio::io_context& loop, std::shared_ptr<const launcher::TlsContext> context)
      : listener_(loop, std::move(context), [this](std::shared_ptr<SecureChannel> channel) {
          if (channel_) channel_->close();
          channel_ = std::move(channel);
          channel_->set_handlers({.message = {},
                                  .closed = [](const core::Status&) {},
                                  .opened = {},
                                  .payload = [this](std::span<const std::byte>) -> core::Status {
                                    for (const Payload& payload : says) channel_->send_payload(payload);
                                    if (hangs_up) channel_->close_when_sent();
                                    return {};
                                  }});
        }) {
    EXPECT_TRUE(listener_.start(0).ok());
  }
  ~FalseGiver() {
    if (channel_) channel_->close();
  }
  FalseGiver(const FalseGiver&) = delete;
  FalseGiver& operator=(const FalseGiver&) = delete;
  [[nodiscard]] std::string endpoints() const { return fmt::format("127.0.0.1:{}", listener_.port()); }

  Payloads says;
  bool hangs_up = false;

 private:
  launcher::SecureListener listener_;
  std::shared_ptr<SecureChannel> channel_;
};

// What came of a lesson: kRefused by the agent, kFound by the member that checks what it has got, or kWaits
// for more. kWrong must not be: what passed is not what the true giver has.
enum class End { kLearned, kRefused, kFound, kWaits, kWrong };

class LessonExchangeTest : public testing::Test {
 protected:
  LessonExchangeTest() {
    exchange_.attach(core_, [this](const AgentEffects& effects) { perform(effects); });
    auto arena = core::Arena::open(core::Fd(::dup(core_.arena().memfd())));
    EXPECT_TRUE(arena.ok()) << arena.status().to_string();
    members_.emplace(std::move(*arena));
    std::jthread welcome([this] { members_->welcome_all(); });
    elastic::Environment env;
    env.agent_socket = members_->path();
    auto learner = elastic::Participant::connect(env, {}, elastic::testing::kPatience);
    EXPECT_TRUE(learner.ok()) << learner.status().to_string();
    learner_ = std::move(*learner);
  }

  void perform(const AgentEffects& effects) {
    for (const auto& effect : effects) {
      if (const auto* fetch = std::get_if<membership::Fetch>(&effect)) exchange_.fetch(fetch->lesson);
      if (std::holds_alternative<membership::StopFetch>(effect)) exchange_.stop_fetch();
      const auto* said = std::get_if<membership::ToCoordinator>(&effect);
      if (said == nullptr) continue;
      if (const auto* learned = std::get_if<core::Learned>(&said->body)) why_ = learned->why;
    }
  }
  // Nothing of an earlier lesson passes for a part of this one.
  void clean() {
    const core::Arena& arena = core_.arena();
    std::ranges::fill(arena.snapshot(), std::byte{0});
    for (auto& crc : arena.snapshot_crcs()) crc.store(0);
    arena.snapshot_used().store(0);
    for (Step step = kMark.step + 1; step <= kNewest; ++step) {
      std::ranges::fill(arena.kept(step), std::byte{0});
      std::ranges::fill(arena.kept_crcs(step), 0U);
      arena.kept_step(step).store(0);
    }
    core::Line& line = arena.line(0);
    for (auto* word : {&line.lesson, &line.learned}) word->store(0);
    why_.clear();
  }
  bool all_there() {
    bool more = false;
    exchange_.attend();
    perform(core_.poll_lesson(&more));
    const core::Arena& arena = core_.arena();
    return arena.line(0).lesson.load() == kMark.pack() && arena.kept_step(kNewest).load() == kNewest;
  }
  End learn_from(const std::string& endpoints) {
    clean();
    perform(core_.handle({}, {1, core::Learn{kMark.lesson, kMark.step, {0}, {{kGives, endpoints}}}}));
    End end = End::kWaits;
    const auto limit = std::chrono::steady_clock::now() + launcher::kDeadline;
    for (bool idle = false; why_.empty() && !all_there() && !idle;) {
      loop_.restart();
      idle = loop_.run_one_for(std::chrono::milliseconds(200)) == 0;  // all who could send are in this loop
      if (std::chrono::steady_clock::now() > limit) break;
    }
    if (!why_.empty())
      end = core_.arena().line(0).lesson.load() == 0 ? End::kRefused : End::kWrong;
    else if (all_there())
      end = look();
    perform(core_.handle({}, {1, core::EndLesson{kMark.lesson}}));
    return end;
  }
  End look() {
    const core::Arena &ours = core_.arena(), &theirs = giver_.arena();
    Bytes state;
    if (!elastic::load_lesson(*learner_, state).ok()) return state.loads == 0 ? End::kFound : End::kWrong;
    bool same = std::ranges::equal(state.bytes(), theirs.snapshot());
    for (Step step = kMark.step + 1; step <= kNewest; ++step) {
      if (!elastic::result_is_sound(ours, step)) return End::kFound;
      same = same && std::ranges::equal(ours.kept(step), theirs.kept(step));
    }
    return same ? End::kLearned : End::kWrong;
  }
  // What the true giver sends: the length, the state, and each result behind its own length.
  Payloads recorded() {
    Payloads all;
    auto reader = call(kReads);
    reader->start({.message = {},
                   .closed = [](const core::Status& why) { FAIL() << why.to_string(); },
                   .opened = {},
                   .payload = [&](std::span<const std::byte> payload) -> core::Status {
                     all.emplace_back(payload.begin(), payload.end());
                     return {};
                   }});
    reader->send_payload(node::encode(node::LessonRequest{kMark.lesson, 0, 1, true}));
    EXPECT_TRUE(run_until(loop_, [&] { return all.size() == 9; }));
    reader->close();
    return all;
  }
  std::shared_ptr<SecureChannel> call(NodeId who) {
    const auto endpoints = launcher::parse_endpoints(giver_.endpoints());
    auto channel = SecureChannel::client(loop_, launcher::node(secret_, who),
                                         launcher::connect_to(endpoints->at(0).port()), kGives);
    EXPECT_TRUE(channel.ok()) << channel.status().to_string();
    return *channel;
  }
  End learn_falsely(Payloads payloads) {
    false_.says = std::move(payloads);
    return learn_from(false_.endpoints());
  }

  boost::asio::io_context loop_{1};
  std::shared_ptr<const launcher::JobSecret> secret_ = launcher::new_secret();
  Giver giver_{loop_, launcher::node(secret_, kGives)};
  FalseGiver false_{loop_, launcher::node(secret_, kGives)};
  AgentCore core_ = make_core(kTakes);
  LessonExchange exchange_{loop_, launcher::node(secret_, kTakes)};
  std::optional<elastic::testing::Agent> members_;
  std::unique_ptr<elastic::Participant> learner_;
  std::string why_;  // the taker could not go on
};

TEST_F(LessonExchangeTest, ALearnerHasWhatTheGiverHas) {
  EXPECT_EQ(learn_from(giver_.endpoints()), End::kLearned) << why_;
  EXPECT_EQ(learn_falsely(recorded()), End::kLearned) << "it says what the true one said: " << why_;
}

TEST_F(LessonExchangeTest, NoByteThatIsChangedIsLearned) {
  const Payloads all = recorded();
  std::mt19937 random(17);
  std::map<End, int> ends;
  const auto change = [&](std::size_t which, std::size_t at) {
    Payloads changed = all;
    changed[which][at] ^= static_cast<std::byte>(random() % 2 == 0 ? 0xff : 1 << random() % 8);
    const End end = learn_falsely(std::move(changed));
    ++ends[end];
    // Only behind the last of all may it wait for more.
    EXPECT_TRUE(end != End::kWrong && (end != End::kWaits || which + 1 == all.size()))
        << "payload " << which << ", byte " << at << ": " << static_cast<int>(end);
    EXPECT_TRUE(end != End::kRefused || !why_.empty());
  };
  for (std::size_t which = 0; which < all.size(); ++which) {
    const std::size_t size = all[which].size();
    for (std::size_t at = 0; at < std::min<std::size_t>(size, 100); ++at) change(which, at);
    for (int n = 0; n < 60; ++n) change(which, random() % size);
    change(which, size - 1);
  }
  EXPECT_GT(ends[End::kRefused], 100);
  EXPECT_GT(ends[End::kFound], 50);
  EXPECT_TRUE(giver_.gives());
  EXPECT_EQ(learn_from(giver_.endpoints()), End::kLearned) << "after all that: " << why_;
}

TEST_F(LessonExchangeTest, NoPayloadThatIsCutOrPaddedIsLearned) {
  const Payloads all = recorded();
  for (std::size_t which = 0; which < all.size(); ++which) {
    const std::size_t size = all[which].size();
    for (const std::size_t left : {std::size_t{0}, std::size_t{1}, size / 2, size - 1}) {
      Payloads cut = all;
      cut[which].resize(left);
      const End end = learn_falsely(std::move(cut));
      EXPECT_TRUE(end == End::kRefused || end == End::kFound || end == End::kLearned) << which << " " << left;
      EXPECT_TRUE(end != End::kLearned || left == size - 1) << "only padding may be missing: " << which;
    }
  }
}

TEST_F(LessonExchangeTest, NothingOutOfTurnIsLearned) {
  const Payloads all = recorded();
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    Payloads less = all, twice = all, other = all;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
    twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(i), all[i]);
    std::swap(other[i], other[i + 1]);
    // A length of results says nothing that is needed; of two chunks of one thing the order is free but for
    // the last.
    const bool length = i == 3 || i == 6;
    EXPECT_EQ(learn_falsely(less), length                       ? End::kLearned
                                   : i == 1 || i == 4 || i == 7 ? End::kFound
                                                                : End::kRefused)
        << "without " << i << ": " << why_;
    const End again = learn_falsely(twice), swapped = learn_falsely(other);
    for (const End end : {again, swapped}) {
      EXPECT_TRUE(end == End::kLearned || end == End::kRefused || end == End::kFound)
          << i << ": " << static_cast<int>(end) << why_;
    }
  }
}

TEST_F(LessonExchangeTest, AGiverThatIsGoneAtAnyMomentIsTold) {
  const Payloads all = recorded();
  false_.hangs_up = true;
  for (std::size_t n = 0; n < all.size(); ++n) {
    EXPECT_EQ(learn_falsely(Payloads(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n))),
              End::kRefused);
    EXPECT_THAT(why_, HasSubstr("127.0.0.1")) << n;
  }
}

TEST_F(LessonExchangeTest, FalseNumbersAreRefusedWithASentence) {
  const auto length = [](std::uint64_t bytes, Step newest) {
    return node::encode(node::LessonLength{bytes, newest});
  };
  const auto chunk = [](Step step, std::uint32_t which, std::size_t size) {
    return node::encode(node::LessonChunk{step, which, false, 0, Payload(size)});
  };
  const struct {
    Payloads says;
    const char* why;
  } rows[] = {
      {{length(kState + 1, 7)}, "are reserved"},
      {{length(~0ULL, 7)}, "are reserved"},
      {{chunk(0, 0, 8)}, "chunk 0 of a snapshot of 0 bytes"},
      {{length(kState, 7), chunk(0, 2, 8)}, "chunk 2 of a snapshot"},
      {{length(kState, 7), chunk(0, ~0U, 8)}, "of a snapshot"},
      {{length(kState, 7), chunk(0, 1, 776)}, "another size"},
      {{length(kState, 7), chunk(8, 0, kSnapshotChunk)}, "out of turn"},  // its state is not here
      {{length(kState, 7), chunk(7, 0, kSnapshotChunk)}, "out of turn"},
      {{length(kState, 7), chunk(~0ULL, 0, 8)}, "out of turn"},
      {{length(kState, kMark.step + core::kMaxKeptResults + 1)},
       "is the newest"},  // who believed it would never catch up
      {{length(kState, ~0ULL)}, "is the newest"},
      {{node::encode(node::LessonRequest{kMark.lesson, 0, 1, true})}, "sent a request"},
      {{node::encode(node::LessonError{"it is tired"})}, "it is tired"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(learn_falsely(row.says), End::kRefused) << row.why;
    EXPECT_THAT(why_, HasSubstr(row.why));
  }
  EXPECT_EQ(learn_falsely(recorded()), End::kLearned) << why_;
}

TEST_F(LessonExchangeTest, ReadersThatAskForWhatIsNotGivenAreSentAway) {
  const struct {
    node::LessonMessage asks;
    const char* told;  // empty: nothing
  } rows[] = {
      {node::LessonRequest{kMark.lesson + 1, 0, 1, true}, "lesson 4 is not given here"},
      {node::LessonRequest{kMark.lesson, 1, 1, true}, ""},
      {node::LessonLength{1, 1}, ""},
      {node::LessonChunk{8, 9, true, 0, Payload(5)}, ""},
      {node::LessonError{"go away"}, ""},
  };
  for (const auto& row : rows) {
    bool closed = false;
    std::string told;
    auto reader = call(kReads);
    reader->start({.message = {},
                   .closed = [&](const core::Status&) { closed = true; },
                   .opened = {},
                   .payload = [&](std::span<const std::byte> payload) -> core::Status {
                     const auto message = node::decode_lesson(payload);
                     EXPECT_TRUE(message.ok() && std::holds_alternative<node::LessonError>(*message));
                     if (message.ok()) told = std::get<node::LessonError>(*message).why;
                     return {};
                   }});
    reader->send_payload(node::encode(row.asks));
    EXPECT_TRUE(run_until(loop_, [&] { return closed; })) << row.told;
    EXPECT_EQ(told, row.told);
    reader->close();
    EXPECT_TRUE(giver_.gives());
  }
  EXPECT_EQ(learn_from(giver_.endpoints()), End::kLearned) << why_;
}

}  // namespace
}  // namespace regroup::cmd
