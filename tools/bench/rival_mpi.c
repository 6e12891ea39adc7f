/* A rival of `regroup bench`: the same operations by MPI, out of place. `regroup bench --compare` compiles it
 * with the mpicc of the MPI that is measured. usage: rival_mpi SOCKET
 * Each rank executes the lines that it reads from the socket, and answers each with one line:
 *   setup OPERATION TYPE OP ROOT BYTES   allocate memory for blocks of BYTES    -> ok | no WHY
 *   verify ITERATION                     run it once, count wrong elements      -> wrong N
 *   time FIRST WARMUPS COUNT             run it COUNT times after warm-ups      -> times NANOSECONDS...
 *   end                                  leave MPI and end
 * A rank sleeps while it waits for a line, so that it takes no core from the library that is timed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "pattern.h"
#include "start_barrier.h"

enum operation { ALLREDUCE, REDUCE, REDUCE_SCATTER, ALLGATHER, GATHER, SCATTER, ALLTOALL, BROADCAST, SENDRECV, BARRIER, OPERATIONS };
static const char* const kOperations[] = {"allreduce", "reduce", "reduce_scatter", "allgather", "gather", "scatter", "alltoall", "broadcast", "sendrecv", "barrier"};

enum { FLOAT32, FLOAT64, INT8, INT16, INT32, INT64, UINT8, TYPES };
static const char* const kTypes[] = {"float32", "float64", "int8", "int16", "int32", "int64", "uint8"};
static const unsigned kSizes[] = {4, 8, 1, 2, 4, 8, 1};
enum { SUM, PROD, MIN, MAX, BAND, BOR, OPS };
static const char* const kOps[] = {"sum", "prod", "min", "max", "band", "bor"};

static int rank, ranks;
static enum operation operation;
static int type, op, root;
static size_t count; /* elements of a block */
static void *in, *out;
static MPI_Datatype mpi_types[TYPES];
static MPI_Op mpi_ops[OPS];
static char* start_slots; /* of all ranks, in a file next to the socket */

static int find(const char* name, const char* const* names, int many) {
  for (int i = 0; i < many; ++i) {
    if (strcmp(name, names[i]) == 0) return i;
  }
  return -1;
}

static int reduces(void) { return operation <= REDUCE_SCATTER; }

static size_t in_blocks(void) {
  return operation == REDUCE_SCATTER || operation == SCATTER || operation == ALLTOALL ? (size_t)ranks : 1;
}
static size_t out_blocks(void) {
  return operation == ALLGATHER || operation == GATHER || operation == ALLTOALL ? (size_t)ranks : 1;
}

static enum pattern_kind kind(void) {
  if (!reduces()) return PATTERN_ADD;
  return op == PROD ? PATTERN_PRODUCT : op == BAND || op == BOR ? PATTERN_BITS : PATTERN_ADD;
}

/* For each type: BODY(T). */
#define WITH_TYPE(BODY)                  \
  switch (type) {                        \
    case FLOAT32: BODY(float) break;     \
    case FLOAT64: BODY(double) break;    \
    case INT8: BODY(int8_t) break;       \
    case INT16: BODY(int16_t) break;     \
    case INT32: BODY(int32_t) break;     \
    case INT64: BODY(int64_t) break;     \
    case UINT8: BODY(uint8_t) break;     \
  }

static void fill(uint64_t iteration) {
  const size_t elements = count * in_blocks();
  const uint32_t mask = pattern_mask(kSizes[type]);
  const uint32_t r = (uint32_t)rank, k = (uint32_t)iteration;
  const enum pattern_kind what = kind();
#define FILL(T)                                                                                \
  if (what == PATTERN_ADD) {                                                                   \
    for (size_t i = 0; i < elements; ++i)                                                      \
      ((T*)in)[i] = (T)(int32_t)pattern_value(PATTERN_ADD, mask, i, r, k);                     \
  } else {                                                                                     \
    for (size_t i = 0; i < elements; ++i) ((T*)in)[i] = (T)pattern_value(what, mask, i, r, k); \
  }
  WITH_TYPE(FILL)
}

