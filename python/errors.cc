// The one place where a Status becomes an exception. The classes live in Python, where they have doc strings
// and bases of the standard library.
#include "python/errors.h"

#include <nanobind/nanobind.h>

#include <string>

#include "core/printable.h"

namespace regroup::python {

namespace nb = nanobind;

void raise(const core::Status& status) {
  const std::string code(core::code_name(status.code()));
  const std::string message = core::escaped_lines(status.message());  // paths of users may hold anything
  nb::object error =
      nb::module_::import_("regroup._errors").attr("from_status")(code.c_str(), message.c_str());
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace regroup::python
