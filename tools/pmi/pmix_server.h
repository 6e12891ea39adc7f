// The PMIx server for the members on this node, which Open MPI expects of its launcher. Without
// libpmix's headers pmix_absent.cc is built instead, and start() returns an error.
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

// Called on the loop's thread. The process that caused an event continues when the function
// returns.
struct PmixEvents {
  std::function<void(ProcId)> connected;
  std::function<void(ProcId)> finalized;
  std::function<void(ProcId, std::int32_t status, std::string message)> aborted;
  // Processes of these spaces, at least two, have connected or disconnected.
  std::function<void(std::vector<std::uint32_t> spaces)> groups_connected, groups_disconnected;
  // Processes of several hosts do `what` together; `space` is as in Contribute. Calls `then` with
  // the data of all hosts, in the order of `hosts`.
  std::function<void(std::uint32_t space, const std::string& what, std::vector<std::uint32_t> hosts,
                     std::vector<std::byte> data, std::function<void(std::vector<std::byte>)> then)>
      gather;
  // Fetches the data that a process of another host has committed; `status` is a code of libpmix.
  using OnFetched = std::function<void(std::int32_t status, std::vector<std::byte> data)>;
  std::function<void(ProcId of, OnFetched then)> fetch;
  // Asks the first host of the job, which keeps all published names; not called there.
  std::function<void(NameOperation, ProcId from, std::vector<std::byte> data, OnFetched then)>
      ask_names;
  // Calls `answer` with the number of the new space.
  using Answer = std::function<void(base::Result<std::uint32_t>)>;
  std::function<void(ProcId parent, std::vector<SpawnApp>, Answer answer)> spawn;
};

// PmixEvents::gather: `what` of MPI_Comm_create_from_group begins with it.
inline constexpr const char* kGroup = "group ";

struct PmixOptions {
  std::string job;         // its id
  std::string folder;      // private, for files of this server and of its clients
  std::string library;     // file name, or path, of libpmix
  std::uint32_t host = 0;  // number of this host in the job
};

struct PmixState;

// libpmix calls back on its own thread; each call is posted to the loop, whose thread does all
// work.
class PmixServer {
 public:
  // Only one per process: libpmix's callbacks have no user pointer. kNotFound: libpmix is missing.
  [[nodiscard]] static base::Result<std::unique_ptr<PmixServer>> start(
      boost::asio::io_context& loop, PmixOptions options, PmixEvents events);
  ~PmixServer();
  PmixServer(const PmixServer&) = delete;
  PmixServer& operator=(const PmixServer&) = delete;

  // Registers the space. Returns the environment variables of each rank on this host. Blocks for
  // well under a millisecond.
  [[nodiscard]] base::Result<std::vector<std::vector<std::string>>> open_space(
      const OpenSpace& space);
  // Returns the environment variables of a rank of an open space.
  [[nodiscard]] base::Result<std::vector<std::string>> environment_of(ProcId process) const;
  // To be called when the space's processes have ended. Blocks for well under a millisecond.
  void close_space(std::uint32_t space);
  // Calls `then` with the data of a process of this host, once the process has committed it.
  void fetch(ProcId of, PmixEvents::OnFetched then);
  // For the first host of a job: acts on a call of another one. Calls `then` with the reply, for
  // kLookup perhaps much later.
  void names(const NameCall& call, PmixEvents::OnFetched then);
  // Fails the operations that wait for this member. If it failed, notifies the other members, for
  // fault-tolerant programs.
  void member_gone(const MemberGone& gone);

 private:
  explicit PmixServer(std::unique_ptr<PmixState> state);

  std::unique_ptr<PmixState> state_;
};

}  // namespace regroup::pmi
