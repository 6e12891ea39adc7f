// Caches the devices of this machine in a file, without processors and paths.
#pragma once

#include <optional>
#include <string>

#include "launcher/topology/machine.h"

namespace regroup::topology {

// Reads FOLDER/machine.json and finds the paths anew. Empty unless it is a complete, plain file
// that only this user can write, of this version and with this `key`, a word that identifies the
// boot and the set of devices.
[[nodiscard]] std::optional<Machine> read_machine_cache(const std::string& folder,
                                                        const std::string& key);

// Writes the cache atomically (a temporary file of mode 0600, then a rename). Ignores errors.
void write_machine_cache(const std::string& folder, const std::string& key, const Machine& machine);

}  // namespace regroup::topology