/* Element `index` of the input of `source`, or its reduction over all ranks. Exact: wraps as 64-bit
 * integers do. */
static uint64_t exact(int source, size_t index, uint32_t k) {
  const uint32_t mask = pattern_mask(kSizes[type]);
  uint64_t sum = pattern_value(kind(), mask, index, (uint32_t)(source < 0 ? 0 : source), k);
  for (int r = 1; source < 0 && r < ranks; ++r) {
    const uint64_t value = pattern_value(kind(), mask, index, (uint32_t)r, k);
    switch (op) {
      case SUM: sum += value; break;
      case PROD: sum *= value; break;
      case MIN: sum = value < sum ? value : sum; break;
      case MAX: sum = value > sum ? value : sum; break;
      case BAND: sum &= value; break;
      default: sum |= value; break;
    }
  }
  return sum;
}

static unsigned long long wrong_part(size_t at, size_t n, int source, size_t index, uint64_t iteration) {
  unsigned long long wrong = 0;
#define CHECK(T) \
  for (size_t i = 0; i < n; ++i) wrong += ((T*)out)[at + i] != (T)exact(source, index + i, (uint32_t)iteration);
  WITH_TYPE(CHECK)
  return wrong;
}

static unsigned long long count_wrong(uint64_t iteration) {
  const size_t mine = count * (size_t)rank;
  unsigned long long wrong = 0;
  switch (operation) {
    case ALLREDUCE: return wrong_part(0, count, -1, 0, iteration);
    case REDUCE: return rank == root ? wrong_part(0, count, -1, 0, iteration) : 0;
    case REDUCE_SCATTER: return wrong_part(0, count, -1, mine, iteration);
    case SCATTER: return wrong_part(0, count, root, mine, iteration);
    case SENDRECV: return wrong_part(0, count, (rank + ranks - 1) % ranks, 0, iteration);
    case BROADCAST: return wrong_part(0, count, root, 0, iteration);
    case GATHER:
      if (rank != root) return 0; /* fall through */
    case ALLGATHER:
    case ALLTOALL:
      for (int r = 0; r < ranks; ++r)
        wrong += wrong_part(count * (size_t)r, count, r, operation == ALLTOALL ? mine : 0, iteration);
      return wrong;
    default: return 0;
  }
}

static void run(void) {
  const MPI_Datatype t = mpi_types[type];
  const MPI_Op o = mpi_ops[op];
  const MPI_Comm all = MPI_COMM_WORLD;
  const int n = (int)count;
  switch (operation) {
    case ALLREDUCE: MPI_Allreduce(in, out, n, t, o, all); break;
    case REDUCE: MPI_Reduce(in, out, n, t, o, root, all); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(in, out, n, t, o, all); break;
    case ALLGATHER: MPI_Allgather(in, n, t, out, n, t, all); break;
    case GATHER: MPI_Gather(in, n, t, out, n, t, root, all); break;
    case SCATTER: MPI_Scatter(in, n, t, out, n, t, root, all); break;
    case ALLTOALL: MPI_Alltoall(in, n, t, out, n, t, all); break;
    case BROADCAST: MPI_Bcast(out, n, t, root, all); break;
    case SENDRECV:
      MPI_Sendrecv(in, n, t, (rank + 1) % ranks, 0, out, n, t, (rank + ranks - 1) % ranks, 0, all,
                   MPI_STATUS_IGNORE);
      break;
    default: MPI_Barrier(all); break;
  }
}

/* In a broadcast the root's data lie at the place where the others receive theirs. */
static void refill(uint64_t iteration) {
  if (operation == BARRIER) return;
  if (operation == BROADCAST) {
    void* kept = in;
    in = out;
    if (rank == root) fill(iteration);
    in = kept;
  } else if (operation != SCATTER || rank == root) {
    fill(iteration);
  }
}

