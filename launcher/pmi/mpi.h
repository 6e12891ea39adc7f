// What an agent gives MPI programs: for each member the environment and the descriptor that let it find its
// launcher, and for the job the news of who is inside MPI. Serves programs of any MPI, or of none, alike.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "launcher/pmi/helper.h"
#include "launcher/pmi/messages.h"
#include "launcher/supervise/app.h"

namespace regroup::pmi {

struct MpiEvents {
  std::function<void(const Connected&)> connected;
  std::function<void(const Finalized&)> finalized;
  std::function<void(const Aborted&)> aborted;
  std::function<void(const Met&)> met = [](const Met&) {};
  std::function<void(const Parted&)> parted = [](const Parted&) {};
  std::function<void(const Spawn&)> spawn;  // to be answered with open() or spawn_done()
  // Contribute, Fetch and Fetched, for other hosts.
  std::function<void(const Message&)> exchange = [](const Message&) {};
  std::function<void(const std::string&)> said;  // a sentence for the user: something is missing
};

// Variables that tell an MPI how it was started, and keep more processes than cores from spinning. What the
// user has set in `app` stays as it is.
void add_hints(launcher::Extras& extras, const launcher::App& app, bool oversubscribed);

// "rank 3", "rank 0 of spawn 1".
[[nodiscard]] std::string name_of(Seat seat);

// What MPI_Comm_spawn means by `wanted` for a parent that runs `parent`. kNotFound names the program.
[[nodiscard]] core::Result<launcher::App> spawned_app(const launcher::App& parent, const SpawnApp& wanted);

// Used by the loop's thread.
class Mpi {
 public:
  // Starts regroup-pmi, with the libpmix of `app` unless `options` name one; that it cannot be started is
  // said, and members get no extras.
  Mpi(boost::asio::io_context& loop, HelperOptions options, const launcher::App& app, MpiEvents events);

  // Gives `ready` the extras of each rank of this host, once, from the loop or at once: those there are if
  // regroup-pmi dies or does not answer in time.
  using Ready = std::function<void(std::vector<launcher::Extras>)>;
  void open(const OpenSpace& space, Ready ready);
  // The same for one rank of an open space that was never in MPI_Init and is started anew.
  void reopen(Seat seat, std::function<void(launcher::Extras)> ready);
  // MemberGone, CloseSpace, SpawnDone, Gathered, Fetch, Fetched.
  void tell(const Message& message) { send(message); }
  // What dead members had told before they died has been handled when this returns.
  void settle();

  [[nodiscard]] pid_t helper() const { return helper_ ? helper_->pid() : 0; }

 private:
  using OpeningId = std::uint64_t;
  struct Opening {
    std::vector<launcher::Extras> extras;
    std::size_t missing = 0;
    Ready ready;
  };
  struct Awaited {
    OpeningId opening = 0;
    std::size_t index = 0;  // of its extras
  };

  OpeningId await(const std::vector<Seat>& seats, Ready ready);
  bool send(const Message& message);
  void watch();
  void give_up();
  void on_message(const Message& message, core::Fd fd);
  void on_services(const Services& services);
  void on_rank_ready(const RankReady& ready, core::Fd fd);
  void on_lost(const core::Status& why);
  void lose(const std::string& what, const std::string& why);
  void finish(OpeningId id);

  static constexpr int kBeats = 10;  // questions within the limit

  core::Duration limit_;
  boost::asio::steady_timer beat_;
  int unanswered_ = 0;
  MpiEvents events_;
  std::map<OpeningId, Opening> openings_;
  std::map<Seat, Awaited> awaited_;
  OpeningId last_opening_ = 0;
  std::unique_ptr<Helper> helper_;
  bool lost_ = false;
};

}  // namespace regroup::pmi
