// Values of constants: mpi.h of Open MPI 4 and 5, and of MPICH, whose ABI ("MPICH ABI Compatibility
// Initiative", libmpi.so.12) fixes them; and the ABI of the MPI standard, version 5.0, section 20
// (libmpi_abi.so.1).
#include "tools/mpi/api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace regroup::mpi {
namespace {

constexpr int kTag = 1;
constexpr std::string_view kMpichVersion = "MPICH Version:";  // then blanks and a number
constexpr int kMostVersionBytes = 8192;  // MPI_MAX_LIBRARY_VERSION_STRING of MPICH; Open MPI: 256

// Both libraries' MPI_Status is smaller; the carrier looks at it through MPI_Get_count alone.
struct Status {
  alignas(8) std::array<std::byte, 128> bytes{};
};

// Handle: void* (Open MPI) or int (MPICH).
template <class Handle>
struct Functions {
  int (*MPI_Get_library_version)(char*, int*);
  int (*MPI_Init)(int*, char***);
  int (*MPI_Comm_rank)(Handle, int*);
  int (*MPI_Comm_size)(Handle, int*);
  int (*MPI_Issend)(const void*, int, Handle, int, int, Handle, Handle*);
  int (*MPI_Test)(Handle*, int*, Status*);
  int (*MPI_Iprobe)(int, int, Handle, int*, Status*);
  int (*MPI_Get_count)(const Status*, Handle, int*);
  int (*MPI_Recv)(void*, int, Handle, int, int, Handle, Status*);
};

struct MpichConstants {
  using Handle = int;
  static constexpr int kWorld = 0x44000000;
  static constexpr int kByte = 0x4c00010d;
};

struct StandardConstants {
  static constexpr std::uintptr_t kWorld = 0x101;
  static constexpr std::uintptr_t kByte = 0x247;
};

// MPICH has the functions of the standard ABI in both its libraries, so only the name tells.
bool has_standard_abi(const std::string& library) {
  return library.substr(library.rfind('/') + 1).starts_with("libmpi_abi.so");
}

base::Status missing(const std::string& library) {
  const char* why = ::dlerror();
  return base::unavailable(fmt::format("{}: {}", library, why == nullptr ? "no reason" : why));
}

template <class Function>
bool find_one(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(library, name));
  return *out != nullptr;
}

template <class Handle>
bool find_all(void* library, Functions<Handle>& f) {
#define REGROUP_FIND(name) find_one(library, #name, &f.name)
  return REGROUP_FIND(MPI_Get_library_version) && REGROUP_FIND(MPI_Init) &&
         REGROUP_FIND(MPI_Comm_rank) && REGROUP_FIND(MPI_Comm_size) && REGROUP_FIND(MPI_Issend) &&
         REGROUP_FIND(MPI_Test) && REGROUP_FIND(MPI_Iprobe) && REGROUP_FIND(MPI_Get_count) &&
         REGROUP_FIND(MPI_Recv);
#undef REGROUP_FIND
}

template <class Handle>
class ApiOf final : public Api {
 public:
  // `abi`: behind the version.
  ApiOf(const Functions<Handle>& functions, Handle world, Handle byte, const char* abi)
      : f_(functions), world_(world), byte_(byte), abi_(abi) {}

  std::string version() override {
    std::array<char, kMostVersionBytes> text{};
    int length = 0;
    f_.MPI_Get_library_version(text.data(), &length);
    const std::string all(text.data(), static_cast<std::size_t>(length));
    if (!all.starts_with(kMpichVersion)) return all.substr(0, all.find_first_of(",\n")) + abi_;
    const std::size_t begin = all.find_first_not_of(" \t", kMpichVersion.size());
    return "MPICH " + all.substr(begin, all.find('\n') - begin) + abi_;
  }
  void init() override { f_.MPI_Init(nullptr, nullptr); }
  int rank() override {
    int rank = -1;
    f_.MPI_Comm_rank(world_, &rank);
    return rank;
  }
  int size() override {
    int size = 0;
    f_.MPI_Comm_size(world_, &size);
    return size;
  }
  std::size_t send(int to, std::span<const std::byte> bytes) override {
    const auto unused = std::ranges::find(used_, false);
    const auto at = static_cast<std::size_t>(unused - used_.begin());
    if (unused == used_.end()) {
      used_.push_back(true);
      requests_.push_back({});
    }
    used_[at] = true;
    f_.MPI_Issend(bytes.data(), static_cast<int>(bytes.size()), byte_, to, kTag, world_,
                  &requests_[at]);
    return at;
  }
  bool sent(std::size_t request) override {
    int done = 0;
    Status status;
    f_.MPI_Test(&requests_[request], &done, &status);
    if (done != 0) used_[request] = false;
    return done != 0;
  }
  std::optional<std::vector<std::byte>> receive(int from) override {
    int found = 0;
    int count = 0;
    Status status;
    f_.MPI_Iprobe(from, kTag, world_, &found, &status);
    if (found == 0) return std::nullopt;
    f_.MPI_Get_count(&status, byte_, &count);
    std::vector<std::byte> bytes(static_cast<std::size_t>(count));
    f_.MPI_Recv(bytes.data(), count, byte_, from, kTag, world_, &status);
    return bytes;
  }

 private:
  const Functions<Handle> f_;
  const Handle world_;
  const Handle byte_;
  const char* const abi_;
  std::vector<Handle> requests_;
  std::vector<bool> used_;  // by request
};

template <class Handle>
base::Result<std::unique_ptr<Api>> api_of(void* library, const std::string& name, Handle world,
                                          Handle byte, const char* abi = "") {
  Functions<Handle> functions{};
  if (!find_all(library, functions)) return missing(name);
  return std::unique_ptr<Api>(std::make_unique<ApiOf<Handle>>(functions, world, byte, abi));
}

}  // namespace

// Open MPI's plugins find the library's functions in the global scope.
base::Result<std::unique_ptr<Api>> load(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) return missing(library);
  if (has_standard_abi(library)) {
    return api_of<void*>(handle, library, reinterpret_cast<void*>(StandardConstants::kWorld),
                         reinterpret_cast<void*>(StandardConstants::kByte), " (standard ABI)");
  }
  void* const world = ::dlsym(handle, "ompi_mpi_comm_world");
  void* const byte = ::dlsym(handle, "ompi_mpi_byte");
  if (world != nullptr && byte != nullptr) return api_of<void*>(handle, library, world, byte);
  auto mpich = api_of<int>(handle, library, MpichConstants::kWorld, MpichConstants::kByte);
  if (!mpich.ok()) return mpich.status();
  const std::string version = (*mpich)->version();
  if (version.starts_with("MPICH ")) return mpich;
  return base::unavailable(
      fmt::format("{}: expected Open MPI, MPICH or libmpi_abi.so.1, got \"{}\"", library, version));
}

}  // namespace regroup::mpi
