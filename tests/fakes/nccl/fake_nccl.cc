// A libnccl.so.2 with the symbols of one version (FAKE_NCCL_VERSION, as ncclGetVersion() says it),
// over the fake driver (tests/fakes/cuda), as far as the product uses NCCL: communicators that do
// not block, ncclSend and ncclRecv in groups, abort and revoke. Ranks meet in a file. Data go on
// the caller's stream: as in NCCL, work of a rank that is dead, or has not come, holds the stream
// until the communicator is aborted or revoked, and nothing but a fault tells that a rank is dead.
//
// REGROUP_FAKE_NCCL: settings, separated by ';', read by each call that needs them:
//   folder=DIR          where ranks meet (/dev/shm); gets a file "groups", with a line "RANK PID"
//                       for each group whose work is done, and "ids", with "PID" for each id
//   no-id               ncclGetUniqueId() fails
//   init-hang           initialisation never ends
//   init-fails          initialisation fails at once
//   init-block          ncclCommInitRankConfig() does not return until the folder has a file
//                       "return"; before, a line "RANK PID" is in the file "blocked"
//   group-block         likewise ncclGroupEnd()
//   init-slow=MS        initialisation takes that long
//   peers-hang          no peer is connected, so the first group never begins
//   async=N             group N of a process's first communicator fails: its work holds the
//                       stream, and ncclCommGetAsyncError() says ncclRemoteError
//   abort-hang[=N]      ncclCommAbort() never returns; with a number, the first N of the process
//   abort-slow=MS       ncclCommAbort() takes that long; then a line "PID" is in the file "aborts"
//   revoke-in-progress  ncclCommRevoke() goes on for a while after its return
//   die=N               the process is killed when the work of group N is done, for which all its
//                       peers have begun theirs
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "collective/nccl/abi.h"
#include "tests/fakes/cuda/fake.h"

namespace {

using regroup::collective::nccl::Config;
using regroup::collective::nccl::DataType;
using regroup::collective::nccl::Result;
using regroup::collective::nccl::UniqueId;
using regroup::fakes::cuda::Grid;
namespace cuda = regroup::collective::cuda;

constexpr int kMostRanks = 16;
constexpr std::size_t kChunk = 16 << 10;
constexpr int kMostInFlight = 4;  // groups of a communicator that the product may have under way
constexpr std::chrono::microseconds kPause(100);

void rest() { std::this_thread::sleep_for(kPause); }

// A setting's value; "": it has none; null: it is not set.
std::unique_ptr<std::string> setting(const std::string& name) {
  const char* all = std::getenv("REGROUP_FAKE_NCCL");
  std::string text = all == nullptr ? "" : all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(';', at), text.size());
    const std::string one = text.substr(at, end - at);
    if (one == name) return std::make_unique<std::string>();
    if (one.starts_with(name + "="))
      return std::make_unique<std::string>(one.substr(name.size() + 1));
    at = end + 1;
  }
  return nullptr;
}

long number_of(const std::string& name) {
  const auto text = setting(name);
  return text == nullptr ? 0 : std::strtol(text->c_str(), nullptr, 10);
}

// The file of a communicator.
struct Channel {                         // from one rank to another
  std::atomic<std::uint32_t> wanted[2];  // by the sender, by the receiver
  std::atomic<std::uint64_t> written;    // bytes
  std::atomic<std::uint64_t> read;
  std::byte data[kChunk];
};
struct Meeting {
  std::atomic<int> size;  // of the communicator; 0: no rank is here
  std::atomic<int> present;
  std::atomic<std::uint32_t> here[kMostRanks];
  Channel channels[kMostRanks][kMostRanks];
};

struct Transfer {
  bool sends = false;
  std::byte* at = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
  std::size_t done = 0;
};

struct Group;

}  // namespace

