// elastic::State on top of a Python object with capacity(), save() and load(). Its calls come from
// inside a Session, where the GIL is released.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <exception>
#include <functional>
#include <vector>

#include "regroup/session.h"

namespace regroup::python {

namespace nb = nanobind;

// Keeps an exception that Python code raised when C++ called it. C++ returns a Status in its place;
// where that reaches Python, the exception is raised again. The caller holds the GIL.
class Kept {
 public:
  // Keeps the exception that is being handled and returns a Status for it.
  [[nodiscard]] base::Status keep();
  // Raises the kept exception, if there is one.
  void raise_again();
  void forget() { exception_ = nullptr; }

 private:
  std::exception_ptr exception_;
};

// Memory of a Python object: a tensor, an array or anything with a buffer, contiguous and on the
// CPU.
using Memory = nb::ndarray<nb::c_contig, nb::device::cpu>;
using ReadMemory = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

// Returns the memory of `object`, for `call` to write to. If it has no such memory, raises with
// both names in the message.
Memory memory_of(nb::handle object, const char* call);

class PythonState final : public elastic::State {
 public:
  // `kept` must outlive this object. Calls capacity() once.
  PythonState(nb::object object, Kept* kept);

  [[nodiscard]] std::uint64_t capacity() const override { return capacity_; }
  [[nodiscard]] base::Result<std::vector<std::span<const std::byte>>> save() override;
  [[nodiscard]] base::Status load(std::span<const std::byte> bytes) override;
  [[nodiscard]] std::vector<elastic::TensorInfo> tensors() override;
  [[nodiscard]] base::Status replicated(
      const std::function<void(const elastic::StatePart&)>& take) override;

 private:
  nb::object object_;
  Kept* const kept_;
  const std::uint64_t capacity_;
  std::vector<ReadMemory> pieces_;  // of the last save()
};

}  // namespace regroup::python
