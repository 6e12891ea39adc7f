// The one place where a Status becomes an exception. The classes live in Python, where they have
// doc strings and bases of the standard library.
#include "python/errors.h"

#include <nanobind/nanobind.h>

#include <string>

#include "base/printable.h"

namespace regroup::python {

namespace nb = nanobind;

void raise(const base::Status& status) {
  const std::string code(base::code_name(status.code()));
  // Paths of users may hold anything.
  const std::string message = base::escaped_lines(status.message());
  nb::object error =
      nb::module_::import_("regroup._errors").attr("from_status")(code.c_str(), message.c_str());
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace regroup::python
