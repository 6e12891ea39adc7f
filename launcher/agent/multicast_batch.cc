// A message is held until a different one follows to the same child, or until the loop runs the
// posted flush().
#include "launcher/agent/multicast_batch.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

namespace regroup::agent {

void MulticastBatch::add(proto::NodeId via, proto::NodeId node, std::vector<std::byte> message,
                         std::uint64_t number) {
  Relayed& held = held_[via];
  const bool another = std::ranges::find(held.nodes, node) == held.nodes.end();
  const bool alike = held.numbers.empty() == (number == 0);
  if (!held.nodes.empty() && (!another || !alike || held.message != message))
    out_(via, std::exchange(held, {}));
  if (held.nodes.empty()) held.message = std::move(message);
  held.nodes.push_back(node);
  if (number != 0) held.numbers.push_back(number);
  if (std::exchange(posted_, true)) return;
  boost::asio::post(loop_, [this, alive = alive_] {
    if (!*alive) return;
    posted_ = false;
    flush();
  });
}

void MulticastBatch::flush() {
  for (const auto& [via, relayed] : std::exchange(held_, {})) {
    if (!relayed.nodes.empty()) out_(via, relayed);
  }
}

}  // namespace regroup::agent
