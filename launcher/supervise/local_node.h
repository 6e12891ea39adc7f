// This host as a Node: members are processes in the ProcessTable of the agent, with a regroup-pmi beside
// them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "launcher/pmi/mpi.h"
#include "launcher/supervise/agent.h"
#include "launcher/supervise/node.h"

namespace regroup::launcher {

class LocalNode final : public Node {
 public:
  // Without `helper` MPI programs get no services.
  LocalNode(Agent& agent, std::optional<pmi::HelperOptions> helper, NodeEvents events);

  void add_app(std::uint32_t number, const App& app) override;
  void drop_app(std::uint32_t number) override;
  void start(SpaceOrder order) override;
  void signal(core::MemberId member, int signal) override;
  void tell(const pmi::Message& message) override;
  void settle() override;
  // To the process groups of all members. Those of an order that is not carried out yet get it once they run.
  void signal_all(int signal);
  // Why a program that was added is not here; ok if it is.
  [[nodiscard]] core::Status missing(std::uint32_t number) const;

 private:
  [[nodiscard]] pmi::MpiEvents mpi_events();
  void on_aborted(const pmi::Aborted& aborted);
  void tell_aborted(bool all);
  void open(const SpaceOrder& order);
  void reopen(const SpaceOrder& order);
  [[nodiscard]] core::Status start_members(const SpaceOrder& order, std::vector<Extras> extras);

  Agent& agent_;
  const std::optional<pmi::HelperOptions> helper_;
  const NodeEvents events_;
  std::unique_ptr<pmi::Mpi> mpi_;                  // from the first start() on
  std::map<std::uint32_t, core::Status> missing_;  // programs that are not here, by number
  std::map<pmi::Seat, core::MemberId> members_;    // that were started, until their space is closed
  std::vector<pmi::Aborted> aborted_;              // not told yet
  std::map<pmi::Seat, std::vector<int>> early_;    // signals for all since start(), by an order's first seat
};

}  // namespace regroup::launcher
