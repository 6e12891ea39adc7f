// A preloaded library: the N-th call that touches files under a folder fails, does half, or kills the process.
// FAULTY_DIR    only calls on paths below it, and on their descriptors, count
// FAULTY_AT     number of the call, from 1; FAULTY_HOW: kill, short, or the number of an errno
// FAULTY_LOG    each call is written there, a line "NAME", so that a first run tells how many there are
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
enum { kFds = 4096 };
static char ours[kFds];
static long calls;

static int below(const char* path) {
  const char* folder = getenv("FAULTY_DIR");
  return folder != NULL && path != NULL && strncmp(path, folder, strlen(folder)) == 0;
}
static int known(int fd) { return fd >= 0 && fd < kFds && ours[fd]; }

// 0: go on; 1: do half; otherwise errno is set.
static int fault(const char* name) {
  const char *at = getenv("FAULTY_AT"), *how = getenv("FAULTY_HOW"), *log = getenv("FAULTY_LOG");
  if (log != NULL) {
    const int fd = REAL(open)(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    char line[64];
    const int size = snprintf(line, sizeof line, "%s\n", name);
    if (REAL(write)(fd, line, (size_t)size) != size) abort();
    REAL(close)(fd);
  }
  if (++calls != (at == NULL ? 0 : atol(at))) return 0;
  if (strcmp(how, "kill") == 0) raise(SIGKILL);
  if (strcmp(how, "short") == 0) return 1;
  errno = atoi(how);
  return -1;
}

static int opened(int fd, const char* path) {
  if (fd >= 0 && fd < kFds) ours[fd] = (char)below(path);
  return fd;
}

#define OPEN(name)                                     \
  int name(const char* path, int flags, ...) {         \
    va_list list;                                      \
    va_start(list, flags);                             \
    const mode_t mode = va_arg(list, mode_t);          \
    va_end(list);                                      \
    if (below(path) && fault(#name) < 0) return -1;    \
    return opened(REAL(name)(path, flags, mode), path); \
  }
OPEN(open)
OPEN(open64)

#define TRANSFER(name, pointer, offset_type)                               \
  ssize_t name(int fd, pointer bytes, size_t size, offset_type at) {       \
    const int what = known(fd) ? fault(#name) : 0;                         \
    if (what < 0) return -1;                                               \
    return REAL(name)(fd, bytes, what == 1 ? (size + 1) / 2 : size, at);   \
  }
TRANSFER(pwrite, const void*, off_t)
TRANSFER(pwrite64, const void*, off64_t)
TRANSFER(pread, void*, off_t)
TRANSFER(pread64, void*, off64_t)

#define ON_FD(name, more, ...)                       \
  int name(int fd more) {                            \
    if (known(fd) && fault(#name) < 0) return -1;    \
    return REAL(name)(fd __VA_ARGS__);               \
  }
#define COMMA ,
ON_FD(fsync, )
ON_FD(ftruncate, COMMA off_t size, COMMA size)
ON_FD(ftruncate64, COMMA off64_t size, COMMA size)

// A close() that fails has closed all the same.
int close(int fd) {
  const int failed = known(fd) && fault("close") < 0 ? errno : 0;
  if (fd >= 0 && fd < kFds) ours[fd] = 0;
  const int out = REAL(close)(fd);
  if (failed == 0) return out;
  errno = failed;
  return -1;
}
int mkdir(const char* path, mode_t mode) {
  if (below(path) && fault("mkdir") < 0) return -1;
  return REAL(mkdir)(path, mode);
}
int rename(const char* from, const char* to) {
  if (below(from) && fault("rename") < 0) return -1;
  return REAL(rename)(from, to);
}

struct io_uring;
int io_uring_submit(struct io_uring* ring) {
  fault("io_uring_submit before");
  const int out = REAL(io_uring_submit)(ring);
  fault("io_uring_submit after");
  return out;
}
