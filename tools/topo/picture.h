// The picture of a machine as shapes: where everything lies, before anything is painted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/topology/machine.h"

namespace regroup::topo {

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Colour&) const = default;
};

struct Point {
  double x = 0, y = 0;
};

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  Colour fill, stroke;
  double radius = 5;
};

// Straight, or a curve that hangs `sag` below its ends.
struct Stroke {
  Point from, to;
  Colour colour;
  double width = 1.5;
  double sag = 0;
};

// `at` is its middle; `left`: its left end. Wider than `most`, it is written smaller.
struct Label {
  Point at;
  std::string text;
  double size = 11;
  bool bold = false;
  Colour colour;
  double most = 1e9;
  bool left = false;
};

struct Picture {
  double width = 0, height = 0;
  std::vector<Stroke> strokes;  // below the boxes
  std::vector<Box> boxes;
  std::vector<Label> labels;
};

// NUMA nodes and switches are bars over what hangs on them; GPUs and NICs stand in one row, NVLinks
// below it. `rank_of_gpu`: by GPU, -1: none; empty: no ranks are shown.
[[nodiscard]] Picture picture_of(const topology::Machine& machine,
                                 const std::vector<int>& rank_of_gpu);

}  // namespace regroup::topo
