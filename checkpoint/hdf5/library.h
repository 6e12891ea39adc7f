// HDF5 with owned handles and errors as Status. Only programs in tools/ link it, since a second
// HDF5 in a member would clash with h5py's. Used by one thread.
#pragma once

#include <hdf5.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "checkpoint/box.h"

namespace regroup::checkpoint::hdf5 {

// Owns an HDF5 handle and closes it with `CloseOne`. Negative: none.
template <herr_t (*CloseOne)(hid_t)>
class Handle {
 public:
  explicit Handle(hid_t id) : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Handle& operator=(Handle&&) = delete;
  Handle(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) CloseOne(id_);
  }
  [[nodiscard]] hid_t get() const { return id_; }
  [[nodiscard]] bool valid() const { return id_ >= 0; }
  // Closes now; false if that fails, as it may for a file.
  [[nodiscard]] bool close() { return CloseOne(std::exchange(id_, H5I_INVALID_HID)) >= 0; }

 private:
  hid_t id_;
};
using FileHandle = Handle<H5Fclose>;
using PropertyHandle = Handle<H5Pclose>;
using SpaceHandle = Handle<H5Sclose>;
using TypeHandle = Handle<H5Tclose>;
using DatasetHandle = Handle<H5Dclose>;
using AttributeHandle = Handle<H5Aclose>;

// "CALL(OBJECT): HDF5's message" for the call that has just failed.
[[nodiscard]] base::Status failed(const std::string& call, const std::string& object);
// Makes HDF5 print no errors (they are return values), and do nothing at exit(), where it would
// crash on a file that it could not close. Call it before any other HDF5 function.
void configure_errors();
// Creates a file in format `version` (EARLIEST: the oldest that supports its content). Datasets of
// at least `align_from` bytes begin at multiples of 4 KiB.
[[nodiscard]] base::Result<FileHandle> create_file(const std::string& path, H5F_libver_t version,
                                                   hsize_t align_from);

// The types in which elements are stored, little-endian. A type of number that HDF5 does not have
// is stored as an unsigned integer ("raw"). Created once, since HDF5 needs more time for handles
// and property lists than for a dataset.
class StoredTypes {
 public:
  StoredTypes();
  [[nodiscard]] hid_t of(const std::string& dtype);
  // If elements of `dtype` are raw, adds the attribute "dtype" with their true type to `dataset`.
  [[nodiscard]] base::Status annotate(const std::string& dtype, hid_t dataset);

 private:
  struct Stored {
    TypeHandle type;
    TypeHandle text;  // type of the attribute; invalid if elements are not raw
  };
  const Stored& stored(const std::string& dtype);

  SpaceHandle scalar_;
  std::map<std::string, Stored> stored_;
};
[[nodiscard]] std::vector<hsize_t> dims_of(const Shape& shape);
// The data space for datasets of this shape; [] is a scalar.
[[nodiscard]] SpaceHandle space_of(const Shape& shape);
// The HDF5 link name for `tensor`: characters with a meaning in HDF5 paths are escaped ("/": @2F).
[[nodiscard]] std::string link_name(const std::string& tensor);

}  // namespace regroup::checkpoint::hdf5
