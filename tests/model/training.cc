// The programs of member and agent, and what must hold.
#include "tests/model/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace regroup::model {
namespace {

enum MemberAt : std::uint32_t {
  kVote,
  kAwaitVotes,
  kCommit,
  kOpen,
  kAwaitWorld,
  kJoin,
  kFence,
  kLeave
};
enum AgentAt : std::uint32_t { kIdle, kRevoke, kRingRevoked, kDecide, kAnnounce, kLetGo };
constexpr std::uint32_t kGone = ~0U;  // position of an excluded member
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;

void fail(const std::string& what) {
  Execution* execution = Execution::current();
  if (execution->failure.empty()) execution->failure = what;
}

template <class Ghost>
void note(Ghost ghost) {
  Execution* execution = Execution::current();
  std::string failure;
  execution->note([&] { failure = ghost(); });
  if (!failure.empty()) fail(failure);
}

}  // namespace

Training::Training(TrainingOptions options, const Code& code)
    : options_(std::move(options)), code_(code) {
  std::memset(static_cast<void*>(&shared_), 0, sizeof shared_);
  const unsigned old = options_.members - options_.newcomers - options_.idle;
  shared_.newest = 1;
  shared_.decided = 1;
  shared_.members[1] = (1U << old) - 1;
  for (unsigned i = old; i < options_.members; ++i) {
    shared_.seats[i].revoked_up_to = 1;
    code_.hand_out(shared_.seats[i].left);
  }
  for (unsigned i = 0; i < old; ++i) {
    shared_.joined[i] = shared_.from_step[i] = 1;
    shared_.seats[i].state = StateWord{proto::Phase::kOpen, false, 1, position(0)}.pack();
  }
  const auto named = [&](const void* cell, std::string name) {
    cells[static_cast<std::size_t>(static_cast<const std::byte*>(cell) - memory().data())] =
        std::move(name);
  };
  named(&shared_.newest, "newest World");
  for (unsigned i = 0; i < options_.members; ++i) {
    named(&shared_.seats[i].bell.count, fmt::format("bell {}", i));
    named(&shared_.seats[i].bell.sleeping, fmt::format("sleeping {}", i));
    named(&shared_.seats[i].state, fmt::format("state {}", i));
    named(&shared_.seats[i].revoked_up_to, fmt::format("revoked up to {}", i));
    named(&shared_.seats[i].left, fmt::format("left {}", i));
    named(&shared_.seats[i].leave_request, fmt::format("leave {}", i));
    for (Generation g = 1; g < kGenerations; ++g)
      named(&shared_.vote[g][i], fmt::format("vote {} of g{}", i, g));
  }
}

std::vector<Local> Training::start() const {
  std::vector<Local> out(options_.members + 1);
  for (unsigned i = 0; i < options_.members; ++i) {
    out[i] = {.pc = options_.fence ? kFence : kVote, .generation = 1};
    if (is_newcomer(i)) out[i] = {.pc = kAwaitWorld, .generation = 1};
  }
  out.back() = {.pc = kIdle, .generation = 1};
  return out;
}

std::string Training::name(std::size_t fiber) const {
  return fiber == options_.members ? "agent" : fmt::format("member {}", fiber);
}

bool Training::round(std::size_t fiber, Local& local) {
  return fiber == options_.members ? agent_round(local)
                                   : member_round(static_cast<std::uint32_t>(fiber), local);
}

// --- member

bool Training::member_round(std::uint32_t i, Local& local) {
  if (is_idle(i)) return false;
  switch (local.pc) {
    case kFence:
      pass_fence(i, local);
      return true;
    case kVote:
      vote(i, local);
      return true;
    case kAwaitVotes:
      await_votes(i, local);
      return true;
    case kCommit:
      return commit(i, local);
    case kOpen:
      open_next(i, local);
      return true;
    case kLeave:
      leave(i, local);
      return true;
    case kAwaitWorld:
      return await_world(i, local);
    default:
      return join(i, local, std::exchange(local.count, 0));
  }
}

