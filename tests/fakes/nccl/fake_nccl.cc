// The symbols of one version of NCCL (FAKE_NCCL_VERSION, as ncclGetVersion() says it), for what
// collective/nccl does before it opens a communicator. None of the functions does anything.
#include <cstddef>
#include <cstring>

extern "C" {

using Result = int;
struct UniqueId {
  char internal[128];
};
constexpr Result kSuccess = 0;
constexpr Result kInvalidUsage = 5;

#define FAKE_NCCL_EXPORT __attribute__((visibility("default")))
// Of a communicator, which nobody can have.
#define FAKE_NCCL_UNUSABLE(name) \
  FAKE_NCCL_EXPORT Result name() { return kInvalidUsage; }

FAKE_NCCL_EXPORT Result ncclGetVersion(int* version) {
  *version = FAKE_NCCL_VERSION;
  return kSuccess;
}
FAKE_NCCL_EXPORT const char* ncclGetErrorString(Result result) {
  return result == kSuccess ? "no error" : "invalid usage";
}
FAKE_NCCL_EXPORT const char* ncclGetLastError(void* /*comm*/) { return "said by the fake"; }
FAKE_NCCL_EXPORT Result ncclGetUniqueId(UniqueId* id) {
  std::memset(id->internal, 7, sizeof id->internal);
  return kSuccess;
}
FAKE_NCCL_EXPORT Result ncclGroupStart() { return kSuccess; }
FAKE_NCCL_EXPORT Result ncclGroupEnd() { return kSuccess; }
FAKE_NCCL_UNUSABLE(ncclCommInitRankConfig)
FAKE_NCCL_UNUSABLE(ncclCommGetAsyncError)
#ifndef FAKE_NCCL_WITHOUT_ABORT
FAKE_NCCL_UNUSABLE(ncclCommAbort)
#endif
FAKE_NCCL_UNUSABLE(ncclAllReduce)
FAKE_NCCL_UNUSABLE(ncclReduceScatter)
FAKE_NCCL_UNUSABLE(ncclAllGather)
FAKE_NCCL_UNUSABLE(ncclSend)
FAKE_NCCL_UNUSABLE(ncclRecv)
#if FAKE_NCCL_VERSION >= 22304
FAKE_NCCL_UNUSABLE(ncclCommInitRankScalable)
#endif
#if FAKE_NCCL_VERSION >= 22707
FAKE_NCCL_UNUSABLE(ncclCommShrink)
#endif
#if FAKE_NCCL_VERSION >= 22809
FAKE_NCCL_UNUSABLE(ncclCommRevoke)
FAKE_NCCL_UNUSABLE(ncclAlltoAll)
#endif
#if FAKE_NCCL_VERSION >= 22907
FAKE_NCCL_UNUSABLE(ncclCommGrow)
FAKE_NCCL_UNUSABLE(ncclCommGetUniqueId)
FAKE_NCCL_UNUSABLE(ncclCommSuspend)
FAKE_NCCL_UNUSABLE(ncclCommMemStats)
#endif
#if FAKE_NCCL_VERSION >= 23203
FAKE_NCCL_UNUSABLE(ncclSetEncryption)
#endif

}  // extern "C"
