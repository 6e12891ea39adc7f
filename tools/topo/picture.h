// The picture of a machine as shapes with their positions, not yet painted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/topology/machine.h"

namespace regroup::topo {

struct Colour {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
  bool operator==(const Colour&) const = default;
};

struct Point {
  double x = 0;
  double y = 0;
};

struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  Colour fill;
  Colour stroke;
  double radius = 5;
};

// A straight line, or a curve whose middle is `sag` below its ends.
struct Stroke {
  Point from;
  Point to;
  Colour colour;
  double width = 1.5;
  double sag = 0;
};

// `at` is the middle of the text, or its left end if `left`. A text wider than `most` is written
// smaller.
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
  double width = 0;
  double height = 0;
  std::vector<Stroke> strokes;  // below the boxes
  std::vector<Box> boxes;
  std::vector<Label> labels;
};

// Draws NUMA nodes and switches as bars over the devices attached to them, GPUs and NICs in one
// row, NVLinks below it. `rank_of_gpu` has the rank of each GPU, -1 for none; if it is empty, the
// picture shows no ranks.
[[nodiscard]] Picture picture_of(const topology::Machine& machine,
                                 const std::vector<int>& rank_of_gpu);

}  // namespace regroup::topo
