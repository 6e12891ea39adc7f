// One output of the launcher (its standard output or error), to which all members' lines go. Never blocks:
// what the reader does not take is kept, and who writes is asked to pause.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>
#include <vector>

#include "core/fd.h"
#include "core/status.h"
#include "launcher/supervise/readiness.h"

namespace regroup::launcher {

// Used by the loop's thread.
class Sink {
 public:
  // `fd` is borrowed and its flags stay as they are.
  Sink(boost::asio::io_context& loop, int fd);
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  // Whole lines. Keeps what cannot be written now; dropped once the sink is broken.
  void write(const std::string& lines);
  // True while something is kept: then write no more, and ask when_free() for a call.
  [[nodiscard]] bool congested() const { return !pending_.empty(); }
  // Calls `resume` once nothing is kept any more, or the sink broke.
  void when_free(std::function<void()> resume) { waiting_.push_back(std::move(resume)); }
  // The reader is gone (kPeerLost) or the device refused.
  [[nodiscard]] const core::Status& error() const { return error_; }

 private:
  enum class Kind { kFile, kSocket, kNonBlocking, kPolled };

  void push();
  [[nodiscard]] bool write_some();
  void release_waiting();

  Readiness readiness_;
  core::Fd own_;  // a description of our own, non-blocking, if that could be opened
  int fd_;
  Kind kind_;
  std::string pending_;
  std::vector<std::function<void()>> waiting_;
  core::Status error_;
};

// True if both descriptors lead to the same file: then one Sink serves both, and no line is torn.
[[nodiscard]] bool same_file(int a, int b);

}  // namespace regroup::launcher
