// Pictures as files, by cairo, which is loaded when one is asked for.
#pragma once

#include <string>

#include "base/status.h"
#include "tools/topo/picture.h"

namespace regroup::topo {

enum class Format { kSvg, kPng };

// kUnavailable: there is no libcairo.so.2; else what cairo says of the file.
[[nodiscard]] base::Status paint(const Picture& picture, Format format, const std::string& path);

}  // namespace regroup::topo
