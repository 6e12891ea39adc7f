// The text by which a launcher identifies itself in the LOCK file of a directory, and how another
// process interprets it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

namespace regroup::base {

// "job ID (process PID on HOST, PID namespace INODE)" of this process. The namespace is included
// because a pid has no meaning in another PID namespace, and containers may share the name of their
// host.
[[nodiscard]] std::string lock_owner(const std::string& job);

// Parses the text of lock_owner(): the pid, and "HOST, PID namespace INODE". Empty if `owner` has
// another form.
[[nodiscard]] std::optional<std::pair<pid_t, std::string>> process_in_owner(
    const std::string& owner);

// True if the process named in `owner` ran on this host, in this PID namespace, and has been
// reaped. If its lock is still held, other processes of its job hold it until they end. False if
// this cannot be determined.
[[nodiscard]] bool owner_has_ended(const std::string& owner);

}  // namespace regroup::base
