// The HDF5 helpers that layout.cc and view.cc share.
#include "checkpoint/hdf5/library.h"

#include <fmt/format.h>

#include <cerrno>
#include <string_view>

#include "checkpoint/dtype.h"

namespace regroup::checkpoint::hdf5 {
namespace {

constexpr int kMostAttempts = 5;
constexpr hsize_t kAlignTo = 4096;             // as O_DIRECT requires
constexpr std::string_view kSpecial = "/%@~";  // a % in a mapping of a virtual dataset is a pattern

herr_t innermost(unsigned depth, const H5E_error2_t* error, void* out) {
  if (depth == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
  return 0;
}

TypeHandle complex_type(hid_t part, std::size_t bytes) {
  TypeHandle type(H5Tcreate(H5T_COMPOUND, 2 * bytes));
  H5Tinsert(type.get(), "r", 0, part);
  H5Tinsert(type.get(), "i", bytes, part);
  return type;
}

// *raw: the element is stored as a number of another kind.
TypeHandle stored_type(const std::string& dtype, bool* raw) {
  *raw = false;
  const auto copy = [](hid_t type) { return TypeHandle(H5Tcopy(type)); };
  if (dtype == "float32") return copy(H5T_IEEE_F32LE);
  if (dtype == "float64") return copy(H5T_IEEE_F64LE);
  if (dtype == "int8") return copy(H5T_STD_I8LE);
  if (dtype == "int16") return copy(H5T_STD_I16LE);
  if (dtype == "int32") return copy(H5T_STD_I32LE);
  if (dtype == "int64") return copy(H5T_STD_I64LE);
  if (dtype == "uint32") return copy(H5T_STD_U32LE);
  if (dtype == "uint64") return copy(H5T_STD_U64LE);
  if (dtype == "complex64") return complex_type(H5T_IEEE_F32LE, 4);
  if (dtype == "complex128") return complex_type(H5T_IEEE_F64LE, 8);
  *raw = dtype != "uint8" && dtype != "uint16";
  return copy(size_of_dtype(dtype) == 2 ? H5T_STD_U16LE : H5T_STD_U8LE);
}

}  // namespace

base::Status failed(const std::string& call, const std::string& object) {
  const int error = errno;
  std::string why = "no reason given";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, &why);
  const base::Code code = error == ENOSPC ? base::Code::kResourceExhausted : base::Code::kInternal;
  return {code, fmt::format("{}({}): {}", call, object, why)};
}

void configure_errors() {
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

base::Result<FileHandle> create_file(const std::string& path, H5F_libver_t version,
                                     hsize_t align_from) {
  const PropertyHandle access(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_libver_bounds(access.get(), version,
                       version == H5F_LIBVER_EARLIEST ? H5F_LIBVER_V110 : version);
  H5Pset_alignment(access.get(), align_from, kAlignTo);
  hid_t file = H5I_INVALID_HID;
  for (int attempt = 0; file < 0 && attempt < kMostAttempts; ++attempt) {
    file = H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access.get());
    if (file < 0 && errno != EINTR) break;  // HDF5 does not retry an interrupted open()
  }
  if (file < 0) return failed("H5Fcreate", path);
  return FileHandle(file);
}

StoredTypes::StoredTypes() : scalar_(H5Screate(H5S_SCALAR)) {}

hid_t StoredTypes::of(const std::string& dtype) { return stored(dtype).type.get(); }

const StoredTypes::Stored& StoredTypes::stored(const std::string& dtype) {
  const auto found = stored_.find(dtype);
  if (found != stored_.end()) return found->second;
  bool raw = false;
  TypeHandle type = stored_type(dtype, &raw);
  TypeHandle text(raw ? H5Tcopy(H5T_C_S1) : H5I_INVALID_HID);
  if (raw) H5Tset_size(text.get(), dtype.size());
  return stored_.emplace(dtype, Stored{std::move(type), std::move(text)}).first->second;
}

base::Status StoredTypes::annotate(const std::string& dtype, hid_t dataset) {
  const TypeHandle& text = stored(dtype).text;
  if (!text.valid()) return {};
  const AttributeHandle attribute(
      H5Acreate2(dataset, "dtype", text.get(), scalar_.get(), H5P_DEFAULT, H5P_DEFAULT));
  if (!attribute.valid() || H5Awrite(attribute.get(), text.get(), dtype.data()) < 0)
    return failed("H5Acreate", "dtype");
  return {};
}

std::vector<hsize_t> dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

SpaceHandle space_of(const Shape& shape) {
  if (shape.empty()) return SpaceHandle(H5Screate(H5S_SCALAR));
  return SpaceHandle(
      H5Screate_simple(static_cast<int>(shape.size()), dims_of(shape).data(), nullptr));
}

std::string link_name(const std::string& tensor) {
  std::string out;
  const bool dots = tensor.find_first_not_of('.') == std::string::npos;
  for (const char c : tensor) {
    const bool plain =
        kSpecial.find(c) == kSpecial.npos && static_cast<unsigned char>(c) >= ' ' && !dots;
    plain ? void(out += c) : void(out += fmt::format("@{:02X}", static_cast<unsigned char>(c)));
  }
  return out;
}

}  // namespace regroup::checkpoint::hdf5
