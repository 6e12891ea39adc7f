// The controller's view of the other hosts of a job. Starts their agents, in a tree if there are
// many, forwards messages to and from them, and implements OtherHosts, through which members are
// started. AgentRoutes decides which way a message goes and what is believed of one that arrives;
// this class performs it.
//
// The order of steps on the loss of an agent matters: first the agents above it drop it, so that
// none of them replies for it; then those below it are detached, to reparent; then the job learns
// of the loss, and may start or end agents; last, those that cannot reparent are lost one by one.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/agent/agent_routes.h"
#include "launcher/agent/bring_up_wait.h"
#include "launcher/agent/children.h"
#include "launcher/agent/hosts_options.h"
#include "launcher/agent/multicast_batch.h"
#include "launcher/agent/node.h"
#include "launcher/agent/node_ids.h"
#include "launcher/agent/remote_node.h"
#include "launcher/agent/shared_input.h"

namespace regroup::agent {

// Used by the loop's thread.
class Hosts final : public OtherHosts {
 public:
  // kNotFound: there is no ssh. `said` is called with sentences for the user.
  [[nodiscard]] static base::Result<std::unique_ptr<Hosts>> make(
      boost::asio::io_context& loop, HostsOptions options,
      std::function<void(const std::string&)> said);
  ~Hosts() override;

  // Call before serve(). From then on a host may get a new node id.
  void set_elastic(HostsElastic elastic) { elastic_ = std::move(elastic); }
  // Runs the loop until each agent has said Hello or failed; returns the failures, except those of
  // agents below a failed one. The limit of an agent counts from its start: its parent is up and
  // its turn has come (32 at a time).
  [[nodiscard]] std::vector<base::Status> bring_up(const BringUp& how = {});
  [[nodiscard]] const Hello& facts(std::size_t index) const {
    return slots_.at(index).node->facts();
  }
  [[nodiscard]] bool is_up(std::size_t index) const {
    return slots_.at(index).node->state() == RemoteNode::State::kUp;
  }
  [[nodiscard]] bool is_coming(std::size_t index) const {
    return slots_.at(index).node->state() == RemoteNode::State::kStarting;
  }
  [[nodiscard]] bool is_set_up(std::size_t index) const {
    return is_up(index) && slots_[index].set_up;
  }
  [[nodiscard]] proto::NodeId id(std::size_t index) const { return ids_.id(index); }
  // The host that has this node id now; nullopt for a former id.
  [[nodiscard]] std::optional<std::size_t> index_of(proto::NodeId node) const {
    return ids_.host_of(node);
  }
  // The addresses of this host for others, and of another host for this one.
  [[nodiscard]] std::string own_address() const;
  [[nodiscard]] std::string address(std::size_t index) const {
    return slots_.at(index).node->address();
  }
  // Sends one request to each host and runs the loop for 10 s at most. Returns by host the reply or
  // why there is none. The second form sends one request, and calls `then` from the loop.
  [[nodiscard]] std::vector<base::Result<std::string>> query_inventory(
      const std::vector<InventoryRequest>& orders);
  void query_inventory(std::size_t index, const InventoryRequest& order, RemoteNode::Answer then) {
    slots_.at(index).node->query_inventory(order, std::move(then));
  }
  [[nodiscard]] RemoteNode& remote(std::size_t index) { return *slots_.at(index).node; }
  // After bring_up(), before serve(). Standard input goes to the hosts whose Setup says so. If
  // there are any, and `here`, descriptor 0 becomes a pipe from which members on this host read the
  // same bytes.
  [[nodiscard]] base::Status set_up(const std::vector<Setup>& setups, bool here);
  // After serve(): starts an agent on a lost host again, with a new node id. `lost` is called if
  // that fails.
  void bring_back(std::size_t index);
  // After serve(): adds a host and starts its agent. Returns its index.
  std::size_t add(HostsOptions::Host host);
  // Ends the agent of a host whose members have ended.
  void dismiss(std::size_t index) { slots_.at(index).node->finish(); }
  [[nodiscard]] std::size_t members(std::size_t index) const {
    return slots_.at(index).node->running();
  }
  void set_up(std::size_t index, const Setup& setup, const process::App& app);  // elastic, up
  void give_up(proto::NodeId node, const base::Status& why);                    // `lost` is called
  void tell_membership(proto::NodeId node, const proto::Message& message);
  void tell_membership(const proto::Message& message);  // to all hosts that are up

  void serve(NodeEvents events, Lost lost, process::Sink& out, process::Sink& err) override;
  [[nodiscard]] std::size_t size() const override { return slots_.size(); }
  [[nodiscard]] Node& node(std::size_t index) override { return *slots_.at(index).node; }
  [[nodiscard]] const std::string& name(std::size_t index) const override {
    return options_.hosts.at(index).name;
  }
  void signal_all(int signal) override;
  [[nodiscard]] std::size_t running() const override;
  void finish(std::function<void()> then) override;

 private:
  Hosts(boost::asio::io_context& loop, HostsOptions options,
        std::function<void(const std::string&)> said);
  struct Slot {
    std::unique_ptr<RemoteNode> node;
    std::unique_ptr<boost::asio::steady_timer> orphan = {};  // runs while it may reparent
    bool set_up = false;
  };
  struct ServeArguments {  // the arguments of serve()
    NodeEvents events;
    Lost lost;
    process::Sink* out = nullptr;
    process::Sink* err = nullptr;
  };
  [[nodiscard]] base::Status start();
  [[nodiscard]] Children::Events events();
  void add_slot(std::size_t index);
  void build_tree();
  [[nodiscard]] base::Status start_child(std::size_t index);
  void start_below(proto::NodeId node);
  void send(proto::NodeId node, const Message& message);
  void send_encoded(proto::NodeId node, const std::vector<std::byte>& bytes, std::uint64_t number);
  [[nodiscard]] RemoteNode* find(proto::NodeId node);
  [[nodiscard]] Slot* slot_of(proto::NodeId node);
  void on_message(proto::NodeId child, const Message& message);
  void on_relayed(proto::NodeId child, const Relayed& relayed);
  void on_ack(proto::NodeId node, const Ack& ack);
  void reparent(proto::NodeId node);
  [[nodiscard]] std::optional<std::string> orphan(proto::NodeId node);
  [[nodiscard]] bool await_reparenting(proto::NodeId node, const base::Status& why);
  void receive(proto::NodeId node, const Message& message);
  void on_child_event(proto::NodeId parent, const ChildEvent& event);
  void on_silent(proto::NodeId node, bool silent);
  void on_line(proto::NodeId node, const std::string& line);
  void on_up(proto::NodeId node);
  void on_ended(proto::NodeId node, const base::Status& how);
  void end_agent(proto::NodeId node);
  void refuse(proto::NodeId node, const char* does = "sent a message that it may not send");
  void finish_if_done();

  boost::asio::io_context& loop_;
  HostsOptions options_;  // add() extends the hosts
  const std::function<void(const std::string&)> said_;
  NodeIds ids_;
  AgentRoutes routes_;
  std::unique_ptr<Children> children_;
  MulticastBatch batch_;
  std::vector<Slot> slots_;                           // by host
  std::vector<std::unique_ptr<RemoteNode>> retired_;  // former nodes whose output may still arrive
  BringUpWait bring_up_;
  HostsElastic elastic_;
  std::optional<ServeArguments> served_;
  const std::shared_ptr<process::OutputSpace> space_ = std::make_shared<process::OutputSpace>();
  std::function<void()> finished_;
  std::vector<std::size_t> readers_;  // hosts that get standard input
  SharedInput input_;
};

}  // namespace regroup::agent
