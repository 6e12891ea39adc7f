// Loads libnccl, and words its errors. Functions of later versions are found by symbol.
#include "collective/nccl/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/loader_error.h"

namespace regroup::collective::nccl {
namespace {

constexpr const char* kName = "libnccl.so.2";
constexpr int kOldest = 21900;      // 2.19
constexpr int kFirstCrash = 22803;  // 2.28.3 ...
constexpr int kLastCrash = 22808;   // ... to 2.28.8

void* open(const std::vector<std::string>& candidates) {
  if (void* there = ::dlopen(kName, RTLD_NOW | RTLD_NOLOAD); there != nullptr) return there;
  for (const std::string& path : candidates) {
    if (void* found = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); found != nullptr) return found;
  }
  return ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
}

template <class Function>
void find(void* handle, const char* symbol, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(handle, symbol));
}

}  // namespace

std::string version_text(int version) {
  const int major = version < 10000 ? version / 1000 : version / 10000;  // up to 2.8 and since
  const int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
  return fmt::format("{}.{}.{}", major, minor, version % 100);
}

std::string why_not_served(int version) {
  if (version < kOldest)
    return fmt::format("{} is version {}; expected 2.19 or newer", kName, version_text(version));
  if (version < kFirstCrash || version > kLastCrash) return "";
  return fmt::format(
      "{} is version {}, which crashes when members restart; expected 2.28.9 or newer, or 2.27",
      kName, version_text(version));
}

base::Status Library::status(Result result, const std::string& call) const {
  if (result == Result::kSuccess || result == Result::kInProgress) return {};
  const char* last = last_error == nullptr ? nullptr : last_error(nullptr);
  const bool detailed = last != nullptr && *last != '\0';
  std::string message = fmt::format("{}: {}{}", call, error_string(result),
                                    detailed ? fmt::format(" ({})", last) : "");
  switch (result) {
    case Result::kInvalidArgument:
    case Result::kInvalidUsage:
      return base::invalid_argument(std::move(message));
    case Result::kRemoteError:
      return base::peer_lost(std::move(message));
    case Result::kSystemError:
      return base::unavailable(std::move(message));
    default:
      return base::internal_error(std::move(message));
  }
}

base::Result<Library> load_nccl(const std::vector<std::string>& candidates) {
  // Never closed: NCCL has threads of its own.
  void* handle = open(candidates);
  if (handle == nullptr)
    return base::unavailable(fmt::format("no {}: {}", kName, base::loader_error()));
  Library library;
  find(handle, "ncclGetVersion", library.get_version);
  if (library.get_version == nullptr || library.get_version(&library.version) != Result::kSuccess)
    return base::unavailable(fmt::format("{} does not say its version", kName));
  if (std::string why = why_not_served(library.version); !why.empty())
    return base::unavailable(std::move(why));
#define REGROUP_NCCL_FIND(member, symbol, ...) \
  find(handle, #symbol, library.member);       \
  if (library.member == nullptr)               \
    return base::unavailable(                  \
        fmt::format("{} of version {} has no {}", kName, version_text(library.version), #symbol));
  REGROUP_NCCL_FUNCTIONS(REGROUP_NCCL_FIND)
#undef REGROUP_NCCL_FIND
#define REGROUP_NCCL_FIND(member, symbol, ...) find(handle, #symbol, library.member);
  REGROUP_NCCL_OPTIONAL_FUNCTIONS(REGROUP_NCCL_FIND)
#undef REGROUP_NCCL_FIND
  find(handle, "ncclGetErrorString", library.error_string);
  if (library.error_string == nullptr)
    return base::unavailable(fmt::format("{} has no ncclGetErrorString", kName));
  find(handle, "ncclGetLastError", library.last_error);
  library.has_encryption = ::dlsym(handle, "ncclSetEncryption") != nullptr;
  return library;
}

}  // namespace regroup::collective::nccl
