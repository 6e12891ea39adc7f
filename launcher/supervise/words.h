// What guardian and agent of a job say to each other on their socket pair. Both are the same program, forked:
// no foreign bytes come here, so these are plain structs.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <utility>

#include "core/fd.h"
#include "core/status.h"

namespace regroup::launcher {

enum class Word : std::uint32_t {
  kSignal,       // guardian: value goes to every member's process group
  kStop,         // guardian: end the job, value is the signal that asked for it
  kKill,         // guardian: end it at once
  kCoordinator,  // guardian: a coordinator listens at the other end of the descriptor; value: its incarnation
  kResumed,      // agent, before kStateLost: the step that the job had gone on from
  kStateLost,    // agent: the job ends since no member has its state any more; value: hosts whose members may
                 // live on
  kDone,         // agent: nothing is left; value is the exit status of the job
};

// A pair of sockets that keep the bounds of words.
[[nodiscard]] core::Result<std::pair<core::Fd, core::Fd>> word_sockets();

// By what waits at an agent's end, and is left there: the job is to end, or the guardian is gone.
[[nodiscard]] bool end_is_asked(int socket);

// Reads away what waits at an agent's end: a socket that is closed with something unread takes back what the
// other side has not read yet, our last word.
void forget_words(int socket);

class WordSocket {
 public:
  using Handler = std::function<void(Word word, std::int32_t value, core::Fd fd)>;
  // `lost` is called once when the other process is gone. Both on the loop's thread.
  WordSocket(boost::asio::io_context& loop, core::Fd socket, Handler handler, std::function<void()> lost);
  // Never blocks. `fd`, if any, is copied to the other side. False: the other side is gone.
  bool send(Word word, std::int32_t value = 0, int fd = -1);

 private:
  void wait();
  [[nodiscard]] bool receive();

  boost::asio::posix::stream_descriptor socket_;
  Handler handler_;
  std::function<void()> lost_;
};

}  // namespace regroup::launcher
