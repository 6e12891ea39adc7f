// A host of the job, as the one who decides over the job sees it: orders go there, events come back, and
// whether the host is this one or another makes no difference. docs/design/hosts.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/world.h"
#include "launcher/pmi/messages.h"
#include "launcher/supervise/app.h"
#include "launcher/supervise/crew.h"

namespace regroup::launcher {

// A member that is to be started on a node.
struct MemberOrder {
  Place place;
  std::uint32_t threads = 1;  // OMP_NUM_THREADS, unless the App says it
  std::vector<int> cores;     // operating system numbers it is bound to; empty: not bound
  Environment environment;    // of its devices; overrides the App's
};

// Members with one MPI_COMM_WORLD that are to be started, all nodes of the job at about the same time.
struct SpaceOrder {
  pmi::OpenSpace space;              // tells of those on other nodes, too
  std::vector<MemberOrder> members;  // of this node, in rank order
  bool again = false;  // the space is open: the one of `members` takes its seat, where nobody called MPI_Init
};

// Called from the loop, never from within a Node's function.
struct NodeEvents {
  // Once for each start(): all its members have been, or why one could not be; those before it live.
  // kNotFound: its program is not there; kUnavailable: the system refuses to run it.
  std::function<void(std::uint32_t space, const core::Status& status)> started;
  // Of the members of other hosts; the agent itself hears of its own.
  std::function<void(const MemberExit& exit)> exited;
  // Connected, Finalized, Aborted, Met, Parted and Spawn, in the order in which they happened, and before the
  // exits that followed them; Contribute, Fetch and Fetched. `host`: 0 is this one, node(host - 1) of
  // OtherHosts the others.
  std::function<void(std::uint32_t host, const pmi::Message& message)> mpi;
  std::function<void(const std::string& sentence)> said;  // for the user: something is missing
  // What another host was to leave on the disk and did not: AgentJob::unsaved().
  std::function<void(const std::string& what)> unsaved = {};
  // What members of another host use, as usage_json() writes it; `lives`: the member is one of them.
  using Lives = std::function<bool(core::MemberId)>;
  std::function<void(const std::string& host, const std::string& json, const Lives& lives)> used = {};
};

// AgentJob::unsaved() where the host that writes checkpoints is lost after finish().
[[nodiscard]] std::string writer_lost(const std::string& host, const core::Status& why);

// Used by the loop's thread.
class Node {
 public:
  virtual ~Node() = default;
  // A program that members of later orders run, under the number that their places name. Without a path it is
  // looked for there; that it is not found is the answer to those orders.
  virtual void add_app(std::uint32_t number, const App& app) = 0;
  virtual void drop_app(std::uint32_t number) = 0;
  virtual void start(SpaceOrder order) = 0;
  // To the process group of a member, if it lives.
  virtual void signal(core::MemberId member, int signal) = 0;
  // For the services of MPI programs: MemberGone, CloseSpace, SpawnDone, Gathered, Fetch or Fetched.
  virtual void tell(const pmi::Message& message) = 0;
  // What dead members had told before they died has been handled when this returns.
  virtual void settle() = 0;
};

// The other hosts of a job, each with an agent of its own. Used by the loop's thread.
class OtherHosts {
 public:
  virtual ~OtherHosts() = default;
  // From now on their events go here; `lost` when a host is, with its members. What members write goes to
  // `out` and `err`. Once, before any order.
  using Lost = std::function<void(std::size_t index, const core::Status& why)>;
  virtual void serve(NodeEvents events, Lost lost, Sink& out, Sink& err) = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;
  [[nodiscard]] virtual Node& node(std::size_t index) = 0;
  [[nodiscard]] virtual const std::string& name(std::size_t index) const = 0;

  // To all members there. They, and the hosts' agents, end with the job, whoever decides it:
  virtual void signal_all(int signal) = 0;
  [[nodiscard]] virtual std::size_t running() const = 0;  // members
  // All members have ended: agents clear up and leave. `then` is called once, when all have, and what members
  // wrote there has been handed to the sinks.
  virtual void finish(std::function<void()> then) = 0;
};

}  // namespace regroup::launcher
