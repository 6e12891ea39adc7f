// Carrier: takes messages between members on different hosts in place of the network of a mesh, for
// example through the user's MPI (collective/mpi). The mesh still makes the connections, and sends
// what the carrier does not take, or has taken and lost.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "regroup/operation.h"

namespace regroup::collective {

// Ranks are those in the World. Used by the thread of the mesh, which owns the carrier. Only
// close() blocks.
class Carrier {
 public:
  // A message that has arrived.
  struct Message {
    int from = 0;
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  // Bytes for rank `to` that the mesh must send by its own network.
  struct Parcel {
    int to = 0;
    std::vector<std::byte> bytes;
  };

  virtual ~Carrier() = default;

  // True if send() takes a message of `bytes` for rank `to` now.
  [[nodiscard]] virtual bool carries(int to, std::size_t bytes) const = 0;
  // Takes a message, of which it copies `header` and `data`. Messages between two ranks arrive in
  // the order of the calls. carries() must have returned true. Returns the number of the message
  // for passed().
  [[nodiscard]] virtual std::uint64_t send(int to, Input header, Input data) = 0;
  // The messages with numbers up to this one arrive without further calls of progress(), or have
  // been given back to the mesh.
  [[nodiscard]] virtual std::uint64_t passed() const = 0;
  // True if it has messages for rank `to` that may not have arrived.
  [[nodiscard]] virtual bool holds(int to) const = 0;
  // Advances all work. True if anything moved.
  [[nodiscard]] virtual bool progress() = 0;
  [[nodiscard]] virtual std::optional<Message> receive() = 0;
  // A message that the carrier had taken and that did not arrive: the mesh sends it.
  [[nodiscard]] virtual std::optional<Parcel> returned() = 0;
  // A note of the carrier to that of rank `to`. The mesh delivers notes in order, by on_note().
  [[nodiscard]] virtual std::optional<Parcel> note() = 0;
  virtual void on_note(int from, Input note) = 0;
  // What poll() shall wait for on behalf of progress(); fd -1: nothing.
  [[nodiscard]] virtual pollfd awaited() const = 0;
  // Hands over all messages that were taken, unless the generation is revoked; blocks for up to 2
  // s.
  virtual void close(bool revoked) = 0;
};

}  // namespace regroup::collective
