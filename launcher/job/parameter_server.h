// The parameter server of this host: memory that outlives its servers, and processes regroup-ps,
// each of which is started again whenever it ends. docs/design/ps_store.md, ps_lanes.md.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/ps/gateway.h"
#include "collective/ps/handover.h"
#include "collective/ps/placement.h"
#include "collective/ps/segment.h"
#include "collective/ps/server.h"
#include "launcher/job/job_requests.h"
#include "launcher/job/server_hangs.h"
#include "launcher/job/table_checkpoints.h"
#include "launcher/process/piped_process.h"
#include "launcher/spec/request.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::job {

struct ParameterServerOptions {
  std::string program;            // path of regroup-ps
  spec::Environment environment;  // its
  std::string memory_socket;      // where members get the memory's descriptors
  std::string status_socket;      // where `regroup status` gets status_json(); "": nowhere
  // Where `regroup resize ps=N` asks for N servers, and `regroup checkpoint save` for a checkpoint;
  // "": nowhere.
  std::string resize_socket;
  // This host's name and address, for members on other hosts. Empty: there are none.
  std::string host_name;
  std::string host_address;
  std::uint64_t seed = 0;          // of initial rows
  std::uint64_t bytes = 0;         // of the tables of this store
  std::uint32_t store = 0;         // the number of this host's store
  std::uint32_t stores = 1;        // of the job, each on a host of its own
  std::uint32_t servers = 1;       // processes of all stores at first, and at least
  std::uint32_t most_servers = 1;  // by resize()
  // For which a server may stand still before it is killed and replaced; 0: for ever.
  base::Duration hang_timeout{};
  // Without the memory and its descriptors, which are added; none: nothing is saved or loaded.
  std::optional<TableCheckpointOptions> checkpoints;
};

// How a server ended, and what becomes of it.
struct ServerEnd {
  bool killed = false;  // from outside, which may happen however often
  bool served = false;  // at least one shard
  base::Duration lived{};
};
struct ServerVerdict {
  bool again = true;       // false: it cannot serve; the job ends
  base::Duration after{};  // until the next start
};
// Decides on ends of servers. Pure.
class ServerRestarts {
 public:
  // The next server is started at once, and from the second end in a row on within kShort of a
  // start later and later. After kMost ends in a row that were no kills, of servers that served no
  // shard or ended within kShort, there is no next one.
  static constexpr std::chrono::seconds kShort{1};
  static constexpr std::chrono::milliseconds kFirstDelay{10};
  static constexpr std::chrono::seconds kLongestDelay{1};
  static constexpr int kMost = 5;
  [[nodiscard]] ServerVerdict on_end(const ServerEnd& end);

 private:
  int short_ = 0;   // ends in a row within kShort
  int failed_ = 0;  // failures in a row, as kMost counts them
};

// How many of `servers`, the job's, store `store` of `stores` has: all have as many, plus or minus
// one.
[[nodiscard]] std::uint32_t servers_of_store(std::uint32_t servers, std::uint32_t stores,
                                             std::uint32_t store);

// The memory that options ask for: a shard for each server. If their number may change: two for
// each of the most, as far as there is memory, so that any number of servers has about as many
// each. kInvalidArgument: too little or too much for a shard.
[[nodiscard]] base::Result<collective::ps::ServerMemorySpec> memory_spec(
    const ParameterServerOptions& options);

// Used by the loop's thread. The destructor ends the servers; the memory lasts as long as a member
// has it mapped.
class ParameterServer {
 public:
  struct Events {
    std::function<void(const std::string&)> said;  // for the user
    // No server can be started: say why, and end the job.
    std::function<void(const std::string& why)> failed;
    // No member needs a server any more, so none is started. While a job ends, members may still
    // push.
    std::function<bool()> over;
    // The tables of a checkpoint are in the memory, and servers are started; or why not. Of a store
    // on another host than the launcher's that writes parts of checkpoints also without tables.
    std::function<void(const base::Status&)> loaded = {};
    // Of a job with several stores: `answer` gets what `regroup status` and `regroup resize` are
    // told. None: what this store alone says.
    std::function<void(std::string own, std::function<void(const std::string&)> answer)> status =
        {};
    OtherParts others = {};  // the same for their parts of checkpoints
    using ResizeAnswer = std::function<void(const base::Result<std::string>&)>;
    std::function<void(std::uint32_t servers, ResizeAnswer answer)> resize = {};
  };
  // The memory of start(), which may take seconds: any thread.
  [[nodiscard]] static base::Result<collective::ps::OwnedServerMemory> reserve(
      const ParameterServerOptions& options);
  // Makes the memory, listens, starts the servers; if the job resumes from a checkpoint, once its
  // tables are loaded: then `loaded` is called, and no member may be started before.
  // kInvalidArgument, kResourceExhausted: there is no such memory. Blocks to reserve the memory.
  [[nodiscard]] static base::Result<std::unique_ptr<ParameterServer>> start(
      boost::asio::io_context& loop, ParameterServerOptions options, Events events);
  // The same with memory of reserve().
  [[nodiscard]] static base::Result<std::unique_ptr<ParameterServer>> start(
      boost::asio::io_context& loop, ParameterServerOptions options, Events events,
      collective::ps::OwnedServerMemory memory);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // Sets the number of servers of the job: this store gets its share. New ones get shards once they
  // are ready; those that leave give theirs to the rest at once. Nothing is lost. Returns a
  // sentence. kInvalidArgument: the options do not allow it. Other errors: a server cannot be
  // started.
  [[nodiscard]] base::Result<std::string> resize(std::uint32_t servers);

