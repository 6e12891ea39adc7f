// Programs that rank 0 starts: rivals, compilers, the plot.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace regroup::bench {

using Words = std::vector<std::string>;

// A program of its own process group, found in PATH, on all cores whatever this process is bound
// to. It ends with this process at the latest.
class Process {
 public:
  // Its standard input is empty; its output and errors go to the file `log`.
  [[nodiscard]] static base::Result<Process> start(const Words& command, const std::string& log);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();  // kills what is left of the group

  // The exit status, or 128 plus a signal. kDeadlineExceeded: it goes on.
  [[nodiscard]] base::Result<int> wait(base::TimePoint deadline);
  // All it said so far, and the end of that.
  [[nodiscard]] std::string said() const;
  [[nodiscard]] std::string last_words() const;

 private:
  Process(Words command, std::string log, pid_t pid);

  Words command_;
  std::string log_;
  pid_t pid_;
};

// Cores that such a program may run on.
[[nodiscard]] int cores_of_programs();

// What a command that must succeed says on standard output and error. Fails with the command and
// what it said.
[[nodiscard]] base::Result<std::string> output_of(const Words& command, const std::string& log,
                                                  base::TimePoint deadline);

// A folder in $TMPDIR or /tmp, which goes with what is in it.
class TemporaryFolder {
 public:
  [[nodiscard]] base::Status make();
  ~TemporaryFolder();
  [[nodiscard]] std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

[[nodiscard]] base::Status write_file(const std::string& path, const std::string& text);

}  // namespace regroup::bench
