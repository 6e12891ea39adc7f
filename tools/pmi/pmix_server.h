// The PMIx server for the members on this node: what Open MPI asks its launcher for. Built without
// libpmix's headers it is pmix_absent.cc, and start() says so.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/pmi/messages.h"

namespace regroup::pmi {

// Called on the loop's thread. The process that caused one goes on when it returns.
struct PmixEvents {
  std::function<void(ProcId)> connected;
  std::function<void(ProcId)> finalized;
  std::function<void(ProcId, std::int32_t status, std::string message)> aborted;
  // Processes of these spaces; of two at least.
  std::function<void(std::vector<std::uint32_t> spaces)> groups_connected, groups_disconnected;
  // Processes of several hosts do `what` together: `then` gets what all hosts brought, in their
  // order.
  std::function<void(const std::string& what, std::vector<std::uint32_t> hosts,
                     std::vector<std::byte> data, std::function<void(std::vector<std::byte>)> then)>
      gather;
  // What a process of another host has made known of itself; `status` is libpmix's.
  using OnFetched = std::function<void(std::int32_t status, std::vector<std::byte> data)>;
  std::function<void(ProcId of, OnFetched then)> fetch;
  // `answer` is called with the number of the new space, or why there is none.
  using Answer = std::function<void(base::Result<std::uint32_t>)>;
  std::function<void(ProcId parent, std::vector<SpawnApp>, Answer answer)> spawn;
};

struct PmixOptions {
  std::string job;         // its id
  std::string folder;      // private, for files of this server and of its clients
  std::string library;     // file name, or path, of libpmix
  std::uint32_t host = 0;  // number of this host in the job
};

struct PmixState;

// libpmix calls back on a thread of its own: each call is handed to the loop, where everything
// happens.
class PmixServer {
 public:
  // One per process: libpmix's callbacks know no object. kNotFound: there is no libpmix.
  [[nodiscard]] static base::Result<std::unique_ptr<PmixServer>> start(
      boost::asio::io_context& loop, PmixOptions options, PmixEvents events);
  ~PmixServer();
  PmixServer(const PmixServer&) = delete;
  PmixServer& operator=(const PmixServer&) = delete;

  // Makes the space known; the variables by rank, of those on this host. Blocks for well under a
  // millisecond.
  [[nodiscard]] base::Result<std::vector<std::vector<std::string>>> open_space(
      const OpenSpace& space);
  // The variables of a rank of an open space.
  [[nodiscard]] base::Result<std::vector<std::string>> environment_of(ProcId process) const;
  // The space's processes have ended. Blocks for well under a millisecond.
  void close_space(std::uint32_t space);
  // What a process of this host makes known of itself, as soon as it has.
  void fetch(ProcId of, PmixEvents::OnFetched then);
  // Fails the operations that wait for this member. If it failed, notifies the others, for a
  // fault-tolerant program.
  void member_gone(const MemberGone& gone);

 private:
  explicit PmixServer(std::unique_ptr<PmixState> state);

  std::unique_ptr<PmixState> state_;
};

}  // namespace regroup::pmi
