// What the head says to many agents goes over each of its links once: equal messages that follow each other
// to nodes below the same child become one, with the names of all. Order is kept for each node.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/world.h"
#include "launcher/node/messages.h"

namespace regroup::node {

// Used by the loop's thread.
class Bundle {
 public:
  // `out` gets what is to be sent to the child `via`, from add() or the loop.
  using Out = std::function<void(core::NodeId via, const Relayed& relayed)>;
  Bundle(boost::asio::io_context& loop, Out out) : loop_(loop), out_(std::move(out)) {}
  ~Bundle() { *alive_ = false; }
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;

  // A message as encode() made it, for `node`, which is `via` or below it. 0: it has no number.
  void add(core::NodeId via, core::NodeId node, std::vector<std::byte> message, std::uint64_t number = 0);
  // What is held for this child will not be sent.
  void drop(core::NodeId via) { held_.erase(via); }
  // Now, what is held.
  void flush();

 private:
  boost::asio::io_context& loop_;
  const Out out_;
  std::map<core::NodeId, Relayed> held_;  // by child
  bool posted_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what was posted
};

}  // namespace regroup::node
