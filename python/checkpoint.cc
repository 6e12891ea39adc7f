// Reading from disk and optimizer steps release the GIL, so that threads can read several
// checkpoints at a time.
#include "python/checkpoint.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/printable.h"
#include "base/status.h"
#include "checkpoint/chain.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/directory.h"
#include "checkpoint/dtype.h"
#include "python/errors.h"
#include "python/state.h"
#include "regroup/optimizer.h"

namespace regroup::python {
namespace {

using namespace nb::literals;
using checkpoint::Box;
using checkpoint::Manifest;
using Extents = std::vector<std::uint64_t>;
using Row = std::tuple<std::string, std::string, Extents>;  // name, dtype, shape

// Returns a checkpoint's name for the element type of memory. Type codes are those of DLPack's
// DLDataTypeCode.
std::string name_of(const nb::dlpack::dtype& type) {
  constexpr std::pair<int, const char*> kNames[] = {{0, "int"},
                                                    {1, "uint"},
                                                    {2, "float"},
                                                    {4, "bfloat"},
                                                    {5, "complex"},
                                                    {6, "bool"},
                                                    {10, "float8_e4m3fn"},
                                                    {12, "float8_e5m2"},
                                                    {14, "float8_e8m0fnu"}};
  const auto* row = std::ranges::find(kNames, int{type.code}, &std::pair<int, const char*>::first);
  if (row == std::end(kNames) || type.lanes != 1)
    return fmt::format("a type of {} bits", type.bits * type.lanes);
  return type.code >= 6 ? row->second : fmt::format("{}{}", row->second, type.bits);
}

// Whether the bits of a tensor of `dtype` may be copied to memory of type `own`: if the types are
// equal, for bytes, pairs of floating-point numbers for complex ones, and integers in place of
// types that NumPy lacks.
bool takes_bits_of(std::string_view own, std::string_view dtype) {
  return own == dtype || own == "uint8" || own == "int8" ||
         (own == "uint16" && dtype == "bfloat16") || (own == "float32" && dtype == "complex64") ||
         (own == "float64" && dtype == "complex128");
}

base::Result<checkpoint::Checkpoint> opened(const std::string& path) {
  auto out = checkpoint::Checkpoint::open(path);
  if (out.ok()) {
    REGROUP_RETURN_IF_ERROR(checkpoint::check_whole(*out));
    return out;
  }
  if (auto why = checkpoint::why_not_a_checkpoint(path))
    return base::Status(out.code(), std::move(*why));
  return out;
}

class PythonCheckpoint {
 public:
  explicit PythonCheckpoint(const std::string& path) : open_(value_of(opened(path))) {}

  [[nodiscard]] const Manifest& manifest() const { return open_.manifest(); }
  [[nodiscard]] const std::string& path() const { return open_.path(); }
  [[nodiscard]] std::vector<Row> tensors() const {
    std::vector<Row> out;
    for (const auto& tensor : manifest().tensors)
      out.emplace_back(tensor.name, tensor.dtype, tensor.shape);
    return out;
  }

  void read_into(const std::string& name, nb::handle object, const std::optional<Extents>& start,
                 const std::optional<Extents>& count) {
    const auto found = open_.find(name);
    if (!found)
      raise(base::invalid_argument(
          fmt::format("checkpoint {}: no tensor {}", path(), base::escaped(name))));
    const std::string& dtype = manifest().tensors[*found].dtype;
    const Memory out = memory_of(object, "read_into");
    if (const std::string own = name_of(out.dtype()); !takes_bits_of(own, dtype))
      raise(base::invalid_argument(fmt::format(
          "checkpoint {}: {} is {}, and the memory given is {}: read_into() converts nothing; "
          "give it memory of {}, or bytes (uint8), and convert what was read",
          path(), base::escaped(name), dtype, own, dtype)));
    const Box all = checkpoint::whole(manifest().tensors[*found].shape);
    const Box box{start.value_or(all.start), count.value_or(all.count)};
    const std::span bytes(static_cast<std::byte*>(out.data()), out.nbytes());
    base::Status status;
    {
      nb::gil_scoped_release released;
      const std::lock_guard alone(mutex_);
      status = open_.read(*found, box, bytes);
    }
    check(status);
  }

