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

// The process in such a text, and its host with its PID namespace; empty if the text has another
// form.
[[nodiscard]] std::optional<std::pair<pid_t, std::string>> process_in_owner(
    const std::string& owner);

// True when the process in that text was of this host and PID namespace and has been reaped: if the
// lock is still held, other processes of the job hold it until they end. False if that cannot be
// determined.
[[nodiscard]] bool owner_has_ended(const std::string& owner);

}  // namespace regroup::base
