// A process that speaks UCX at the port of a member, which is open to anybody. Without the nonce of
// the member, all its messages are rejected. A process with the nonce is a member, but may be a
// faulty one: messages that no correct member sends are rejected, and the operation goes on, or
// fails with a message that says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "collective/tree_reducer.h"
#include "collective/ucx/communicator.h"
#include "tests/collective/harness.h"
#include "tests/collective/ucx/job.h"
#include "tests/collective/ucx/messages.h"

namespace regroup::collective::testing::ucx_untrusted_peer {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr unsigned kMessageId = 1;  // as in peer_mesh.cc
constexpr proto::Generation kGeneration = 1;
constexpr std::uint64_t kLast = 99;  // number of the last message that it sends

// Connects to a member as a lower rank, which has not connected yet, and sends arbitrary messages.
class UntrustedPeer {
 public:
  // `address`: the member's. `nonce`: what the peer believes to be the member's nonce.
  UntrustedPeer(std::span<const std::byte> address, std::uint64_t nonce, int rank)
      : context_(ucx::open_ucx({.config = {{"TLS", "tcp"}}}).value()),
        address_(ucx::decode(address)[0]),
        nonce_(nonce) {
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_CLIENT_ID;
    worker.thread_mode = UCS_THREAD_MODE_SINGLE;
    worker.client_id = ucx::client_id_of(kGeneration, static_cast<std::size_t>(rank));
    EXPECT_EQ(ucp().ucp_worker_create(context_->handle(), &worker, &worker_), UCS_OK);
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessageId;
    handler.cb = [](void* accepted, const void*, std::size_t, void*, std::size_t, const auto*) {
      *static_cast<bool*>(accepted) = true;
      return UCS_OK;
    };
    handler.arg = &accepted_;
    EXPECT_EQ(ucp().ucp_worker_set_am_recv_handler(worker_, &handler), UCS_OK);
    connect(rank);
  }
  ~UntrustedPeer() {
    for (ucp_ep_h const endpoint : endpoints_) {
      ucp_request_param_t param{};
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_EP_CLOSE_FLAG_FORCE;
      static_cast<void>(finish(ucp().ucp_ep_close_nbx(endpoint, &param)));
    }
    ucp().ucp_worker_destroy(worker_);
  }
  UntrustedPeer(const UntrustedPeer&) = delete;
  UntrustedPeer& operator=(const UntrustedPeer&) = delete;

  // Connects once more, and sends a handshake. Later messages go by this connection.
  void connect(int rank) {
    const ucx::SocketAddress address = ucx::to_socket_address(address_);
    ucp_ep_params_t endpoint{};
    endpoint.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                          UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
    endpoint.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    endpoint.err_handler = {[](void*, ucp_ep_h, ucs_status_t) {}, nullptr};
    endpoint.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID;
    endpoint.sockaddr = {reinterpret_cast<const sockaddr*>(&address.storage), address.bytes};
    EXPECT_EQ(ucp().ucp_ep_create(worker_, &endpoint, &endpoints_.emplace_back()), UCS_OK);
    EXPECT_TRUE(try_send(bytes_of(header_of(ucx::MessageKind::kHandshake, rank, nonce_)), {},
                         UCP_AM_SEND_FLAG_REPLY));
  }
  void progress() { ucp().ucp_worker_progress(worker_); }
  // The member has answered the handshake.
  [[nodiscard]] bool accepted() const { return accepted_; }
  [[nodiscard]] std::uint64_t nonce() const { return nonce_; }
  void send(const RawMessage& message) {
    const Bytes data(message.bytes, std::byte{0x55});
    send(message.header, data);
  }
  void send(const Bytes& header, Input data) { EXPECT_TRUE(try_send(header, data)); }
  // False: the member has closed the connection.
  [[nodiscard]] bool try_send(const Bytes& header, Input data, std::uint32_t flags = 0) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = flags;
    return finish(ucp().ucp_am_send_nbx(endpoints_.back(), kMessageId, header.data(), header.size(),
                                        data.data(), data.size(), &param));
  }

 private:
  [[nodiscard]] const ucx::Ucp& ucp() const { return context_->ucp(); }
  [[nodiscard]] bool finish(ucs_status_ptr_t request) {
    if (!UCS_PTR_IS_PTR(request)) return !UCS_PTR_IS_ERR(request);
    ucs_status_t status = UCS_INPROGRESS;
    EXPECT_TRUE(eventually([&] {
      progress();
      return (status = ucp().ucp_request_check_status(request)) != UCS_INPROGRESS;
    }));
    ucp().ucp_request_free(request);
    return status == UCS_OK;
  }

