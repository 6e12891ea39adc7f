// Calls from C++ into the caller's Python state, and the exceptions that may come back.
#include "python/state.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <utility>

#include "base/status.h"
#include "python/errors.h"

namespace regroup::python {

namespace {

// Returns the array's or tensor's own message why it has no usable memory.
std::string why_not(nb::handle object) {
  try {
    if (nb::hasattr(object, "device")) {
      const std::string device = nb::str(nb::object(object.attr("device"))).c_str();
      if (device != "cpu") return " on " + device;
    }
    const bool tensor = nb::hasattr(object, "is_contiguous"), flags = nb::hasattr(object, "flags");
    if (tensor && !nb::cast<bool>(object.attr("is_contiguous")())) return " that is not contiguous";
    if (tensor && nb::cast<bool>(object.attr("requires_grad"))) return " that requires a gradient";
    if (flags && !nb::cast<bool>(object.attr("flags").attr("c_contiguous")))
      return " that is not contiguous";
    if (flags && !nb::cast<bool>(object.attr("flags").attr("writeable")))
      return " that is read-only";
  } catch (...) {  // the object only looks like an array
    PyErr_Clear();
  }
  return "";
}

}  // namespace

Memory memory_of(nb::handle object, const char* call) {
  Memory memory;
  if (nb::try_cast(object, memory, false)) return memory;
  PyErr_Clear();  // the array cannot describe its elements
  const std::string got = nb::type_name(object.type()).c_str();
  raise(base::invalid_argument(
      fmt::format("{}: expected a contiguous, writable array or tensor in CPU memory, got {}", call,
                  got + why_not(object))));
}

base::Status Kept::keep() {
  exception_ = std::current_exception();
  return base::internal_error("an exception in Python code");
}

void Kept::raise_again() {
  if (exception_) std::rethrow_exception(std::exchange(exception_, nullptr));
}

PythonState::PythonState(nb::object object, Kept* kept)
    : object_(std::move(object)),
      kept_(kept),
      capacity_(nb::cast<std::uint64_t>(object_.attr("capacity")())) {}

base::Result<std::vector<std::span<const std::byte>>> PythonState::save() {
  nb::gil_scoped_acquire gil;
  try {
    pieces_.clear();
    std::vector<std::span<const std::byte>> spans;
    for (nb::handle piece : object_.attr("save")()) {
      pieces_.push_back(nb::cast<ReadMemory>(piece));
      spans.emplace_back(static_cast<const std::byte*>(pieces_.back().data()),
                         pieces_.back().nbytes());
    }
    return spans;
  } catch (...) {
    return kept_->keep();
  }
}

// A state without tensors() is plain bytes. If tensors() raises, that is the caller's mistake; the
// next save() may show it.
std::vector<elastic::TensorInfo> PythonState::tensors() {
  nb::gil_scoped_acquire gil;
  if (!nb::hasattr(object_, "tensors")) return {};
  std::vector<elastic::TensorInfo> out;
  try {
    using Row = std::tuple<std::string, std::string, std::vector<std::uint64_t>>;
    for (nb::handle row : object_.attr("tensors")()) {
      auto [name, dtype, shape] = nb::cast<Row>(row);
      out.push_back({std::move(name), std::move(dtype), std::move(shape)});
    }
  } catch (...) {
    (void)kept_->keep();
    kept_->forget();
    out.clear();
  }
  return out;
}

base::Status PythonState::replicated(const std::function<void(const elastic::StatePart&)>& take) {
  nb::gil_scoped_acquire gil;
  if (!nb::hasattr(object_, "replicated")) return State::replicated(take);
  try {
    for (nb::handle row : object_.attr("replicated")()) {
      auto name = nb::cast<std::string>(row[0]);
      const nb::object what = row[1];
      if (nb::isinstance<nb::str>(what)) {
        const auto value = nb::cast<std::string>(what);
        take({std::move(name), std::as_bytes(std::span(value)), true});
      } else {
        const auto piece = nb::cast<ReadMemory>(what);
        take({std::move(name), {static_cast<const std::byte*>(piece.data()), piece.nbytes()}});
      }
    }
    return {};
  } catch (...) {
    return kept_->keep();
  }
}

base::Status PythonState::load(std::span<const std::byte> bytes) {
  nb::gil_scoped_acquire gil;
  try {
    PyObject* view = PyMemoryView_FromMemory(
        const_cast<char*>(reinterpret_cast<const char*>(bytes.data())),  // NOLINT: PyBUF_READ
        static_cast<Py_ssize_t>(bytes.size()), PyBUF_READ);
    if (view == nullptr) nb::raise_python_error();
    nb::object memory = nb::steal(view);
    object_.attr("load")(memory);
    memory.attr("release")();  // the bytes belong to the arena: Python must not keep a view
    return {};
  } catch (nb::python_error& error) {
    // Every member refuses the state of another training, so the Status alone tells what happened:
    // the exception is raised from it.
    if (!error.matches(nb::module_::import_("regroup._errors").attr("Refused")))
      return kept_->keep();
    return base::invalid_argument(nb::str(error.value()).c_str());
  } catch (...) {
    return kept_->keep();
  }
}

}  // namespace regroup::python
