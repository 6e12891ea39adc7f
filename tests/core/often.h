// What tests of the wires say to who unpacks it.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <vector>

namespace regroup::core {

// A vector whose offsets all name one thing: small on the wire, a hundred times that if it were unpacked.
template <class T>
std::vector<flatbuffers::Offset<T>> often(flatbuffers::Offset<T> one) {
  return std::vector<flatbuffers::Offset<T>>(200, one);
}

}  // namespace regroup::core
