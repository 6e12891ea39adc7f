// Connects an agent that has lost its parent to the controller of the job. Dials until the
// controller proves itself, no process listens at its address any more, or kOrphanLimit has passed.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/agent/node_agent.h"
#include "launcher/transport/secure_channel.h"

namespace regroup::agent {

// How long an orphaned agent dials, and how long the controller waits for it. The agent of a silent
// parent notices the loss one second after the controller does, so the controller's wait may be the
// shorter one.
inline constexpr std::chrono::seconds kOrphanLimit{10}, kOrphanWait{5};

// Used by the loop's thread. Handlers are called from the loop only, and not after destruction.
class Reparenting {
 public:
  struct Events {
    // The handshake is complete.
    std::function<void(std::shared_ptr<transport::SecureChannel>)> connected;
    std::function<void(const base::Status&)> failed;  // called once; no call follows
  };
  // `endpoints` of the controller, as transport::to_string() writes them.
  Reparenting(boost::asio::io_context& loop, const NodeAgentOptions& options, std::string endpoints,
              Events events);
  ~Reparenting() { *alive_ = false; }
  Reparenting(const Reparenting&) = delete;
  Reparenting& operator=(const Reparenting&) = delete;

  // May be called again when a channel that was handed over has closed: the limit counts from the
  // first call.
  void start();

 private:
  void dial();
  void on_socket(base::Result<base::Fd> socket);
  void retry(const base::Status& why);

  boost::asio::io_context& loop_;
  const std::string job_;
  const std::string endpoints_;
  const proto::NodeId node_;
  const std::shared_ptr<const transport::JobSecret> secret_;
  const Events events_;
  boost::asio::steady_timer timer_;
  base::TimePoint deadline_{};
  std::shared_ptr<transport::SecureChannel> channel_;  // in its handshake
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace regroup::agent