// Once in a generation, before the first store to a result.
void Training::pass_fence(std::uint32_t i, Local& local) {
  const Generation g = local.generation;
  bool all = false;
  const auto ready = [&] {
    all = true;
    for (unsigned j = 0; all && j < options_.members; ++j) {
      all = shared_.dead[j].load(kAcquire) != 0 || code_.out(shared_.seats[j].left, g);
    }
    return all || shared_.seats[i].revoked_up_to.load(kAcquire) >= g;
  };
  wait(i, ready);
  if (all) note([&] { return begin_to_write(i, g); });
  local.pc = all ? kVote : kLeave;
}

std::string Training::begin_to_write(std::uint32_t i, Generation g) {
  shared_.writes[i] = g;
  for (unsigned j = 0; j < options_.members; ++j) {
    if (shared_.dead[j].load() != 0 || shared_.writes[j] == 0 || shared_.writes[j] == g) continue;
    return fmt::format(
        "member {} writes a result of g{} while member {} may still write one of g{}", i, g, j,
        shared_.writes[j]);
  }
  return {};
}

void Training::leave(std::uint32_t i, Local& local) {
  local.pc = kAwaitWorld;
  if (!options_.fence) return;
  note([&] { return shared_.writes[i] = 0, std::string(); });
  code_.leave(shared_.seats[i].left, local.generation);
  ring_others(i);
}

// Excluded: it may live on for long.
void Training::leave_all_generations(std::uint32_t i) {
  note([&] { return shared_.writes[i] = 0, std::string(); });
  code_.leave_all_generations(shared_.seats[i].left);
  ring_others(i);
}

void Training::ring_others(std::uint32_t i) {
  for (unsigned j = 0; options_.bells && code_.leavers_ring && j < options_.members; ++j) {
    if (j != i) code_.ring(shared_.seats[j].bell);
  }
}

void Training::vote(std::uint32_t i, Local& local) {
  const Generation g = local.generation;
  note([&]() -> std::string {
    const std::span committed(shared_.committed);
    if (std::ranges::none_of(committed, [&](std::uint32_t n) { return n > local.position; }))
      return {};
    return fmt::format("member {} votes on transaction {}, which somebody committed", i,
                       local.position);
  });
  shared_.vote[g][i].store(local.position + 1, kRelease);
  for (unsigned j = 0; options_.bells && code_.voters_ring && j < options_.members; ++j) {
    if (j != i && (shared_.members[g] >> j & 1) != 0) code_.ring(shared_.seats[j].bell);
  }
  local.pc = kAwaitVotes;
}

void Training::wait(std::uint32_t i, const std::function<bool()>& ready) {
  if (!options_.bells) return Execution::current()->await(ready);
  Execution::current()->round_is_wait_loop();
  (void)shmem::wait_until(shared_.seats[i].bell, ready, base::TimePoint::max());
}

void Training::await_votes(std::uint32_t i, Local& local) {
  const Generation g = local.generation;
  bool all = false;
  const auto ready = [&] {
    all = true;
    for (unsigned j = 0; all && j < options_.members; ++j) {
      const bool asked = j != i && (shared_.members[g] >> j & 1) != 0;
      if (asked) all = shared_.vote[g][j].load(kAcquire) > local.position;
    }
    return all || shared_.seats[i].revoked_up_to.load(kAcquire) >= g;
  };
  wait(i, ready);
  local.pc = all ? kCommit : kLeave;
}

bool Training::commit(std::uint32_t i, Local& local) {
  local.pc = kLeave;
  if (!code_.commit(shared_.seats[i].state, local.generation, position(local.position)))
    return true;
  note([&]() -> std::string {
    shared_.committed[i] = local.position + 1;
    if (shared_.decided == local.generation) return {};
    return fmt::format("member {} commits in g{} after World {} was decided", i, local.generation,
                       shared_.decided);
  });
  apply(i, ++local.position);
  local.pc = kOpen;
  return local.position < options_.positions.size();
}

void Training::open_next(std::uint32_t i, Local& local) {
  const std::uint32_t next = local.position;
  const bool opened =
      code_.open(shared_.seats[i].state, local.generation, position_before(next), position(next));
  const bool first = options_.fence && shared_.writes[i] != local.generation;
  local.pc = !opened ? kLeave : first ? kFence : kVote;
}

