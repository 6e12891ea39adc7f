// The functions of regroup._native that code which is built apart from it calls: the
// torch.distributed backend (backend.cc). Plain C, so that neither side depends on the other's C++
// library. The address of the table is regroup._native.collective_v1(). Fields are only appended.
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

// What the caller does about a failure.
enum {
  REGROUP_OK = 0,
  REGROUP_INVALID = 1,  // the caller's mistake: other operations still work
  REGROUP_TIMEOUT = 2,  // other ranks did not come in time
  REGROUP_BROKEN = 3,   // a rank has ended, or the group was aborted
  REGROUP_FAILED = 4    // anything else
};

// Of an operation: kinds, types and reductions, with the meaning of regroup/operation.h.
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

// A key-value store that all ranks see. `set` returns 0, or a failure. `get` waits up to `seconds`
// for a key and returns the number of bytes of its value, of which it has written at most `most`;
// -1: nobody set it in time; -2: a failure.
typedef struct regroup_store {
  void* self;
  int (*set)(void* self, const char* key, const void* value, size_t bytes);
  int64_t (*get)(void* self, const char* key, void* value, size_t most, double seconds);
} regroup_store;

typedef struct regroup_group regroup_group;
typedef struct regroup_work regroup_work;  // an operation in progress

typedef struct regroup_collective_v1 {
  uint32_t version;  // REGROUP_COLLECTIVE_VERSION
  uint32_t bytes;    // of this table

  // Called by all ranks of the group, with keys of the store that no other group uses. Ranks that
  // give the same `host` share memory; "": those of one user on one machine do. Blocks.
  int (*form)(const regroup_store* store, int rank, int size, const char* host, double seconds,
              regroup_group** group, char* error, size_t error_bytes);
  // Leaves and frees the group, in which no operation is in progress.
  void (*leave)(regroup_group* group);
  // Ends all operations of this rank, now and later.
  void (*abort)(regroup_group* group, const char* why);

  // Blocks until the operation is complete.
  int (*run)(regroup_group* group, const regroup_operation* operation, double seconds, char* error,
             size_t error_bytes);
  // Starts one; its memory must live until it is complete. `*work` belongs to the caller: free().
  int (*start)(regroup_group* group, const regroup_operation* operation, double seconds,
               regroup_work** work, char* error, size_t error_bytes);
  int (*send)(regroup_group* group, int to, uint32_t tag, const void* data, size_t bytes,
              double seconds, regroup_work** work, char* error, size_t error_bytes);
  int (*receive)(regroup_group* group, int from, uint32_t tag, void* data, size_t bytes,
                 double seconds, regroup_work** work, char* error, size_t error_bytes);
  // 1: complete; 0: not within `seconds`, which 0 only polls.
  int (*wait)(regroup_work* work, double seconds);
  // How it ended, and the rank that a receive took its message of; complete ones only.
  int (*status)(regroup_work* work, int* source, char* error, size_t error_bytes);
  void (*free)(regroup_work* work);
} regroup_collective_v1;

#ifdef __cplusplus
}
#endif

#endif
