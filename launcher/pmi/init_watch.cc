// The order of reports does not matter: the rank without MPI may end before or after the others
// call MPI_Init. Open MPI's mpirun hangs in the first case. That a rank is in a PMI-1 barrier is no
// sign: MPICH 5.0.2 waits for the ranks of its host in shared memory first. Nor are sessions of
// mpi://SELF an exception: with a rank that calls nothing, MPICH 4.0 hangs in MPI_Session_init and
// 5.0.2 in MPI_Session_finalize under hydra, and Open MPI's mpirun ends the job.
#include "launcher/pmi/init_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/pmi/mpi.h"

namespace regroup::pmi {
namespace {

const char* mpi_of(Protocol protocol) {
  return protocol == Protocol::kPmix ? "PMIx (Open MPI)" : "PMI-1 (MPICH, Intel MPI)";
}

}  // namespace

std::optional<std::string> ProtocolWatch::speaks(const std::string& who, Protocol protocol) {
  std::set<Protocol>& own = spoken_[who];
  if (!own.insert(protocol).second || own.size() > 1) return std::nullopt;
  const auto other = std::ranges::find_if(spoken_, [&](const auto& entry) {
    return entry.second.size() == 1 && !entry.second.contains(protocol);
  });
  if (other == spoken_.end()) return std::nullopt;
  return fmt::format("MPI_Init cannot complete: the MPI of {} speaks {}, that of {} {}",
                     other->first, mpi_of(*other->second.begin()), who, mpi_of(protocol));
}

std::string InitWatch::named(std::uint32_t rank) const { return name_of({space_, rank}); }

std::optional<std::string> InitWatch::begun(std::uint32_t rank) {
  begun_.insert(rank);
  inside_.insert(rank);
  if (!early_) return std::nullopt;
  return fmt::format("{}, but {} waits for it in MPI_Init", *early_, named(rank));
}

std::optional<std::string> InitWatch::ended(std::uint32_t rank, const std::string& how) {
  inside_.erase(rank);
  if (begun_.contains(rank)) return std::nullopt;
  const std::string said = fmt::format("{} {} before it called MPI_Init", named(rank), how);
  if (!early_) early_ = said;
  if (inside_.empty()) return std::nullopt;
  return fmt::format("{}, but {} waits for it in MPI_Init", said, named(*inside_.begin()));
}

std::optional<std::string> InitWatch::waits(std::uint32_t size) const {
  if (inside_.empty() || begun_.size() >= size) return std::nullopt;
  std::uint32_t missing = 0;
  while (begun_.contains(missing)) ++missing;
  const std::size_t more = size - begun_.size() - 1;
  return fmt::format("{} waits in MPI_Init for {}{}", named(*inside_.begin()), named(missing),
                     more == 0 ? "" : fmt::format(" and {} more", more));
}

}  // namespace regroup::pmi
