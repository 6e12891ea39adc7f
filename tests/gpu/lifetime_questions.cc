// What of a process outlives it on the device, and what ends with it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/gpu/questions.h"
#include "tests/gpu/role.h"

namespace regroup::gpu {

using collective::cuda::DevicePointer;
using collective::cuda::DriverResult;
using collective::cuda::kReadOnly;
using collective::cuda::kReadWrite;
using std::chrono::milliseconds;

namespace {

// Memory of a device made by a role that has no context, which stays alive.
class Maker {
 public:
  Maker(const std::string& library, std::size_t bytes)
      : role_([library, bytes](Channel& channel) {
          const Gpu gpu(channel, library, Gpu::With::kNothing);
          channel.send("made", {}, gpu.export_of(gpu.create(bytes)));
          (void)channel.receive(std::chrono::minutes(1));
        }),
        descriptor_(role_.wait().descriptor) {}

  [[nodiscard]] int descriptor() const { return descriptor_; }
  Role& role() { return role_; }

 private:
  Role role_;
  int descriptor_;
};

}  // namespace

Answer ask_forked_child(const std::string& library) {
  Role role([&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kContext);
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) ::_exit(1);
    const pid_t child = ::fork();
    if (child == 0) {
      std::size_t free = 0;
      std::size_t total = 0;
      const int result = int(gpu->memory_info(&free, &total));
      (void)!::write(ends[1], &result, sizeof result);
      ::_exit(0);
    }
    int result = -1;
    (void)!::read(ends[0], &result, sizeof result);
    ::waitpid(child, nullptr, 0);
    channel.send(gpu.name(DriverResult(result)));
  });
  return {"cuMemGetInfo in a child of fork(): " + role.wait().text, {}};
}

Answer ask_outlives(const std::string& library) {
  constexpr std::size_t kBytes = 256 * kMiB;
  int descriptor = -1;
  {
    Maker maker(library, kBytes);
    descriptor = ::fcntl(maker.descriptor(), F_DUPFD_CLOEXEC, 3);
    Role writer([&](Channel& channel) {
      const Gpu gpu(channel, library, Gpu::With::kContext);
      const DevicePointer at = gpu.map(gpu.import_of(descriptor), kBytes, kReadWrite);
      gpu.check(gpu->set_bytes(at, 0x5a, kBytes, gpu.stream()), "cuMemsetD8Async");
      gpu.check(gpu.store_word(at + kBytes - 4, 0xfeedbeef), "store_word");
      gpu.check(gpu.synchronize(), "cuStreamSynchronize");
      channel.send("written");
      (void)channel.receive(std::chrono::seconds(10));
    });
    (void)writer.wait();
    maker.role().kill();
    writer.kill();
    (void)maker.role().reap();
    (void)writer.reap();
    ::close(maker.descriptor());
  }
  Role reader([&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kContext);
    const double before = gpu.free_bytes();
    const DevicePointer at = gpu.map(gpu.import_of(descriptor), kBytes, kReadOnly);
    std::vector<unsigned char> bytes(kBytes);
    gpu.check(gpu->copy_to_host(bytes.data(), at, kBytes, gpu.stream()), "cuMemcpyDtoHAsync");
    gpu.check(gpu.synchronize(), "cuStreamSynchronize");
    const auto wrong = std::count_if(bytes.begin(), bytes.end() - 4,
                                     [](unsigned char byte) { return byte != 0x5a; });
    unsigned word = 0;
    std::memcpy(&word, &bytes[kBytes - 4], sizeof word);
    channel.send("read", {double(wrong), double(word == 0xfeedbeef),
                          (before - gpu.free_bytes()) / double(kMiB)});
  });
  const auto told = reader.wait();
  ::close(descriptor);
  const bool same = told.values[0] == 0 && told.values[1] == 1;
  return {same
              ? "all bytes are there, after SIGKILL of exporter and writer, by the descriptor alone"
              : "bytes are lost",
          {{"wrong bytes", told.values[0]}, {"MiB taken by the import", told.values[2]}}};
}

