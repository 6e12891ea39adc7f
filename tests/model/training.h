// The scenario of the step transaction on one host: members that vote, commit, apply and open the
// next transaction, and an agent that revokes, decides the next World and announces it, all with
// the functions of shmem/state_word.h and shmem/doorbell.h. Members may be killed at any access;
// the agent sees that at once (robust futex), before any reap. Agent and coordinator are one fiber
// here: messages between them are the business of protocol_*.cc.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shmem/doorbell.h"
#include "shmem/generation_fence.h"
#include "shmem/state_word.h"
#include "tests/model/explorer.h"

namespace regroup::model {

using Bell = shmem::Doorbell<Policy>;
using Word = Policy::Atomic<std::uint64_t>;
using Number = Policy::Atomic<std::uint32_t>;
using proto::Generation;
using proto::Position;
using proto::StateWord;

// What the fibers call: the shipped functions, unless a mutant replaces one.
struct Code {
  void (*ring)(Bell&) = &shmem::ring<Policy>;
  void (*revoke)(Word&, Number&, Generation) = &shmem::revoke<Policy>;
  bool (*commit)(Word&, Generation, Position) = &shmem::commit_transaction<Policy>;
  bool (*open)(Word&, Generation, Position, Position) = &shmem::open_transaction<Policy>;
  bool (*accept)(Word&, StateWord, Generation) = [](Word& word, StateWord closed, Generation) {
    return shmem::accept_commit<Policy>(word, closed);
  };
  bool (*join)(Word&, const Number&, StateWord, Generation) = &shmem::join_generation<Policy>;
  bool (*enter)(Word&, StateWord, StateWord) = &shmem::swap_state<Policy>;
  bool (*out)(const Number&, Generation) = &shmem::has_left_before<Policy>;
  void (*leave)(Number&, Generation) = &shmem::leave_generation<Policy>;
  void (*hold_fence)(Number&, Generation) = &shmem::hold_fence<Policy>;
  void (*hand_out)(Number&) = &shmem::leave_all_generations<Policy>;               // agent
  void (*leave_all_generations)(Number&) = &shmem::leave_all_generations<Policy>;  // when excluded
  bool leavers_ring = true;
  bool agent_rings_after_revoke = true;
  bool agent_rings_after_world = true;
  bool voters_ring = true;
  bool decides_after_revoke = true;
  bool counts_the_dead = true;
};

inline constexpr std::size_t kMembers = 3, kGenerations = 8;

struct TrainingOptions {
  unsigned members = 2;
  unsigned newcomers = 0;  // of the members, the last ones but `idle`: admitted in World 2
  unsigned idle = 0;       // of the members, the last ones: warm, and in no World
  // Transactions, in order; a section > 0 is finish(), after which it exits.
  std::vector<Position> positions;
  unsigned revokes = 0;  // without a cause, at any time
  bool holds = false;  // after the last revoke no World follows (below --min): all must wait for it
  bool bells = true;   // false: members see what they wait for by itself; fewer states
  bool fence = false;  // results are written, after the generation fence
  bool lets_go = false;  // the last member is excluded from World 2, and may live on
};

class Training final : public Scenario {
 public:
  Training(TrainingOptions options, const Code& code);

  std::span<std::byte> memory() override { return std::as_writable_bytes(std::span(&shared_, 1)); }
  [[nodiscard]] std::vector<Local> start() const override;
  bool round(std::size_t fiber, Local& local) override;
  [[nodiscard]] std::string name(std::size_t fiber) const override;
  [[nodiscard]] bool mortal(std::size_t fiber) const override {
    return fiber < options_.members - options_.idle;
  }
  void killed(std::size_t fiber) override { shared_.dead[fiber] = 1; }
  [[nodiscard]] std::string broken(const std::byte* before) override;
  [[nodiscard]] std::string stuck(std::size_t fiber, const Local& local) override;

 private:
  struct Seat {
    Bell bell;
    Word state;
    Number revoked_up_to;
    Number left;
    Number leave_request;
    Number pad;  // no byte of the memory is left to chance
  };
  struct Shared {
    Seat seats[kMembers];
    Number newest;                        // World announced
    Number vote[kGenerations][kMembers];  // transactions voted for
    Number dead[kMembers];                // exited or killed
    // A World, immutable once announced.
    std::uint32_t members[kGenerations];  // bits
    std::uint32_t resume[kGenerations];   // transactions committed
    // Bookkeeping of the test.
    std::uint32_t applied[kMembers];    // transactions
    std::uint32_t committed[kMembers];  // transactions
    std::uint32_t joined[kMembers];
    std::uint32_t from_step[kMembers];
    std::uint32_t decided;           // newest World decided
    std::uint32_t writes[kMembers];  // generation whose result this thread may store to, or 0
  };

  [[nodiscard]] bool member_round(std::uint32_t i, Local& local);
  void wait(std::uint32_t i, const std::function<bool()>& ready);
  void pass_fence(std::uint32_t i, Local& local);
  [[nodiscard]] std::string begin_to_write(std::uint32_t i, Generation g);
  void leave(std::uint32_t i, Local& local);
  void leave_all_generations(std::uint32_t i);
  void ring_others(std::uint32_t i);
  void vote(std::uint32_t i, Local& local);
  void await_votes(std::uint32_t i, Local& local);
  [[nodiscard]] bool commit(std::uint32_t i, Local& local);
  void open_next(std::uint32_t i, Local& local);
  [[nodiscard]] bool await_world(std::uint32_t i, Local& local);
  [[nodiscard]] bool join(std::uint32_t i, Local& local, Generation g);
  [[nodiscard]] bool enter_as_newcomer(std::uint32_t i, Generation g);
  [[nodiscard]] bool agent_round(Local& local);
  void decide(Generation g);

  void apply(std::uint32_t i, std::uint32_t transactions);
  [[nodiscard]] Position position(std::uint32_t transaction) const {
    return options_.positions.at(transaction);
  }
  [[nodiscard]] Position position_before(std::uint32_t transaction) const {
    return transaction == 0 ? position(0).before() : position(transaction - 1);
  }
  [[nodiscard]] bool is_idle(std::size_t i) const { return i >= options_.members - options_.idle; }
  [[nodiscard]] bool is_newcomer(std::size_t i) const {
    return !is_idle(i) && i >= options_.members - options_.idle - options_.newcomers;
  }
  [[nodiscard]] bool is_in(std::size_t i, Generation g) const {
    return (shared_.members[g] >> i & 1) != 0;
  }
  [[nodiscard]] std::uint32_t transactions_up_to(Position p) const;
  [[nodiscard]] bool is_finish(std::uint32_t transaction) const {
    return position(transaction).section() != 0;
  }
  // finish() was the last of these: a member that commits or accepts it exits.
  [[nodiscard]] bool ends(std::uint32_t transactions) const {
    return transactions == options_.positions.size() && is_finish(transactions - 1);
  }
  [[nodiscard]] bool anybody_lost(Generation g) const;

  const TrainingOptions options_;
  const Code code_;
  Shared shared_;
};

}  // namespace regroup::model