 private:
  std::mutex mutex_;
  const checkpoint::Checkpoint open_;
};

using Floats = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using MaybeFloats = std::optional<Floats>;
using Begins = std::vector<std::size_t>;  // first element of each copy, in argument order

std::span<float> span_of(const Floats& array) { return {array.data(), array.size()}; }
std::span<float> span_of(const MaybeFloats& array) {
  return array ? span_of(*array) : std::span<float>();
}

void sgd(const Floats& parameter, const Floats& gradient, const MaybeFloats& momentum,
         const MaybeFloats& parameter_copy, const MaybeFloats& momentum_copy, bool first, double lr,
         double by_momentum, double dampening, double weight_decay, bool nesterov,
         const Begins& begins) {
  const elastic::SgdOptions options{lr, by_momentum, dampening, weight_decay, nesterov};
  base::Status status;
  {
    nb::gil_scoped_release released;
    status = elastic::sgd_step(
        {span_of(parameter), span_of(parameter_copy), begins.at(0)}, span_of(gradient),
        {span_of(momentum), span_of(momentum_copy), begins.at(1)}, first, options);
  }
  check(status);
}

void adam(const Floats& parameter, const Floats& gradient, const Floats& first,
          const Floats& second, const MaybeFloats& parameter_copy, const MaybeFloats& first_copy,
          const MaybeFloats& second_copy, std::uint64_t step, double lr, double beta1, double beta2,
          double epsilon, double weight_decay, bool decoupled, const Begins& begins) {
  const elastic::AdamOptions options{lr, beta1, beta2, epsilon, weight_decay, decoupled};
  base::Status status;
  {
    nb::gil_scoped_release released;
    status =
        elastic::adam_step({span_of(parameter), span_of(parameter_copy), begins.at(0)},
                           span_of(gradient), {span_of(first), span_of(first_copy), begins.at(1)},
                           {span_of(second), span_of(second_copy), begins.at(2)}, step, options);
  }
  check(status);
}

std::optional<std::string> newest(const std::string& directory) {
  const auto entries = checkpoint::list(directory);
  if (entries.code() == base::Code::kNotFound) return std::nullopt;
  check(entries.status());
  if (entries->empty()) return std::nullopt;
  return entries->front().path;
}

}  // namespace

void bind_checkpoint(nb::module_& module) {
  nb::class_<PythonCheckpoint>(module, "Checkpoint")
      .def(
          "__init__",
          [](PythonCheckpoint* self, nb::handle path) {
            new (self) PythonCheckpoint(
                nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path)));
          },
          "path"_a)
      .def_prop_ro("path", &PythonCheckpoint::path)
      .def_prop_ro("step", [](const PythonCheckpoint& self) { return self.manifest().step; })
      .def_prop_ro("tensors", &PythonCheckpoint::tensors)
      .def("read_into", &PythonCheckpoint::read_into, "name"_a, "out"_a.none(),
           "start"_a = nb::none(), "count"_a = nb::none());
  nb::dict dtypes;
  for (const checkpoint::Dtype& dtype : checkpoint::dtypes())
    dtypes[nb::str(dtype.name.data(), dtype.name.size())] = dtype.bytes;
  module.attr("DTYPES") = dtypes;
  module.def("newest_checkpoint", &newest, "directory"_a);
  module.def("sgd_step", &sgd, "parameter"_a.noconvert(), "gradient"_a.noconvert(),
             "momentum"_a.noconvert().none(), "parameter_copy"_a.noconvert().none(),
             "momentum_copy"_a.noconvert().none(), "first"_a, "lr"_a, "by_momentum"_a,
             "dampening"_a, "weight_decay"_a, "nesterov"_a, "begins"_a);
  module.def("adam_step", &adam, "parameter"_a.noconvert(), "gradient"_a.noconvert(),
             "first"_a.noconvert(), "second"_a.noconvert(), "parameter_copy"_a.noconvert().none(),
             "first_copy"_a.noconvert().none(), "second_copy"_a.noconvert().none(), "step"_a,
             "lr"_a, "beta1"_a, "beta2"_a, "epsilon"_a, "weight_decay"_a, "decoupled"_a,
             "begins"_a);
}

}  // namespace regroup::python
