// The agents that a process has started on other hosts, and its links to them. The controller of a job has
// some; so has, where agents are a tree, each agent that is nobody's leaf.
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

#include "core/clock.h"
#include "core/status.h"
#include "launcher/net/job_secret.h"
#include "launcher/net/secure_listener.h"
#include "launcher/node/heartbeat_monitor.h"
#include "launcher/node/link.h"
#include "launcher/node/messages.h"
#include "launcher/spawn/spawner.h"

namespace regroup::node {

inline constexpr std::ptrdiff_t kMany = 8;  // agents on their way: they may be slow for each other

// What brings agents to hosts that are reached neither by ssh nor by a command that works here.
using SpawnerFactory = std::function<std::unique_ptr<launcher::Spawner>(
    std::shared_ptr<const launcher::JobSecret> secret, launcher::SpawnEvents events)>;

// How a host is reached, where not by ssh: a command of `before`, its address ("": its name) and `after`; or
// by what `make` makes, once for each `before`, which then is but a name.
struct HostAccess {
  std::vector<std::string> before, after;
  std::string address;
  SpawnerFactory make = {};
};

struct ChildrenOptions {
  std::string job;        // its id
  std::string build;      // of this regroup: an agent of another one says so, and leaves
  core::NodeId self = 0;  // whose children they are
  std::string from;       // ends sentences about an agent that did not come up: "" or " (from NAME)"
  std::shared_ptr<const launcher::JobSecret> secret;
  launcher::Environment environment;     // of ssh
  std::vector<std::string> ssh{"ssh"};   // the command that reaches a host, unless it has its own
  std::string program, preferred, wdir;  // of agents
  // From the start of an agent's ssh until its first word. Of more than kMany that are late together each has
  // twice that, as long as others come up.
  core::Duration limit = std::chrono::seconds(5);
  bool heartbeats = false;  // they hear from us
};

// Used by the loop's thread.
class Children {
 public:
  struct Order {
    core::NodeId node = 0;  // one order for each
    std::string name;       // of its host
    std::string user;       // to log in there as; "": as ssh has it
    bool forked = false;    // here, whatever the name says
    HostAccess access = {};
  };
  // Called from the loop.
  struct Events {
    std::function<void(core::NodeId, const std::string& address)> linked;
    std::function<void(core::NodeId, const Message&)> message;        // but Beat
    std::function<void(core::NodeId, bool silent)> silent;            // not heard for a second; or again
    std::function<void(core::NodeId, const std::string& line)> line;  // of its own output
    // Once and last, unless end() came before: it did not come up, or is gone; a sentence that names the
    // host. It has been ended.
    std::function<void(core::NodeId, const core::Status& why)> lost;
    std::function<void()> left;  // the process of one that was lost or ended is gone
    // An agent whom nobody here has started connects: the name of its host if it is to be a child, as if it
    // had been; else it is told to end. May be empty.
    std::function<std::optional<std::string>(core::NodeId)> orphan = {};
  };
  [[nodiscard]] static core::Result<std::unique_ptr<Children>> make(boost::asio::io_context& loop,
                                                                    ChildrenOptions options, Events events);
  ~Children();

  // kNotFound: there is no ssh.
  [[nodiscard]] core::Status start(const Order& order);
  // A message as encode() made it. Nothing happens if the child is not linked.
  void send(core::NodeId node, std::span<const std::byte> bytes);
  [[nodiscard]] bool linked(core::NodeId node) const;
  // Closes the link, and asks its process to leave.
  void end(core::NodeId node);
  void end_all();
  // Of a child's host; "?" for none.
  [[nodiscard]] std::string name(core::NodeId node) const;
  // Where this process listens, as launcher::to_string() writes it.
  [[nodiscard]] const std::string& endpoints() const { return endpoints_; }
  // No process of a child is left.
  [[nodiscard]] bool empty() const;
  // Nothing that they send is taken until resume().
  void pause();
  void resume();

 private:
  struct Child {
    Child(boost::asio::io_context& loop, std::string n, launcher::Spawner* s)
        : name(std::move(n)), spawner(s), timer(loop), runs(s != nullptr) {}
    const std::string name;
    launcher::Spawner* const spawner;                            // none: somebody else has started it
    boost::asio::steady_timer timer;                             // of its first message
    std::optional<std::chrono::steady_clock::time_point> began;  // which its limit counts from
    std::unique_ptr<Link> link;
    HeartbeatMonitor monitor;
    bool heard = false, over = false;  // its first message has come; it was lost or ended
    bool runs;                         // its process, here
  };
  Children(boost::asio::io_context& loop, ChildrenOptions options, Events events);
  [[nodiscard]] core::Status listen();
  [[nodiscard]] core::Result<launcher::Spawner*> spawner_for(const Order& order);
  [[nodiscard]] Child* find(core::NodeId node);
  void on_begun(core::NodeId node);
  void on_spawned(core::NodeId node);
  void expect(core::NodeId node, Child& child, core::Duration wait);
  void on_late(core::NodeId node, Child& child);
  void on_linked(std::shared_ptr<launcher::SecureChannel> channel);
  void on_orphan(std::shared_ptr<launcher::SecureChannel> channel);
  void on_message(core::NodeId node, const Message& message);
  void on_pause(Child& child, const HostNotice& notice);
  void on_left(core::NodeId node, const core::Status& why);
  void watch();
  void look();
  void lose(core::NodeId node, const core::Status& why);

  boost::asio::io_context& loop_;
  const ChildrenOptions options_;
  const Events events_;
  std::unique_ptr<launcher::SecureListener> listener_;
  std::string endpoints_;
  std::unique_ptr<launcher::Spawner> forker_;
  std::map<std::vector<std::string>, std::unique_ptr<launcher::Spawner>> spawners_;  // by their commands
  std::map<core::NodeId, Child> children_;
  std::vector<std::unique_ptr<Link>> refused_;  // told to end
  boost::asio::steady_timer heartbeat_timer_;
  std::chrono::steady_clock::time_point moved_;  // one came a step further
  bool watching_ = false, paused_ = false;
};

}  // namespace regroup::node
