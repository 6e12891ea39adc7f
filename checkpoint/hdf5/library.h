// HDF5 with owned handles and errors as Status. Only programs of tools/ link it: a second HDF5 in a
// member would clash with the one that h5py brings. Used by one thread.
#pragma once

#include <hdf5.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "checkpoint/box.h"

namespace regroup::checkpoint::hdf5 {

// A handle of HDF5; closed by `CloseOne`. Negative: none.
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
  // Closes now, which for a file may fail.
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

// "CALL(OBJECT): what HDF5 says", of the call that just failed.
[[nodiscard]] base::Status failed(const std::string& call, const std::string& object);
// Errors come back as values only, and nothing is left to do at exit(), where HDF5 would crash over
// a file that it could not close. Before the first call.
void tame();
// A new file of this format version, or of the oldest that has what is made in it (EARLIEST); its
// datasets from `align_from` bytes on begin at multiples of 4 KiB.
[[nodiscard]] base::Result<FileHandle> create_file(const std::string& path, H5F_libver_t version,
                                                   hsize_t align_from);

// The types in which elements are stored, little-endian; kinds of numbers that HDF5 has no name for
// are stored as unsigned integers, and are raw. Made once: handles and property lists take HDF5
// longer than a dataset.
class StoredTypes {
 public:
  StoredTypes();
  [[nodiscard]] hid_t of(const std::string& dtype);
  // Adds the attribute "dtype" if elements are raw: it says what they are.
  [[nodiscard]] base::Status tell(const std::string& dtype, hid_t dataset);

 private:
  struct Stored {
    TypeHandle type;
    TypeHandle text;  // of the attribute; invalid: elements are not raw
  };
  const Stored& stored(const std::string& dtype);

  SpaceHandle scalar_;
  std::map<std::string, Stored> stored_;
};
[[nodiscard]] std::vector<hsize_t> dims_of(const Shape& shape);
// For datasets of this shape; [] is a scalar.
[[nodiscard]] SpaceHandle space_of(const Shape& shape);
// A name that no character of gives a meaning to in HDF5: "/" and the like as @2F.
[[nodiscard]] std::string link_name(const std::string& tensor);

}  // namespace regroup::checkpoint::hdf5
