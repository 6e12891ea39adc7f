// The agent's side of regroup-pmi, the process that serves PMIx and PMI-1 to MPI programs. Programs
// that use neither run without it.
#pragma once

#include <utility>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/pmi/link.h"
#include "launcher/pmi/messages.h"
#include "launcher/process/app.h"

namespace regroup::pmi {

struct HelperOptions {
  std::string program;  // path of regroup-pmi
  std::string job;      // its id
  std::string folder;  // private, exists; the helper creates and removes a folder for the job in it
  std::string library;   // libpmix: a file, or a name that the loader finds; "": see find_pmix()
  bool verbose = false;  // print libpmix's own messages
  spec::Environment environment;  // of the job
  std::uint32_t host = 0;         // number of this host in the job
  // A regroup-pmi that does not respond for this time is killed, so that no rank hangs in MPI_Init.
  base::Duration answer_limit = std::chrono::seconds(20);
};

// The path of regroup-pmi: next to the running executable, or in libexec/regroup of its prefix.
[[nodiscard]] std::string find_helper();

// The libpmix of the installation that holds the program, or that holds the first mpirun in its
// PATH; else the system's. A server must not be older than its clients, since it does not know all
// their requests.
[[nodiscard]] std::string find_pmix(const process::App& app);

struct HelperEvents {
  std::function<void(const Message& message, base::Fd fd)> message;
  // regroup-pmi died or sent a malformed message: MPI programs have no services from now on. Called
  // once.
  std::function<void(const base::Status&)> lost;
};

// Used by the loop's thread.
class Helper {
 public:
  // Starts the process and does not wait for it. Its first message is Services.
  [[nodiscard]] static base::Result<std::unique_ptr<Helper>> start(boost::asio::io_context& loop,
                                                                   const HelperOptions& options,
                                                                   HelperEvents events);
  ~Helper();
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  // False: the message is too large, or the process is gone.
  bool send(const Message& message) { return link_.send(message); }
  // Handles the messages received so far. These include all reports of regroup-pmi about members
  // that are dead.
  void poll() { link_.poll(); }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  Helper(boost::asio::io_context& loop, base::Fd socket, std::string folder, pid_t pid,
         HelperEvents events);

  HelperEvents events_;
  std::string folder_;
  pid_t pid_;
  Link link_;
};

}  // namespace regroup::pmi
