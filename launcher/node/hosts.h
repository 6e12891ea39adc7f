// The other hosts of a job, as its head sees them: brings their agents up, as a tree if there are many, and
// is the OtherHosts that members are then started through.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "launcher/node/bundle.h"
#include "launcher/node/children.h"
#include "launcher/node/courier.h"
#include "launcher/node/messages.h"
#include "launcher/node/remote_node.h"
#include "launcher/node/tree.h"
#include "launcher/supervise/node.h"

namespace regroup::node {

struct HostsOptions {
  std::string job;      // its id
  std::string version;  // of this regroup: agents must be of the same
  struct Host {
    std::string name;       // as the user wrote it
    bool here = false;      // this host: its agent is forked
    std::string user = {};  // to log in there as; "": as ssh has it
  };
  std::vector<Host> hosts;
  std::string program;                  // regroup, by its path there
  std::string preferred;                // another one, that is taken where it is there; "": none
  std::string wdir;                     // where members run
  launcher::Environment environment;    // of ssh
  std::vector<std::string> ssh{"ssh"};  // the command that reaches a host; empty: all agents are forked
  core::Duration limit = std::chrono::seconds(5);  // for each step of an agent on its way
  bool verbose = false;                            // agents' own output is shown
  std::size_t radix = 0;                           // agents that one may have below it; 0: all are the head's
};

// Used by the loop's thread.
class Hosts final : public launcher::OtherHosts {
 public:
  // kNotFound: there is no ssh. `said` gets sentences for the user.
  [[nodiscard]] static core::Result<std::unique_ptr<Hosts>> make(
      boost::asio::io_context& loop, HostsOptions options, std::function<void(const std::string&)> said);
  ~Hosts() override;

  // Of an elastic job, before serve(), after which each host has its own set_up(): what agents have to say to
  // the coordinator, who is not heard for a second, or again, and who has come up after bring_up(). They name
  // the node; that of a host changes each time it comes.
  struct Elastic {
    std::function<void(core::NodeId, const core::Message&)> membership;
    std::function<void(core::NodeId, bool)> silent;
    std::function<void(std::size_t index)> came;
  };
  void set_elastic(Elastic elastic) { elastic_ = std::move(elastic); }
  // Runs the loop until each agent has said Hello or failed: of those, why, one sentence each; of an agent
  // that others were to be started by, not of these. No longer than three limits for each level of the tree
  // and a second for every 32 hosts.
  [[nodiscard]] std::vector<core::Status> bring_up();
  [[nodiscard]] const Hello& facts(std::size_t index) const { return slots_.at(index).node->facts(); }
  [[nodiscard]] bool is_up(std::size_t index) const;
  [[nodiscard]] core::NodeId id(std::size_t index) const { return slots_.at(index).id; }
  // The host whose node that is now.
  [[nodiscard]] std::optional<std::size_t> index_of(core::NodeId node) const;
  // The address under which this host is reached from there, and that one from here.
  [[nodiscard]] std::string own_address() const;
  [[nodiscard]] std::string address(std::size_t index) const { return slots_.at(index).node->address(); }
  // After bring_up(), before serve(). Standard input goes to the one whose Setup names a rank, if any.
  void set_up(const std::vector<Setup>& setups);
  // After serve(): a lost host is tried once more, as a new node. `lost` is called if that fails.
  void bring_back(std::size_t index);
  // Of an elastic job: one that is up.
  void set_up(std::size_t index, const Setup& setup, const launcher::App& app);
  // Gives a node up; `lost` is called.
  void give_up(core::NodeId node, const core::Status& why);
  void tell_membership(core::NodeId node, const core::Message& message);
  // The same to all that are up.
  void tell_membership(const core::Message& message);

  void serve(launcher::NodeEvents events, Lost lost, launcher::Sink& out, launcher::Sink& err) override;
  [[nodiscard]] std::size_t size() const override { return slots_.size(); }
  [[nodiscard]] launcher::Node& node(std::size_t index) override { return *slots_.at(index).node; }
  [[nodiscard]] const std::string& name(std::size_t index) const override {
    return options_.hosts.at(index).name;
  }
  void signal_all(int signal) override;
  [[nodiscard]] std::size_t running() const override;
  void finish(std::function<void()> then) override;

 private:
  Hosts(boost::asio::io_context& loop, HostsOptions options, std::function<void(const std::string&)> said);
  struct Slot {
    core::NodeId id = 0;
    std::unique_ptr<RemoteNode> node;
  };
  [[nodiscard]] core::Status start();
  [[nodiscard]] Children::Events events();
  void add_slot(std::size_t index);
  void plant();
  [[nodiscard]] core::Status start_child(std::size_t index);
  void start_below(core::NodeId node);
  void send(core::NodeId node, const Message& message);
  void send_encoded(core::NodeId node, const std::vector<std::byte>& bytes);
  [[nodiscard]] RemoteNode* find(core::NodeId node);
  void on_message(core::NodeId child, const Message& message);
  void unwrap(core::NodeId child, const Relayed& relayed);
  void receive(core::NodeId node, const Message& message);
  void on_news(core::NodeId parent, const ChildNews& news);
  void on_silent(core::NodeId node, bool silent);
  void on_line(core::NodeId node, const std::string& line);
  void on_up(core::NodeId node);
  void on_ended(core::NodeId node, const core::Status& why);
  void end_agent(core::NodeId node);
  void refuse(core::NodeId node);
  void finish_if_done();

  boost::asio::io_context& loop_;
  const HostsOptions options_;
  const std::function<void(const std::string&)> said_;
  Courier courier_;
  Tree& tree_;
  std::unique_ptr<Children> children_;
  Bundle bundle_;
  std::vector<Slot> slots_;                           // by host
  std::vector<std::unique_ptr<RemoteNode>> retired_;  // their output may still be on its way
  core::NodeId last_id_ = 0;
  std::vector<core::Status> failures_;
  Elastic elastic_;
  launcher::NodeEvents events_;
  Lost lost_;
  launcher::Sink* out_ = nullptr;
  launcher::Sink* err_ = nullptr;
  std::function<void()> finished_;
  std::optional<std::size_t> reader_;  // of standard input
};

}  // namespace regroup::node
