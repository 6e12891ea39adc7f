// Merges messages to many agents, so that each crosses a link of the controller once: consecutive
// equal messages to agents reached through the same child become one Relayed message that lists all
// receivers. The order of the messages to each agent is kept.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "launcher/agent/messages.h"
#include "proto/world.h"

namespace regroup::agent {

// Used by the loop's thread.
class MulticastBatch {
 public:
  // `out` sends a message to the child `via`; called from add(), flush() or the loop.
  using Out = std::function<void(proto::NodeId via, const Relayed& relayed)>;
  MulticastBatch(boost::asio::io_context& loop, Out out) : loop_(loop), out_(std::move(out)) {}
  ~MulticastBatch() { *alive_ = false; }
  MulticastBatch(const MulticastBatch&) = delete;
  MulticastBatch& operator=(const MulticastBatch&) = delete;

  // Queues `message`, as encode() made it, for `node`, which is `via` or an agent below it.
  // `number` is that of the ReliableSession with `node`; 0: the message has none.
  void add(proto::NodeId via, proto::NodeId node, std::vector<std::byte> message,
           std::uint64_t number = 0);
  // Discards what is queued for this child.
  void drop(proto::NodeId via) { held_.erase(via); }
  // Sends all that is queued now.
  void flush();

 private:
  boost::asio::io_context& loop_;
  const Out out_;
  std::map<proto::NodeId, Relayed> held_;  // by child
  bool posted_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for the posted flush()
};

}  // namespace regroup::agent
