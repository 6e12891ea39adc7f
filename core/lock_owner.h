// The line by which a launcher names itself in the LOCK of a directory, and what it tells another process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

namespace regroup::core {

// "job ID (process PID on HOST, PID namespace INODE)" of this process. A number of a process means nothing in
// another PID namespace: containers may share the name of their host.
[[nodiscard]] std::string lock_owner(const std::string& job);

// The process, and its host with its PID namespace, of such a line; nothing: it is another one.
[[nodiscard]] std::optional<std::pair<pid_t, std::string>> process_in_owner(const std::string& owner);

// The process of that line was of this host and PID namespace, and has ended and been reaped: where the lock
// is still held, other processes of the job hold it until they end. False where nothing can be known.
[[nodiscard]] bool owner_has_ended(const std::string& owner);

}  // namespace regroup::core
