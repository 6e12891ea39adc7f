// What the parts of the PMIx server share.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/pmi/pmix_board.h"
#include "tools/pmi/pmix_library.h"
#include "tools/pmi/pmix_server.h"

namespace regroup::pmi {

// To be used on the loop's thread only.
struct PmixState {
  PmixState(boost::asio::io_context& the_loop, const PmixLibrary& loaded, PmixOptions the_options,
            PmixEvents the_events)
      : loop(the_loop),
        library(loaded),
        options(std::move(the_options)),
        events(std::move(the_events)),
        board(the_loop, library) {}

  [[nodiscard]] std::string name_of(std::uint32_t space) const;
  [[nodiscard]] std::optional<ProcId> proc_id_of(const pmix_proc_t& proc) const;
  // The first host of a job keeps the published names of all.
  [[nodiscard]] bool keeps_names() const { return options.host == 0; }
  // The hosts of these processes, in their order. PMIX_RANK_WILDCARD means all ranks of a space.
  [[nodiscard]] std::vector<std::uint32_t> hosts_of(const pmix_proc_t* procs,
                                                    std::size_t count) const;

  boost::asio::io_context& loop;
  PmixLibrary library;
  PmixOptions options;
  PmixEvents events;
  PmixBoard board;
  std::map<std::uint32_t, std::vector<std::uint32_t>> spaces = {};  // the host of each rank
  std::size_t contexts = 0;  // groups that had a member of this host
  std::map<std::uint32_t, std::vector<std::string>> programs = {};  // variables of a space's ranks
};

}  // namespace regroup::pmi
