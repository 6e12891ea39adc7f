// Which rank of a space runs on which host of the job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/pmi/messages.h"

namespace regroup::pmi {

class Layout {
 public:
  // If the space has only one host, `own` is its name.
  Layout(const OpenSpace& space, const std::string& own);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(host_of_.size()); }
  // A host that has ranks of the space.
  struct Host {
    std::string name;
    std::uint32_t number = 0;  // in the job
    std::vector<std::uint32_t> ranks;
  };
  // In the order of their first ranks.
  [[nodiscard]] const std::vector<Host>& hosts() const { return hosts_; }
  [[nodiscard]] const Host& host_of(std::uint32_t rank) const { return hosts_[host_of_[rank]]; }
  // The index in hosts() of the rank's host: PMIx numbers the hosts of a space in the order in
  // which they are registered.
  [[nodiscard]] std::uint32_t index_of(std::uint32_t rank) const { return host_of_[rank]; }
  // The rank's number among the ranks of its host.
  [[nodiscard]] std::uint32_t local_rank(std::uint32_t rank) const { return local_ranks_[rank]; }
  // The ranks of this host.
  [[nodiscard]] const std::vector<std::uint32_t>& here() const { return here_; }
  // In MPICH's format: "(vector,(0,2,1),(1,1,3))", blocks of (first host, hosts, ranks on each).
  [[nodiscard]] std::string mapping() const;

 private:
  std::vector<Host> hosts_;
  // By rank.
  std::vector<std::uint32_t> host_of_;
  std::vector<std::uint32_t> local_ranks_;
  std::vector<std::uint32_t> here_;
};

}  // namespace regroup::pmi
