// Bounds the unpacked size of a message. The FlatBuffers verifier checks that each offset points
// into the message, but not that offsets differ: a small message whose offsets all name one long
// string unpacks to terabytes. Our encoder shares nothing, so the parts of a message are together
// no larger than the message; a message whose parts are larger is refused.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace regroup::proto {

// True if the elements of `vector` are aligned; the verifier checks only that of its length.
template <class T>
bool aligned(const flatbuffers::Vector<T>* vector) {
  using Element = std::remove_cv_t<std::remove_pointer_t<T>>;
  return vector == nullptr ||
         reinterpret_cast<std::uintptr_t>(vector->Data()) % alignof(Element) == 0;
}

// The budget of one verified message. The decoder charges the vectors that contain other tables;
// single fields of a table cannot multiply its size.
class FlatBudget {
 public:
  explicit FlatBudget(std::size_t message_bytes) : left_(message_bytes) {}

  // Charges `bytes`. False if the budget is exceeded, by this or an earlier charge.
  bool take(std::size_t bytes) {
    fits_ = fits_ && bytes <= left_;
    if (fits_) left_ -= bytes;
    return fits_;
  }
  // Charges a string, or a vector of numbers or structs. False also when it is not aligned.
  template <class T>
  bool values(const flatbuffers::Vector<T>* vector) {
    using Element = std::remove_cv_t<std::remove_pointer_t<T>>;
    return aligned(vector) && (vector == nullptr || take(sizeof(flatbuffers::uoffset_t) +
                                                         vector->size() * sizeof(Element)));
  }
  bool strings(const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* vector) {
    return tables(vector, [this](const flatbuffers::String& string) { return values(&string); });
  }
  // Charges a vector of tables; `each(table)` charges the parts of a table.
  template <class T, class Each>
  bool tables(const flatbuffers::Vector<flatbuffers::Offset<T>>* vector, Each each) {
    if (vector == nullptr) return true;
    for (flatbuffers::uoffset_t i = 0; i < vector->size(); ++i) {
      if (!take(sizeof(flatbuffers::uoffset_t)) || !each(*vector->Get(i))) return false;
    }
    return true;
  }

 private:
  std::size_t left_;
  bool fits_ = true;
};

}  // namespace regroup::proto
