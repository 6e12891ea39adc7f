// FlatBuffers verifies that what an offset names lies within a message, not that it is named once: a vector
// of offsets that all name one long string is a small message, and terabytes when it is unpacked. Nothing
// that was packed shares anything, so its parts together are no larger than the message: what is, is refused.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace regroup::core {

// The verifier checks where a vector lies, not where its numbers or structs do.
template <class T>
bool aligned(const flatbuffers::Vector<T>* vector) {
  using Element = std::remove_cv_t<std::remove_pointer_t<T>>;
  return vector == nullptr || reinterpret_cast<std::uintptr_t>(vector->Data()) % alignof(Element) == 0;
}

// Of one message that has been verified. Vectors that lie behind others are to be taken; a few fields of one
// table can share no more than their number.
class FlatBudget {
 public:
  explicit FlatBudget(std::size_t message_bytes) : left_(message_bytes) {}

  // False: more than there is, now or before.
  bool take(std::size_t bytes) {
    fits_ = fits_ && bytes <= left_;
    if (fits_) left_ -= bytes;
    return fits_;
  }
  // A string, or a vector of numbers or structs. False also where these are not aligned.
  template <class T>
  bool values(const flatbuffers::Vector<T>* vector) {
    using Element = std::remove_cv_t<std::remove_pointer_t<T>>;
    return aligned(vector) &&
           (vector == nullptr || take(sizeof(flatbuffers::uoffset_t) + vector->size() * sizeof(Element)));
  }
  bool strings(const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* vector) {
    return tables(vector, [this](const flatbuffers::String& string) { return values(&string); });
  }
  // `each(table)` takes what a table has.
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

}  // namespace regroup::core
