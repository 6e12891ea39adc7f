// The interface of one host of the job, this one or another: orders go there, events come back.
// docs/design/hosts.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/pmi/messages.h"
#include "launcher/process/app.h"
#include "launcher/process/process_table.h"
#include "proto/world.h"

namespace regroup::agent {

// An order to start one member.
struct MemberOrder {
  process::Place place;
  std::uint32_t threads = 1;      // OMP_NUM_THREADS, unless the App says it
  std::vector<int> cores;         // operating system numbers it is bound to; empty: not bound
  spec::Environment environment;  // of its devices; overrides the App's
};

// An order to start members of one MPI_COMM_WORLD; all nodes of the job get theirs at about the
// same time.
struct SpaceOrder {
  pmi::OpenSpace space;              // describes the members on all nodes
  std::vector<MemberOrder> members;  // of this node, in rank order
  bool again = false;  // restart one member, which did not call MPI_Init, in the open space
};

// Called from the loop, never from within a Node's function.
struct NodeEvents {
  // Once for each start(): ok, or why a member could not be started; the members before it run.
  // kNotFound: its program is missing; kInvalidArgument: so is its folder; kUnavailable: the system
  // refuses to run it. Of an elastic job only with space 0: the program or folder is missing on a
  // host, which is lost then.
  std::function<void(std::uint32_t space, const base::Status& status)> started;
  // For members on other hosts only: the agent reaps those on this host itself.
  std::function<void(const process::MemberExit& exit)> exited;
  // Connected, Finalized, Aborted, GroupsConnected, GroupsDisconnected and Spawn, in the order in
  // which they happened, and before the exits that followed them; Contribute, Fetch, Fetched and
  // NameCall.
  // `host`: 0 is this one, node(host - 1) of OtherHosts the others.
  std::function<void(std::uint32_t host, const pmi::Message& message)> mpi;
  std::function<void(const std::string& sentence)> said;  // a message for the user
  // AgentJob::unsaved() of another host.
  std::function<void(const std::string& what)> unsaved = {};
  // Resource usage of the members of another host, as usage_json() writes it; `lives`: tells
  // whether a member is one.
  using Lives = std::function<bool(proto::MemberId)>;
  std::function<void(const std::string& host, const std::string& json, const Lives& lives)> used =
      {};
};

// Used by the loop's thread.
class Node {
 public:
  virtual ~Node() = default;
  // Sets program `number` for later orders. Without a path the host searches PATH; if it finds
  // nothing, those orders fail.
  virtual void add_app(std::uint32_t number, const process::App& app) = 0;
  virtual void drop_app(std::uint32_t number) = 0;
  virtual void start(SpaceOrder order) = 0;
  // Signals the process group of a member; no effect if it has ended.
  virtual void signal(proto::MemberId member, int signal) = 0;
  // A message for regroup-pmi of this host: MemberGone, CloseSpace, SpawnDone, Gathered, Fetch or
  // Fetched.
  virtual void tell(const pmi::Message& message) = 0;
  // Returns when all PMI messages of dead members have been handled.
  virtual void settle() = 0;
};

// The other hosts of a job, each with an agent of its own. Used by the loop's thread.
class OtherHosts {
 public:
  virtual ~OtherHosts() = default;
  // Starts to deliver events; `lost` is called when a host is lost with its members. Output of
  // members goes to `out` and `err`. Call once, before any order.
  using Lost = std::function<void(std::size_t index, const base::Status& why)>;
  virtual void serve(NodeEvents events, Lost lost, process::Sink& out, process::Sink& err) = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;
  [[nodiscard]] virtual Node& node(std::size_t index) = 0;
  [[nodiscard]] virtual const std::string& name(std::size_t index) const = 0;

  // Signals all members on these hosts.
  virtual void signal_all(int signal) = 0;
  [[nodiscard]] virtual std::size_t running() const = 0;  // members
  // All members have ended: the agents clean up and exit. `then` is called once, when all have
  // exited and all output of members has been passed to the sinks.
  virtual void finish(std::function<void()> then) = 0;
};

}  // namespace regroup::agent
