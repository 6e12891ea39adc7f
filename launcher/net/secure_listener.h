// Lets in who belongs to the job. Strangers may open as many connections as they like: only some are kept,
// for a short time, and a peer that proves itself is not kept waiting behind them.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "core/status.h"
#include "launcher/net/secure_channel.h"

namespace regroup::launcher {

struct SecureListenerLimits {
  std::size_t strangers = 64;  // connections that have not proved themselves; one more ends an earlier one
  SecureChannelLimits channel;
};

// Used by the loop's thread.
class SecureListener {
 public:
  // A channel whose peer() is proved. Call its set_handlers() before returning, else it is closed with its
  // last owner's neglect: messages that come are thrown away.
  using Accepted = std::function<void(std::shared_ptr<SecureChannel>)>;
  SecureListener(boost::asio::io_context& loop, std::shared_ptr<const TlsContext> context, Accepted accepted,
                 SecureListenerLimits limits = {});
  SecureListener(const SecureListener&) = delete;
  SecureListener& operator=(const SecureListener&) = delete;
  // Ends the connections that have not been handed over.
  ~SecureListener();

  // Listens on all addresses of this host. `port` 0: any that is free.
  [[nodiscard]] core::Status start(std::uint16_t port);
  [[nodiscard]] std::uint16_t port() const { return port_; }

  // Connections that did not prove themselves, and why the last of them did not; for status.
  [[nodiscard]] std::uint64_t turned_away() const { return turned_away_; }
  [[nodiscard]] const core::Status& last_reason() const { return last_reason_; }
  [[nodiscard]] std::size_t strangers() const { return strangers_.size(); }

 private:
  using Strangers = std::list<std::shared_ptr<SecureChannel>>;

  void wait();
  void accept();
  void on_no_room();
  void welcome(core::Fd socket);
  void make_room();
  void turn_away(Strangers::iterator stranger, core::Status why);

  boost::asio::io_context& loop_;
  const std::shared_ptr<const TlsContext> context_;
  const Accepted accepted_;
  const SecureListenerLimits limits_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer retry_;
  Strangers strangers_;  // the earliest first
  std::uint16_t port_ = 0;
  std::uint64_t turned_away_ = 0;
  core::Status last_reason_;
};

}  // namespace regroup::launcher
