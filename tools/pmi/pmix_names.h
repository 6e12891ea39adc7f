// Packs calls about published names for the first host of a job, which keeps those of all hosts in
// its PmixBoard, and what it answers. libpmix packs the values.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tools/pmi/pmix_library.h"

namespace regroup::pmi {

// An array of keys (names), and one of data to publish or of directives.
[[nodiscard]] base::Result<std::vector<std::byte>> pack_name_call(
    const PmixLibrary& library, const std::vector<std::string>& keys, const pmix_info_t* infos,
    std::size_t count);

// What pack_name_call() packed. Owns the values.
class NameArguments {
 public:
  // kDataLoss: these bytes come from no pack_name_call().
  [[nodiscard]] static base::Result<NameArguments> unpack(const PmixLibrary& library,
                                                          std::span<const std::byte> bytes);
  ~NameArguments();
  NameArguments(NameArguments&& other) noexcept
      : library_(other.library_), keys_(std::move(other.keys_)), infos_(std::move(other.infos_)) {}
  NameArguments(const NameArguments&) = delete;
  NameArguments& operator=(const NameArguments&) = delete;
  NameArguments& operator=(NameArguments&&) = delete;

  [[nodiscard]] const std::vector<std::string>& keys() const { return keys_; }
  [[nodiscard]] const std::vector<pmix_info_t>& infos() const { return infos_; }

 private:
  explicit NameArguments(const PmixLibrary& library) : library_(library) {}

  const PmixLibrary& library_;
  std::vector<std::string> keys_;
  std::vector<pmix_info_t> infos_;
};

// The names that a look-up has found.
[[nodiscard]] base::Result<std::vector<std::byte>> pack_found(
    const PmixLibrary& library, const std::vector<pmix_pdata_t>& found);
// Passes what pack_found() packed to `then`, which copies what it keeps; nothing if these bytes
// come from no pack_found().
void with_found(const PmixLibrary& library, std::span<const std::byte> bytes,
                const std::function<void(std::vector<pmix_pdata_t>&)>& then);

}  // namespace regroup::pmi
