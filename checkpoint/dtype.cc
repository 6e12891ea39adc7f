// The table of element types; docs/reference/formats/checkpoint.md lists it.
#include "checkpoint/dtype.h"

#include <algorithm>
#include <array>

namespace regroup::checkpoint {
namespace {

constexpr std::array<Dtype, 18> kRows = {{{"float32", 4},
                                          {"float64", 8},
                                          {"float16", 2},
                                          {"bfloat16", 2},
                                          {"float8_e4m3fn", 1},
                                          {"float8_e5m2", 1},
                                          {"int8", 1},
                                          {"int16", 2},
                                          {"int32", 4},
                                          {"int64", 8},
                                          {"uint8", 1},
                                          {"uint16", 2},
                                          {"uint32", 4},
                                          {"uint64", 8},
                                          {"bool", 1},
                                          {"complex64", 8},
                                          {"complex128", 16},
                                          {"float8_e8m0fnu", 1}}};

}  // namespace

std::span<const Dtype> dtypes() { return kRows; }

std::optional<std::uint32_t> size_of_dtype(std::string_view name) {
  const auto* row = std::ranges::find(kRows, name, &Dtype::name);
  return row == kRows.end() ? std::nullopt : std::optional(row->bytes);
}

}  // namespace regroup::checkpoint
