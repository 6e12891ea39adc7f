// The job of an agent that a controller directs: executes orders on the members of this host and
// reports events as messages.
#pragma once

#include <utility>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/local_node.h"
#include "launcher/agent/messages.h"
#include "launcher/agent/node_agent.h"
#include "launcher/agent/relay.h"
#include "launcher/agent/reparenting.h"
#include "launcher/agent/store.h"
#include "launcher/agent/stream.h"
#include "launcher/agent/uplink.h"
#include "launcher/preempt/notice_watch.h"

namespace regroup::agent {

struct NodeStreams {
  base::Fd life;                  // EOF means that the launcher has ended
  base::Fd own_error;             // standard error of this process, saved before members got it
  std::array<base::Fd, 3> pipes;  // the agent's ends of descriptors 0, 1 and 2
};

// Connections to the parent and to the agents below this one.
struct AgentLinks {
  std::unique_ptr<Uplink> up;
  std::unique_ptr<Relay> down;
};

// Used by the loop's thread.
class NodeJob final : public AgentJob {
 public:
  NodeJob(Agent& agent, AgentLinks links, NodeStreams streams, const Setup& setup,
          const NodeAgentOptions& options, const MembershipFactory& membership);

  [[nodiscard]] base::Status start() override;
  void on_exit(const process::MemberExit& exit) override;
  [[nodiscard]] bool on_signal(int signal) override;
  void finish(const std::function<void()>& then) override;
  [[nodiscard]] base::Duration still_needs() const override;
  void leave(const std::function<void()>& then) override;

 private:
  [[nodiscard]] NodeEvents events();
  void wanted_back(const HostNotice& notice);
  void on_message(const Message& message);
  void on(const AddApp& add);
  void on(const DropApp& drop);
  void on(const StartStore& order);
  void on(const QueryStore& query);
  void on(const StartSpace& start);
  void on(const Signal& signal);
  void on(const EndHost&);
  void on(const Services& services) { local_.tell(services.message); }
  void on(const StreamData& data);
  void on(const WindowUpdate& update);
  void on(const Membership& membership);
  template <class Other>
  void on(const Other&) {}  // a second Setup, and messages that only agents send
  [[nodiscard]] MembershipJob* joining() const { return world_ ? world_.get() : membership_.get(); }
  void on_closed();
  void end_all();
  void release_store();
  [[nodiscard]] bool may_move() const { return reparenting_ && link_->below(); }
  void watch_life();
  void leave_if_sent();

  Agent& agent_;
  const AgentLinks links_;
  Uplink* const link_;
  const spec::Environment environment_;
  const base::Fd own_error_;
  LocalNode local_;
  std::unique_ptr<MembershipJob> membership_;  // of an elastic job
  std::unique_ptr<MembershipJob> world_;       // of a fixed-size job: the World of its ranks
  preempt::NoticeWatch watch_;
  boost::asio::posix::stream_descriptor life_;
  std::shared_ptr<StreamTarget> input_;
  std::array<std::shared_ptr<StreamSource>, 3> outputs_;  // of descriptors 1 and 2
  std::function<void()> then_;                            // set by leave()
  const proto::NodeId node_;
  const std::vector<std::string> suspended_by_;  // notice sources at the time of Setup
  std::unique_ptr<Reparenting> reparenting_;     // of an elastic job, below another agent
  const std::string name_;                       // of this host
  const StoreFactory stores_;
  std::uint32_t store_number_ = 0;
  std::unique_ptr<Store> store_;       // of the job's parameter server; null: not on this host
  bool needs_store_ = true;            // members of other hosts may use it
  std::function<void()> then_finish_;  // set by finish() while they may
  bool done_ = false;
};

}  // namespace regroup::agent
