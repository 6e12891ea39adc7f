// The line of one member to the others in one generation: a UCX worker, its endpoints, the letters that have
// come. Owned and used by one thread; one thread more, of its own, relays the doorbell. What blocks: sleep();
// close() and the destructor, up to 100 ms for thanks and for who is being connected, each, and UCX's moment.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective/ucx/bell_relay.h"
#include "collective/ucx/contact.h"
#include "collective/ucx/factory.h"
#include "collective/ucx/letter.h"
#include "collective/ucx/library.h"
#include "collective/ucx/mailbox.h"
#include "collective/ucx/reception.h"
#include "collective/ucx/transfer.h"
#include "collective/ucx/wire_peer.h"
#include "core/arena.h"

namespace regroup::collective {

class Wire {
 public:
  [[nodiscard]] static core::Result<std::shared_ptr<Wire>> open(std::shared_ptr<const UcxContext> context,
                                                                const core::Arena& arena, core::World world,
                                                                core::Seat self, Addresses addresses);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  [[nodiscard]] const core::World& world() const { return world_; }
  [[nodiscard]] const core::Arena& arena() const { return arena_; }
  [[nodiscard]] core::Line& line() const { return arena_.line(world_.members[self_].seat.slot); }
  [[nodiscard]] int rank() const { return static_cast<int>(self_); }
  // The generation is revoked.
  [[nodiscard]] bool is_over() const {
    return line().revoked_up_to.load(std::memory_order_acquire) >= world_.generation;
  }

  // True when send() to rank `to` goes off: of two, the one with the lower rank has called the other, at one
  // of its addresses after the other, and was answered; or it is lost. Call it on both sides, again and
  // again.
  [[nodiscard]] bool reach(int to);
  // There is a connection, or there was one; to how many.
  [[nodiscard]] bool knows(int rank) const {
    const WirePeer& peer = peers_[static_cast<std::size_t>(rank)];
    return peer.endpoint != nullptr || !peer.lost.empty();
  }
  [[nodiscard]] std::size_t connections() const;
  // Sends a letter from us; `reach(to)` was true. `data` is UCX's until the transfer is done; then the letter
  // is with the system. To a lost peer: done at once.
  [[nodiscard]] Transfer send(int to, const LetterHead& head, Input data);
  // For the letter just sent `to` says thanks, with whatever it sends next. Such a letter has come.
  void expect_thanks(int to) { peers_[static_cast<std::size_t>(to)].unthanked += 1; }
  void owe_thanks(int from) { peers_[static_cast<std::size_t>(from)].owed += 1; }
  [[nodiscard]] std::uint64_t unthanked(int by) const {
    return peers_[static_cast<std::size_t>(by)].unthanked;
  }
  // The letters that have come.
  [[nodiscard]] const Mailbox& letters() const { return letters_; }
  [[nodiscard]] Letter* find(const LetterKey& key) { return letters_.find(key); }
  // Moves the data of the letter that find() finds, all of it, to `to`, and drops the letter.
  [[nodiscard]] Transfer take(const LetterKey& key, std::byte* to);
  void drop(const LetterKey& key) { release(letters_.remove(key)); }
  void drop_calls(const LineId& line, std::uint64_t until) { letters_.drop_calls(line, until); }
  // A member has sent more than it may; ok as long as none has.
  [[nodiscard]] const core::Status& overrun() const { return overrun_; }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }  // letters that no member has sent
  // Why the connection to a rank broke; empty if it did not.
  [[nodiscard]] const std::string& lost(int rank) const {
    return peers_[static_cast<std::size_t>(rank)].lost;
  }
  // Why a rank that we call could not be called last; empty if it could.
  [[nodiscard]] const std::string& refused_by(int rank) const {
    return peers_[static_cast<std::size_t>(rank)].refused;
  }
  // Tells the caller's on_peer_lost, once.
  void report_lost(int rank);
  // Tells the caller's on_peer_silent of a rank that we have waited for since `since`, if it is time.
  void report_silent(int rank, core::TimePoint since);

  // Lays `why` where our address is, for members that come when all connections are broken.
  void leave_word(const std::string& why);
  // What rank `rank` has left there; nothing as long as there is a connection to it.
  [[nodiscard]] std::string word_of(int rank) const;

  // Moves everything on, but answers callers now and then only; true if anything moved.
  [[nodiscard]] bool progress();
  // True if there were any.
  bool answer_callers();
  // Sleeps until something happens on the wire, the bell rings that had rung `seen` times, or `until`.
  void sleep(std::uint32_t seen, core::TimePoint until);
  // Breaks all connections; when it returns no memory but our own is touched. Letters from now on go nowhere.
  void close();
  [[nodiscard]] bool closed() const { return worker_ == nullptr; }
  [[nodiscard]] core::Duration roll_interval() const { return context_->roll_interval(); }

 private:
  Wire(std::shared_ptr<const UcxContext> context, const core::Arena& arena, core::World world, int self,
       Addresses addresses);
  [[nodiscard]] core::Status start();
  [[nodiscard]] core::Status failure(const char* call, ucs_status_t status) const;
  [[nodiscard]] const Ucp& ucp() const { return context_->ucp(); }
  [[nodiscard]] Reception& reception() const { return context_->reception(); }
  static ucs_status_t on_letter(void* self, const void* head, std::size_t head_bytes, void* data,
                                std::size_t bytes, const ucp_am_recv_param_t* param);
  static void on_error(void* self, ucp_ep_h endpoint, ucs_status_t status);
  static void on_sent(void* request, ucs_status_t status, void* state);
  static void on_fetched(void* request, ucs_status_t status, std::size_t bytes, void* state);
  [[nodiscard]] Transfer begin();
  [[nodiscard]] static Transfer begun(Transfer transfer, ucs_status_ptr_t request);
  static void end(Transfer::State& state);
  void lose(WirePeer& peer, ucs_status_t status);
  void release(const Letter& letter);
  [[nodiscard]] ucp_ep_params_t endpoint_params();
  [[nodiscard]] static bool is_open_to(const WirePeer& peer);
  [[nodiscard]] static bool waits_for_answer(const WirePeer& peer);
  void call_on(WirePeer& peer);
  void call_next(WirePeer& peer);
  void greet(WirePeer& peer, ucp_ep_h by);
  void welcome(int rank, ucp_ep_h endpoint, std::uint64_t nonce);
  Transfer send_by(ucp_ep_h endpoint, WirePeer& to, const LetterHead& head, Input data, unsigned flags);
  void give_thanks();
  void await_greetings();
  void close_endpoint(ucp_ep_h endpoint);

  const std::shared_ptr<const UcxContext> context_;
  const core::Arena& arena_;
  const core::World world_;
  const std::size_t self_;
  const Addresses addresses_;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::uint64_t nonce_ = 0;
  std::vector<WirePeer> peers_;   // by rank
  std::vector<WirePeer> guests_;  // have called, and not proved yet that they are members; first come first
  Mailbox letters_;
  core::Status overrun_;
  std::uint64_t refused_ = 0;
  std::size_t pending_ = 0;  // transfers that UCX knows
  unsigned turns_ = 0;       // of progress()
  bool closing_ = false;
  std::unique_ptr<BellRelay> relay_;
};

}  // namespace regroup::collective