struct ncclComm {
  std::mutex mutex;
  Result state = Result::kInProgress;  // under the mutex
  bool revoked = false;                // likewise
  bool alive = true;                   // likewise
  bool first = false;                  // of this process
  long groups = 0;                     // likewise
  std::atomic<bool> stopped = false;   // work of the device sees it
  std::atomic<int> in_flight = 0;      // groups
  std::atomic<int> threads = 0;
  cuda::Context context = nullptr;
  int rank = 0;
  int size = 0;
  Meeting* meeting = nullptr;

  void set(Result result) {
    const std::lock_guard lock(mutex);
    state = result;
  }
};

namespace {

using Comm = ncclComm;

struct Group {
  Comm* comm = nullptr;
  cuda::Stream stream = nullptr;
  std::vector<Transfer> transfers;
  bool first = false;  // of its communicator
  bool fails = false;
  bool dies = false;
};

struct Cuda {
  cuda::Driver driver;
  void* library = nullptr;

  static const Cuda& get() {
    static const Cuda one = [] {
      Cuda out;
      out.library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
      if (out.library == nullptr) std::abort();
#define FAKE_NCCL_FIND(member, symbol, ...) \
  out.driver.member = reinterpret_cast<decltype(out.driver.member)>(::dlsym(out.library, #symbol));
      REGROUP_CUDA_FUNCTIONS(FAKE_NCCL_FIND)
#undef FAKE_NCCL_FIND
      return out;
    }();
    return one;
  }
};

// Moves what can be moved now; true if anything moved.
bool advance(Comm& comm, Transfer& one) {
  Channel& way = one.sends ? comm.meeting->channels[comm.rank][one.peer]
                           : comm.meeting->channels[one.peer][comm.rank];
  const std::uint64_t written = way.written.load(std::memory_order_acquire);
  const std::uint64_t read = way.read.load(std::memory_order_acquire);
  const std::size_t room = one.sends ? kChunk - (written - read) : written - read;
  std::size_t count = std::min(room, one.bytes - one.done);
  const std::size_t from = (one.sends ? written : read) % kChunk;
  count = std::min(count, kChunk - from);
  if (count == 0) return false;
  if (one.sends) {
    std::memcpy(way.data + from, one.at + one.done, count);
    way.written.store(written + count, std::memory_order_release);
  } else {
    std::memcpy(one.at + one.done, way.data + from, count);
    way.read.store(read + count, std::memory_order_release);
  }
  one.done += count;
  return true;
}

void note(const char* name, const std::string& before) {
  const auto folder = setting("folder");
  if (folder == nullptr) return;
  const std::string line = before + std::to_string(::getpid()) + "\n";
  const int file =
      ::open((*folder + name).c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (::write(file, line.data(), line.size()) < 0) std::abort();
  ::close(file);
}

// Blocks the caller, as a call of NCCL may although the communicator does not block.
void block_if(const char* name, int rank) {
  if (setting(name) == nullptr) return;
  note("/blocked", std::to_string(rank) + " ");
  const std::string file = *setting("folder") + "/return";
  while (::access(file.c_str(), F_OK) != 0) rest();
}

// The work of a group on the device. Transfers with one peer in one direction go in their order.
void run_group(const Grid& /*grid*/, Group* group) {
  Comm& comm = *group->comm;
  bool all = false;
  while (!all && !comm.stopped) {
    all = true;
    bool moved = false;
    std::set<std::pair<bool, int>> busy;
    for (Transfer& one : group->transfers) {
      if (one.done == one.bytes || !busy.emplace(one.sends, one.peer).second) continue;
      if (!group->fails) moved = advance(comm, one) || moved;
      all = false;
    }
    if (!moved && !all) rest();
  }
  if (all && group->dies) ::raise(SIGKILL);
  if (all) note("/groups", std::to_string(comm.rank) + " ");
  comm.in_flight -= 1;
  delete group;
}

constexpr regroup::fakes::cuda::Kernel kGroup =
    regroup::fakes::cuda::kernel<run_group>("regroup_fake_nccl_group");

cuda::Function kernel_of(cuda::Context context) {
  static std::mutex mutex;
  static std::vector<std::pair<cuda::Context, cuda::Function>> known;
  const std::lock_guard lock(mutex);
  for (const auto& [of, function] : known)
    if (of == context) return function;
  const Cuda& with = Cuda::get();
  const auto add = reinterpret_cast<regroup::fakes::cuda::AddKernel>(
      ::dlsym(with.library, regroup::fakes::cuda::kAddKernel));
  if (known.empty()) add(&kGroup);
  cuda::Module module = nullptr;
  cuda::Function function = nullptr;
  if (with.driver.module_load(&module, "any") != cuda::DriverResult::kSuccess ||
      with.driver.module_function(&function, module, kGroup.name) != cuda::DriverResult::kSuccess)
    std::abort();
  known.emplace_back(context, function);
  return function;
}

// As in NCCL, connections to peers are made when they are first used, so the launch may have to
// wait for the peers' own calls.
void launch(Group* group) {
  Comm& comm = *group->comm;
  const Cuda& with = Cuda::get();
  (void)with.driver.context_set(comm.context);
  while (group->first && setting("peers-hang") != nullptr && !comm.stopped) rest();
  const auto channel = [&](const Transfer& one) -> Channel& {
    return one.sends ? comm.meeting->channels[comm.rank][one.peer]
                     : comm.meeting->channels[one.peer][comm.rank];
  };
  for (const Transfer& one : group->transfers) channel(one).wanted[one.sends ? 0 : 1] = 1;
  for (const Transfer& one : group->transfers)
    while (channel(one).wanted[one.sends ? 1 : 0] == 0 && !comm.stopped) rest();
  rest();  // a caller that does not wait for the launch is to be seen
  void* parameters[] = {static_cast<void*>(&group)};
  const bool fails = group->fails;
  if (comm.stopped) {
    comm.in_flight -= 1;
    delete group;
  } else if (with.driver.launch(kernel_of(comm.context), 1, 1, 1, 1, 1, 1, 0, group->stream,
                                parameters, nullptr) != cuda::DriverResult::kSuccess) {
    comm.in_flight -= 1;
    comm.set(Result::kUnhandledCudaError);
  } else if (fails) {
    comm.set(Result::kRemoteError);
  } else {
    const std::lock_guard lock(comm.mutex);
    if (comm.state == Result::kInProgress) comm.state = Result::kSuccess;
  }
  comm.threads -= 1;
}

// Where rank `rank` waits for the others.
void join(Comm* comm, const std::string& path) {
  const auto slow = std::chrono::milliseconds(number_of("init-slow"));
  const auto end = std::chrono::steady_clock::now() + slow;
  const bool hangs = setting("init-hang") != nullptr;
  const bool fails = setting("init-fails") != nullptr;
  Result result = Result::kSystemError;
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* const memory =
      file < 0 ? MAP_FAILED
               : ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) ::close(file);
  if (memory != MAP_FAILED) {
    comm->meeting = static_cast<Meeting*>(memory);
    int size = 0;
    const bool first = comm->meeting->size.compare_exchange_strong(size, comm->size);
    const bool fits = (first || size == comm->size) && comm->meeting->here[comm->rank]++ == 0;
    if (fits && !hangs && !fails) comm->meeting->present += 1;
    while (fits && !fails && !comm->stopped &&
           (hangs || comm->meeting->present < comm->size || std::chrono::steady_clock::now() < end))
      rest();
    result = fits ? Result::kSuccess : Result::kInvalidArgument;
    if (fails) result = Result::kSystemError;
    if (comm->rank == 0) ::unlink(path.c_str());
  }
  comm->set(comm->stopped ? Result::kInternalError : result);
  comm->threads -= 1;
}

struct OpenGroup {
  int depth = 0;
  std::vector<std::unique_ptr<Group>> groups;  // of one communicator each
};
thread_local OpenGroup open_group;

std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
      return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return 8;
    default:
      return 4;
  }
}

Result submit(std::unique_ptr<Group> group) {
  Comm& comm = *group->comm;
  {
    const std::lock_guard lock(comm.mutex);
    if (!comm.alive || comm.revoked || comm.state != Result::kSuccess) return Result::kInvalidUsage;
    comm.groups += 1;
    group->first = comm.groups == 1;
    group->fails = comm.first && comm.groups == number_of("async");
    group->dies = comm.groups == number_of("die");
    comm.state = Result::kInProgress;
  }
  if (++comm.in_flight > kMostInFlight) std::abort();
  comm.threads += 1;
  std::thread(launch, group.release()).detach();
  return Result::kInProgress;
}

Result add(bool sends, void* at, std::size_t count, DataType type, int peer, Comm* comm,
           cuda::Stream stream) {
  if (open_group.depth == 0 || comm == nullptr || peer < 0 || peer >= comm->size ||
      peer == comm->rank)
    return Result::kInvalidUsage;
  for (auto& group : open_group.groups) {
    if (group->comm != comm) continue;
    if (group->stream != stream) return Result::kInvalidUsage;
    group->transfers.push_back({sends, static_cast<std::byte*>(at), count * size_of(type), peer});
    return Result::kSuccess;
  }
  open_group.groups.push_back(std::make_unique<Group>());
  open_group.groups.back()->comm = comm;
  open_group.groups.back()->stream = stream;
  return add(sends, at, count, type, peer, comm, stream);
}

}  // namespace

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): the names are NCCL's

