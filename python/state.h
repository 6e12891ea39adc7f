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

// An exception raised in Python code that C++ called: kept while the Status it became travels up,
// then raised again in its place. The GIL is held in all its functions.
class Kept {
 public:
  // Keeps the exception being handled and returns what stands for it.
  [[nodiscard]] base::Status keep();
  // Raises what is kept, if anything.
  void raise_again();
  void forget() { exception_ = nullptr; }

 private:
  std::exception_ptr exception_;
};

// Memory of a Python object: a tensor, an array or anything with a buffer, contiguous and on the
// CPU.
using Memory = nb::ndarray<nb::c_contig, nb::device::cpu>;
using ReadMemory = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

// `object` as memory that `call` writes to; raises, naming both, where it is none.
Memory memory_of(nb::handle object, const char* call);

class PythonState final : public elastic::State {
 public:
  // `kept` outlives it. Asks for the capacity once.
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
