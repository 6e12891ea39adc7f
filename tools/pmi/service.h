// Passes messages between the agent and the two servers, PMI-1 and PMIx.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launcher/pmi/init_watch.h"
#include "launcher/pmi/link.h"
#include "tools/pmi/pmi1_service.h"
#include "tools/pmi/pmix_server.h"

namespace regroup::pmi {

struct ServiceOptions {
  std::string job;         // its id
  std::string folder;      // exists; removed by the agent
  std::string library;     // libpmix
  std::uint32_t host = 0;  // number of this host in the job
};

// To be used on the loop's thread only.
class Service {
 public:
  Service(boost::asio::io_context& loop, base::Fd agent, ServiceOptions options);
  // Loads libpmix and reports the result to the agent.
  void start();

 private:
  // An MPI_Comm_spawn that waits for the agent.
  struct Pending {
    ProcId parent;
    std::function<void(base::Result<std::uint32_t>)> answer;  // replies to the requesting server
  };

  void on_message(const Message& message);
  void on(const OpenSpace& open);
  void on(const ReplaceRank& replace);
  void on(const MemberGone& gone);
  void on(const CloseSpace& close);
  void on(const Ping& ping) { tell(ping); }
  void on(const SpawnDone& done);
  void on(const Gathered& gathered);
  void on(const Fetch& fetch);
  void on(const Fetched& fetched);
  void on(const NameCall& call);
  template <class Other>
  void on(const Other&) {}  // messages that only the helper sends
  void make_ready(ProcId process, std::vector<std::string> environment, bool spawned);
  // When this returns, the message is in the agent's socket, even if this process crashes.
  void tell(const Message& message, base::Fd fd = {});
  void ask_for_spawn(Pending pending, std::vector<SpawnApp> apps, const KeyValues& values = {});
  // For a host that does not keep the names of the job.
  void ask_names(NameOperation operation, ProcId from, std::vector<std::byte> data,
                 PmixEvents::OnFetched then);
  // The process has begun MPI_Init.
  void connected(ProcId process, Protocol protocol);
  using OnGathered = std::function<void(std::vector<std::byte>)>;
  void gather(std::uint32_t space, const std::string& what, std::vector<std::uint32_t> hosts,
              std::vector<std::byte> data, OnGathered then);
  [[nodiscard]] PmixEvents pmix_events();
  [[nodiscard]] Pmi1Events pmi1_events();

  boost::asio::io_context& loop_;
  ServiceOptions options_;
  Link agent_;
  Pmi1Service pmi1_;
  std::map<std::uint32_t, ProtocolWatch> protocols_;  // of the ranks of this host, by space
  std::unique_ptr<PmixServer> pmix_;
  std::map<std::uint64_t, Pending> pending_;
  std::uint64_t requests_ = 0;
  std::map<std::string, std::uint64_t> times_;  // how often processes of several hosts did this
  std::map<std::string, OnGathered> gathering_;
  std::map<std::uint64_t, PmixEvents::OnFetched> fetching_;
};

}  // namespace regroup::pmi