// False: it was excluded, and nothing is left to do.
bool Training::await_world(std::uint32_t i, Local& local) {
  if (local.position == kGone) return leave_all_generations(i), false;
  Generation newest = 0;
  bool gone = false;
  const auto ready = [&] {
    gone = options_.lets_go && shared_.seats[i].leave_request.load(kAcquire) != 0;
    newest = shared_.newest.load(kAcquire);
    const bool newer = newest > std::max(local.generation, local.count);
    return gone || (newer && shared_.seats[i].revoked_up_to.load(kAcquire) < newest);
  };
  wait(i, ready);
  if (gone) return local.position = kGone, true;
  local.count = newest;
  local.pc = kJoin;
  return true;
}

bool Training::join(std::uint32_t i, Local& local, Generation g) {
  Word& word = shared_.seats[i].state;
  const std::uint32_t resume = shared_.resume[g];
  local.pc = kAwaitWorld;
  if (!is_in(i, g)) return local.count = g, true;
  if (is_newcomer(i) && local.generation == 1 && !enter_as_newcomer(i, g)) return true;
  const StateWord from = shmem::load_state<Policy>(word);
  if (from.phase == proto::Phase::kClosed && transactions_up_to(from.position) <= resume) {
    if (!code_.accept(word, from, g)) return true;
    const std::uint32_t transactions = transactions_up_to(from.position);
    apply(i, transactions);
    return !ends(transactions);  // if it goes on, with the same World again
  }
  if (options_.fence) code_.hold_fence(shared_.seats[i].left, g);
  if (!code_.join(word, shared_.seats[i].revoked_up_to, from, g)) return true;
  note([&]() -> std::string {
    shared_.joined[i] = 1;
    if (shared_.applied[i] == resume) return {};
    return fmt::format("member {} enters World {}, which resumes after {}, but has applied {}", i,
                       g, resume, shared_.applied[i]);
  });
  local.generation = g;
  local.position = resume;
  local.pc = from.phase != proto::Phase::kClosed ? kOpen : options_.fence ? kFence : kVote;
  return resume < options_.positions.size();
}

// As if it had copied the state of `resume`. False: it must look at the Worlds again.
bool Training::enter_as_newcomer(std::uint32_t i, Generation g) {
  const StateWord from = shmem::load_state<Policy>(shared_.seats[i].state);
  const std::uint32_t resume = shared_.resume[g];
  const Generation over = from.phase == proto::Phase::kNone ? g - 1 : from.generation;
  const StateWord to{proto::Phase::kCommitted, true, over, position_before(resume)};
  if (options_.fence && from.phase == proto::Phase::kNone)
    code_.hold_fence(shared_.seats[i].left, g);
  if (from != to && !code_.enter(shared_.seats[i].state, from, to)) return false;
  note([&]() -> std::string { return shared_.applied[i] = resume, std::string(); });
  return true;
}

void Training::apply(std::uint32_t i, std::uint32_t transactions) {
  note([&]() -> std::string {
    shared_.committed[i] = transactions;
    const std::uint32_t before = std::exchange(shared_.applied[i], transactions);
    if (ends(transactions)) shared_.dead[i].store(1);  // exit 0
    if (before + 1 == transactions) return {};
    return fmt::format("member {} applies transaction {} after {}", i, transactions, before);
  });
}

std::uint32_t Training::transactions_up_to(Position p) const {
  return static_cast<std::uint32_t>(std::ranges::upper_bound(options_.positions, p) -
                                    options_.positions.begin());
}

// --- agent

bool Training::anybody_lost(Generation g) const {
  for (unsigned i = 0; i < options_.members; ++i) {
    if ((shared_.members[g] >> i & 1) != 0 && shared_.dead[i].load() != 0) return true;
  }
  return false;
}