  const std::shared_ptr<const ucx::UcxContext> context_;
  const ucx::PeerAddress address_;
  const std::uint64_t nonce_;
  ucp_worker_h worker_ = nullptr;
  std::vector<ucp_ep_h> endpoints_;
  bool accepted_ = false;
};

// Shared memory of all ranks.
struct Board {
  std::atomic<bool> delivered;  // all messages of the peer have arrived
  std::atomic<int> through;
};

class UcxUntrustedPeer : public ::testing::Test {
 protected:
  UcxUntrustedPeer() {
    void* memory =
        ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    board_ = new (memory) Board();
  }
  ~UcxUntrustedPeer() override { ::munmap(board_, sizeof(Board)); }

  // The peer takes the place of rank 0 of a World, with the nonce of the last rank, and executes
  // `script`; the other ranks execute `body(rank, comm)`.
  void run(int ranks, const std::function<void(UntrustedPeer&)>& script,
           const std::function<void(int, Communicator&)>& body) {
    const auto job = make_ucx_apart(ranks);
    run_all(Ranks::kProcesses, ranks, [&](int rank) {
      const auto mine = job->in_child();
      if (rank != 0) return run_member(*mine, ranks, rank, body);
      const Bytes address = address_of(*mine, ranks - 1);
      UntrustedPeer peer(address, ucx::nonce_in(address), 0);
      ASSERT_TRUE(progress_until(peer, [&] { return peer.accepted(); }));
      script(peer);
      EXPECT_TRUE(progress_until(peer, [&] { return board_->through == ranks - 1; }));
    });
  }
  // Rank 0 starts a sum once rank 1, which has started it, has rejected `messages` messages and
  // called `then`.
  void sum_once_rejected(
      int rank, Communicator& comm, std::uint64_t messages,
      const std::function<void()>& then = [] {});
  // A World of two, and a peer with a wrong nonce that connects to rank 1 as rank 0.
  void run_beside(const std::function<void(UntrustedPeer&)>& script,
                  const std::function<void(int, Communicator&)>& body) {
    const auto job = make_ucx_apart(2);
    run_all(Ranks::kProcesses, 3, [&](int rank) {
      const auto mine = job->in_child();
      if (rank != 2) return run_member(*mine, 2, rank, body);
      const Bytes address = address_of(*mine, 1);
      UntrustedPeer peer(address, ucx::nonce_in(address) ^ 1, 0);
      script(peer);
      EXPECT_TRUE(progress_until(peer, [&] { return board_->through == 2; }));
      EXPECT_FALSE(peer.accepted());
    });
  }
  static bool progress_until(UntrustedPeer& peer, const std::function<bool()>& ready) {
    return eventually([&] {
      peer.progress();
      return ready();
    });
  }
  static const ucx::PeerMesh& mesh_of(const Communicator& comm) {
    return dynamic_cast<const ucx::UcxCommunicator&>(comm).engine().mesh();
  }
  // Number of messages of a kind in the unexpected queue.
  static int waiting(const Communicator& comm, ucx::MessageKind kind) {
    int count = 0;
    mesh_of(comm).unexpected().for_each(kAllRanks, kind, 0,
                                        [&](const ucx::ActiveMessage&) { return ++count > 0; });
    return count;
  }

  Board* board_;

 private:
  void run_member(TestJob& job, int ranks, int rank,
                  const std::function<void(int, Communicator&)>& body) {
    const auto comm = job.open(make_world(kGeneration, static_cast<std::uint32_t>(ranks)), rank);
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    body(rank, **comm);
    ++board_->through;
  }
  static Bytes address_of(TestJob& job, int rank) {
    std::optional<Bytes> address;
    EXPECT_TRUE(
        eventually([&] { return (address = address_in(job, kGeneration, rank)).has_value(); }));
    return address.value_or(Bytes());
  }
};