#define FAKE_NCCL_EXPORT __attribute__((visibility("default")))
// Of functions that the product does not use.
#define FAKE_NCCL_UNUSABLE(name) \
  FAKE_NCCL_EXPORT Result name() { return Result::kInvalidUsage; }

FAKE_NCCL_EXPORT Result ncclGetVersion(int* version) {
  *version = FAKE_NCCL_VERSION;
  return Result::kSuccess;
}
FAKE_NCCL_EXPORT const char* ncclGetErrorString(Result result) {
  switch (result) {
    case Result::kSuccess:
      return "no error";
    case Result::kRemoteError:
      return "remote process exited or there was a network error";
    case Result::kInvalidArgument:
      return "invalid argument";
    case Result::kInProgress:
      return "NCCL operation in progress";
    case Result::kInvalidUsage:
      return "invalid usage";
    default:
      return "unhandled system error";
  }
}
FAKE_NCCL_EXPORT const char* ncclGetLastError(ncclComm* /*comm*/) { return "said by the fake"; }

FAKE_NCCL_EXPORT Result ncclGetUniqueId(UniqueId* id) {
  if (setting("no-id") != nullptr) return Result::kSystemError;
  const auto folder = setting("folder");
  std::string path = (folder == nullptr ? "/dev/shm" : *folder) + "/fake-nccl.XXXXXX";
  if (path.size() >= sizeof id->internal) return Result::kInvalidArgument;
  const int file = ::mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) return Result::kSystemError;
  note("/ids", "");
  const bool sized = ::ftruncate(file, sizeof(Meeting)) == 0;
  ::close(file);
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, path.data(), path.size());
  return sized ? Result::kSuccess : Result::kSystemError;
}

