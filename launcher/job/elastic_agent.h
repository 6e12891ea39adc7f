// The agent of an elastic job: turns sockets, processes and dead futexes into calls of
// membership::AgentCore, and its effects into messages, processes and signals.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "checkpoint/writer/checkpoints.h"
#include "launcher/agent/agent.h"
#include "launcher/job/device_allocator.h"
#include "launcher/job/finished_watch.h"
#include "launcher/job/mpi_launches.h"
#include "launcher/process/core_slots.h"
#include "launcher/process/futex_watcher.h"
#include "launcher/transport/channel.h"
#include "launcher/transport/unix_socket.h"
#include "membership/agent/agent_core.h"
#include "membership/agent/printed_failures.h"
#include "membership/catchup/transfer_service.h"
#include "proto/message.h"

namespace regroup::job {

struct ElasticAgentOptions {
  membership::AgentOptions core;
  std::string socket;  // where members connect
  base::Duration orphan_timeout{};
  bool quiet = false;
  std::optional<pmi::HelperOptions> helper = {};  // none: MPI programs get no services
  std::uint32_t slots = 0;                        // cores there are for the members; 0: not known
  std::vector<std::vector<int>> cores = {};       // by core slot; empty: members are not bound
  std::vector<spec::Environment> environments = {};  // by core slot, of its devices; empty: none
  base::Duration join_deadline = std::chrono::seconds(10);          // of a connection, for its Join
  std::unique_ptr<catchup::TransferService> transfer_service = {};  // none: there is no other node
  writer::CheckpointPlan checkpoints = {};                          // none: an empty directory
  std::string host = {};  // its name in a job on several; else empty
  // When a member has finished and does not end.
  base::Duration finished_limit = std::chrono::seconds(60);
  bool fixed = false;  // a World of fixed size: others start the members, and end them
};

// Prints how the job ended, unless it is ending already, and ends all members of `agent`.
// `doubtful_hosts`: the number of hosts whose members may still live for a moment; `resumed`: the
// step from which the job resumed, if it is not known elsewhere; `last`: time for agents of a
// failed job to save its state.
void end_job(agent::Agent& agent, const proto::JobDone& done, const process::App& app, bool quiet,
             int doubtful_hosts = 0, proto::Step resumed = 0, base::Duration last = {});

// Used by the loop's thread.
class ElasticAgent final : public agent::MembershipJob {
 public:
  // `send` takes messages to the coordinator; without it they go where on_coordinator() says.
  ElasticAgent(agent::Agent& agent, ElasticAgentOptions options,
               std::function<void(const proto::Message&)> send = {});
  [[nodiscard]] base::Status start() override;
  void on_exit(const process::MemberExit& exit) override;
  void on_coordinator(base::Fd socket, std::int32_t incarnation) override;
  void on_message(const proto::Message& message) override;
  // Of a World of fixed size: the others hear it in their next call.
  void fail(const std::string& why);
  [[nodiscard]] base::Duration orphan_timeout() const override { return options_.orphan_timeout; }
  [[nodiscard]] bool keeps_checkpoints() const override { return options_.checkpoints.every > 0; }
  void finish(const std::function<void()>& then) override { checkpoints_.finish(then); }
  [[nodiscard]] std::optional<int> completed() const override;
  [[nodiscard]] std::string unsaved() const override { return checkpoints_.unsaved(); }
  void on_notice(base::TimePoint deadline) override;
  [[nodiscard]] base::Duration still_needs() const override { return checkpoints_.still_needs(); }

 private:
  struct Link {  // a connection to our socket; `member` once it has said Join
    explicit Link(boost::asio::io_context& loop) : deadline(loop) {}
    std::shared_ptr<transport::Channel> channel;
    boost::asio::steady_timer deadline;  // of its Join
    pid_t peer = 0;
    std::optional<proto::MemberId> member;
  };
  using LinkId = std::uint64_t;  // what handlers keep: the link may be gone when they run
  // The process that joined, where it is not the one that was started (a shell's child, for
  // example).
  struct Joined {
    explicit Joined(boost::asio::io_context& loop) : pidfd(loop) {}
    boost::asio::posix::stream_descriptor pidfd;
    pid_t pid = 0;
    std::optional<process::MemberExit> exit;  // of the started one, if that was first
  };

  void on_owner_died(proto::SlotIndex slot);
  void know_ranks();
  void on_connection(base::Fd socket, pid_t peer);
  void on_member_message(LinkId id, const proto::Message& message);
  void on_failure(Link& link, const proto::Message& message);
  void on_exceeded_memory(const process::MemberExit& exit);
  void on_member_gone(proto::MemberId member);
  void on_join_deadline(LinkId id);
  void release(Link& link);
  [[nodiscard]] base::Status adopt(Link& link, proto::MemberId member);
  [[nodiscard]] base::Status watch_joined(proto::MemberId member, pid_t pid);
  void await_joined(proto::MemberId member);
  void await_end(proto::MemberId member);
  void on_not_ended(proto::MemberId member);
  void reaped(const process::MemberExit& exit);
  [[nodiscard]] Link* link_of(proto::MemberId member);
  void poll_finished();
  [[nodiscard]] pid_t process_of(proto::MemberId member) const;

  void perform(const membership::AgentEffects& effects);
  void poll_transfer();
  void perform_one(const membership::ToCoordinator& effect);
  void perform_one(const membership::ToMember& effect);
  void perform_one(const membership::StartMember& effect);
  void start_member(const proto::Start& start, process::Extras extras);
  void perform_one(const membership::KillMember& effect);
  void perform_one(const membership::CloseMember& effect);
  void perform_one(const membership::WatchOwner& effect);
  void perform_one(const membership::ReleaseMember& effect);
  void perform_one(const membership::Ring& effect);
  void perform_one(const membership::Fetch& effect);
  void perform_one(const membership::StopFetch& effect);
  void perform_one(const membership::CreateDeviceLine& effect);
  void perform_one(const membership::DropDeviceLine& effect);
  void perform_one(const membership::Warn& effect);
  void on_device_memory(proto::DeviceLineId line, const proto::DeviceMemory& memory,
                        base::Fd descriptor);

  agent::Agent& agent_;
  ElasticAgentOptions options_;
  membership::AgentCore core_;
  membership::PrintedFailures printed_;
  transport::Listener listener_;
  std::map<LinkId, Link> links_;
  std::map<proto::MemberId, boost::asio::steady_timer> lingering_;  // their connection is closed
  std::map<proto::MemberId, boost::asio::steady_timer> killed_;     // and not reaped yet
  LinkId last_link_ = 0;
  std::map<proto::MemberId, Joined> joined_;
  std::map<proto::MemberId, proto::SlotIndex> watched_;  // slots whose owners' deaths are watched
  process::CoreSlots core_slots_;
  std::unique_ptr<MpiLaunches> mpi_;
  std::unique_ptr<DeviceAllocator> devices_;  // null: no line was asked for
  std::map<proto::DeviceLineId, base::Fd> device_lines_;
  bool joined_any_ = false;  // from then on members are started one by one, and are no MPI ranks
  boost::asio::steady_timer transfer_timer_;
  bool attending_ = false, knows_ranks_ = false,
       first_here_ = false;  // rank 0 was started on this host
  std::string failed_;       // why a World of fixed size is over
  std::function<void(const proto::Message&)> send_;
  writer::Checkpoints checkpoints_;
  FinishedWatch finished_;
  std::shared_ptr<transport::Channel> coordinator_;
  process::FutexWatcher watcher_;  // after core_: its thread looks into the arena
};

}  // namespace regroup::job