static void answer_setup(const char* line, FILE* to) {
  char name[32], type_name[32], op_name[32];
  size_t bytes;
  if (sscanf(line, "setup %31s %31s %31s %d %zu", name, type_name, op_name, &root, &bytes) != 5) {
    fprintf(to, "no unknown line\n");
    return;
  }
  const int found = find(name, kOperations, OPERATIONS);
  type = find(type_name, kTypes, TYPES);
  op = find(op_name, kOps, OPS);
  if (found < 0 || type < 0 || op < 0) {
    fprintf(to, "no MPI has no %s of %s by %s\n", name, type_name, op_name);
    return;
  }
  operation = (enum operation)found;
  count = bytes / kSizes[type];
  if (count > 0x7fffffff / (size_t)ranks) {
    fprintf(to, "no too many elements for an int\n");
    return;
  }
  free(in);
  free(out);
  in = out = NULL;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (posix_memalign(&in, page, bytes * in_blocks() + page) != 0 ||
      posix_memalign(&out, page, bytes * out_blocks() + page) != 0) {
    fprintf(to, "no out of memory\n");
    return;
  }
  fprintf(to, "ok\n");
}

static void answer_time(const char* line, FILE* to) {
  unsigned long long first;
  unsigned warmups, times;
  if (sscanf(line, "time %llu %u %u", &first, &warmups, &times) != 3) exit(2);
  long long* took = malloc(sizeof *took * (times + 1));
  static uint64_t began = 0;
  for (unsigned i = 0; i < warmups + times; ++i) {
    refill(first + i);
    MPI_Barrier(MPI_COMM_WORLD);
    began = start_together(start_slots, rank, ranks, began);
    if (began == 0) MPI_Abort(MPI_COMM_WORLD, 2);
    run();
    if (i >= warmups) took[i - warmups] = (long long)(start_clock() - began);
  }
  fprintf(to, "times");
  for (unsigned i = 0; i < times; ++i) fprintf(to, " %lld", took[i]);
  fprintf(to, "\n");
  free(took);
}

static void answer_verify(const char* line, FILE* to) {
  unsigned long long iteration;
  if (sscanf(line, "verify %llu", &iteration) != 1) exit(2);
  memset(out, 0xff, count * out_blocks() * kSizes[type]);
  refill(iteration);
  MPI_Barrier(MPI_COMM_WORLD);
  run();
  fprintf(to, "wrong %llu\n", count_wrong(iteration));
}

static int connect_to(const char* path) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  strncpy(at.sun_path, path, sizeof at.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr*)&at, sizeof at) != 0) {
    perror(path);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  return fd;
}

static void open_start_slots(const char* socket_path) {
  char path[256];
  snprintf(path, sizeof path, "%s.start", socket_path);
  const size_t bytes = (size_t)ranks * START_SLOT;
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0) start_slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || start_slots == NULL || start_slots == MAP_FAILED) {
    perror(path);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  close(fd);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const MPI_Datatype types[] = {MPI_FLOAT, MPI_DOUBLE, MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T, MPI_UINT8_T};
  const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR};
  memcpy(mpi_types, types, sizeof types);
  memcpy(mpi_ops, ops, sizeof ops);
  if (argc < 2) MPI_Abort(MPI_COMM_WORLD, 2);
  open_start_slots(argv[1]);
  const int fd = connect_to(argv[1]);
  FILE* from = fdopen(fd, "r");
  FILE* to = fdopen(dup(fd), "w");
  fprintf(to, "rank %d of %d\n", rank, ranks);
  fflush(to);
  char line[256];
  int told = 0;
  while (!told && fgets(line, sizeof line, from) != NULL) {
    if (strncmp(line, "setup ", 6) == 0) answer_setup(line, to);
    else if (strncmp(line, "verify ", 7) == 0) answer_verify(line, to);
    else if (strncmp(line, "time ", 5) == 0) answer_time(line, to);
    else told = 1;
    fflush(to);
  }
  if (!told) _exit(1); /* rank 0 has exited */
  MPI_Finalize();
  return 0;
}
