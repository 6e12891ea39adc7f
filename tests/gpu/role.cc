// Processes and channels of gpu_truths, and the driver's calls that several truths need.
#include "tests/gpu/role.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

namespace regroup::gpu {

using collective::cuda::AccessDescription;
using collective::cuda::Allocation;
using collective::cuda::AllocationProperties;
using collective::cuda::DevicePointer;
using collective::cuda::DriverResult;

namespace {

constexpr std::size_t kGranularity = 2u << 20;
constexpr auto kTimeout = std::chrono::seconds(10);

// Both kernels run as one thread. The driver compiles them when it loads them.
constexpr const char* kKernels = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry store_word(.param .u64 to, .param .u32 value)
{
  .reg .u64 %p;
  .reg .u32 %v;
  ld.param.u64 %p, [to];
  ld.param.u32 %v, [value];
  cvta.to.global.u64 %p, %p;
  st.volatile.global.u32 [%p], %v;
  ret;
}
.visible .entry store_time(.param .u64 to, .param .u64 nanoseconds)
{
  .reg .u64 %p;
  .reg .u64 %end;
  .reg .u64 %now;
  .reg .pred %more;
  ld.param.u64 %p, [to];
  ld.param.u64 %end, [nanoseconds];
  cvta.to.global.u64 %p, %p;
  mov.u64 %now, %globaltimer;
  add.u64 %end, %end, %now;
again:
  mov.u64 %now, %globaltimer;
  st.volatile.global.u64 [%p], %now;
  setp.lt.u64 %more, %now, %end;
  @%more bra again;
  ret;
}
)";

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

}  // namespace

double milliseconds_since(Time begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double now_ms() { return milliseconds_since(Time{}); }

Channel::~Channel() { ::close(socket_); }

bool Channel::send(const std::string& text, const std::vector<double>& values, int descriptor) {
  Message message;
  std::strncpy(message.text.data(), text.c_str(), message.text.size() - 1);
  for (std::size_t i = 0; i < values.size() && i < message.values.size(); ++i)
    message.values[i] = values[i];
  iovec piece{&message, sizeof message};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (descriptor >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(item), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket_, &header, MSG_NOSIGNAL) == ssize_t(sizeof message);
}

std::optional<Channel::Received> Channel::receive(std::chrono::milliseconds timeout) {
  pollfd wanted{socket_, POLLIN, 0};
  if (::poll(&wanted, 1, int(timeout.count())) != 1) return std::nullopt;
  Message message;
  iovec piece{&message, sizeof message};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  if (::recvmsg(socket_, &header, MSG_CMSG_CLOEXEC) != ssize_t(sizeof message)) return std::nullopt;
  Received received;
  received.text = message.text.data();
  received.values = message.values;
  const cmsghdr* item = CMSG_FIRSTHDR(&header);
  if (item != nullptr && item->cmsg_type == SCM_RIGHTS)
    std::memcpy(&received.descriptor, CMSG_DATA(item), sizeof received.descriptor);
  return received;
}

bool Channel::is_ready() const {
  pollfd wanted{socket_, POLLIN, 0};
  return ::poll(&wanted, 1, 0) == 1;
}

Role::Role(const std::function<void(Channel&)>& body) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    fail(fmt::format("socketpair: {}", std::strerror(errno)));
  pid_ = ::fork();
  if (pid_ < 0) fail(fmt::format("fork: {}", std::strerror(errno)));
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    {
      Channel channel(ends[1]);
      body(channel);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  channel_ = std::make_unique<Channel>(ends[0]);
}

Role::~Role() {
  if (reaped_) return;
  kill();
  ::waitpid(pid_, nullptr, 0);
}

Channel::Received Role::wait(std::chrono::seconds timeout) {
  auto message = channel_->receive(timeout);
  if (!message) {
    int status = 0;
    reaped_ = ::waitpid(pid_, &status, WNOHANG) == pid_;
    fail(reaped_ ? fmt::format("a role ended with status {:#x}", status)
                 : fmt::format("a role was silent for {} s, or is about to end", timeout.count()));
  }
  if (message->text.starts_with("error: ")) fail(message->text.substr(7));
  return *message;
}

void Role::kill() const { ::kill(pid_, SIGKILL); }

int Role::reap() {
  const Time begin = Clock::now();
  int status = 0;
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() - begin > 2 * kTimeout) fail("a role did not end within 20 s");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  reaped_ = true;
  return status;
}

