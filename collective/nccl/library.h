// libnccl.so.2, loaded at run time, and which of its versions are served.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "collective/nccl/abi.h"

namespace regroup::collective::nccl {

// A version as ncclGetVersion() says it: 21903 is 2.19.3, 2708 is 2.7.8.
[[nodiscard]] std::string version_text(int version);
// Why a version is not served, as a part of a sentence; "" if it is. Served are 2.19 and newer,
// whose communicators another thread may abort, except 2.28.3 to 2.28.8, which crash when a
// communicator follows one that was aborted.
[[nodiscard]] std::string why_not_served(int version);

// The loaded library. Copyable, since the library stays loaded for the lifetime of the process.
struct Library {
  int version = 0;
#define REGROUP_NCCL_DECLARE(member, symbol, ...) \
  Result (*member)(__VA_ARGS__) = nullptr;  // NOLINT(bugprone-macro-parentheses)
  REGROUP_NCCL_FUNCTIONS(REGROUP_NCCL_DECLARE)
  REGROUP_NCCL_OPTIONAL_FUNCTIONS(REGROUP_NCCL_DECLARE)
#undef REGROUP_NCCL_DECLARE
  const char* (*error_string)(Result) = nullptr;
  const char* (*last_error)(Handle) = nullptr;
  // ncclSetEncryption is there (2.32.3): it takes keys only in builds with OpenSSL.
  bool has_encryption = false;

  // "ncclCommAbort: unhandled cuda error", with the library's last error where there is one; ok for
  // kSuccess and kInProgress.
  [[nodiscard]] base::Status status(Result result, const std::string& call) const;
};

// Loads the library for the lifetime of the process: the one that is already in it (torch's), else
// the first of `candidates` that exists, else the loader's. kUnavailable, with the reason as a part
// of a sentence: there is none ("no libnccl.so.2: ..."), it lacks a function, or its version is not
// served. Any thread. Does not start NCCL.
[[nodiscard]] base::Result<Library> load_nccl(const std::vector<std::string>& candidates = {});

}  // namespace regroup::collective::nccl