bool Training::agent_round(Local& local) {
  const Generation g = local.generation;
  const auto go = [&](AgentAt pc) { local.pc = pc, local.position = 0; };
  switch (local.pc) {
    case kIdle:
      if (shared_.members[g] == 0) return false;
      Execution::current()->await(
          [&] { return local.count < options_.revokes || anybody_lost(g); });
      if (local.count < options_.revokes) ++local.count;
      go(code_.decides_after_revoke ? kRevoke : kDecide);
      break;
    case kRevoke:
      code_.revoke(shared_.seats[local.position].state, shared_.seats[local.position].revoked_up_to,
                   g);
      local.pc = kRingRevoked;
      break;
    case kRingRevoked:
      if (options_.bells && code_.agent_rings_after_revoke)
        code_.ring(shared_.seats[local.position].bell);
      local.pc = kRevoke;
      if (++local.position == options_.members)
        go(code_.decides_after_revoke ? kDecide : kAnnounce);
      break;
    case kDecide:
      if (options_.holds && local.count == options_.revokes) return false;
      decide(g);
      go(code_.decides_after_revoke ? kAnnounce : kRevoke);
      break;
    case kAnnounce:
      if (local.position == 0) shared_.newest.store(g + 1, kRelease);
      if (options_.bells && code_.agent_rings_after_world)
        code_.ring(shared_.seats[local.position].bell);
      if (++local.position < options_.members) break;
      go(options_.lets_go && g == 1 ? kLetGo : kIdle);
      ++local.generation;
      break;
    case kLetGo:
      shared_.seats[options_.members - 1].leave_request.store(1, kRelease);
      if (options_.bells) code_.ring(shared_.seats[options_.members - 1].bell);
      go(kIdle);
  }
  return true;
}

void Training::decide(Generation g) {
  std::uint32_t resume = shared_.resume[g];
  for (unsigned i = 0; i < options_.members; ++i) {
    if (!code_.counts_the_dead && shared_.dead[i].load() != 0) continue;
    const StateWord word = shmem::load_state<Policy>(shared_.seats[i].state);
    resume =
        std::max(resume, transactions_up_to(proto::committed_up_to(word, shared_.from_step[i])));
  }
  note([&]() -> std::string {
    if (g + 1 >= kGenerations) return "more generations than the scenario has room for";
    shared_.decided = g + 1;
    shared_.resume[g + 1] = resume;
    for (unsigned i = 0; i < options_.members; ++i) {
      const bool let_go = options_.lets_go && i + 1 == options_.members;
      if (shared_.dead[i].load() == 0 && !is_idle(i) && !let_go) shared_.members[g + 1] |= 1U << i;
      if (shared_.joined[i] == 0)
        shared_.from_step[i] = static_cast<std::uint32_t>(position_before(resume).step()) + 1;
      if (shared_.committed[i] <= resume) continue;
      return fmt::format("World {} resumes after {}, but member {} committed {}", g + 1, resume, i,
                         shared_.committed[i]);
    }
    return {};
  });
}

// --- what must hold

std::string Training::broken(const std::byte* before) {
  Shared old = shared_;
  std::memcpy(static_cast<void*>(&old), before, sizeof old);
  for (unsigned i = 0; i < options_.members; ++i) {
    const StateWord was = StateWord::unpack(old.seats[i].state.load());
    const StateWord now = StateWord::unpack(shared_.seats[i].state.load());
    const bool backwards = now.generation < was.generation || now.position < was.position;
    const bool undone = was.phase == proto::Phase::kCommitted &&
                        now.phase != proto::Phase::kCommitted && now.position == was.position;
    const bool reopened = was.revoked && now.phase == proto::Phase::kOpen;
    if (backwards || undone || reopened) {
      return fmt::format("state {} goes from {} to {}", i, show(8, was.pack()),
                         show(8, now.pack()));
    }
    if (shared_.seats[i].revoked_up_to.load() < old.seats[i].revoked_up_to.load())
      return "revoked-up-to shrinks";
  }
  return {};
}

std::string Training::stuck(std::size_t fiber, const Local& local) {
  if (fiber == options_.members) return local.pc == kIdle ? "" : "the agent never waits";
  const Generation newest = shared_.newest.load();
  const bool none =
      newest <= local.generation || shared_.seats[fiber].revoked_up_to.load() >= newest;
  if (options_.holds && local.pc == kAwaitWorld && none) return "";
  constexpr const char* kWhere[] = {"votes",
                                    "awaits votes",
                                    "commits",
                                    "opens",
                                    "awaits a World",
                                    "joins",
                                    "waits at the generation fence",
                                    "leaves"};
  return fmt::format("it {} in g{}, newest World {}", kWhere[local.pc], local.generation, newest);
}

}  // namespace regroup::model
