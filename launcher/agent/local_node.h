// This host as a Node: members are processes in the ProcessTable of the agent, with a regroup-pmi
// beside them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "launcher/agent/agent.h"
#include "launcher/agent/node.h"
#include "launcher/pmi/mpi.h"

namespace regroup::agent {

class LocalNode final : public Node {
 public:
  // Without `helper` MPI programs get no services.
  LocalNode(Agent& agent, std::optional<pmi::HelperOptions> helper, NodeEvents events);

  void add_app(std::uint32_t number, const process::App& app) override;
  void drop_app(std::uint32_t number) override;
  void start(SpaceOrder order) override;
  void signal(proto::MemberId member, int signal) override;
  void tell(const pmi::Message& message) override;
  void settle() override;
  // Signals the process groups of all members. Members of an order that is not executed yet get the
  // signal when they run.
  void signal_all(int signal);
  // Why program `number` was not found; ok if it was.
  [[nodiscard]] base::Status missing(std::uint32_t number) const;

 private:
  [[nodiscard]] pmi::MpiEvents mpi_events();
  void on_aborted(const pmi::Aborted& aborted);
  void tell_aborted(bool all);
  void open(const SpaceOrder& order);
  void reopen(const SpaceOrder& order);
  [[nodiscard]] base::Status start_members(const SpaceOrder& order,
                                           std::vector<process::Extras> extras);

  Agent& agent_;
  const std::optional<pmi::HelperOptions> helper_;
  const NodeEvents events_;
  std::unique_ptr<pmi::Mpi> mpi_;                   // from the first start() on
  std::map<std::uint32_t, base::Status> missing_;   // programs that were not found, by number
  std::map<pmi::ProcId, proto::MemberId> members_;  // started members, until their space is closed
  std::vector<pmi::Aborted> aborted_;               // not reported yet
  // Signals to all since start(), by an order's first process.
  std::map<pmi::ProcId, std::vector<int>> early_;
};

}  // namespace regroup::agent
