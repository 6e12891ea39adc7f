// The controller's handle of one other host: turns orders into messages to its agent, and messages
// into events. Hosts transports them.
#pragma once

#include <utility>

#include <array>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/agent/messages.h"
#include "launcher/agent/node.h"
#include "launcher/agent/stream.h"
#include "launcher/process/output.h"

namespace regroup::agent {

// Used by the loop's thread.
class RemoteNode final : public Node {
 public:
  enum class State { kStarting, kUp, kEnded };
  struct Events {
    std::function<void(const Message&)> send;        // sends to the agent, once it is connected
    std::function<void()> up;                        // it has said Hello
    std::function<void(const base::Status&)> ended;  // once: ok after Done, else why it is lost
    std::function<void(const proto::Message&)> membership = [](const proto::Message&) {};
    std::function<void(const HostNotice&)> noticed = [](const HostNotice&) {};
  };
  RemoteNode(boost::asio::io_context& loop, std::string name, std::string version, Events events);
  ~RemoteNode() override;
  RemoteNode(const RemoteNode&) = delete;
  RemoteNode& operator=(const RemoteNode&) = delete;

  // The agent has connected, from this address.
  void attach(const std::string& address);
  void receive(const Message& message);
  // The agent has not started, or is lost. `why` names the host.
  void fail(const base::Status& why);
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const Hello& facts() const { return facts_; }
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] std::size_t running() const { return members_.size() + starting_.size(); }

  // Before set_up(): `then` gets the inventory of the host, or why there is none.
  using Answer = std::function<void(base::Result<std::string>)>;
  void query_inventory(const InventoryRequest& order, Answer then);
  // Before set_up(): `then` gets all replies, the last one with an error if the host is lost first.
  using LocalCheckpointHandler = std::function<void(const LocalCheckpointReply&)>;
  void query_local_checkpoint(const QueryLocalCheckpoint& order, LocalCheckpointHandler then);
  void set_up(const Setup& setup);
  // After serve(), once: starts a store of the job's parameter server. `started` is called when it
  // runs, or why not; `failed` if it, or its host, ends later.
  using StoreHandler = std::function<void(const StoreStarted&)>;
  void start_store(const StartStore& order, StoreHandler started,
                   std::function<void(const std::string& why)> failed);
  // Its reply, or an error if the host is lost first. The number of the query is set here.
  void query_store(QueryStore query, Answer then);
  // Sends a membership message to the agent, in an elastic job.
  void tell_membership(const proto::Message& message);
  // `host`: its number in the job. `space` may be shared with other outputs.
  void serve(std::uint32_t host, NodeEvents events, process::Sink& out, process::Sink& err,
             const std::shared_ptr<process::OutputSpace>& space =
                 std::make_shared<process::OutputSpace>());
  // The writing end of a pipe whose bytes members on that host read; invalid if none can be made,
  // and members read EOF.
  [[nodiscard]] base::Fd open_input();
  void signal_all(int signal);
  void finish();
  // The agent has exited, and all output was passed to the sinks. `changed` is called when that may
  // have become true.
  [[nodiscard]] bool drained() const;
  void on_drained(std::function<void()> changed) { changed_ = std::move(changed); }

  void add_app(std::uint32_t number, const process::App& app) override {
    send(AddApp{number, app});
  }
  void drop_app(std::uint32_t number) override { send(DropApp{number}); }
  void start(SpaceOrder order) override;
  void signal(proto::MemberId member, int signal) override { send(Signal{false, member, signal}); }
  void tell(const pmi::Message& message) override { send(Services{message}); }
  void settle() override {}  // messages of a member arrive before its exit

 private:
  using Ranks = std::map<proto::MemberId, std::uint32_t>;
  void send(const Message& message);
  void on(const Hello& hello);
  void on(const SpaceStarted& started);
  void on(const InventoryReply& reply);
  void on(const LocalCheckpointReply& found);
  void on(const Exited& exited);
  void on(const UserMessage& message);
  void on(const UsageReport& report);
  void on(const HostNotice& notice);
  void on(const Services& services);
  void on(const StreamData& data);
  void on(const WindowUpdate& update);
  void on(const Membership& membership);
  void on(const Done& done);
  void on(const StoreStarted& started);
  void on(const StoreReply& reply);
  void on(const StoreFailed& failed);
  void end_store(const base::Status& why);
  template <class Other>
  void on(const Other&) {}  // Heartbeat, and messages that only the controller sends
  [[nodiscard]] base::Status open_stream(std::uint8_t stream, process::Sink& sink,
                                         const std::shared_ptr<process::OutputSpace>& space);
  void end(const base::Status& why);

  boost::asio::io_context& loop_;
  const std::string name_;
  const std::string version_;
  const Events events_;
  State state_ = State::kStarting;
  Hello facts_;
  Answer inventory_reply_;                   // of the query that is outstanding
  LocalCheckpointHandler checkpoint_reply_;  // of the outstanding query
  std::string address_;                      // once it is linked
  std::map<std::uint32_t, Ranks> starting_;  // ordered and not started, by space
  Ranks members_;                            // started, and not ended
  std::uint32_t host_ = 0;
  NodeEvents job_;
  std::array<std::shared_ptr<StreamTarget>, 3> targets_;
  std::array<std::shared_ptr<process::Output>, 3> outputs_;
  std::shared_ptr<StreamSource> input_;
  std::function<void()> changed_ = [] {};
  bool finishing_ = false;
  bool killed_ = false;         // SIGKILL was sent to all members
  bool has_store_ = false;      // one was ordered, and lasts as long as the agent
  StoreHandler store_started_;  // of the order that is outstanding
  std::function<void(const std::string&)> store_failed_;
  std::map<std::uint32_t, Answer> store_queries_;  // outstanding, by number
  std::uint32_t last_query_ = 0;
};

}  // namespace regroup::agent