FAKE_NCCL_EXPORT Result ncclCommInitRankConfig(ncclComm** out, int size, UniqueId id, int rank,
                                               Config* config) {
  const Config known;
  if (config == nullptr || config->magic != known.magic || config->size < known.size ||
      config->version > FAKE_NCCL_VERSION || config->blocking != 0 || size < 1 ||
      size > kMostRanks || rank < 0 || rank >= size)
    return Result::kInvalidArgument;
  block_if("init-block", rank);
  auto* const comm = new ncclComm;
  static std::atomic<int> made = 0;
  comm->first = made++ == 0;
  (void)Cuda::get().driver.context_get(&comm->context);
  if (comm->context == nullptr) std::abort();
  comm->rank = rank;
  comm->size = size;
  comm->threads += 1;
  *out = comm;
  std::thread(join, comm, std::string(id.internal)).detach();
  return Result::kInProgress;
}

FAKE_NCCL_EXPORT Result ncclCommGetAsyncError(ncclComm* comm, Result* out) {
  if (comm == nullptr || out == nullptr) return Result::kInvalidArgument;
  const std::lock_guard lock(comm->mutex);
  if (!comm->alive) std::abort();
  *out = comm->state;
  return Result::kSuccess;
}

#ifndef FAKE_NCCL_WITHOUT_ABORT
// Waits for the work on the device, which ends. The memory stays, so that a later use is seen.
FAKE_NCCL_EXPORT Result ncclCommAbort(ncclComm* comm) {
  if (comm == nullptr) return Result::kSuccess;
  static std::atomic<long> aborts = 0;
  const auto hangs = setting("abort-hang");
  if (hangs != nullptr && (hangs->empty() || ++aborts <= number_of("abort-hang")))
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  {
    const std::lock_guard lock(comm->mutex);
    if (!comm->alive) std::abort();
    comm->stopped = true;
  }
  while (comm->threads != 0 || comm->in_flight != 0) rest();
  if (setting("abort-slow") != nullptr) {
    std::this_thread::sleep_for(std::chrono::milliseconds(number_of("abort-slow")));
    note("/aborts", "");
  }
  const std::lock_guard lock(comm->mutex);
  comm->alive = false;
  return Result::kSuccess;
}
#endif

