// Detects that MPI_Init of a world can never complete: it waits for all ranks of MPI_COMM_WORLD, so
// it hangs if a rank ends without it, or if ranks use MPIs that speak different protocols.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace regroup::pmi {

// By which an MPI library talks to its launcher.
enum class Protocol : std::uint8_t { kPmix, kPmi1 };

// The status of an Aborted that regroup-pmi sends because MPI_Init cannot complete; its message
// says why. A receiver that takes it for one of MPI_Abort ends the job with 1, too.
inline constexpr std::int32_t kInitCannotComplete = 0x7fff0001;

// The key of a PMI-1 barrier over hosts (messages.h, Contribute) begins with it; others are PMIx's.
inline constexpr const char* kPmi1Barrier = "PMI-1 barrier";

// Watches which protocols ranks, or the ranks of hosts, speak. Not thread-safe; nothing blocks or
// fails.
class ProtocolWatch {
 public:
  // `who`, as "rank 3" or "host node2", speaks `protocol`. Returns why MPI_Init cannot complete:
  // another one speaks the other protocol only. One that speaks both runs several programs in turn.
  [[nodiscard]] std::optional<std::string> speaks(const std::string& who, Protocol protocol);

 private:
  std::map<std::string, std::set<Protocol>> spoken_;
};

// Watches the ranks of one space. Not thread-safe; nothing blocks or fails.
class InitWatch {
 public:
  explicit InitWatch(std::uint32_t space = 0) : space_(space) {}

  // `rank` has begun MPI_Init. Returns why MPI_Init cannot complete.
  [[nodiscard]] std::optional<std::string> begun(std::uint32_t rank);
  // `rank` has called MPI_Finalize, which does not wait for ranks that never called MPI_Init.
  void finalized(std::uint32_t rank) { inside_.erase(rank); }
  // `rank` has ended; `how` is "(pid 12) exited with code 0". Returns why MPI_Init of other ranks
  // cannot complete. Ranks that end before any rank calls MPI_Init are remembered, since a program
  // without MPI does not call it in any rank.
  [[nodiscard]] std::optional<std::string> ended(std::uint32_t rank, const std::string& how);
  // Of a space of `size` ranks: "rank 1 waits in MPI_Init for rank 0 and 2 more", if ranks that may
  // live for ever without MPI have not called it. None: no rank waits.
  [[nodiscard]] std::optional<std::string> waits(std::uint32_t size) const;

 private:
  [[nodiscard]] std::string named(std::uint32_t rank) const;

  std::uint32_t space_;
  std::set<std::uint32_t> begun_;     // ranks that have called MPI_Init
  std::set<std::uint32_t> inside_;    // those that have not called MPI_Finalize since
  std::optional<std::string> early_;  // how the first rank ended before MPI_Init
};

}  // namespace regroup::pmi
