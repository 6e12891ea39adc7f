// The connections of one member to the other members of one generation: a UCX worker, its
// endpoints, and the queue of messages that have arrived.
//
// Used by one thread; it has a second thread that forwards the doorbell. sleep() blocks. close()
// and the destructor block: up to 2 s for acks (not in a revoked generation), 100 ms for handshakes
// under way, and 2 s for UCX to finish requests. If a UCX call on a peer fails, the mesh marks that
// peer as lost.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/carrier.h"
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
  // True once the generation is revoked.
  [[nodiscard]] bool is_over() const {
    return own().revoked_up_to.load(std::memory_order_acquire) >= world_.generation;
  }

  // Advances the connection to rank `to`. True once send() may be called: the peer has replied to
  // the handshake, or it is lost. The member with the lower rank connects; both members must call
  // this repeatedly until it returns true.
  [[nodiscard]] bool connect(int to);
  // True if there is, or was, a connection to `rank`.
  [[nodiscard]] bool was_connected(int rank) const {
    const MeshPeer& peer = peers_[static_cast<std::size_t>(rank)];
    return peer.endpoint != nullptr || !peer.lost.empty();
  }
  // Number of ranks for which was_connected() holds.
  [[nodiscard]] std::size_t connections() const;
  // Sends a message; connect(to) must have returned true. `data` must not change until the transfer
  // is done, that is, until the kernel or network card has taken the message. A transfer to a lost
  // peer is done at once.
  [[nodiscard]] Transfer send(int to, const MessageHeader& header, Input data);
  // From now on `carrier` takes the data of collective operations, when it can.
  void attach(std::unique_ptr<Carrier> carrier) { carrier_ = std::move(carrier); }
  // Records that the message just sent to `to` needs an ack in a later header from that peer.
  void expect_ack(int to) { peers_[static_cast<std::size_t>(to)].unacked += 1; }
  // Records that such a message has been received: the next header to `from` carries its ack.
  void queue_ack(int from) { peers_[static_cast<std::size_t>(from)].pending_acks += 1; }
  [[nodiscard]] std::uint64_t unacked(int by) const {
    return peers_[static_cast<std::size_t>(by)].unacked;
  }
  // The messages that have arrived and that no operation has taken yet.
  [[nodiscard]] const UnexpectedQueue& unexpected() const { return unexpected_; }
  [[nodiscard]] ActiveMessage* find(const MatchKey& key) { return unexpected_.find(key); }
  // Moves all data of the message that find(key) returns to `to`, and drops the message.
  [[nodiscard]] Transfer take(const MatchKey& key, std::byte* to);
  void drop(const MatchKey& key) { release(unexpected_.remove(key)); }
  void drop_probes(const CommunicatorId& id, std::uint64_t until) {
    unexpected_.drop_probes(id, until);
  }
  // kResourceExhausted once a member has exceeded its limit in the unexpected queue.
  [[nodiscard]] const base::Status& overrun() const { return overrun_; }
  // Number of messages dropped because their header was invalid or their sender had exceeded its
  // limit.
  [[nodiscard]] std::uint64_t rejected() const { return rejected_; }
  // Why the connection to `rank` broke; "" while it has not.
  [[nodiscard]] const std::string& lost(int rank) const {
    return peers_[static_cast<std::size_t>(rank)].lost;
  }
  // Why the last attempt to connect to `rank` failed; "" while none has.
  [[nodiscard]] const std::string& connect_error(int rank) const {
    return peers_[static_cast<std::size_t>(rank)].connect_error;
  }
  void report_lost(int rank);  // calls on_peer_lost, once per rank, if the rank is lost
  // Calls on_peer_silent if that is due. `since`: when this member began to wait for `rank`.
  void report_silent(int rank, base::TimePoint since);

  // Publishes `reason` together with our address, for members that arrive after all connections are
  // closed.
  void publish_failure(const std::string& reason);
  // The reason that `rank` has published; "" while there is a connection to it.
  [[nodiscard]] std::string published_failure(int rank) const;

  // Progresses all messages, and on every 16th call accepts connections. True if anything
  // progressed.
  [[nodiscard]] bool progress();
  bool accept_connections();  // true if there were connection requests
  // Blocks until a message or connection request arrives, the doorbell's count differs from `seen`,
  // or the time is `until`.
  void sleep(std::uint32_t seen, base::TimePoint until);
  // Closes all connections. After it has returned, UCX accesses no memory of callers, and send()
  // does nothing.
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
                   unsigned flags, std::shared_ptr<const std::vector<std::byte>> owned = nullptr);
  [[nodiscard]] bool is_carried(int to, const MessageHeader& header, Input data) const;
  void complete(MessageHeader& header, MeshPeer& to);
  Transfer send_owned(int to, const MessageHeader& header, std::vector<std::byte> data);
  void on_header(const MessageHeader& header);
  [[nodiscard]] Transfer copy(ActiveMessage& message, std::byte* to);
  [[nodiscard]] bool progress_carrier();
  void on_carried(Carrier::Message carried);
  void take_notes();
  void send_parcels();
  void defer(int to, const MessageHeader& header);
  void send_deferred();
  void close_carrier();
  [[nodiscard]] Transfer carry(int to, const MessageHeader& header, Input data);
  bool end_carried(std::uint64_t passed);
  [[nodiscard]] bool is_held(const MeshPeer& peer) const;
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
  // Accepted connections without a handshake yet (see MeshPeer), in the order of acceptance.
  std::vector<MeshPeer> pending_peers_;
  UnexpectedQueue unexpected_;
  base::Status overrun_;
  std::uint64_t rejected_ = 0;
  std::size_t requests_ = 0;     // transfers that UCX has not finished
  unsigned progress_calls_ = 0;  // number of calls of progress()
  bool closing_ = false;
  std::unique_ptr<DoorbellForwarder> forwarder_;
  // Of the carrier (carried.cc).
  struct IncomingNote {
    int from = 0;
    std::vector<std::byte> bytes;
    Transfer transfer;
  };
  std::unique_ptr<Carrier> carrier_;  // or null
  std::deque<ActiveMessage> notes_;   // have arrived
  std::deque<IncomingNote> incoming_notes_;
  std::deque<Carrier::Parcel> outgoing_notes_;  // wait for a connection
  std::deque<Carrier::Parcel> deferred_;        // messages that do, or that the carrier has lost
  std::deque<std::pair<std::uint64_t, Transfer>> carried_;  // have not passed, by their numbers
};

}  // namespace regroup::collective::ucx
