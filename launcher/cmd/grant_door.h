// Where a job that runs is offered further hosts: the hub's side of `regroup join`.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/fd.h"
#include "core/status.h"
#include "launcher/cmd/grant_lines.h"
#include "launcher/cmd/joiner_spawner.h"
#include "launcher/supervise/unix_socket.h"

namespace regroup::cmd {

using GrantId = std::uint64_t;

// Used by the loop's thread.
class GrantDoor {
 public:
  // Called from the loop. An offer that is refused is told so, and is over.
  struct Events {
    std::function<core::Status(GrantId id, const Offer& offer)> offered;
    std::function<void(GrantId id, const Recall& recall)> recalled;
    std::function<void(GrantId id)> gone;  // whoever offered is not there any more
    // Of somebody who has offered nothing; to be answered by end(). A recall that is refused is over.
    std::function<core::Status(GrantId id, const Recall& recall)> wanted;
    std::function<void(GrantId id, const Resized& resized)> resized;
    // Who has offered hosts before has another connection now.
    std::function<core::Status(GrantId id, const Again& again)> again;
  };
  GrantDoor(boost::asio::io_context& loop, Events events);
  ~GrantDoor();
  // Listens there; the job can do without.
  [[nodiscard]] core::Status start(const std::string& path);
  void tell(GrantId id, const std::string& text);
  // Its hosts are not used any more.
  void end(GrantId id, const std::string& text, bool ok = true);
  // Who gave that offer, as one who starts agents.
  [[nodiscard]] std::shared_ptr<JoinerLink> joiner(GrantId id);
  // It has another connection, which is `id`.
  void move_joiner(GrantId before, GrantId id);

 private:
  struct Client {
    explicit Client(boost::asio::io_context& loop) : socket(loop) {}
    boost::asio::posix::stream_descriptor socket;
    std::string read;
    bool accepted = false;
  };
  void on_client(core::Fd socket);
  void wait(GrantId id);
  [[nodiscard]] bool receive(GrantId id);
  void on_line(GrantId id, const std::string& line);
  bool send(GrantId id, const std::string& line);
  void connect(GrantId id, JoinerLink& joiner);
  void drop_joiner(GrantId id);

  boost::asio::io_context& loop_;
  const Events events_;
  launcher::Listener listener_;
  std::map<GrantId, Client> clients_;
  std::map<GrantId, std::shared_ptr<JoinerLink>> joiners_;  // that start agents
  GrantId last_ = 0;
};

}  // namespace regroup::cmd
