// Both hosts use libpmix's own packing, so that values of every type pass. Counts of other hosts
// are bounded before memory is taken for them.
#include "tools/pmi/pmix_names.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace regroup::pmi {
namespace {

constexpr std::uint64_t kMostValues = 1024;  // of one call

// Packs into memory of libpmix, or unpacks from memory of the caller.
class Buffer {
 public:
  explicit Buffer(const PmixLibrary& library) : library_(library) {}
  Buffer(const PmixLibrary& library, std::span<const std::byte> bytes)
      : library_(library), borrowed_(true) {
    char* begin = reinterpret_cast<char*>(const_cast<std::byte*>(bytes.data()));
    buffer_ = {begin, begin + bytes.size(), begin, bytes.size(), bytes.size()};
  }
  ~Buffer() {
    if (!borrowed_) std::free(buffer_.base_ptr);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // One value a call: libpmix unpacks as many at once as were packed at once.
  void pack(const void* value, pmix_data_type_t type) {
    if (status_ == PMIX_SUCCESS)
      status_ = library_.Data_pack(nullptr, &buffer_, const_cast<void*>(value), 1, type);
  }
  void unpack(void* value, pmix_data_type_t type) {
    std::int32_t most = 1;
    if (status_ == PMIX_SUCCESS)
      status_ = library_.Data_unpack(nullptr, &buffer_, value, &most, type);
    if (status_ == PMIX_SUCCESS && most != 1) status_ = PMIX_ERR_UNPACK_FAILURE;
  }
  void pack_count(std::uint64_t count) { pack(&count, PMIX_UINT64); }
  // 0 on an error.
  [[nodiscard]] std::size_t unpack_count() {
    std::uint64_t count = 0;
    unpack(&count, PMIX_UINT64);
    if (count > kMostValues) status_ = PMIX_ERR_UNPACK_FAILURE;
    return status_ == PMIX_SUCCESS ? count : 0;
  }
  [[nodiscard]] bool ok() const { return status_ == PMIX_SUCCESS; }
  [[nodiscard]] base::Result<std::vector<std::byte>> packed() const {
    if (!ok()) return library_.error("Data_pack", "published names", status_);
    const auto* begin = reinterpret_cast<const std::byte*>(buffer_.base_ptr);
    return std::vector<std::byte>(begin, begin + buffer_.bytes_used);
  }

 private:
  const PmixLibrary& library_;
  const bool borrowed_ = false;
  pmix_data_buffer_t buffer_{};
  pmix_status_t status_ = PMIX_SUCCESS;
};

}  // namespace

base::Result<std::vector<std::byte>> pack_name_call(const PmixLibrary& library,
                                                    const std::vector<std::string>& keys,
                                                    const pmix_info_t* infos, std::size_t count) {
  Buffer buffer(library);
  buffer.pack_count(keys.size());
  for (const std::string& key : keys) {
    const char* text = key.c_str();
    buffer.pack(&text, PMIX_STRING);
  }
  buffer.pack_count(count);
  for (std::size_t i = 0; i < count; ++i) buffer.pack(&infos[i], PMIX_INFO);
  return buffer.packed();
}

NameArguments::~NameArguments() {
  for (pmix_info_t& info : infos_) library_.Value_destruct(&info.value);
}

base::Result<NameArguments> NameArguments::unpack(const PmixLibrary& library,
                                                  std::span<const std::byte> bytes) {
  Buffer buffer(library, bytes);
  NameArguments out(library);
  for (std::size_t left = buffer.unpack_count(); left > 0 && buffer.ok(); --left) {
    char* text = nullptr;
    buffer.unpack(&text, PMIX_STRING);
    if (text != nullptr) out.keys_.emplace_back(text);
    std::free(text);
  }
  out.infos_.resize(buffer.unpack_count());
  for (pmix_info_t& info : out.infos_) buffer.unpack(&info, PMIX_INFO);
  if (!buffer.ok()) return base::data_loss("a call about published names does not unpack");
  return out;
}

base::Result<std::vector<std::byte>> pack_found(const PmixLibrary& library,
                                                const std::vector<pmix_pdata_t>& found) {
  Buffer buffer(library);
  buffer.pack_count(found.size());
  for (const pmix_pdata_t& one : found) buffer.pack(&one, PMIX_PDATA);
  return buffer.packed();
}

void with_found(const PmixLibrary& library, std::span<const std::byte> bytes,
                const std::function<void(std::vector<pmix_pdata_t>&)>& then) {
  Buffer buffer(library, bytes);
  std::vector<pmix_pdata_t> found(buffer.unpack_count());
  for (pmix_pdata_t& one : found) buffer.unpack(&one, PMIX_PDATA);
  std::vector<pmix_pdata_t> none;
  then(buffer.ok() ? found : none);
  for (pmix_pdata_t& one : found) library.Value_destruct(&one.value);
}

}  // namespace regroup::pmi
