// Only this file turns a Status into an exception. The classes are defined in Python, where they
// have docstrings and bases of the standard library.
#include "python/errors.h"

#include <nanobind/nanobind.h>

#include <string>

#include "base/printable.h"

namespace regroup::python {

namespace nb = nanobind;

void raise(const base::Status& status) {
  const std::string code(base::code_name(status.code()));
  // A user's path may hold any bytes.
  const std::string message = base::escaped_lines(status.message());
  nb::object error =
      nb::module_::import_("regroup._errors").attr("from_status")(code.c_str(), message.c_str());
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace regroup::python