Answer ask_read_only(const std::string& library) {
  constexpr std::size_t kBytes = 2 * kMiB;
  Maker maker(library, kBytes);
  const int descriptor = maker.descriptor();
  Role owner([&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kContext);
    const DevicePointer at = gpu.map(gpu.import_of(descriptor), kBytes, kReadWrite);
    for (unsigned round = 1;; ++round) {
      if (round == 1) {
        gpu.check(gpu.store_word(at, 41), "store_word");
        gpu.check(gpu.synchronize(), "cuStreamSynchronize");
      }
      unsigned word = 0;
      gpu.check(gpu->copy_to_host(&word, at, sizeof word, gpu.stream()), "cuMemcpyDtoHAsync");
      gpu.check(gpu.synchronize(), "cuStreamSynchronize");
      gpu.check(gpu.store_word(at + 64, round), "store_word");
      gpu.check(gpu.synchronize(), "cuStreamSynchronize");
      channel.send("word", {double(word)});
      if (!channel.receive(std::chrono::seconds(10))) return;
    }
  });
  (void)owner.wait();
  std::array<std::string, 3> results;
  std::string later;
  constexpr const char* kWays[] = {"kernel", "cuMemsetD8Async", "cuMemcpyHtoDAsync"};
  for (int way = 0; way < 3; ++way) {
    Role writer([&](Channel& channel) {
      const Gpu gpu(channel, library, Gpu::With::kContext);
      const DevicePointer at = gpu.map(gpu.import_of(descriptor), kBytes, kReadOnly);
      unsigned word = 0;
      gpu.check(gpu->copy_to_host(&word, at, sizeof word, gpu.stream()), "cuMemcpyDtoHAsync");
      gpu.check(gpu.synchronize(), "cuStreamSynchronize");
      const unsigned other = 42;
      DriverResult result = way == 0 ? gpu.store_word(at, other)
                            : way == 1
                                ? gpu->set_bytes(at, 7, sizeof other, gpu.stream())
                                : gpu->copy_to_device(at, &other, sizeof other, gpu.stream());
      const bool at_call = result != kSuccess;
      if (!at_call) result = gpu.synchronize();
      const std::string text = gpu.name(result) + (at_call ? " at the call" : "");
      std::size_t free = 0;
      channel.send(text);
      channel.send(gpu.name(gpu->memory_info(&free, &free)));
    });
    results[std::size_t(way)] = writer.wait().text;
    const std::string next = writer.wait().text;
    if (way == 0) later = next;
    (void)writer.reap();
  }
  owner.channel().send("again");
  const auto told = owner.wait();
  Answer answer{"", {{"word of the owner afterwards", told.values[0]}}};
  for (int way = 0; way < 3; ++way)
    answer.seen += fmt::format("{} {}, ", kWays[way], results[std::size_t(way)]);
  answer.seen += fmt::format("then {}; the owner goes on, its word is {}", later,
                             told.values[0] == 41 ? "unchanged" : "changed");
  return answer;
}

// What a process sees of another's kernel that never ends, until it is killed and reaped.
Answer ask_killed_kernel(const std::string& library) {
  constexpr std::size_t kBytes = 2 * kMiB;
  Maker maker(library, kBytes);
  const int descriptor = maker.descriptor();
  Role reader([&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kContext);
    const DevicePointer at = gpu.map(gpu.import_of(descriptor), kBytes, kReadOnly);
    const DevicePointer own = gpu.map(gpu.create(kBytes), kBytes, kReadWrite);
    channel.send("ready");
    std::vector<double> copies;
    std::vector<double> launches;
    unsigned long long last = 0;
    double changed = 0;
    double changed_before = 0;
    bool told = false;
    while (!channel.is_ready()) {
      unsigned long long word = 0;
      Time begin = Clock::now();
      gpu.check(gpu->copy_to_host(&word, at, sizeof word, gpu.stream()), "cuMemcpyDtoHAsync");
      gpu.check(gpu.synchronize(), "cuStreamSynchronize");
      copies.push_back(1000 * milliseconds_since(begin));
      begin = Clock::now();
      gpu.check(gpu.store_word(own, 1), "store_word");
      gpu.check(gpu.synchronize(), "cuStreamSynchronize");
      launches.push_back(1000 * milliseconds_since(begin));
      if (word != last) changed_before = std::exchange(changed, now_ms());
      if (word != last && last != 0 && !told) told = channel.send("it runs");
      last = word;
    }
    // Or the other end would lose what follows: ECONNRESET, as for each unread message.
    (void)channel.receive(milliseconds(0));
    std::vector<double> values = summary(copies);
    for (const double value : summary(launches)) values.push_back(value);
    values.push_back(changed);
    values.push_back(changed_before);
    channel.send("done", values);
  });
  (void)reader.wait();
  Role writer([&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kContext);
    const DevicePointer at = gpu.map(gpu.import_of(descriptor), kBytes, kReadWrite);
    gpu.check(gpu.store_time(at, 20'000'000'000ull), "store_time");
    (void)gpu.synchronize();
    channel.send("error: the kernel ended by itself");
  });
  (void)reader.wait();  // it runs
  pause(milliseconds(500));
  const double killed = now_ms();
  writer.kill();
  (void)writer.reap();
  const double reaped = now_ms();
  pause(milliseconds(500));
  reader.channel().send("end");
  const auto told = reader.wait();
  const double changed = told.values[8];
  Answer answer{
      // The first change seen after the reap may be a store before it.
      told.values[9] > reaped ? "stores were seen after the reap"
                              : "no store was seen after the reap",
      {{"kill to reap ms", reaped - killed}, {"kill to last change seen ms", changed - killed}}};
  add_summary(answer, "other process: copy of 8 bytes us", &told.values[0]);
  add_summary(answer, "other process: kernel us", &told.values[4]);
  return answer;
}

