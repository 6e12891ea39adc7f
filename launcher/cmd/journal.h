// The coordinator's journal: every World that it announced, so that a successor knows the newest. The bytes
// are in docs/formats/journal.md.
#pragma once

#include <optional>
#include <string>

#include "core/fd.h"
#include "core/status.h"
#include "core/world.h"

namespace regroup::cmd {

class JournalFile {
 public:
  // Opens or makes the file and reads it. A record that ends too early, which was never announced, is cut
  // off; kDataLoss for any other damage, kInvalidArgument for another version.
  [[nodiscard]] static core::Result<JournalFile> open(const std::string& path);

  // The newest World in it at open().
  [[nodiscard]] const std::optional<core::World>& newest() const { return newest_; }
  // On disk when it returns ok.
  [[nodiscard]] core::Status append(const core::World& world);

 private:
  core::Fd fd_;
  std::string path_;
  std::optional<core::World> newest_;
};

}  // namespace regroup::cmd
