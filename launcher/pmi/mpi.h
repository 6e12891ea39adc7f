// The agent's services for MPI programs: gives each member the environment and the descriptor by
// which it finds its launcher, and reports to the job which ranks are between MPI_Init and
// MPI_Finalize. Programs of any MPI, or of none, are treated alike.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/pmi/helper.h"
#include "launcher/pmi/messages.h"
#include "launcher/process/app.h"

namespace regroup::pmi {

// Statuses of libpmix, for sources that are built without its headers.
inline constexpr std::int32_t kPmixNotFound = -46;
inline constexpr std::int32_t kPmixOutOfResource = -29;

struct MpiEvents {
  std::function<void(const Connected&)> connected;
  std::function<void(const Finalized&)> finalized;
  std::function<void(const Aborted&)> aborted;
  std::function<void(const GroupsConnected&)> groups_connected = [](const GroupsConnected&) {};
  std::function<void(const GroupsDisconnected&)> groups_disconnected =
      [](const GroupsDisconnected&) {};
  std::function<void(const Spawn&)> spawn;  // answer it with open() or tell(SpawnDone)
  // Contribute, Fetch, Fetched and NameCall, for other hosts.
  std::function<void(const Message&)> exchange = [](const Message&) {};
  std::function<void(const std::string&)> said;  // a sentence for the user about a missing service
};

// Adds variables that tell an MPI library how it was started, and that keep processes from spinning
// if they outnumber the cores. Variables that the user has set in `app` stay.
void add_hints(process::Extras& extras, const process::App& app, bool oversubscribed);

// "rank 3", "rank 0 of spawn 1".
[[nodiscard]] std::string name_of(ProcId process);

// The answer to a Fetch or NameCall for a host without regroup-pmi, since the asking process waits
// without a limit; nothing for other messages.
[[nodiscard]] std::optional<Fetched> not_found(const Message& message);

// The program that MPI_Comm_spawn starts for `wanted` when a process of `parent` calls it.
// kNotFound names it.
[[nodiscard]] base::Result<process::App> spawned_app(const process::App& parent,
                                                     const SpawnApp& wanted);

// Used by the loop's thread.
class Mpi {
 public:
  // Starts regroup-pmi, with the libpmix of `app` unless `options` name one. If that fails it
  // reports it by `events.said`, and members get no extras.
  Mpi(boost::asio::io_context& loop, HelperOptions options, const process::App& app,
      MpiEvents events);

  // Calls `ready` once, from the loop or before it returns, with the extras of each rank of this
  // host; if regroup-pmi dies or does not answer in time, with those received until then.
  using Ready = std::function<void(std::vector<process::Extras>)>;
  void open(const OpenSpace& space, Ready ready);
  // As open(), for one rank of an open space that never called MPI_Init and is restarted.
  void reopen(ProcId process, std::function<void(process::Extras)> ready);
  // Sends a MemberGone, CloseSpace, SpawnDone, Gathered, Fetch, Fetched or NameCall. If regroup-pmi
  // is gone, or ends before it answers a Fetch or a NameCall, events.exchange gets not_found().
  void tell(const Message& message);
  // Handles all reports of regroup-pmi about members that are dead by now.
  void settle();

  [[nodiscard]] pid_t helper() const { return helper_ ? helper_->pid() : 0; }

 private:
  using OpeningId = std::uint64_t;
  struct Opening {
    std::vector<process::Extras> extras;
    std::size_t missing = 0;
    Ready ready;
  };
  struct Awaited {
    OpeningId opening = 0;
    std::size_t index = 0;  // of its extras
  };

  OpeningId await(const std::vector<ProcId>& processes, Ready ready);
  bool send(const Message& message);
  void deny(const Fetched& answer);
  void watch();
  void give_up();
  void on_message(const Message& message, base::Fd fd);
  void on_services(const Services& services);
  void on_rank_ready(const RankReady& ready, base::Fd fd);
  void on_lost(const base::Status& why);
  void lose(const std::string& what, const std::string& why);
  void finish(OpeningId id);

  static constexpr int kBeats = 10;  // pings within the limit

  base::Duration limit_;
  boost::asio::steady_timer beat_;
  int unanswered_ = 0;
  MpiEvents events_;
  std::map<OpeningId, Opening> openings_;
  std::map<ProcId, Awaited> awaited_;
  // Fetch and NameCall that regroup-pmi has not answered: host and request.
  std::set<std::pair<std::uint32_t, std::uint64_t>> questions_;
  OpeningId last_opening_ = 0;
  std::unique_ptr<Helper> helper_;
  bool lost_ = false;
};

}  // namespace regroup::pmi