  // Tells clients of this store that other stores of the job, by number, are lost for good and
  // answer nobody any more: calls go on with the copies of their ranges.
  void lose_stores(const std::vector<std::uint32_t>& stores);

  // Kills server N of this host's store, for "ps:N"; returns a sentence. kNotFound: it does not
  // run.
  [[nodiscard]] base::Result<std::string> kill(const std::string& server);

  // What members on other hosts get as REGROUP_PS; empty without `host_address`.
  [[nodiscard]] const std::string& gateway_address() const { return gateway_address_; }
  // Null if nothing is saved or loaded.
  [[nodiscard]] TableCheckpoints* checkpoints() { return checkpoints_.get(); }
  // As TableCheckpoints has it; kInvalidArgument: the job writes no checkpoints.
  void save_part(const std::string& description, TableCheckpoints::Saved then);
  // Pushes that are applied, and ranges, neither of which ever gets fewer.
  [[nodiscard]] std::uint64_t tables_version() const;
  // True if the job resumes from a checkpoint.
  [[nodiscard]] bool resumes() const {
    return options_.checkpoints && options_.checkpoints->plan.resume.has_value();
  }

  // {"view", "bytes", "clients", "ranges", "updates", "restarts", "servers", "moves",
  // "checkpoint"}; `checkpoint`: the step of the newest one, 0 if there is none; `bytes`: of all
  // segments; `updates`: pushes that are applied, one for each range; `clients`: processes that
  // have asked for the memory. For each server {"server", "pid", "shards", "ranges", "bytes",
  // "updates", "restarts", "tables"}: `bytes` are those in use; `tables`: by name the numbers of
  // the ranges, as "0-3,8"; "hangs": how often it was replaced since it hung; and, if it stands
  // still, "still_seconds" and "still_shard". For each move of the last view {"shard", "from",
  // "to", "why"}. In mode ssp in addition {"staleness", "turns_by_staleness", "clocks"}: the bound;
  // turns of all clients so far by how many clocks the slowest was behind, the last one with all
  // beyond; for each client {"client", "name", "host", "pid", "clock", "held_up_others"} and, while
  // it waits, "waits_for", a name. `held_up_others`: seconds in which others waited for it. In mode
  // sync {"step", "leaves", "leaves_there", "leaves_taken_over", "step_clients"}: the step that is
  // computed, its number of leaves, those that all shards have, leaves so far that a client began
  // while another one had them, and for each client {"client", "name", "pid", "leaves"}: those that
  // it computes.
  [[nodiscard]] std::string status_json();

 private:
  ParameterServer(boost::asio::io_context& loop, ParameterServerOptions options, Events events);
  // kJoining until it is ready to get shards; a server of kLeft may join again.
  enum class State : std::uint8_t { kJoining, kServing, kLeaving, kLeft };
  struct Server {
    Server(boost::asio::io_context& loop, std::uint32_t its) : number(its), back_off(loop) {}
    const std::uint32_t number;
    State state = State::kJoining;
    boost::asio::steady_timer back_off;
    ServerRestarts restarts;
    std::shared_ptr<process::PipedProcess> process;
    base::TimePoint started{};
    pid_t pid = 0;  // 0: none runs
    std::uint64_t starts = 0;
    std::uint64_t hangs = 0;
    std::optional<Standstill> killed;  // since it hung; its end was told
  };
  [[nodiscard]] base::Status map_memory();
  [[nodiscard]] base::Status listen();
  void give_status(base::Fd asker);
  [[nodiscard]] base::Status open_gateway();
  [[nodiscard]] base::Status make_checkpoints();
  [[nodiscard]] base::Status start_servers();
  // What messages call it.
  [[nodiscard]] std::string name_of(const Server& server) const;
  [[nodiscard]] base::Status start_server(Server& server);
  [[nodiscard]] base::Status add_server();
  void remove_server();
  // Servers that join or serve, by number.
  [[nodiscard]] std::vector<Server*> staying();
  // The next view: shards go to the servers that serve.
  void change_view();
  void on_line(Server& server, std::string_view line, bool error);
  void on_end(Server& server, int wait_status);
  void watch_hangs();
  void look_for_hangs();
  void kill_hung(Server& server, const Standstill& still);
  void on_request(const std::string& request, const JobRequests::Answer& answer);
  void save_for(const JobRequests::Answer& answer);
  void give_memory(base::Fd socket);

  boost::asio::io_context& loop_;
  const ParameterServerOptions options_;
  const Events events_;
  collective::ps::OwnedServerMemory memory_;
  std::vector<collective::ps::MappedShard> shards_;
  collective::ps::View view_;
  std::vector<collective::ps::ShardMove> moves_;  // that led to it
  transport::Listener members_;
  transport::Listener askers_;
  JobRequests requests_;
  std::map<std::uint32_t, Server> servers_;  // by number
  ServerHangs hangs_;
  boost::asio::steady_timer next_look_;     // for hangs
  std::atomic<std::uint64_t> clients_ = 0;  // so far; the gateway's threads count, too
  std::string gateway_address_;
  std::unique_ptr<collective::ps::Gateway> gateway_;  // null: all members run here
  std::unique_ptr<TableCheckpoints> checkpoints_;
};

}  // namespace regroup::job
