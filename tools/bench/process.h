// Programs that rank 0 starts: rivals, compilers, the plot.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace regroup::bench {

using Words = std::vector<std::string>;

// A running program, in a process group of its own and on all cores, even if this process is bound
// to some. It dies when this process dies.
class Process {
 public:
  // Finds the program in PATH. Its standard input is empty; its output and errors go to the file
  // `log`.
  [[nodiscard]] static base::Result<Process> start(const Words& command, const std::string& log);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();  // kills the process group

  // Returns the exit status, or 128 plus the signal that killed the program. kDeadlineExceeded: it
  // still runs.
  [[nodiscard]] base::Result<int> wait(base::TimePoint deadline);
  // The program's output so far: all of it, and its last 600 bytes.
  [[nodiscard]] std::string output() const;
  [[nodiscard]] std::string output_end() const;

 private:
  Process(Words command, std::string log, pid_t pid);

  Words command_;
  std::string log_;
  pid_t pid_;
};

// The number of cores that a Process may run on.
[[nodiscard]] int cores_of_programs();

// Runs a command that must succeed; returns its standard output and error. On failure the message
// holds the command and the end of its output.
[[nodiscard]] base::Result<std::string> output_of(const Words& command, const std::string& log,
                                                  base::TimePoint deadline);

// A folder in $TMPDIR or /tmp; the destructor removes it with its contents.
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