FAKE_NCCL_EXPORT Result ncclGroupStart() {
  open_group.depth += 1;
  return Result::kSuccess;
}
FAKE_NCCL_EXPORT Result ncclGroupEnd() {
  if (open_group.depth == 0) return Result::kInvalidUsage;
  if (--open_group.depth != 0) return Result::kSuccess;
  Result result = Result::kSuccess;
  for (auto& group : open_group.groups) block_if("group-block", group->comm->rank);
  for (auto& group : open_group.groups) result = submit(std::move(group));
  open_group.groups.clear();
  return result;
}
FAKE_NCCL_EXPORT Result ncclSend(const void* from, std::size_t count, DataType type, int peer,
                                 ncclComm* comm, cuda::Stream stream) {
  return add(true, const_cast<void*>(from), count, type, peer, comm, stream);
}
FAKE_NCCL_EXPORT Result ncclRecv(void* to, std::size_t count, DataType type, int peer,
                                 ncclComm* comm, cuda::Stream stream) {
  return add(false, to, count, type, peer, comm, stream);
}
FAKE_NCCL_UNUSABLE(ncclAllReduce)
FAKE_NCCL_UNUSABLE(ncclReduceScatter)
FAKE_NCCL_UNUSABLE(ncclAllGather)
#if FAKE_NCCL_VERSION >= 22304
FAKE_NCCL_UNUSABLE(ncclCommInitRankScalable)
#endif
#if FAKE_NCCL_VERSION >= 22707
FAKE_NCCL_UNUSABLE(ncclCommShrink)
#endif
#if FAKE_NCCL_VERSION >= 22809
// Ends the work on the device; only an abort may follow. An error that there was stays.
FAKE_NCCL_EXPORT Result ncclCommRevoke(ncclComm* comm, int flags) {
  const std::lock_guard lock(comm->mutex);
  if (!comm->alive) std::abort();
  if (flags != 0 || comm->revoked) return Result::kInvalidArgument;
  comm->revoked = true;
  const bool failed = comm->state == Result::kRemoteError;
  const Result state = failed ? Result::kRemoteError : Result::kSuccess;
  if (setting("revoke-in-progress") == nullptr) {
    comm->stopped = true;
    comm->state = state;
    return Result::kSuccess;
  }
  comm->state = Result::kInProgress;
  comm->threads += 1;
  std::thread([comm, state] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    comm->stopped = true;
    comm->set(state);
    comm->threads -= 1;
  }).detach();
  return Result::kInProgress;
}
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

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
