// The line of one member to the others in one generation: a UCX worker, its endpoints, the messages that have
// come. Owned and used by one thread; one thread more, of its own, relays the doorbell. What blocks: sleep();
// close() and the destructor, up to 100 ms for thanks and for who is being connected, each, and UCX's moment.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective/ucx/active_message.h"
#include "collective/ucx/doorbell_forwarder.h"
#include "collective/ucx/factory.h"
#include "collective/ucx/library.h"
#include "collective/ucx/listener.h"
#include "collective/ucx/mesh_peer.h"
#include "collective/ucx/peer_address.h"
#include "collective/ucx/transfer.h"
#include "collective/ucx/unexpected_queue.h"
#include "core/arena.h"

namespace regroup::collective {

class PeerMesh {
 public:
  [[nodiscard]] static core::Result<std::shared_ptr<PeerMesh>> open(std::shared_ptr<const UcxContext> context,
                                                                    const core::Arena& arena,
                                                                    core::World world, core::Seat self,
                                                                    Addresses addresses);
  ~PeerMesh();
  PeerMesh(const PeerMesh&) = delete;
  PeerMesh& operator=(const PeerMesh&) = delete;

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
  [[nodiscard]] bool connect(int to);
  // There is a connection, or there was one; to how many.
  [[nodiscard]] bool was_connected(int rank) const {
    const MeshPeer& peer = peers_[static_cast<std::size_t>(rank)];
    return peer.endpoint != nullptr || !peer.lost.empty();
  }
  [[nodiscard]] std::size_t connections() const;
  // Sends a message from us; `connect(to)` was true. `data` is UCX's until the transfer is done; then the
  // message is with the system. To a lost peer: done at once.
  [[nodiscard]] Transfer send(int to, const MessageHeader& header, Input data);
  // For the message just sent `to` says thanks, with whatever it sends next. Such a message has come.
  void expect_ack(int to) { peers_[static_cast<std::size_t>(to)].unacked += 1; }
  void queue_ack(int from) { peers_[static_cast<std::size_t>(from)].pending_acks += 1; }
  [[nodiscard]] std::uint64_t unacked(int by) const { return peers_[static_cast<std::size_t>(by)].unacked; }
  // The messages that have come.
  [[nodiscard]] const UnexpectedQueue& unexpected() const { return unexpected_; }
  [[nodiscard]] ActiveMessage* find(const MatchKey& key) { return unexpected_.find(key); }
  // Moves the data of the message that find() finds, all of it, to `to`, and drops the message.
  [[nodiscard]] Transfer take(const MatchKey& key, std::byte* to);
  void drop(const MatchKey& key) { release(unexpected_.remove(key)); }
  void drop_probes(const CommunicatorId& communicator, std::uint64_t until) {
    unexpected_.drop_probes(communicator, until);
  }
  // A member has sent more than it may; ok as long as none has.
  [[nodiscard]] const core::Status& overrun() const { return overrun_; }
  [[nodiscard]] std::uint64_t rejected() const { return rejected_; }  // messages that no member has sent
  // Why the connection to a rank broke; empty if it did not.
  [[nodiscard]] const std::string& lost(int rank) const {
    return peers_[static_cast<std::size_t>(rank)].lost;
  }
  // Why a rank that we call could not be called last; empty if it could.
  [[nodiscard]] const std::string& connect_error(int rank) const {
    return peers_[static_cast<std::size_t>(rank)].connect_error;
  }
  // Tells the caller's on_peer_lost, once.
  void report_lost(int rank);
  // Tells the caller's on_peer_silent of a rank that we have waited for since `since`, if it is time.
  void report_silent(int rank, core::TimePoint since);

  // Lays `why` where our address is, for members that come when all connections are broken.
  void publish_failure(const std::string& why);
  // What rank `rank` has left there; nothing as long as there is a connection to it.
  [[nodiscard]] std::string published_failure(int rank) const;

  // Moves everything on, but answers callers now and then only; true if anything moved.
  [[nodiscard]] bool progress();
  // True if there were any.
  bool accept_connections();
  // Sleeps until something happens on the mesh, the bell rings that had rung `seen` times, or `until`.
  void sleep(std::uint32_t seen, core::TimePoint until);
  // Breaks all connections; when it returns no memory but our own is touched. Messages from now on go
  // nowhere.
  void close();
  [[nodiscard]] bool closed() const { return worker_ == nullptr; }
  [[nodiscard]] core::Duration probe_interval() const { return context_->probe_interval(); }

 private:
  PeerMesh(std::shared_ptr<const UcxContext> context, const core::Arena& arena, core::World world, int self,
           Addresses addresses);
  [[nodiscard]] core::Status start();
  [[nodiscard]] core::Status failure(const char* call, ucs_status_t status) const;
  [[nodiscard]] const Ucp& ucp() const { return context_->ucp(); }
  [[nodiscard]] Listener& listener() const { return context_->listener(); }
  static ucs_status_t on_message(void* self, const void* header, std::size_t header_bytes, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t* param);
  static void on_error(void* self, ucp_ep_h endpoint, ucs_status_t status);
  static void on_sent(void* request, ucs_status_t status, void* state);
  static void on_fetched(void* request, ucs_status_t status, std::size_t bytes, void* state);
  [[nodiscard]] Transfer begin();
  [[nodiscard]] static Transfer begun(Transfer transfer, ucs_status_ptr_t request);
  static void end(Transfer::State& state);
  void mark_lost(MeshPeer& peer, ucs_status_t status);
  void release(const ActiveMessage& message);
  [[nodiscard]] ucp_ep_params_t endpoint_params();
  [[nodiscard]] static bool accepts_connection(const MeshPeer& peer);
  [[nodiscard]] static bool is_connecting(const MeshPeer& peer);
  void advance_connect(MeshPeer& peer);
  void connect_next_address(MeshPeer& peer);
  void send_handshake(MeshPeer& peer, ucp_ep_h by);
  void on_handshake(int rank, ucp_ep_h endpoint, std::uint64_t nonce);
  Transfer send_by(ucp_ep_h endpoint, MeshPeer& to, const MessageHeader& header, Input data, unsigned flags);
  void flush_acks();
  void await_handshakes();
  void close_endpoint(ucp_ep_h endpoint);

  const std::shared_ptr<const UcxContext> context_;
  const core::Arena& arena_;
  const core::World world_;
  const std::size_t self_;
  const Addresses addresses_;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::uint64_t nonce_ = 0;
  std::vector<MeshPeer> peers_;  // by rank
  std::vector<MeshPeer>
      pending_peers_;  // have called, and not proved yet that they are members; first come first
  UnexpectedQueue unexpected_;
  core::Status overrun_;
  std::uint64_t rejected_ = 0;
  std::size_t requests_ = 0;     // transfers that UCX knows
  unsigned progress_calls_ = 0;  // of progress()
  bool closing_ = false;
  std::unique_ptr<DoorbellForwarder> forwarder_;
};

}  // namespace regroup::collective
