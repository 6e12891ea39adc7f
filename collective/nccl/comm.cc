// Order of the end: revoke, where the library can, so that work on the device ends and its memory
// stays; the caller drains its stream; abort. Communicators are never destroyed or finalized, which
// waits for peers.
#include "collective/nccl/comm.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace regroup::collective::nccl {
namespace {

using base::Status;

constexpr std::chrono::milliseconds kPoll(1);
constexpr std::chrono::microseconds kShortPoll(20);
constexpr int kMostChannels = 8;  // blocks of the GPU, which computes meanwhile

double seconds(base::Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

// Of the caller and the thread, which may outlive it.
struct Comm::Shared {
  explicit Shared(CommSpec of) : spec(std::move(of)) {}

  const CommSpec spec;
  const base::TimePoint began = base::SystemClock().now();
  Handle comm = nullptr;         // of the thread; of the caller while the phase is kReady
  cuda::Stream first = nullptr;  // of the first transfers; of the thread

  std::mutex mutex;  // of all below
  std::condition_variable changed;
  Phase phase = Phase::kConnecting;
  std::string why;
  bool stop_wanted = false;
  bool abort_wanted = false;
  base::TimePoint abort_wanted_at;
  bool stopped = false;  // no work is under way
  bool aborted = false;
  const char* call = "ncclCommInitRankConfig";  // that the thread has called last
  bool starting_in_call = true;                 // the start has not returned from `call`

  struct Wait {
    base::TimePoint began;
    base::Duration limit;
    bool ends_early;
  };
  void run();
  [[nodiscard]] Status connect();
  [[nodiscard]] Status meet_peers(const Wait& wait);
  [[nodiscard]] Status submit(std::span<const Transfer> transfers, cuda::Stream stream) const;
  [[nodiscard]] Status revoke();
  // Waits until `state` says another result than kInProgress. kDeadlineExceeded: `limit` after
  // `began`; kRevoked, if it ends early: the caller has gone.
  [[nodiscard]] Status await(const Wait& wait, const std::function<Status(Result*)>& state);
  [[nodiscard]] Status poll(const Wait& wait);  // the communicator
  void abort();
  void begin(const char* next) {
    const std::lock_guard lock(mutex);
    call = next;
  }
  // Of the start: a call of NCCL or of the driver that may block although it should not.
  template <typename Call>
  auto in_call(const char* name, const Call& make) {
    set_call(name, true);
    const auto result = make();
    set_call(name, false);
    return result;
  }
  void set_call(const char* name, bool inside) {
    const std::lock_guard lock(mutex);
    call = name;
    starting_in_call = inside;
  }
  // With the mutex.
  void want_abort() {
    if (!abort_wanted) abort_wanted_at = base::SystemClock().now();
    abort_wanted = true;
    changed.notify_all();
  }
  void fail(std::string what) {  // likewise
    phase = Phase::kFailed;
    why = std::move(what);
    want_abort();
  }
  // With the mutex. The thread itself looks at the limit only between calls.
  [[nodiscard]] bool start_is_late() const {
    return !aborted && base::SystemClock().now() - began >= spec.connect_limit;
  }
  void set(bool Shared::*what) {
    const std::lock_guard lock(mutex);
    this->*what = true;
    changed.notify_all();
  }
};

Status Comm::Shared::await(const Wait& wait, const std::function<Status(Result*)>& state) {
  const base::SystemClock clock;
  for (;;) {
    const auto ends = [&] { return wait.ends_early && abort_wanted; };
    const Status over = base::revoked("the generation is over");
    if (std::unique_lock lock(mutex); ends()) return over;
    Result now = Result::kSuccess;
    REGROUP_RETURN_IF_ERROR(state(&now));
    if (now != Result::kInProgress) return spec.library.status(now, call);
    if (clock.now() - wait.began >= wait.limit)
      return base::deadline_exceeded(
          fmt::format("{}: not done after {} s", call, seconds(wait.limit)));
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, kPoll, ends)) return over;
  }
}

Status Comm::Shared::poll(const Wait& wait) {
  return await(wait, [&](Result* now) {
    return spec.library.status(spec.library.comm_async_error(comm, now), "ncclCommGetAsyncError");
  });
}

