// Accepts connections of processes that belong to the job. Unauthenticated connections are limited
// in number and time, so a flood of them does not delay a peer that authenticates.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "base/status.h"
#include "launcher/transport/secure_channel.h"

namespace regroup::transport {

struct SecureListenerLimits {
  // Limit of unauthenticated connections; one more closes an earlier one.
  std::size_t unauthenticated = 64;
  SecureChannelLimits channel;
};

// Used by the loop's thread.
class SecureListener {
 public:
  // Called with an authenticated channel. Call its set_handlers() before returning, else its
  // messages are discarded.
  using Accepted = std::function<void(std::shared_ptr<SecureChannel>)>;
  SecureListener(boost::asio::io_context& loop, std::shared_ptr<const TlsContext> context,
                 Accepted accepted, SecureListenerLimits limits = {});
  SecureListener(const SecureListener&) = delete;
  SecureListener& operator=(const SecureListener&) = delete;
  // Closes the connections that were not handed over.
  ~SecureListener();

  // Listens on all addresses of this host. `port` 0: any that is free.
  [[nodiscard]] base::Status start(std::uint16_t port);
  [[nodiscard]] std::uint16_t port() const { return port_; }

  // The number of connections that failed to authenticate, and why the last one did; for status.
  [[nodiscard]] std::uint64_t rejected() const { return rejected_; }
  [[nodiscard]] const base::Status& last_reason() const { return last_reason_; }
  [[nodiscard]] std::size_t unauthenticated() const { return pending_.size(); }

 private:
  using Pending = std::list<std::shared_ptr<SecureChannel>>;

  void wait();
  void accept();
  void on_no_room();
  void on_accepted(base::Fd socket);
  void evict_one();
  void reject(Pending::iterator entry, base::Status why);

  boost::asio::io_context& loop_;
  const std::shared_ptr<const TlsContext> context_;
  const Accepted accepted_;
  const SecureListenerLimits limits_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer retry_;
  Pending pending_;  // oldest first
  std::uint16_t port_ = 0;
  std::uint64_t rejected_ = 0;
  base::Status last_reason_;
};

}  // namespace regroup::transport
