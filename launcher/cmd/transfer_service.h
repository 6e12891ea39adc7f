// State transfers between nodes: serves the snapshot and the kept results of this node's arena to agents of
// other nodes, and lays theirs into it. Over TLS with the job's secret, beside the control links.
// docs/design/learners.md.
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

#include "core/status.h"
#include "elastic/membership/agent_core.h"
#include "launcher/net/secure_channel.h"
#include "launcher/net/secure_listener.h"
#include "launcher/node/transfer_messages.h"

namespace regroup::cmd {

// Used by the loop's thread.
class TransferService {
 public:
  using Perform = std::function<void(const membership::AgentEffects&)>;

  TransferService(boost::asio::io_context& loop, std::shared_ptr<const launcher::TlsContext> context)
      : loop_(loop), context_(std::move(context)) {}
  ~TransferService();

  // Before the first state transfer is given here: for those who take it, on a port of its own. Once is
  // enough.
  [[nodiscard]] core::Status listen();
  [[nodiscard]] const std::string& endpoints() const { return endpoints_; }
  // Before any message of the coordinator.
  void attach(membership::AgentCore& core, Perform perform);
  void fetch(const core::StartTarget& transfer);
  void stop_fetch();
  // With each look at the state transfer: sends and takes what has become possible.
  void attend();

 private:
  using Channel = std::shared_ptr<launcher::SecureChannel>;
  struct Reader {  // an agent that takes from here
    explicit Reader(boost::asio::io_context& loop) : deadline(loop) {}
    Channel channel;
    boost::asio::steady_timer deadline;  // of its request
    std::optional<node::TransferRequest> request;
    std::uint64_t next_chunk = 0;  // of its part, or of the result of `step`
    core::Step step = 0;           // that is being sent; 0: the snapshot
    bool length_sent = false;
    bool waiting = false;  // until what is queued has left
  };
  struct Source {  // an agent that gives to us
    std::string host;
    Channel channel;
    bool whole = false;       // its part of the snapshot is here
    bool paused = false;      // no room for results
    std::uint64_t bytes = 0;  // of the snapshot, as it says
  };
  void on_reader(Channel channel);
  void on_request(std::uint64_t id, const node::TransferRequest& request);
  void pump(std::uint64_t id);
  // False: there is nothing to be sent now. kDataLoss: it came too late for what it asks for.
  [[nodiscard]] core::Result<bool> send_next(Reader& reader);
  [[nodiscard]] core::Result<bool> send_snapshot(Reader& reader);
  [[nodiscard]] core::Result<bool> send_result(Reader& reader);
  void send_away(std::uint64_t id, const std::string& why);

  void dial(std::size_t index, const core::SourceAgent& source);
  void connect(std::size_t index, core::NodeId node, core::Fd socket);
  [[nodiscard]] core::Status on_payload(std::size_t index, std::span<const std::byte> payload);
  [[nodiscard]] core::Status take(Source& source, const node::TransferChunk& chunk);
  [[nodiscard]] core::Status take_snapshot(Source& source, const node::TransferChunk& chunk);
  [[nodiscard]] core::Status take_result(Source& source, const node::TransferChunk& chunk);
  void fail(std::size_t index, const std::string& why);

  boost::asio::io_context& loop_;
  const std::shared_ptr<const launcher::TlsContext> context_;
  std::unique_ptr<launcher::SecureListener> listener_;
  std::string endpoints_;
  membership::AgentCore* core_ = nullptr;
  Perform perform_;
  std::map<std::uint64_t, Reader> readers_;
  std::uint64_t last_reader_ = 0;
  std::vector<Source> sources_;  // of the state transfer that we take
  std::uint64_t attempt_ = 0;    // grows: what is on its way for an earlier one is dropped
  const std::shared_ptr<int> alive_ = std::make_shared<int>();  // a dial may end after us
  core::TransferId transfer_ = 0;
  membership::TransferTarget::Received received_;
};

}  // namespace regroup::cmd
