// State transfers between nodes: serves the snapshot and the ring of results in this node's arena
// to agents of other nodes, and fetches theirs into this arena. Uses its own TLS connections with
// the job's secret. docs/design/catch_up.md.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/transport/secure_channel.h"
#include "launcher/transport/secure_listener.h"
#include "membership/agent/agent_core.h"
#include "membership/catchup/transfer_messages.h"

namespace regroup::catchup {

// Used by the event loop's thread only. Never blocks.
class TransferService {
 public:
  using Perform = std::function<void(const membership::AgentEffects&)>;

  TransferService(boost::asio::io_context& loop,
                  std::shared_ptr<const transport::TlsContext> context)
      : loop_(loop), context_(std::move(context)) {}
  ~TransferService();

  // Opens a port for targets. Call it before this node serves its first transfer; later calls do
  // nothing.
  [[nodiscard]] base::Status listen();
  [[nodiscard]] const std::string& endpoints() const { return endpoints_; }
  // Call once, before the agent handles any message from the coordinator.
  void attach(membership::AgentCore& core, Perform perform);
  void fetch(const proto::StartTarget& transfer);
  void stop_fetch();
  // Call periodically during a transfer: sends and receives as much as possible without blocking.
  void poll();

 private:
  using Channel = std::shared_ptr<transport::SecureChannel>;
  struct Reader {  // an agent that fetches from here
    explicit Reader(boost::asio::io_context& loop) : deadline(loop) {}
    Channel channel;
    boost::asio::steady_timer deadline;  // by which its request must arrive
    std::optional<catchup::TransferRequest> request;
    std::uint64_t next_chunk = 0;  // of its part of the snapshot, or of the result of `step`
    proto::Step step = 0;          // the result that is being sent; 0: the snapshot
    bool length_sent = false;
    bool waiting = false;  // the connection's queue is full
  };
  struct Source {  // an agent that serves us
    std::string host;
    Channel channel;
    bool whole = false;       // its part of the snapshot has arrived
    bool paused = false;      // not read, since the ring has no room for results
    std::uint64_t bytes = 0;  // size of the snapshot, as the source reports it
  };
  void on_reader(Channel channel);
  void on_request(std::uint64_t id, const catchup::TransferRequest& request);
  void pump(std::uint64_t id);
  // False: nothing to send now. kDataLoss: what the reader requests no longer exists.
  [[nodiscard]] base::Result<bool> send_next(Reader& reader);
  [[nodiscard]] base::Result<bool> send_snapshot(Reader& reader);
  [[nodiscard]] base::Result<bool> send_result(Reader& reader);
  void drop_reader(std::uint64_t id, const std::string& why);

  void dial(std::size_t index, const proto::SourceAgent& source);
  void connect(std::size_t index, proto::NodeId node, base::Fd socket);
  [[nodiscard]] base::Status on_payload(std::size_t index, std::span<const std::byte> payload);
  [[nodiscard]] base::Status take(Source& source, const catchup::TransferChunk& chunk);
  [[nodiscard]] base::Status take_snapshot(Source& source, const catchup::TransferChunk& chunk);
  [[nodiscard]] base::Status take_result(Source& source, const catchup::TransferChunk& chunk);
  void fail(std::size_t index, const std::string& why);

  boost::asio::io_context& loop_;
  const std::shared_ptr<const transport::TlsContext> context_;
  std::unique_ptr<transport::SecureListener> listener_;
  std::string endpoints_;
  membership::AgentCore* core_ = nullptr;
  Perform perform_;
  std::map<std::uint64_t, Reader> readers_;
  std::uint64_t last_reader_ = 0;
  std::vector<Source> sources_;  // of the transfer that is being fetched
  std::uint64_t attempt_ = 0;    // number of the fetch; events of an earlier one are ignored
  // Expires with this object, after which a dial that ends does nothing.
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
  proto::TransferId transfer_ = 0;
  membership::TransferTarget::Received received_;
};

}  // namespace regroup::catchup
