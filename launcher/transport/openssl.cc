// Uses the library names of OpenSSL 3, whose functions are stable in all 3.x versions.
#include "launcher/transport/openssl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

namespace regroup::transport {
namespace {

// Depends on libcrypto.so.3, which dlsym() searches, too.
constexpr const char* kTls = "libssl.so.3";

std::pair<base::Status, OpenSsl> load() {
  OpenSsl out;
  void* handle = ::dlopen(kTls, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return {{base::Code::kUnavailable,
             fmt::format("connections between hosts require OpenSSL: {}", ::dlerror())},
            out};
  }
  const char* missing = nullptr;
#define REGROUP_OPENSSL_FIND(name)                                         \
  out.name = reinterpret_cast<decltype(out.name)>(::dlsym(handle, #name)); \
  if (out.name == nullptr) missing = #name;
  REGROUP_OPENSSL_FUNCTIONS(REGROUP_OPENSSL_FIND)
#undef REGROUP_OPENSSL_FIND
  if (missing == nullptr) return {{}, out};
  return {{base::Code::kUnavailable, fmt::format("{} has no function {}", kTls, missing)}, out};
}

const std::pair<base::Status, OpenSsl>& loaded() {
  static const std::pair<base::Status, OpenSsl> kOnce = load();
  return kOnce;
}

}  // namespace

base::Status load_openssl() { return loaded().first; }

const OpenSsl& openssl() { return loaded().second; }

}  // namespace regroup::transport
