// The other hosts of a job, as its head sees them: brings their agents up, as a tree if there are many, and
// is the OtherHosts that members are then started through.
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

#include "core/status.h"
#include "launcher/node/bundle.h"
#include "launcher/node/children.h"
#include "launcher/node/conversation.h"
#include "launcher/node/courier.h"
#include "launcher/node/hosts_options.h"
#include "launcher/node/remote_node.h"
#include "launcher/node/shared_input.h"
#include "launcher/supervise/node.h"

namespace regroup::node {

// Used by the loop's thread.
class Hosts final : public launcher::OtherHosts {
 public:
  // kNotFound: there is no ssh. `said` gets sentences for the user.
  [[nodiscard]] static core::Result<std::unique_ptr<Hosts>> make(
      boost::asio::io_context& loop, HostsOptions options, std::function<void(const std::string&)> said);
  ~Hosts() override;

  // Before serve(). Nodes change.
  void set_elastic(HostsElastic elastic) { elastic_ = std::move(elastic); }
  // Runs the loop until each agent has said Hello or failed: of those, why; not of those below such a one.
  // Each has one limit, which counts from when its start begins: its host is up that is above it in the tree,
  // and its turn has come, as 32 are started at a time.
  [[nodiscard]] std::vector<core::Status> bring_up(const BringUp& how = {});
  [[nodiscard]] const Hello& facts(std::size_t index) const { return slots_.at(index).node->facts(); }
  [[nodiscard]] bool is_up(std::size_t index) const {
    return slots_.at(index).node->state() == RemoteNode::State::kUp;
  }
  [[nodiscard]] bool is_coming(std::size_t index) const {
    return slots_.at(index).node->state() == RemoteNode::State::kStarting;
  }
  [[nodiscard]] bool is_set_up(std::size_t index) const { return is_up(index) && slots_[index].set_up; }
  [[nodiscard]] core::NodeId id(std::size_t index) const { return slots_.at(index).id; }
  // The host whose node that is now.
  [[nodiscard]] std::optional<std::size_t> index_of(core::NodeId node) const;
  // The address under which this host is reached from there, and that one from here.
  [[nodiscard]] std::string own_address() const;
  [[nodiscard]] std::string address(std::size_t index) const { return slots_.at(index).node->address(); }
  // The answers by host, as `orders`, or why there is none; runs the loop, ten seconds at most. And of one,
  // later.
  [[nodiscard]] std::vector<core::Result<std::string>> survey(const std::vector<Survey>& orders);
  void survey(std::size_t index, const Survey& order, RemoteNode::Answer then) {
    slots_.at(index).node->survey(order, std::move(then));
  }
  [[nodiscard]] RemoteNode& remote(std::size_t index) { return *slots_.at(index).node; }
  // After bring_up(), before serve(). Standard input goes to those whose Setup says so; if there are any, and
  // `here`, descriptor 0 becomes a pipe from which members here get it, too.
  [[nodiscard]] core::Status set_up(const std::vector<Setup>& setups, bool here);
  // After serve(): a lost host is tried once more, as a new node. `lost` is called if that fails.
  void bring_back(std::size_t index);
  // After serve(): one more, which comes or is lost like the others. Its index.
  std::size_t add(HostsOptions::Host host);
  // Its members have ended: its agent clears up and leaves.
  void dismiss(std::size_t index) { slots_.at(index).node->finish(); }
  [[nodiscard]] std::size_t members(std::size_t index) const { return slots_.at(index).node->running(); }
  // Of an elastic job: one that is up.
  void set_up(std::size_t index, const Setup& setup, const launcher::App& app);
  void give_up(core::NodeId node, const core::Status& why);  // `lost` is called
  void tell_membership(core::NodeId node, const core::Message& message);
  void tell_membership(const core::Message& message);  // to all that are up

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
    std::unique_ptr<Conversation> talk = {};                 // of one that was started below another
    std::unique_ptr<boost::asio::steady_timer> orphan = {};  // since its parent is gone
    bool set_up = false, moved = false;                      // moved: what comes by its first way is late
  };
  [[nodiscard]] core::Status start();
  [[nodiscard]] Children::Events events();
  void add_slot(std::size_t index);
  void plant();
  [[nodiscard]] core::Status start_child(std::size_t index);
  void start_below(core::NodeId node);
  void send(core::NodeId node, const Message& message);
  void send_encoded(core::NodeId node, const std::vector<std::byte>& bytes, std::uint64_t number);
  [[nodiscard]] RemoteNode* find(core::NodeId node);
  [[nodiscard]] Slot* slot_of(core::NodeId node);
  void on_message(core::NodeId child, const Message& message);
  void unwrap(core::NodeId child, const Relayed& relayed);
  void on_heard(core::NodeId node, const Heard& heard);
  void adopt(core::NodeId node);
  [[nodiscard]] std::optional<std::string> orphan(core::NodeId node);
  [[nodiscard]] bool await(core::NodeId node, const core::Status& why);
  void receive(core::NodeId node, const Message& message);
  void on_news(core::NodeId parent, const ChildNews& news);
  void on_silent(core::NodeId node, bool silent);
  void on_line(core::NodeId node, const std::string& line);
  void on_up(core::NodeId node);
  void on_ended(core::NodeId node, const core::Status& how);
  void end_agent(core::NodeId node);
  void refuse(core::NodeId node, const char* does = "said what only others may say");
  void finish_if_done();

  boost::asio::io_context& loop_;
  HostsOptions options_;  // hosts are added
  const std::function<void(const std::string&)> said_;
  Courier courier_;
  Tree& tree_;
  std::unique_ptr<Children> children_;
  Bundle bundle_;
  std::vector<Slot> slots_;                           // by host
  std::vector<std::size_t> host_of_;                  // by node - 1, also of former ones
  std::vector<std::unique_ptr<RemoteNode>> retired_;  // their output may still be on its way
  core::NodeId last_id_ = 0;
  std::vector<core::Status> failures_;
  std::function<void(const core::Status&)> failed_;
  std::chrono::steady_clock::time_point came_;  // the last that came up
  HostsElastic elastic_;
  launcher::NodeEvents events_;
  Lost lost_;
  launcher::Sink* out_ = nullptr;
  launcher::Sink* err_ = nullptr;
  const std::shared_ptr<launcher::OutputSpace> space_ = std::make_shared<launcher::OutputSpace>();
  std::function<void()> finished_;
  std::vector<std::size_t> readers_;  // of standard input
  SharedInput input_;
};

}  // namespace regroup::node
