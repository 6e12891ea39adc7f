// MPI for a job of roles: one MPI_COMM_WORLD over all its members, a new one each time the whole job starts.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/pmi/mpi.h"
#include "launcher/roles/role_rules.h"
#include "launcher/supervise/app.h"

namespace regroup::launcher {

// Used by the loop's thread.
class RoleWorld {
 public:
  struct Options {
    std::optional<pmi::HelperOptions> helper;  // none: MPI programs get no services
    std::vector<std::uint32_t> counts;         // members of each role
    std::uint32_t slots = 0;                   // cores there are for them; 0: not known
    std::vector<pmi::Binding> bindings;        // by rank; empty: nobody is bound
  };
  struct Events {
    std::function<void(const std::string&)> said;                            // for the user
    std::function<void(const StartMember& start, Extras extras)> may_start;  // the answer to start()
    std::function<void(std::uint32_t rank)> aborted;  // called MPI_Abort, and may wait for its end
  };
  // `app`: by which the libpmix is chosen.
  RoleWorld(boost::asio::io_context& loop, Options options, App app, Events events);

  // Calls may_start, at once or later, unless renew() comes first.
  void start(const StartMember& start);
  // The world is over, and the next start() begins another; the ranks that will not be started any more.
  [[nodiscard]] std::vector<std::uint32_t> renew();
  // Of the member that was started last as `rank`.
  [[nodiscard]] MemberEnd::Mpi standing(std::uint32_t rank) const { return members_.at(rank).standing; }
  [[nodiscard]] const std::optional<pmi::Aborted>& abort_of(std::uint32_t rank) const {
    return members_.at(rank).abort;
  }
  // The member has ended.
  void gone(std::uint32_t rank);
  // What dead members had told before they died is known when this returns.
  void settle();

 private:
  struct Member {
    MemberEnd::Mpi standing = MemberEnd::Mpi::kNever;
    std::optional<pmi::Aborted> abort;
    std::optional<Extras> extras;        // of the first start in this world
    std::optional<StartMember> waiting;  // for its extras
  };

  [[nodiscard]] pmi::MpiEvents events();
  void stands(pmi::Seat seat, MemberEnd::Mpi standing);
  void open();
  void release(std::uint32_t rank);

  Options options_;
  App app_;
  Events events_;
  std::vector<Member> members_;  // by rank
  std::uint32_t space_ = 0;
  bool opened_ = false;   // regroup-pmi knows of this space_ ...
  bool opening_ = false;  // ... and has not answered yet
  std::unique_ptr<pmi::Mpi> mpi_;
};

}  // namespace regroup::launcher
