// The job's side of `regroup join`: accepts leases of further hosts for a job that is running.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/lease/grant_lines.h"
#include "launcher/lease/leased_host_spawner.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::lease {

using GrantId = std::uint64_t;

// Listens on a Unix socket for `regroup join` and `regroup resize`, parses their lines
// (grant_lines.h) and replies. Used by the loop's thread. Never blocks: a client that does not read
// misses replies.
class LeaseServer {
 public:
  // Called from the loop. A refused offer gets the error as its reply and ends.
  struct Events {
    std::function<base::Status(GrantId id, const LeaseOffer& offer)> offered;
    std::function<void(GrantId id, const LeaseRevoke& revoke)> revoked;
    std::function<void(GrantId id)> gone;  // the client that offered has disconnected
    // A revoke from a client without a lease: the callee must reply by end(), or return an error.
    std::function<base::Status(GrantId id, const LeaseRevoke& revoke)> wanted;
    std::function<void(GrantId id, const Resized& resized)> resized;
    // A client with a lease has reconnected.
    std::function<base::Status(GrantId id, const LeaseReconnect& reconnect)> reconnected;
  };
  LeaseServer(boost::asio::io_context& loop, Events events);
  ~LeaseServer();
  // Listens at `path`. If this fails, the job can run without leases.
  [[nodiscard]] base::Status start(const std::string& path);
  // Sends the client a sentence.
  void tell(GrantId id, const std::string& text);
  // Ends the lease, whose hosts the job does not use any more, with a last sentence.
  void end(GrantId id, const std::string& text, bool ok = true);
  // The link to the client of lease `id`, through which agents are started.
  [[nodiscard]] std::shared_ptr<JoinerLink> joiner(GrantId id);
  // Moves the link of the client `before`, which has reconnected as `id`.
  void move_joiner(GrantId before, GrantId id);

 private:
  struct Client {
    explicit Client(boost::asio::io_context& loop) : socket(loop) {}
    boost::asio::posix::stream_descriptor socket;
    std::string read;
    bool accepted = false;
  };
  void on_client(base::Fd socket);
  void wait(GrantId id);
  [[nodiscard]] bool receive(GrantId id);
  void on_line(GrantId id, const std::string& line);
  bool send(GrantId id, const std::string& line);
  void connect(GrantId id, JoinerLink& joiner);
  void drop_joiner(GrantId id);

  boost::asio::io_context& loop_;
  const Events events_;
  transport::Listener listener_;
  std::map<GrantId, Client> clients_;
  std::map<GrantId, std::shared_ptr<JoinerLink>> joiners_;  // of clients that start agents
  GrantId last_ = 0;
};

}  // namespace regroup::lease