Status Comm::Shared::connect() {
  Config config;
  config.max_ctas = kMostChannels;
  const Wait wait{began, spec.connect_limit, true};
  const Result result = in_call("ncclCommInitRankConfig", [&] {
    return spec.library.comm_init(&comm, spec.size, spec.id, spec.rank, &config);
  });
  REGROUP_RETURN_IF_ERROR(spec.library.status(result, call));
  REGROUP_RETURN_IF_ERROR(poll(wait));
  return meet_peers(wait);
}

// What peers need to send to each other is made by their first transfers. A step would wait for it.
Status Comm::Shared::meet_peers(const Wait& wait) {
  const cuda::Driver& driver = spec.driver;
  REGROUP_RETURN_IF_ERROR(driver.status(
      in_call("cuStreamCreate",
              [&] { return driver.stream_create(&first, cuda::kNonBlockingStream, 0); }),
      "cuStreamCreate"));
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < spec.size; ++peer) {
    if (peer == spec.rank) continue;
    const cuda::DevicePointer to = spec.bytes + 1 + static_cast<cuda::DevicePointer>(peer);
    transfers.push_back({Transfer::Direction::kSend, peer, spec.bytes, 1});
    transfers.push_back({Transfer::Direction::kReceive, peer, to, 1});
  }
  REGROUP_RETURN_IF_ERROR(in_call("ncclGroupEnd", [&] { return submit(transfers, first); }));
  REGROUP_RETURN_IF_ERROR(poll(wait));
  begin("first transfers");
  return await(wait, [&](Result* now) {
    const cuda::DriverResult done = driver.stream_query(first);
    if (done != cuda::DriverResult::kNotReady) return driver.status(done, "cuStreamQuery");
    *now = Result::kInProgress;
    // NCCL finds the death of a peer before the work ends.
    Result found = Result::kSuccess;
    REGROUP_RETURN_IF_ERROR(
        spec.library.status(spec.library.comm_async_error(comm, &found), "ncclCommGetAsyncError"));
    return spec.library.status(found, call);
  });
}

Status Comm::Shared::submit(std::span<const Transfer> transfers, cuda::Stream stream) const {
  const Library& library = spec.library;
  REGROUP_RETURN_IF_ERROR(library.status(library.group_start(), "ncclGroupStart"));
  Status failed;
  for (const Transfer& one : transfers) {
    void* const at = reinterpret_cast<void*>(one.at);
    const bool sends = one.direction == Transfer::Direction::kSend;
    const Result result =
        sends ? library.send(at, one.bytes, DataType::kUint8, one.peer, comm, stream)
              : library.receive(at, one.bytes, DataType::kUint8, one.peer, comm, stream);
    if (failed.ok()) failed = library.status(result, sends ? "ncclSend" : "ncclRecv");
  }
  const Result ended = library.group_end();
  REGROUP_RETURN_IF_ERROR(failed);
  return library.status(ended, "ncclGroupEnd");
}

// After the death of a peer the communicator says an error before and after.
Status Comm::Shared::revoke() {
  begin("ncclCommRevoke");
  const base::TimePoint began = base::SystemClock().now();
  Result before = Result::kSuccess;
  static_cast<void>(spec.library.comm_async_error(comm, &before));
  const Result result = spec.library.comm_revoke(comm, 0);
  REGROUP_RETURN_IF_ERROR(spec.library.status(result, call));
  const Wait wait{began, spec.stop_limit / 2, false};  // leaves time for an abort
  return await(wait, [&](Result* now) {
    const Status asked =
        spec.library.status(spec.library.comm_async_error(comm, now), "ncclCommGetAsyncError");
    if (*now == before && before != Result::kInProgress) *now = Result::kSuccess;
    return asked;
  });
}

void Comm::Shared::abort() {
  begin("ncclCommAbort");
  {
    const std::lock_guard lock(mutex);
    want_abort();
  }
  if (comm != nullptr) static_cast<void>(spec.library.comm_abort(comm));
  if (first != nullptr) static_cast<void>(spec.driver.stream_destroy(first));
  set(&Shared::stopped);
  set(&Shared::aborted);
}