// Also with the rank of another member: the point-to-point message that rank 2 waits for, and the
// next operation.
TEST_F(UcxUntrustedPeer, IsRejectedIfItsMessagesAreInvalid) {
  const auto script = [](UntrustedPeer& peer) {
    for (const int from : {0, 1}) {
      for (const RawMessage& message : invalid_messages(from, peer.nonce())) peer.send(message);
    }
    ucx::MessageHeader last = header_of(ucx::MessageKind::kReadyToReceive, 0, peer.nonce());
    last.key.number = kLast;
    peer.send(bytes_of(last), {});
  };
  run(3, script, [&](int rank, Communicator& comm) {
    const Bytes sent(8, std::byte{7});
    if (rank == 1) {
      ASSERT_TRUE(eventually([&] { return board_->delivered.load(); }));
      EXPECT_EQ(comm.run(Operation::send(sent, 2), soon()).to_string(), "ok");
    } else {
      Bytes got(sent.size());
      auto request = comm.start(Operation::receive(got, 1), soon());
      ASSERT_TRUE(request.ok()) << request.status().to_string();
      EXPECT_TRUE(eventually([&] {
        EXPECT_TRUE(request->test().ok());
        return waiting(comm, ucx::MessageKind::kReadyToReceive) > 0;
      }));
      for (int kind = 0; kind <= static_cast<int>(ucx::MessageKind::kFailure); ++kind) {
        const auto of = static_cast<ucx::MessageKind>(kind);
        EXPECT_EQ(waiting(comm, of), of == ucx::MessageKind::kReadyToReceive ? 1 : 0) << kind;
      }
      board_->delivered = true;
      EXPECT_EQ(request->wait().to_string(), "ok");
      EXPECT_EQ(got, sent);
    }
    const base::Status status = comm.run(Operation::barrier(), base::SystemClock().now() + 1s);
    EXPECT_EQ(status.code(), base::Code::kDeadlineExceeded) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("rank 0"));
  });
}

TEST_F(UcxUntrustedPeer, IsNamedIfItsMessageHasNoData) {
  const auto script = [](UntrustedPeer& peer) {
    peer.send(bytes_of(header_of(ucx::MessageKind::kPointToPoint, 0, peer.nonce())), {});
  };
  run(2, script, [](int, Communicator& comm) {
    Bytes got(8);
    const base::Status status = comm.run(Operation::receive(got, 0), soon());
    EXPECT_EQ(status.code(), base::Code::kInvalidArgument) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("receive: 8 bytes, rank 0 sends 0"));
  });
}

struct Row {
  const char* name;
  Bytes nodes;
  const char* why;
};

// A sum of two leaves, of which the member has the second one.
TEST_F(UcxUntrustedPeer, WithImpossibleNodesEndsTheSum) {
  Bytes result(8);
  const CollectiveSignature sum = tree_reduce_signature(Dtype::kFloat32, 2, result.size());
  const auto as_nodes = [](const net::TreeNodes& nodes) {
    const auto bytes = std::as_bytes(std::span(nodes));
    return Bytes(bytes.begin(), bytes.end());
  };
  const Row rows[] = {
      {"too much", Bytes(1 << 20), "message of 1048576 bytes exceeds the maximum of 16"},
      {"ours", as_nodes({{1, 2}}), "not disjoint nodes"},
      {"backwards", as_nodes({{1, 0}}), "not disjoint nodes"},
      {"beyond", as_nodes({{2, 3}}), "not disjoint nodes"},
      {"nothing", {}, "hold [1,2); expected each of 2 leaves once"}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    board_->through = 0;
    const auto script = [&](UntrustedPeer& peer) {
      ucx::MessageHeader header{{kAllRanks, ucx::MessageKind::kData, 1,
                                 net::MessageTag{net::MessageTag::kNodes}.pack(), 0},
                                sum};
      header.nonce = peer.nonce();
      peer.send(bytes_of(header), row.nodes);
      header.key.kind = ucx::MessageKind::kAck;  // for the nodes of the member
      peer.send(bytes_of(header), {});
    };
    run(2, script, [&](int, Communicator& comm) {
      const Partial mine{{1, 2}, result};
      const base::Status status =
          comm.tree_reducer().reduce(std::span(&mine, 1), 2, result, Dtype::kFloat32, soon());
      EXPECT_FALSE(status.ok());
      EXPECT_THAT(status.message(), HasSubstr(row.why));
    });
  }
}

constexpr float kOfZero = 1, kOfOne = 2, kOfUntrusted = 64;

