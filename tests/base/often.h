// Input of the tests of unpacking limits.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <vector>

namespace regroup::base {

// A vector whose offsets all point to one object: small as bytes, a hundred times larger when
// unpacked.
template <class T>
std::vector<flatbuffers::Offset<T>> often(flatbuffers::Offset<T> one) {
  return std::vector<flatbuffers::Offset<T>>(200, one);
}

}  // namespace regroup::base