void Comm::Shared::run() {
  static_cast<void>(spec.driver.context_set(spec.context));
  const Status connected = connect();
  std::unique_lock lock(mutex);
  if (phase == Phase::kConnecting && connected.ok()) phase = Phase::kReady;
  if (phase == Phase::kConnecting) fail(connected.message());
  if (phase == Phase::kFailed) {  // a start that returns after the caller gave it up has failed
    lock.unlock();
    return abort();
  }
  changed.wait(lock, [&] { return stop_wanted || abort_wanted; });
  if (stop_wanted && spec.library.comm_revoke != nullptr) {
    lock.unlock();
    if (revoke().ok()) set(&Shared::stopped);
    lock.lock();
    // What a revoke could not end, an abort may.
    changed.wait(lock, [&] { return abort_wanted || !stopped; });
  }
  lock.unlock();
  abort();
}

Comm::Comm(CommSpec spec) : shared_(std::make_shared<Shared>(std::move(spec))) {
  std::thread([shared = shared_] { shared->run(); }).detach();
}

Comm::~Comm() {
  const std::lock_guard lock(shared_->mutex);
  shared_->want_abort();
}

bool Comm::Ending::over() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->aborted;
}

bool Comm::Ending::starting() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->starting_in_call;
}

std::string Comm::Ending::overdue(base::Duration limit) const {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->aborted || !shared_->abort_wanted) return "";
  if (shared_->starting_in_call && shared_->start_is_late()) return shared_->call;
  const base::Duration waited = base::SystemClock().now() - shared_->abort_wanted_at;
  return waited >= limit ? shared_->call : "";
}

Comm::Phase Comm::phase() const {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->phase == Phase::kConnecting && shared_->start_is_late()) {
    const double limit = seconds(shared_->spec.connect_limit);
    shared_->fail(shared_->starting_in_call
                      ? fmt::format("{}: did not return within {} s", shared_->call, limit)
                      : fmt::format("{}: not done after {} s", shared_->call, limit));
  }
  return shared_->phase;
}

std::string Comm::failure() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->why;
}

Status Comm::run(std::span<const Transfer> transfers, cuda::Stream stream,
                 const std::function<Status()>& check, base::TimePoint deadline) {
  const Library& library = shared_->spec.library;
  Handle const comm = shared_->comm;
  REGROUP_RETURN_IF_ERROR(shared_->submit(transfers, stream));
  // Until then later work of the stream may be in front of the transfers.
  const base::SystemClock clock;
  for (;;) {
    Result state = Result::kSuccess;
    const Result asked = library.comm_async_error(comm, &state);
    REGROUP_RETURN_IF_ERROR(library.status(asked, "ncclCommGetAsyncError"));
    if (state != Result::kInProgress) return library.status(state, "ncclGroupEnd");
    REGROUP_RETURN_IF_ERROR(check());
    if (clock.now() >= deadline)
      return base::deadline_exceeded("ncclGroupEnd: the transfers were not begun in time");
    std::this_thread::sleep_for(kShortPoll);
  }
}

Status Comm::status() const {
  const Library& library = shared_->spec.library;
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->phase != Phase::kReady || shared_->stop_wanted) return {};
  }
  Result state = Result::kSuccess;
  const Result asked = library.comm_async_error(shared_->comm, &state);
  REGROUP_RETURN_IF_ERROR(library.status(asked, "ncclCommGetAsyncError"));
  return library.status(state, "NCCL");
}

Status Comm::await_end(bool Shared::*done, const char* what) const {
  std::unique_lock lock(shared_->mutex);
  const base::Duration limit = shared_->spec.stop_limit;
  if (shared_->changed.wait_for(lock, limit, [&] { return *shared_.*done; })) return {};
  return base::deadline_exceeded(
      fmt::format("{}: {} did not return within {} s", what, shared_->call, seconds(limit)));
}

Status Comm::stop() {
  shared_->set(&Shared::stop_wanted);
  return await_end(&Shared::stopped, "nccl");
}

Status Comm::close() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->want_abort();
  }
  return await_end(&Shared::aborted, "nccl");
}

}  // namespace regroup::collective::nccl
