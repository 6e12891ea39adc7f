// Which rank of a space runs on which host of the job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/pmi/messages.h"

namespace regroup::pmi {

class Layout {
 public:
  // `own`: the name of this host, where the space has only one.
  Layout(const OpenSpace& space, const std::string& own);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(host_of_.size()); }
  // A host with ranks, in the order of the hosts' first ranks.
  struct Host {
    std::string name;
    std::uint32_t number = 0;  // in the job
    std::vector<std::uint32_t> ranks;
  };
  [[nodiscard]] const std::vector<Host>& hosts() const { return hosts_; }
  [[nodiscard]] const Host& host_of(std::uint32_t rank) const { return hosts_[host_of_[rank]]; }
  // Index of its host in hosts(): PMIx numbers the hosts of a space in the order of their
  // registration.
  [[nodiscard]] std::uint32_t index_of(std::uint32_t rank) const { return host_of_[rank]; }
  // Among the ranks of its host.
  [[nodiscard]] std::uint32_t local_rank(std::uint32_t rank) const { return local_ranks_[rank]; }
  // The ranks of this host.
  [[nodiscard]] const std::vector<std::uint32_t>& here() const { return here_; }
  // As MPICH reads it: "(vector,(0,2,1),(1,1,3))", blocks of (first host, hosts, ranks on each).
  [[nodiscard]] std::string mapping() const;

 private:
  std::vector<Host> hosts_;
  std::vector<std::uint32_t> host_of_, local_ranks_;  // by rank
  std::vector<std::uint32_t> here_;
};

}  // namespace regroup::pmi
