// The functions of regroup._native for code that is built separately: the torch.distributed backend
// (backend.cc). Plain C, so that neither side depends on the other's C++ library.
// regroup._native.collective_v1() returns the table's address. Fields are only ever appended.
//
// Every function returns 0, or a failure whose text it writes to `error` (at most error_bytes bytes
// with the zero). Any thread may call them.
#ifndef REGROUP_COLLECTIVE_V1_H
#define REGROUP_COLLECTIVE_V1_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { REGROUP_COLLECTIVE_VERSION = 1, REGROUP_ANY_RANK = -1 };

// Kinds of failure.
enum {
  REGROUP_OK = 0,
  REGROUP_INVALID = 1,  // the caller's mistake: other operations still work
  REGROUP_TIMEOUT = 2,  // another rank did not take part in time
  REGROUP_BROKEN = 3,   // a rank has ended, or the group was aborted
  REGROUP_FAILED = 4    // anything else
};

// Kinds, types and reductions of operations, with the meaning of regroup/operation.h.
enum {
  REGROUP_BARRIER,
  REGROUP_ALLREDUCE,
  REGROUP_REDUCE,
  REGROUP_REDUCE_SCATTER,
  REGROUP_ALLGATHER,
  REGROUP_GATHER,
  REGROUP_SCATTER,
  REGROUP_ALLTOALL,
  REGROUP_BROADCAST
};
enum {
  REGROUP_FLOAT32,
  REGROUP_FLOAT64,
  REGROUP_INT32,
  REGROUP_INT64,
  REGROUP_FLOAT16,
  REGROUP_BFLOAT16,
  REGROUP_INT8,
  REGROUP_INT16,
  REGROUP_UINT8
};
enum {
  REGROUP_SUM,
  REGROUP_PROD,
  REGROUP_MIN,
  REGROUP_MAX,
  REGROUP_AVG,
  REGROUP_BAND,
  REGROUP_BOR
};

typedef struct regroup_operation {
  int32_t kind, dtype, op, root;
  const void* in;
  size_t in_bytes;
  void* out;
  size_t out_bytes;
} regroup_operation;

// A key-value store that all ranks share. `set` returns 0 or a failure. `get` waits up to `seconds`
// for a key, writes at most `most` bytes of its value and returns the value's size; -1 if no rank
// set the key in time, -2 on failure.
typedef struct regroup_store {
  void* self;
  int (*set)(void* self, const char* key, const void* value, size_t bytes);
  int64_t (*get)(void* self, const char* key, void* value, size_t most, double seconds);
} regroup_store;

typedef struct regroup_group regroup_group;
typedef struct regroup_work regroup_work;  // an operation in progress
typedef struct regroup_memory regroup_memory;

typedef struct regroup_collective_v1 {
  uint32_t version;  // REGROUP_COLLECTIVE_VERSION
  uint32_t bytes;    // of this table

  // All ranks of the group must call it, with keys of the store that no other group uses. Ranks
  // with equal `host` share memory; if it is "", all ranks of one user on one machine do. Blocks.
  int (*form)(const regroup_store* store, int rank, int size, const char* host, double seconds,
              regroup_group** group, char* error, size_t error_bytes);
  // Leaves and frees the group. No operation may be in progress.
  void (*leave)(regroup_group* group);
  // Fails all operations of this rank, present and future.
  void (*abort)(regroup_group* group, const char* why);

  // Blocks until the operation is complete.
  int (*run)(regroup_group* group, const regroup_operation* operation, double seconds, char* error,
             size_t error_bytes);
  // Starts an operation, whose memory must live until it is complete. The caller frees `*work` with
  // free().
  int (*start)(regroup_group* group, const regroup_operation* operation, double seconds,
               regroup_work** work, char* error, size_t error_bytes);
  int (*send)(regroup_group* group, int to, uint32_t tag, const void* data, size_t bytes,
              double seconds, regroup_work** work, char* error, size_t error_bytes);
  int (*receive)(regroup_group* group, int from, uint32_t tag, void* data, size_t bytes,
                 double seconds, regroup_work** work, char* error, size_t error_bytes);
  // Waits up to `seconds`, 0 to poll only. Returns 1 if the operation is complete, otherwise 0.
  int (*wait)(regroup_work* work, double seconds);
  // Returns how a complete operation ended, and for a receive the rank that sent the message.
  int (*status)(regroup_work* work, int* source, char* error, size_t error_bytes);
  void (*free)(regroup_work* work);

  // Memory that the ranks of this host share, of undefined content: operations on it need no copy
  // in between. Returns its address, or null if there is none left. It stays until release(), also
  // after leave().
  void* (*allocate)(regroup_group* group, size_t bytes, regroup_memory** memory);
  void (*release)(regroup_memory* memory);
} regroup_collective_v1;

#ifdef __cplusplus
}
#endif

#endif
