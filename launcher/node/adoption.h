// How an agent whose parent is gone finds the head of the job: dials it until it answers, nobody listens
// there any more, or it has taken too long.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "core/clock.h"
#include "core/status.h"
#include "launcher/net/secure_channel.h"
#include "launcher/node/node_agent.h"

namespace regroup::node {

// For which an agent tries, and the head waits: those whose parent is silent notice that a second after it.
inline constexpr std::chrono::seconds kOrphanLimit{10}, kOrphanWait{5};

// Used by the loop's thread. Handlers are called from the loop only, and not after its end.
class Adoption {
 public:
  struct Events {
    std::function<void(std::shared_ptr<launcher::SecureChannel>)> found;  // proved
    std::function<void(const core::Status&)> failed;                      // once and last
  };
  // `endpoints` of the head, as launcher::to_string() writes them.
  Adoption(boost::asio::io_context& loop, const NodeAgentOptions& options, std::string endpoints,
           Events events);
  ~Adoption() { *alive_ = false; }
  Adoption(const Adoption&) = delete;
  Adoption& operator=(const Adoption&) = delete;

  // Also when a channel that was found has closed: the time goes on from the first call.
  void look();

 private:
  void dial();
  void on_socket(core::Result<core::Fd> socket);
  void later(const core::Status& why);

  boost::asio::io_context& loop_;
  const std::string job_, endpoints_;
  const core::NodeId node_;
  const std::shared_ptr<const launcher::JobSecret> secret_;
  const Events events_;
  boost::asio::steady_timer timer_;
  core::TimePoint deadline_{};
  std::shared_ptr<launcher::SecureChannel> channel_;  // in its handshake
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace regroup::node