Bytes as_bytes(float value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

// The message of rank 0 to rank 1 in their first operation, a sum of one number.
Bytes header_of_sum(std::uint64_t nonce) {
  Bytes one(sizeof(float));
  const Operation sum = Operation::allreduce(one, one, Dtype::kFloat32, Op::kSum);
  return bytes_of({{kAllRanks, ucx::MessageKind::kData, 1,
                    net::MessageTag{net::MessageTag::kDoubling}.pack(), 0},
                   signature_of(sum, 2),
                   0,
                   nonce});
}

void UcxUntrustedPeer::sum_once_rejected(int rank, Communicator& comm, std::uint64_t messages,
                                         const std::function<void()>& then) {
  const Bytes in = as_bytes(rank == 0 ? kOfZero : kOfOne);
  Bytes out(in.size());
  if (rank == 0) {
    EXPECT_TRUE(eventually([&] { return board_->delivered.load(); }));
  }
  auto request = comm.start(Operation::allreduce(in, out, Dtype::kFloat32, Op::kSum), soon());
  ASSERT_TRUE(request.ok()) << request.status().to_string();
  EXPECT_TRUE(rank == 0 || eventually([&] {
                EXPECT_TRUE(request->test().ok());
                return mesh_of(comm).rejected() >= messages;
              }));
  if (rank == 1) {
    then();
    board_->delivered = true;
  }
  EXPECT_EQ(request->wait().to_string(), "ok");
  EXPECT_EQ(out, as_bytes(kOfZero + kOfOne));
}

// As a member of another job, or of an earlier generation, that had this port: everything is right
// but the nonce.
TEST_F(UcxUntrustedPeer, IsRejectedInTheNameOfAMemberThatConnectsLater) {
  constexpr std::uint64_t kSent = 2 + 7;
  const auto script = [](UntrustedPeer& peer) {
    peer.send(header_of_sum(peer.nonce()), as_bytes(kOfUntrusted));
    for (const RawMessage& message : valid_messages(0, peer.nonce())) peer.send(message);
  };
  run_beside(script, [&](int rank, Communicator& comm) {
    sum_once_rejected(rank, comm, kSent, [&] {
      EXPECT_EQ(mesh_of(comm).rejected(), kSent);
      EXPECT_EQ(mesh_of(comm).connections(), 0U);
    });
  });
}

// Connections that nobody proves to be a member's are held, up to a limit.
TEST_F(UcxUntrustedPeer, ThatConnectsAgainAndAgainKeepsNoMemberOut) {
  constexpr int kConnections = 80;
  const auto script = [](UntrustedPeer& peer) {
    for (int i = 1; i < kConnections; ++i) peer.connect(0);
  };
  run_beside(script,
             [&](int rank, Communicator& comm) { sum_once_rejected(rank, comm, kConnections); });
}

TEST_F(UcxUntrustedPeer, ThatNeverStopsDoesNotDelayTheDeadline) {
  const auto script = [&](UntrustedPeer& peer) {
    const Bytes header = header_of_sum(peer.nonce());
    while (!board_->delivered && peer.try_send(header, as_bytes(kOfUntrusted))) {
    }
  };
  run_beside(script, [&](int rank, Communicator& comm) {
    if (rank == 0) return;
    Bytes got(8);
    auto request = comm.start(Operation::receive(got, 0), soon());
    ASSERT_TRUE(request.ok()) << request.status().to_string();
    EXPECT_TRUE(eventually([&] {
      EXPECT_TRUE(request->test().ok());
      return mesh_of(comm).rejected() > 0;  // it has begun
    }));
    const base::Status status = comm.run(Operation::barrier(), base::SystemClock().now() + 300ms);
    EXPECT_EQ(status.code(), base::Code::kDeadlineExceeded) << status.to_string();
    board_->delivered = true;
  });
}

// A member that runs wild cannot fill the memory of slower ones.
TEST_F(UcxUntrustedPeer, ThatExceedsItsLimitEndsTheGenerationAndIsNamed) {
  const auto script = [](UntrustedPeer& peer) {
    ucx::MessageHeader header = header_of(ucx::MessageKind::kReadyToReceive, 0, peer.nonce());
    for (; header.key.number <= ucx::UnexpectedQueue::kMaxMessages + 1; ++header.key.number)
      peer.send(bytes_of(header), {});
  };
  run(2, script, [&](int, Communicator& comm) {
    const base::Status status = comm.run(Operation::barrier(), soon());
    EXPECT_EQ(status.code(), base::Code::kResourceExhausted) << status.to_string();
    EXPECT_THAT(
        status.message(),
        HasSubstr("generation 1: rank 0: unexpected-message limit exceeded (65536 messages"));
  });
}

}  // namespace
}  // namespace regroup::collective::testing::ucx_untrusted_peer
