// The MPI functions that a carrier uses, of a library loaded at run time. One program serves Open
// MPI 4 and 5, MPICH, and every MPI with the standard's ABI: their handles differ (pointers to
// exported objects; integers; fixed addresses), the functions do not.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace regroup::mpi {

// Messages of bytes between the processes of MPI_COMM_WORLD. Used by one thread. MPI's default
// error handler ends the process at an error.
class Api {
 public:
  virtual ~Api() = default;
  // "Open MPI v4.1.4"; works before init().
  [[nodiscard]] virtual std::string version() = 0;
  virtual void init() = 0;  // blocks until all processes have called it
  [[nodiscard]] virtual int rank() = 0;
  [[nodiscard]] virtual int size() = 0;
  // Starts to send `bytes`, which must stay until sent() has returned true for the result, once.
  // That is when the receiver has begun to receive them (MPI_Issend).
  [[nodiscard]] virtual std::size_t send(int to, std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual bool sent(std::size_t request) = 0;
  // The next message from that process, if one has arrived.
  [[nodiscard]] virtual std::optional<std::vector<std::byte>> receive(int from) = 0;
};

// Loads `library`. kUnavailable: it is no MPI that this version knows, or lacks a function.
[[nodiscard]] base::Result<std::unique_ptr<Api>> load(const std::string& library);

}  // namespace regroup::mpi
