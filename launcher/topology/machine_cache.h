// What was found of this machine's devices, kept in a file. Without processors and paths.
#pragma once

#include <optional>
#include <string>

#include "launcher/topology/machine.h"

namespace regroup::topology {

// FOLDER/machine.json if it is a plain file of this user that nobody else may write, whole, of this
// version and of `key`, one word that says of which boot and devices; paths are found anew.
[[nodiscard]] std::optional<Machine> read_machine_cache(const std::string& folder,
                                                        const std::string& key);

// Best effort, whole or not at all: a file beside it, mode 0600, renamed.
void write_machine_cache(const std::string& folder, const std::string& key, const Machine& machine);

}  // namespace regroup::topology
