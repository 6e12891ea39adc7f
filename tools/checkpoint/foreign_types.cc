// The table of element types.
#include "tools/checkpoint/foreign_types.h"

#include <algorithm>
#include <array>

namespace regroup::checkpoint_tool {
namespace {

constexpr std::array<TypeNames, 18> kTypes{{{"float32", "F32", "<f4"},
                                            {"float64", "F64", "<f8"},
                                            {"float16", "F16", "<f2"},
                                            {"bfloat16", "BF16", "<V2"},
                                            {"float8_e4m3fn", "F8_E4M3", "|V1"},
                                            {"float8_e5m2", "F8_E5M2", "|V1"},
                                            {"float8_e8m0fnu", "F8_E8M0", "|V1"},
                                            {"int8", "I8", "|i1"},
                                            {"int16", "I16", "<i2"},
                                            {"int32", "I32", "<i4"},
                                            {"int64", "I64", "<i8"},
                                            {"uint8", "U8", "|u1"},
                                            {"uint16", "U16", "<u2"},
                                            {"uint32", "U32", "<u4"},
                                            {"uint64", "U64", "<u8"},
                                            {"bool", "BOOL", "|b1"},
                                            {"complex64", "C64", "<c8"},
                                            {"complex128", "", "<c16"}}};

const TypeNames* find(std::string_view name, std::string_view TypeNames::*in) {
  const auto* row = name.empty() ? kTypes.end() : std::ranges::find(kTypes, name, in);
  return row == kTypes.end() ? nullptr : row;
}

}  // namespace

const TypeNames* by_ours(std::string_view name) { return find(name, &TypeNames::ours); }
const TypeNames* by_safetensors(std::string_view name) {
  return find(name, &TypeNames::safetensors);
}
const TypeNames* by_numpy(std::string_view name) {
  return name.find('V') != name.npos ? nullptr : find(name, &TypeNames::numpy);
}

}  // namespace regroup::checkpoint_tool
