// The pieces are stored contiguously, so that a copy is one allocation.
#include "elastic/state_copy.h"

#include <algorithm>

namespace regroup::elastic {

base::Result<std::unique_ptr<StateCopy>> StateCopy::of(State& state) {
  REGROUP_ASSIGN_OR_RETURN(const auto pieces, state.save());
  std::unique_ptr<StateCopy> out(new StateCopy);
  std::size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  out->bytes_.reserve(bytes);
  for (const auto& piece : pieces) {
    out->bytes_.insert(out->bytes_.end(), piece.begin(), piece.end());
    out->lengths_.push_back(piece.size());
  }
  out->infos_ = state.tensors();
  return out;
}

base::Result<std::vector<std::span<const std::byte>>> StateCopy::save() {
  std::vector<std::span<const std::byte>> out;
  std::size_t at = 0;
  for (const std::size_t length : lengths_) {
    out.push_back(std::span(bytes_).subspan(at, length));
    at += length;
  }
  return out;
}

base::Status StateCopy::load(std::span<const std::byte>) {
  return base::invalid_argument("load: a copy of a state is read-only");
}

}  // namespace regroup::elastic
