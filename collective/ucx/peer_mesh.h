// The connections of one member to the other members of one generation: a UCX worker, its
// endpoints, and the queue of messages that have arrived.
//
// Owned and used by one thread; a second thread of its own forwards the doorbell. sleep() blocks.
// close() and the destructor block for up to 2 s for acks (not in a revoked generation), 100 ms for
// handshakes under way, and 2 s for UCX to finish requests. A UCX call that fails on a peer marks
// that peer as lost.
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
#include "shmem/arena.h"

namespace regroup::collective::ucx {

class PeerMesh {
 public:
  [[nodiscard]] static base::Result<std::shared_ptr<PeerMesh>> open(
      std::shared_ptr<const UcxContext> context, const shmem::Arena& arena, proto::World world,
      proto::SlotId self, Addresses addresses);
  ~PeerMesh();
  PeerMesh(const PeerMesh&) = delete;
  PeerMesh& operator=(const PeerMesh&) = delete;

  [[nodiscard]] const proto::World& world() const { return world_; }
  [[nodiscard]] const shmem::Arena& arena() const { return arena_; }
  [[nodiscard]] shmem::MemberSlot& own() const {
    return arena_.member_slot(world_.members[self_].slot_id.slot);
  }
  [[nodiscard]] int rank() const { return static_cast<int>(self_); }
  // The generation is revoked.
  [[nodiscard]] bool is_over() const {
    return own().revoked_up_to.load(std::memory_order_acquire) >= world_.generation;
  }

  // Advances the connection to rank `to`; true once send() works: the peer has answered the
  // handshake, or it is lost. The member with the lower rank connects. Both must call it again and
  // again until it is true.
  [[nodiscard]] bool connect(int to);
  // There is a connection to `rank`, or there was one.
  [[nodiscard]] bool was_connected(int rank) const {
    const MeshPeer& peer = peers_[static_cast<std::size_t>(rank)];
    return peer.endpoint != nullptr || !peer.lost.empty();
  }
  // Number of ranks for which was_connected() holds.
  [[nodiscard]] std::size_t connections() const;
  // Sends a message; connect(to) has returned true. UCX owns `data` until the transfer is done:
  // then kernel or network card has taken the message. To a lost peer it is done at once.
  [[nodiscard]] Transfer send(int to, const MessageHeader& header, Input data);
  // The message just sent to `to` needs an ack in a later header of the peer; such a message has
  // been received.
  void expect_ack(int to) { peers_[static_cast<std::size_t>(to)].unacked += 1; }
  void queue_ack(int from) { peers_[static_cast<std::size_t>(from)].pending_acks += 1; }
  [[nodiscard]] std::uint64_t unacked(int by) const {
    return peers_[static_cast<std::size_t>(by)].unacked;
  }
  [[nodiscard]] const UnexpectedQueue& unexpected() const {
    return unexpected_;
  }  // arrived, not taken
  [[nodiscard]] ActiveMessage* find(const MatchKey& key) { return unexpected_.find(key); }
  // Moves all data of the message that find() finds to `to`, and drops the message.
  [[nodiscard]] Transfer take(const MatchKey& key, std::byte* to);
  void drop(const MatchKey& key) { release(unexpected_.remove(key)); }
  void drop_probes(const CommunicatorId& id, std::uint64_t until) {
    unexpected_.drop_probes(id, until);
  }
  // kResourceExhausted once a member has exceeded its limit in the unexpected queue.
  [[nodiscard]] const base::Status& overrun() const { return overrun_; }
  // Messages dropped because their header was invalid or their sender had exceeded its limit.
  [[nodiscard]] std::uint64_t rejected() const { return rejected_; }
  // Why the connection to a rank broke; empty while it has not.
  [[nodiscard]] const std::string& lost(int rank) const {
    return peers_[static_cast<std::size_t>(rank)].lost;
  }
  // Why the last attempt to connect to a rank failed; empty while none has.
  [[nodiscard]] const std::string& connect_error(int rank) const {
    return peers_[static_cast<std::size_t>(rank)].connect_error;
  }
  void report_lost(int rank);  // calls on_peer_lost for a lost rank, once
  // Calls on_peer_silent, when that is due, for a rank that this member has waited for since
  // `since`.
  void report_silent(int rank, base::TimePoint since);

  // Publishes `reason` together with our address, for members that arrive after all connections are
  // closed.
  void publish_failure(const std::string& reason);
  // The reason that rank `rank` has published; empty while there is a connection to it.
  [[nodiscard]] std::string published_failure(int rank) const;

  // Progresses all messages, and on every 16th call accepts connections. True if anything
  // progressed.
  [[nodiscard]] bool progress();
  bool accept_connections();  // true if there were requests
  // Blocks until a message or connection request comes, the doorbell has rung more than `seen`
  // times, or `until`.
  void sleep(std::uint32_t seen, base::TimePoint until);
  // Closes all connections. When it returns, UCX accesses no memory of callers; then send() does
  // nothing.
  void close();
  [[nodiscard]] bool closed() const { return worker_ == nullptr; }
  [[nodiscard]] base::Duration probe_interval() const { return context_->probe_interval(); }

 private:
  PeerMesh(std::shared_ptr<const UcxContext> context, const shmem::Arena& arena, proto::World world,
           int self, Addresses addresses);
  [[nodiscard]] base::Status start();
  [[nodiscard]] base::Status failure(const char* call, ucs_status_t status) const;
  [[nodiscard]] const Ucp& ucp() const { return context_->ucp(); }
  [[nodiscard]] Listener& listener() const { return context_->listener(); }
  static ucs_status_t on_message(void* self, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes, const ucp_am_recv_param_t* param);
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
  Transfer send_by(ucp_ep_h endpoint, MeshPeer& to, const MessageHeader& header, Input data,
                   unsigned flags);
  void flush_acks();
  void await_handshakes();
  void close_endpoint(ucp_ep_h endpoint);

  const std::shared_ptr<const UcxContext> context_;
  const shmem::Arena& arena_;
  const proto::World world_;
  const std::size_t self_;
  const Addresses addresses_;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::uint64_t nonce_ = 0;
  std::vector<MeshPeer> peers_;  // by rank
  // Accepted, membership not proved yet; in the order of acceptance.
  std::vector<MeshPeer> pending_peers_;
  UnexpectedQueue unexpected_;
  base::Status overrun_;
  std::uint64_t rejected_ = 0;
  std::size_t requests_ = 0;     // transfers that UCX has not finished
  unsigned progress_calls_ = 0;  // of progress()
  bool closing_ = false;
  std::unique_ptr<DoorbellForwarder> forwarder_;
};

}  // namespace regroup::collective::ucx
