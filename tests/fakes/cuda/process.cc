// Child processes with contexts.
#include "tests/fakes/cuda/process.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

#include "tests/fakes/cuda/fake.h"

#ifdef __SANITIZE_THREAD__
// A process with threads would sleep for a second before it ends.
extern "C" __attribute__((visibility("default"))) const char*
__tsan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "atexit_sleep_ms=20";
}
#endif

namespace regroup::fakes::cuda {
namespace {

void hold(const Grid&, const std::atomic<bool>* released) {
  while (!*released) std::this_thread::sleep_for(std::chrono::microseconds(100));
}
constexpr Kernel kHold = kernel<hold>("hold");

}  // namespace

Driver load_fake() {
  base::Result<Driver> loaded = collective::cuda::load_driver(FAKE_CUDA);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return loaded.ok() ? std::move(loaded).value() : Driver();
}

Gpu::Gpu() : driver(load_fake()) {
  EXPECT_EQ(driver.init(0), kSuccess);
  EXPECT_EQ(driver.primary_context_retain(&context, 0), kSuccess);
  EXPECT_EQ(driver.context_set(context), kSuccess);
  stream = new_stream();
  store_word_ = function("store_word");
  store_time_ = function("store_time");
}

Stream Gpu::new_stream() const {
  Stream made = nullptr;
  EXPECT_EQ(driver.stream_create(&made, kNonBlockingStream, 0), kSuccess);
  return made;
}

DriverEvent Gpu::new_event(unsigned flags) const {
  DriverEvent made = nullptr;
  EXPECT_EQ(driver.event_create(&made, flags), kSuccess);
  return made;
}

DevicePointer Gpu::allocate(std::size_t bytes) const {
  DevicePointer made = 0;
  EXPECT_EQ(driver.memory_allocate(&made, bytes), kSuccess);
  return made;
}

Allocation Gpu::create(std::size_t bytes) const {
  const AllocationProperties properties;
  Allocation made = 0;
  EXPECT_EQ(driver.allocation_create(&made, bytes, &properties, 0), kSuccess);
  return made;
}

int Gpu::export_of(Allocation allocation) const {
  int descriptor = -1;
  EXPECT_EQ(driver.allocation_export(&descriptor, allocation, kPosixFileDescriptor, 0), kSuccess);
  return descriptor;
}

Allocation Gpu::import_of(int descriptor) const {
  Allocation made = 0;
  void* handle = reinterpret_cast<void*>(std::intptr_t(descriptor));
  EXPECT_EQ(driver.allocation_import(&made, handle, kPosixFileDescriptor), kSuccess);
  return made;
}

DevicePointer Gpu::map(Allocation allocation, std::size_t bytes, int access) const {
  DevicePointer at = 0;
  EXPECT_EQ(driver.address_reserve(&at, bytes, 0, 0, 0), kSuccess);
  EXPECT_EQ(driver.map(at, bytes, 0, allocation, 0), kSuccess);
  const AccessDescription description{.access = access};
  EXPECT_EQ(driver.set_access(at, bytes, &description, 1), kSuccess);
  return at;
}

Function Gpu::function(const char* name) const {
  Module module = nullptr;
  Function found = nullptr;
  EXPECT_EQ(driver.module_load(&module, ""), kSuccess);
  EXPECT_EQ(driver.module_function(&found, module, name), kSuccess);
  return found;
}

DriverResult Gpu::launch(Function function, void** parameters, Stream on) const {
  return driver.launch(function, 1, 1, 1, 1, 1, 1, 0, on, parameters, nullptr);
}

DriverResult Gpu::store_word(DevicePointer at, std::uint32_t word, Stream on) const {
  void* parameters[] = {&at, &word};
  return launch(store_word_, parameters, on);
}

DriverResult Gpu::store_time(DevicePointer at, std::uint64_t nanoseconds, Stream on) const {
  void* parameters[] = {&at, &nanoseconds};
  return launch(store_time_, parameters, on);
}

std::uint32_t Gpu::word(DevicePointer at) const {
  std::uint32_t found = 0;
  EXPECT_EQ(driver.copy_to_host(&found, at, sizeof found, stream), kSuccess);
  EXPECT_EQ(driver.stream_synchronize(stream), kSuccess);
  return found;
}

Hold::Hold(const Gpu& gpu, Stream on) {
  fake_function<AddKernel>(kAddKernel)(&kHold);
  static auto* all = new std::deque<std::atomic<bool>>;
  released_ = &all->emplace_back(false);
  void* parameters[] = {&released_};
  EXPECT_EQ(gpu.launch(gpu.function("hold"), parameters, on), kSuccess);
}

Pinned::Pinned(const Gpu& gpu, std::size_t count) : words(count), gpu_(gpu) {
  EXPECT_EQ(gpu->host_register(words.data(), count * sizeof words[0], kHostRegisterPortable),
            kSuccess);
}

Pinned::~Pinned() { EXPECT_EQ(gpu_->host_unregister(words.data()), kSuccess); }

Process::Process(const Body& body, const std::string& settings, const std::string& faults) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  std::fflush(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    ::setenv(kSettingsVariable, settings.c_str(), 1);
    ::setenv(kFaultsVariable, faults.c_str(), 1);
    body(ends[1]);
    std::fflush(nullptr);
    std::exit(::testing::Test::HasFailure() ? 1 : 0);  // with the checks of sanitizers
  }
  ::close(ends[1]);
  socket_ = ends[0];
}

Process::~Process() {
  kill();
  wait();
  ::close(socket_);
}

void Process::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

int Process::wait() {
  if (pid_ <= 0) return 0;
  int status = -1;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "the process does not end";
      kill();
      ::waitpid(pid_, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pid_ = -1;
  return status;
}

void in_process(const std::function<void()>& body, const std::string& settings,
                const std::string& faults) {
  Process process([&](int) { body(); }, settings, faults);
  EXPECT_EQ(process.wait(), 0);
}

void send(int socket, int descriptor) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof descriptor)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  EXPECT_EQ(::sendmsg(socket, &message, MSG_NOSIGNAL), 1);
}

int receive(int socket) {
  pollfd wanted{socket, POLLIN, 0};
  EXPECT_EQ(::poll(&wanted, 1, 30'000), 1);
  char byte = 0;
  iovec part{&byte, 1};
  int descriptor = -1;
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof descriptor)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  EXPECT_EQ(::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT), 1);
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message))
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

bool has_message(int socket) {
  pollfd wanted{socket, POLLIN, 0};
  return ::poll(&wanted, 1, 0) != 0;
}

}  // namespace regroup::fakes::cuda
