// Defines the names and docstrings of regroup._native. _native.pyi has the types for checkers.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/status.h"
#include "elastic/device_harvest.h"
#include "elastic/failure_report.h"
#include "elastic/options.h"
#include "elastic/sampler.h"
#include "python/checkpoint.h"
#include "python/collective.h"
#include "python/errors.h"
#include "python/ps.h"
#include "python/session.h"

namespace {

namespace nb = nanobind;
using namespace nb::literals;
using namespace regroup;
using python::PythonSession;
using python::PythonShard;
using python::SectionCommunicator;

collective::Dtype gradient_type(const std::string& name) {
  if (name == "float32") return collective::Dtype::kFloat32;
  if (name == "float64") return collective::Dtype::kFloat64;
  python::raise(
      base::invalid_argument("join: expected gradients of float32 or float64, got " + name));
}

void construct(PythonSession* self, nb::object state, std::uint64_t elements,
               const std::string& dtype, std::string model, std::string fingerprint,
               std::uint64_t samples, std::uint64_t batch, std::uint64_t epochs,
               std::uint64_t deadline, nb::object observer, std::uint32_t substeps, bool shuffle,
               bool drop_last, bool own_order, bool staged, std::optional<int> device,
               std::uintptr_t stream, std::uintptr_t sum) {
  elastic::Options options;
  options.elements = elements;
  options.dtype = gradient_type(dtype);
  options.model = std::move(model);
  options.fingerprint = std::move(fingerprint);
  options.samples = samples;
  options.batch = batch;
  options.epochs = epochs;
  options.substeps = substeps;
  options.shuffle = shuffle;
  options.drop_last = drop_last;
  options.own_order = own_order;
  options.staged_by_caller = staged;
  if (device) options.device = *device;
  if (device && !staged) {
    options.memory = elastic::Memory::kDevice;
    options.stream = reinterpret_cast<void*>(stream);
    options.sum = reinterpret_cast<void*>(sum);
  }
  options.deadline = std::chrono::seconds(deadline);
  new (self) PythonSession(std::move(options), std::move(state), std::move(observer));
}

void bind_values(nb::module_& module) {
  nb::class_<elastic::StepInfo>(module, "StepInfo")
      .def_ro("number", &elastic::StepInfo::step)
      .def_ro("epoch", &elastic::StepInfo::epoch)
      .def_ro("samples", &elastic::StepInfo::samples)
      .def_ro("first_of_epoch", &elastic::StepInfo::first_of_epoch)
      .def_ro("substep", &elastic::StepInfo::substep);
  nb::class_<PythonShard>(module, "Shard")
      .def_ro("leaf", &PythonShard::leaf)
      .def_ro("samples", &PythonShard::samples)
      .def_ro("gradient", &PythonShard::gradient)
      .def_ro("seed", &PythonShard::seed);
  nb::class_<elastic::WorldInfo>(module, "WorldInfo")
      .def_ro("generation", &elastic::WorldInfo::generation)
      .def_ro("rank", &elastic::WorldInfo::rank)
      .def_ro("size", &elastic::WorldInfo::size)
      .def_ro("shards", &elastic::WorldInfo::shards)
      .def_ro("why", &elastic::WorldInfo::why);
  nb::class_<elastic::SaveCounts>(module, "SaveCounts")
      .def_ro("snapshots", &elastic::SaveCounts::snapshots)
      .def_ro("copied", &elastic::SaveCounts::copied)
      .def_ro("fused", &elastic::SaveCounts::fused);
  nb::class_<SectionCommunicator>(module, "Communicator")
      .def_prop_ro("rank", &SectionCommunicator::rank)
      .def_prop_ro("size", &SectionCommunicator::size)
      .def("allreduce", &SectionCommunicator::allreduce, "array"_a)
      .def("broadcast", &SectionCommunicator::broadcast, "array"_a, "root"_a = 0)
      .def("barrier", &SectionCommunicator::barrier);
}

void bind_session(nb::module_& module) {
  nb::class_<PythonSession>(module, "Session")
      .def("__init__", &construct, nb::kw_only(), "state"_a, "elements"_a, "dtype"_a = "float32",
           "model"_a = "", "fingerprint"_a = "", "samples"_a = 0, "batch"_a = 0, "epochs"_a = 0,
           "deadline"_a = 600, "observer"_a = nb::none(), "substeps"_a = 1, "shuffle"_a = true,
           "drop_last"_a = false, "own_order"_a = false, "staged"_a = false,
           "device"_a = nb::none(), "stream"_a = 0, "sum"_a = 0)
      .def("next_step", &PythonSession::next_step)
      .def("next_shard",
           [](nb::handle self) { return nb::cast<PythonSession&>(self).next_shard(self); })
      .def("fill_gradient", &PythonSession::fill_gradient, "parts"_a)
      .def("change_stream", &PythonSession::change_stream, "stream"_a)
      .def("record_samples", &PythonSession::record_samples, "samples"_a)
      .def("planned_shards", &PythonSession::planned_shards, "step"_a)
      .def("shard_of", &PythonSession::shard_of, "step"_a, "leaf"_a)
      .def("commit", [](nb::handle self) { return nb::cast<PythonSession&>(self).commit(self); })
      .def("commit_into", &PythonSession::commit_into, "out"_a)
      .def("commit_on_device", &PythonSession::commit_on_device)
      .def("save_targets",
           [](nb::handle self) -> nb::object {
             return nb::cast<PythonSession&>(self).save_targets(self);
           })
      .def("saved", &PythonSession::saved, "target"_a)
      .def_prop_ro("save_counts", &PythonSession::save_counts)
      .def("report_loss", &PythonSession::report_loss, "loss"_a)
      .def("begin_span", &PythonSession::begin_span, "name"_a)
      .def("end_span", &PythonSession::end_span, "span"_a)
      .def("collective", &PythonSession::collective, "body"_a)
      .def("leave_loop", &PythonSession::leave_loop)
      .def("finish", &PythonSession::finish)
      .def_prop_ro("world", &PythonSession::world)
      .def_prop_ro("last_step", &PythonSession::last_step)
      .def_prop_ro("job_seed", &PythonSession::job_seed);
}

}  // namespace

NB_MODULE(_native, module) {     // NOLINT(readability-identifier-naming)
  nb::set_leak_warnings(false);  // a session may live until the process ends
  module.attr("__version__") = REGROUP_VERSION;
  bind_values(module);
  bind_session(module);
  python::bind_checkpoint(module);
  python::bind_ps(module);
  module.def("default_fingerprint", &elastic::default_fingerprint);
  module.def(
      "report_failure",
      [](std::string kind, std::string place, std::string message, std::uint64_t trace,
         bool final) {
        const nb::gil_scoped_release released;
        return elastic::report_failure({.kind = std::move(kind),
                                        .place = std::move(place),
                                        .message = std::move(message),
                                        .final = final,
                                        .trace = trace});
      },
      "kind"_a, "place"_a, "message"_a, "trace"_a = 0, "final"_a = false);
  module.def("why_not_on_device", &elastic::why_not_on_device, "device"_a);
  module.def("fake_device", &elastic::read_fake_device);
  module.def("collective_v1",
             [] { return reinterpret_cast<std::uintptr_t>(python::collective_v1()); });
  module.def("expected_shards",
             [] { return python::value_of(elastic::Session::expected_shards()); });
  module.def("mix", &elastic::mix, "a"_a, "b"_a, "c"_a = 0);
}
