// The part of NCCL's interface that is used, with its names, values and layouts. The product
// includes no nccl.h, so that it builds without NCCL; tests/python/test_gpu_headers.py compares.
#pragma once

#include <climits>
#include <cstddef>

#include "collective/cuda/driver.h"

namespace regroup::collective::nccl {

// An ncclResult_t.
enum class Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// An ncclDataType_t.
enum class DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

// An ncclRedOp_t.
enum class Reduction : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3 };

using Handle = struct ncclComm*;  // ncclComm_t

struct UniqueId {
  char internal[128];
};

inline constexpr int kUndefined = INT_MIN;  // of a setting: the library's default

// An ncclConfig_t as of 2.19. Later versions only append fields; a library takes the fields that
// `size` and `version` say are there, and its defaults for the others.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21900;
  int blocking = 0;  // calls return kInProgress; comm_async_error() says when they are done
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

// X(member, symbol, parameters...): functions that every version has which is served (2.19).
#define REGROUP_NCCL_FUNCTIONS(X)                                                               \
  X(get_version, ncclGetVersion, int*)                                                          \
  X(get_unique_id, ncclGetUniqueId, UniqueId*)                                                  \
  X(comm_init, ncclCommInitRankConfig, Handle*, int, UniqueId, int, Config*)                    \
  X(comm_async_error, ncclCommGetAsyncError, Handle, Result*)                                   \
  X(comm_abort, ncclCommAbort, Handle)                                                          \
  X(group_start, ncclGroupStart)                                                                \
  X(group_end, ncclGroupEnd)                                                                    \
  X(all_reduce, ncclAllReduce, const void*, void*, std::size_t, DataType, Reduction, Handle,    \
    cuda::Stream)                                                                               \
  X(reduce_scatter, ncclReduceScatter, const void*, void*, std::size_t, DataType, Reduction,    \
    Handle, cuda::Stream)                                                                       \
  X(all_gather, ncclAllGather, const void*, void*, std::size_t, DataType, Handle, cuda::Stream) \
  X(send, ncclSend, const void*, std::size_t, DataType, int, Handle, cuda::Stream)              \
  X(receive, ncclRecv, void*, std::size_t, DataType, int, Handle, cuda::Stream)

// X(member, symbol, parameters...): functions of later versions; null where they are missing.
#define REGROUP_NCCL_OPTIONAL_FUNCTIONS(X)                                                     \
  X(comm_init_scalable, ncclCommInitRankScalable, Handle*, int, int, int, UniqueId*, Config*)  \
  X(comm_revoke, ncclCommRevoke, Handle, int)                                                  \
  X(comm_shrink, ncclCommShrink, Handle, int*, int, Handle*, Config*, int)                     \
  X(all_to_all, ncclAlltoAll, const void*, void*, std::size_t, DataType, Handle, cuda::Stream) \
  X(comm_grow, ncclCommGrow, Handle, int, const UniqueId*, int, Handle*, Config*)              \
  X(comm_unique_id, ncclCommGetUniqueId, Handle, UniqueId*)                                    \
  X(comm_suspend, ncclCommSuspend, Handle, int)                                                \
  X(comm_memory, ncclCommMemStats, Handle, int, unsigned long long*)

}  // namespace regroup::collective::nccl