// Copies from the device into shared host memory, queued by a process that is killed.
Answer ask_killed_copies(const std::string& library) {
  constexpr std::size_t kBytes = 256 * kMiB;
  void* mapped = map_shared(kBytes, 0);
  const volatile unsigned char* last = static_cast<unsigned char*>(mapped) + kBytes - 1;
  Role writer([&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kContext);
    gpu.check(gpu->host_register(mapped, kBytes, collective::cuda::kHostRegisterPortable),
              "cuMemHostRegister");
    const DevicePointer one = gpu.map(gpu.create(kBytes), kBytes, kReadWrite);
    const DevicePointer two = gpu.map(gpu.create(kBytes), kBytes, kReadWrite);
    gpu.check(gpu->set_bytes(one, 1, kBytes, gpu.stream()), "cuMemsetD8Async");
    gpu.check(gpu->set_bytes(two, 2, kBytes, gpu.stream()), "cuMemsetD8Async");
    gpu.check(gpu.synchronize(), "cuStreamSynchronize");
    channel.send("ready");
    for (int i = 0; i < 400; ++i)
      gpu.check(gpu->copy_to_host(mapped, i % 2 == 0 ? one : two, kBytes, gpu.stream()),
                "cuMemcpyDtoHAsync");
    (void)gpu.synchronize();
    channel.send("error: the copies ended by themselves");
  });
  (void)writer.wait();
  const Time begin = Clock::now();
  while (*last == 0 && milliseconds_since(begin) < 5000) pause(milliseconds(1));
  pause(milliseconds(100));
  const double killed = now_ms();
  double reaped = 0;
  double changed = killed;
  double changed_before = killed;
  unsigned char seen = *last;
  std::thread reaper([&] {
    writer.kill();
    (void)writer.reap();
    reaped = now_ms();
  });
  for (const Time start = Clock::now(); milliseconds_since(start) < 1500;) {
    const unsigned char now = *last;
    if (now != seen) changed_before = std::exchange(changed, now_ms());
    seen = now;
  }
  reaper.join();
  return {
      changed_before > reaped ? "copies went on after the reap" : "no copy was seen after the reap",
      {{"kill to reap ms", reaped - killed}, {"kill to last change seen ms", changed - killed}}};
}

Answer ask_held_by_child(const std::string& library) {
  constexpr std::size_t kBytes = 2 * kGiB;
  Role observer([&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kContext);
    do channel.send("free", {gpu.free_bytes()});
    while (channel.receive(std::chrono::seconds(10)));
  });
  const double before = observer.wait().values[0];
  std::array<int, 2> stay{};
  if (::pipe2(stay.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  Role role([&](Channel& channel) {
    ::close(stay[1]);
    const Gpu gpu(channel, library, Gpu::With::kContext);
    (void)gpu.map(gpu.create(kBytes), kBytes, kReadWrite);
    if (::fork() == 0) {  // as a worker of a DataLoader, which outlives its parent
      char byte = 0;
      (void)!::read(stay[0], &byte, 1);
      ::_exit(0);
    }
    channel.send("ready");
    pause(std::chrono::seconds(10));
  });
  (void)role.wait();
  ::close(stay[0]);
  role.kill();
  (void)role.reap();
  observer.channel().send("again");
  const double reaped = observer.wait().values[0];
  ::close(stay[1]);  // ends the child
  double after = reaped;
  for (const Time begin = Clock::now();
       milliseconds_since(begin) < 3000 && before - after > kMiB;) {
    pause(milliseconds(20));
    observer.channel().send("again");
    after = observer.wait().values[0];
  }
  const bool held = before - reaped >= double(kBytes);
  return {held ? "the child holds the memory after the reap of its parent"
               : "the memory is free at the reap, although a child lives",
          {{"MiB held at the reap", (before - reaped) / double(kMiB)},
           {"MiB held after the child's end", (before - after) / double(kMiB)}}};
}

}  // namespace regroup::gpu
