// The agents that this process has started on other hosts, and the connections to them. The
// controller has children and, in a tree of agents, so has each agent that is no leaf.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/agent/heartbeat_monitor.h"
#include "launcher/agent/link.h"
#include "launcher/agent/messages.h"
#include "launcher/agent/spawner.h"
#include "launcher/transport/job_secret.h"
#include "launcher/transport/secure_listener.h"

namespace regroup::agent {

// More agents than this that start at once may delay each other.
inline constexpr std::ptrdiff_t kMany = 8;

// Makes a Spawner for hosts that are reached neither by ssh nor by a command on this host.
using SpawnerFactory = std::function<std::unique_ptr<agent::Spawner>(
    std::shared_ptr<const transport::JobSecret> secret, SpawnEvents events)>;

// How a host is reached if not by ssh: by the command `before` + address (empty: its name) +
// `after`, or by the Spawner that `make` returns. `make` is called once for each `before`, which
// then is only a key.
struct HostAccess {
  std::vector<std::string> before;
  std::vector<std::string> after;
  std::string address;
  SpawnerFactory make = {};
};

struct ChildrenOptions {
  std::string job;    // its id
  std::string build;  // version of this regroup: an agent of another version reports that and exits
  proto::NodeId self = 0;  // node id of this process
  std::string from;  // suffix of messages about an agent that did not start: "" or " (from NAME)"
  std::shared_ptr<const transport::JobSecret> secret;
  spec::Environment environment;        // of ssh
  std::vector<std::string> ssh{"ssh"};  // the command that reaches a host without a HostAccess
  // Of agents.
  std::string program;
  std::string preferred;
  std::string wdir;
  // From the start of an agent's ssh until its first message. If more than kMany agents are late at
  // the same time, each gets up to twice that as long as others make progress.
  base::Duration limit = std::chrono::seconds(5);
  bool heartbeats = false;  // send heartbeats to the children
};

// Starts agents, accepts their connections and watches them. Used by the loop's thread.
class Children {
 public:
  struct Order {
    proto::NodeId node = 0;  // one order for each
    std::string name;        // of its host
    std::string user;        // login name; "": as ssh has it
    bool forked = false;     // start it on this host by fork
    HostAccess access = {};
  };
  // Called from the loop.
  struct Events {
    std::function<void(proto::NodeId, const std::string& address)> linked;
    std::function<void(proto::NodeId, const Message&)> message;  // all but Heartbeat
    // No message for kSuspicion; false: messages again.
    std::function<void(proto::NodeId, bool silent)> silent;
    // A line of the agent's own output.
    std::function<void(proto::NodeId, const std::string& line)> line;
    // Called once, as the last event of a child, unless end() was called: it did not start, or was
    // lost. `why` names the host. The child has been ended.
    std::function<void(proto::NodeId, const base::Status& why)> lost;
    std::function<void()> exited;  // the process of a child that was lost or ended has exited
    // An agent that this process did not start has connected. Returns the name of its host to
    // accept it as a child; nullopt: it is told to exit. May be empty.
    std::function<std::optional<std::string>(proto::NodeId)> orphan = {};
  };
  [[nodiscard]] static base::Result<std::unique_ptr<Children>> make(boost::asio::io_context& loop,
                                                                    ChildrenOptions options,
                                                                    Events events);
  ~Children();

  // kNotFound: there is no ssh.
  [[nodiscard]] base::Status start(const Order& order);
  // Sends bytes that encode() made. No effect if the child is not connected.
  void send(proto::NodeId node, std::span<const std::byte> bytes);
  [[nodiscard]] bool linked(proto::NodeId node) const;
  // Closes the connection and asks the child's process to exit.
  void end(proto::NodeId node);
  void end_all();
  // The name of a child's host; "?" if there is no such child.
  [[nodiscard]] std::string name(proto::NodeId node) const;
  // The endpoints of this process, as transport::to_string() writes them.
  [[nodiscard]] const std::string& endpoints() const { return endpoints_; }
  [[nodiscard]] bool empty() const;  // all processes of children have exited
  // Stops reading from the children until resume().
  void pause();
  void resume();

 private:
  struct Child {
    Child(boost::asio::io_context& loop, std::string n, Spawner* s)
        : name(std::move(n)), spawner(s), timer(loop), runs(s != nullptr) {}
    const std::string name;
    Spawner* const spawner;           // nullptr: another process has started it
    boost::asio::steady_timer timer;  // of its first message
    std::optional<std::chrono::steady_clock::time_point> began;  // start of its limit
    std::unique_ptr<Link> link;
    HeartbeatMonitor monitor;
    bool heard = false;  // its first message has arrived
    bool over = false;   // lost or ended
    bool runs;           // its local process (ssh, for example) runs
  };
  Children(boost::asio::io_context& loop, ChildrenOptions options, Events events);
  [[nodiscard]] base::Status listen();
  [[nodiscard]] base::Result<Spawner*> spawner_for(const Order& order);
  [[nodiscard]] Child* find(proto::NodeId node);
  void on_begun(proto::NodeId node);
  void on_spawned(proto::NodeId node);
  void expect(proto::NodeId node, Child& child, base::Duration wait);
  void on_late(proto::NodeId node, Child& child);
  void on_linked(std::shared_ptr<transport::SecureChannel> channel);
  void on_orphan(std::shared_ptr<transport::SecureChannel> channel);
  void on_message(proto::NodeId node, const Message& message);
  void on_pause(Child& child, const HostNotice& notice);
  void on_left(proto::NodeId node, const base::Status& why);
  void watch();
  void look();
  void lose(proto::NodeId node, const base::Status& why);

  boost::asio::io_context& loop_;
  const ChildrenOptions options_;
  const Events events_;
  std::unique_ptr<transport::SecureListener> listener_;
  std::string endpoints_;
  std::unique_ptr<Spawner> forker_;
  std::map<std::vector<std::string>, std::unique_ptr<Spawner>> spawners_;  // by their commands
  std::map<proto::NodeId, Child> children_;
  std::vector<std::unique_ptr<Link>> refused_;  // connections that get EndAgent and are closed
  boost::asio::steady_timer heartbeat_timer_;
  std::chrono::steady_clock::time_point moved_;  // last progress of any starting child
  bool watching_ = false;
  bool paused_ = false;
};

}  // namespace regroup::agent
