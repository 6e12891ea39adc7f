// The other hosts of a job, as its head sees them: brings their agents up, and is the OtherHosts that members
// are then started through.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "launcher/net/secure_listener.h"
#include "launcher/node/messages.h"
#include "launcher/node/remote_node.h"
#include "launcher/spawn/spawner.h"
#include "launcher/supervise/node.h"

namespace regroup::node {

struct HostsOptions {
  std::string job;                      // its id
  std::string version;                  // of this regroup: agents must be of the same
  std::vector<std::string> names;       // as the user wrote them
  std::string program;                  // regroup, by its path there
  std::string wdir;                     // where members run
  launcher::Environment environment;    // of ssh
  std::vector<std::string> ssh{"ssh"};  // the command that reaches a host; empty: agents run on this one
  core::Duration limit = std::chrono::seconds(5);  // for each step of an agent on its way
  bool verbose = false;                            // agents' own output is shown
};

// Used by the loop's thread.
class Hosts final : public launcher::OtherHosts {
 public:
  // kNotFound: there is no ssh. `said` gets sentences for the user.
  [[nodiscard]] static core::Result<std::unique_ptr<Hosts>> make(
      boost::asio::io_context& loop, HostsOptions options, std::function<void(const std::string&)> said);
  ~Hosts() override;

  // Runs the loop until each agent has said Hello or failed: of those, why, one sentence each. No longer than
  // two limits and a second for every 32 hosts.
  [[nodiscard]] std::vector<core::Status> bring_up();
  [[nodiscard]] const Hello& facts(std::size_t index) const { return nodes_.at(index)->facts(); }
  // The address under which this host is reached from there, and that one from here.
  [[nodiscard]] std::string own_address() const;
  [[nodiscard]] std::string address(std::size_t index) const { return nodes_.at(index)->address(); }
  // After bring_up(), before serve(). Standard input goes to the one whose Setup names a rank, if any.
  void set_up(const std::vector<Setup>& setups);

  void serve(launcher::NodeEvents events, Lost lost, launcher::Sink& out, launcher::Sink& err) override;
  [[nodiscard]] std::size_t size() const override { return nodes_.size(); }
  [[nodiscard]] launcher::Node& node(std::size_t index) override { return *nodes_.at(index); }
  [[nodiscard]] const std::string& name(std::size_t index) const override { return options_.names.at(index); }
  void signal_all(int signal) override;
  [[nodiscard]] std::size_t running() const override;
  void finish(std::function<void()> then) override;

 private:
  Hosts(boost::asio::io_context& loop, HostsOptions options, std::function<void(const std::string&)> said);
  [[nodiscard]] core::Status start();
  void on_linked(std::shared_ptr<launcher::SecureChannel> channel);
  void on_late(std::size_t index);
  void on_ended(std::size_t index, const core::Status& why);
  void on_failed(std::size_t index, const core::Status& why);
  void finish_if_done();

  boost::asio::io_context& loop_;
  const HostsOptions options_;
  const std::function<void(const std::string&)> said_;
  std::unique_ptr<launcher::SecureListener> listener_;
  std::vector<std::unique_ptr<RemoteNode>> nodes_;
  std::unique_ptr<launcher::Spawner> spawner_;
  std::vector<core::Status> failures_;
  Lost lost_;
  std::function<void()> finished_;
  std::optional<std::size_t> reader_;  // of standard input
  std::size_t processes_ = 0;          // of spawner_, that have not ended
};

}  // namespace regroup::node
