// Calls cairo through a table of pointers, so that neither other programs nor the tree in the
// terminal need the library.
#include "tools/topo/paint.h"

#include <cairo/cairo-svg.h>
#include <cairo/cairo.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <numbers>

namespace regroup::topo {
namespace {

#define REGROUP_CAIRO_FUNCTIONS(X) \
  X(svg_surface_create)            \
  X(image_surface_create)          \
  X(surface_write_to_png)          \
  X(surface_status)                \
  X(surface_finish)                \
  X(surface_destroy)               \
  X(status_to_string)              \
  X(create)                        \
  X(destroy)                       \
  X(scale)                         \
  X(set_source_rgb)                \
  X(set_line_width)                \
  X(set_line_cap)                  \
  X(select_font_face)              \
  X(set_font_size)                 \
  X(text_extents)                  \
  X(show_text)                     \
  X(paint)                         \
  X(new_path)                      \
  X(close_path)                    \
  X(move_to)                       \
  X(line_to)                       \
  X(curve_to)                      \
  X(arc)                           \
  X(stroke)                        \
  X(fill_preserve)

struct Cairo {
#define REGROUP_CAIRO_DECLARE(name) \
  decltype(&::cairo_##name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): a declared name
  REGROUP_CAIRO_FUNCTIONS(REGROUP_CAIRO_DECLARE)
#undef REGROUP_CAIRO_DECLARE
};

base::Result<Cairo> load_cairo() {
  constexpr const char* kLibrary = "libcairo.so.2";
  void* handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return base::unavailable(fmt::format("pictures require cairo: {}", ::dlerror()));
  Cairo out;
  const char* missing = nullptr;
#define REGROUP_CAIRO_FIND(name)                                                    \
  out.name = reinterpret_cast<decltype(out.name)>(::dlsym(handle, "cairo_" #name)); \
  if (out.name == nullptr) missing = "cairo_" #name;
  REGROUP_CAIRO_FUNCTIONS(REGROUP_CAIRO_FIND)
#undef REGROUP_CAIRO_FIND
  if (missing == nullptr) return out;
  return base::unavailable(fmt::format("{}: function {} is missing", kLibrary, missing));
}

class Painter {
 public:
  Painter(const Cairo& cairo, cairo_t* to) : cairo_(cairo), to_(to) {}

  void paint(const Picture& picture) {
    set({255, 255, 255});
    cairo_.paint(to_);
    cairo_.set_line_cap(to_, CAIRO_LINE_CAP_ROUND);
    for (const Stroke& stroke : picture.strokes) draw(stroke);
    for (const Box& box : picture.boxes) draw(box);
    for (const Label& label : picture.labels) draw(label);
  }

 private:
  void set(const Colour& colour) {
    cairo_.set_source_rgb(to_, colour.red / 255.0, colour.green / 255.0, colour.blue / 255.0);
  }

  void draw(const Stroke& stroke) {
    set(stroke.colour);
    cairo_.set_line_width(to_, stroke.width);
    cairo_.new_path(to_);
    cairo_.move_to(to_, stroke.from.x, stroke.from.y);
    // A curve's lowest point is three quarters of the way to its control points.
    const double low = stroke.sag / 0.75;
    cairo_.curve_to(to_, stroke.from.x, stroke.from.y + low, stroke.to.x, stroke.to.y + low,
                    stroke.to.x, stroke.to.y);
    cairo_.stroke(to_);
  }

  void draw(const Box& box) {
    using std::numbers::pi;
    const double right = box.x + box.width - box.radius, low = box.y + box.height - box.radius,
                 left = box.x + box.radius, high = box.y + box.radius;
    cairo_.new_path(to_);
    cairo_.arc(to_, right, high, box.radius, -pi / 2, 0);
    cairo_.arc(to_, right, low, box.radius, 0, pi / 2);
    cairo_.arc(to_, left, low, box.radius, pi / 2, pi);
    cairo_.arc(to_, left, high, box.radius, pi, 3 * pi / 2);
    cairo_.close_path(to_);
    set(box.fill);
    cairo_.fill_preserve(to_);
    set(box.stroke);
    cairo_.set_line_width(to_, 1.2);
    cairo_.stroke(to_);
  }

  void draw(const Label& label) {
    cairo_.select_font_face(to_, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                            label.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_text_extents_t size;
    cairo_.set_font_size(to_, label.size);
    cairo_.text_extents(to_, label.text.c_str(), &size);
    if (size.width > label.most) {
      cairo_.set_font_size(to_, label.size * label.most / size.width);
      cairo_.text_extents(to_, label.text.c_str(), &size);
    }
    cairo_text_extents_t figure;  // of a digit: all labels in a row get the same baseline
    cairo_.text_extents(to_, "0", &figure);
    set(label.colour);
    cairo_.move_to(to_, label.left ? label.at.x : label.at.x - size.width / 2 - size.x_bearing,
                   label.at.y + figure.height / 2);
    cairo_.show_text(to_, label.text.c_str());
  }

  const Cairo& cairo_;
  cairo_t* to_;
};

base::Status failed(const Cairo& cairo, const std::string& path, cairo_status_t status) {
  if (status == CAIRO_STATUS_SUCCESS) return {};
  return base::invalid_argument(fmt::format("{}: {}", path, cairo.status_to_string(status)));
}

}  // namespace

base::Status paint(const Picture& picture, Format format, const std::string& path) {
  REGROUP_ASSIGN_OR_RETURN(auto cairo, load_cairo());
  constexpr double kPixels = 1.5;  // for each unit
  cairo_surface_t* surface =
      format == Format::kSvg
          ? cairo.svg_surface_create(path.c_str(), picture.width, picture.height)
          : cairo.image_surface_create(CAIRO_FORMAT_RGB24,
                                       static_cast<int>(std::ceil(picture.width * kPixels)),
                                       static_cast<int>(std::ceil(picture.height * kPixels)));
  cairo_status_t status = cairo.surface_status(surface);
  if (status == CAIRO_STATUS_SUCCESS) {
    cairo_t* to = cairo.create(surface);
    if (format == Format::kPng) cairo.scale(to, kPixels, kPixels);
    Painter(cairo, to).paint(picture);
    cairo.destroy(to);
    if (format == Format::kPng) status = cairo.surface_write_to_png(surface, path.c_str());
    cairo.surface_finish(surface);
    if (status == CAIRO_STATUS_SUCCESS) status = cairo.surface_status(surface);
  }
  cairo.surface_destroy(surface);
  return failed(cairo, path, status);
}

}  // namespace regroup::topo