Gpu::Gpu(Channel& channel, const std::string& library, With with) : channel_(channel) {
  auto driver = collective::cuda::load_driver(library);
  if (!driver.ok()) {
    channel_.send("error: " + driver.status().message());
    ::_exit(1);
  }
  driver_ = *driver;
  Time begin = Clock::now();
  check(driver_.init(0), "cuInit");
  init_ms_ = milliseconds_since(begin);
  if (with == With::kNothing) return;
  begin = Clock::now();
  collective::cuda::Context context = nullptr;
  check(driver_.primary_context_retain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(driver_.context_set(context), "cuCtxSetCurrent");
  check(driver_.stream_create(&stream_, collective::cuda::kNonBlockingStream, 0),
        "cuStreamCreateWithPriority");
  context_ms_ = milliseconds_since(begin);
  collective::cuda::Module module = nullptr;
  check(driver_.module_load(&module, kKernels), "cuModuleLoadData");
  check(driver_.module_function(&store_word_, module, "store_word"), "cuModuleGetFunction");
  check(driver_.module_function(&store_time_, module, "store_time"), "cuModuleGetFunction");
}

void Gpu::check(DriverResult result, const std::string& call) const {
  if (result == DriverResult::kSuccess) return;
  channel_.send("error: " + driver_.status(result, call).message());
  ::_exit(1);
}

std::string Gpu::name(DriverResult result) const {
  const char* text = nullptr;
  if (driver_.error_name(result, &text) != DriverResult::kSuccess || text == nullptr)
    return fmt::format("CUDA error {}", int(result));
  return text;
}

Allocation Gpu::create(std::size_t bytes) const {
  const AllocationProperties properties;
  Allocation allocation = 0;
  check(driver_.allocation_create(&allocation, bytes, &properties, 0), "cuMemCreate");
  return allocation;
}

int Gpu::export_of(Allocation allocation) const {
  int descriptor = -1;
  check(
      driver_.allocation_export(&descriptor, allocation, collective::cuda::kPosixFileDescriptor, 0),
      "cuMemExportToShareableHandle");
  return descriptor;
}

Allocation Gpu::import_of(int descriptor) const {
  Allocation allocation = 0;
  void* handle = nullptr;
  const auto value = std::intptr_t(descriptor);
  std::memcpy(&handle, &value, sizeof value);
  check(driver_.allocation_import(&allocation, handle, collective::cuda::kPosixFileDescriptor),
        "cuMemImportFromShareableHandle");
  return allocation;
}

DevicePointer Gpu::map(Allocation allocation, std::size_t bytes, int access) const {
  DevicePointer at = 0;
  check(driver_.address_reserve(&at, bytes, kGranularity, 0, 0), "cuMemAddressReserve");
  check(driver_.map(at, bytes, 0, allocation, 0), "cuMemMap");
  AccessDescription description;
  description.access = access;
  check(driver_.set_access(at, bytes, &description, 1), "cuMemSetAccess");
  return at;
}

DriverResult Gpu::store_word(DevicePointer to, unsigned value) const {
  std::array<void*, 2> arguments{&to, &value};
  return driver_.launch(store_word_, 1, 1, 1, 1, 1, 1, 0, stream_, arguments.data(), nullptr);
}

DriverResult Gpu::store_time(DevicePointer to, unsigned long long nanoseconds) const {
  std::array<void*, 2> arguments{&to, &nanoseconds};
  return driver_.launch(store_time_, 1, 1, 1, 1, 1, 1, 0, stream_, arguments.data(), nullptr);
}

double Gpu::free_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  check(driver_.memory_info(&free, &total), "cuMemGetInfo");
  return double(free);
}

}  // namespace regroup::gpu
