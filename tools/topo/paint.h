// Writes pictures to files with cairo, which is loaded on first use.
#pragma once

#include <string>

#include "base/status.h"
#include "tools/topo/picture.h"

namespace regroup::topo {

enum class Format { kSvg, kPng };

// kUnavailable: libcairo.so.2 cannot be loaded. Other errors are those of cairo for the file.
[[nodiscard]] base::Status paint(const Picture& picture, Format format, const std::string& path);

}  // namespace regroup::topo
