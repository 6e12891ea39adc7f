// The torch.distributed backend "regroup" for CPU tensors: a c10d::Backend over the table of
// collective_v1.h. Compiled once for each minor version of torch, whose virtual functions move
// between versions, without Python.h. docs/design/torch_backend.md.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "collective_v1.h"

namespace {

using at::Tensor;
using c10::intrusive_ptr;
using c10d::OpType;
using c10d::ReduceOp;
using c10d::Work;
using Milliseconds = std::chrono::milliseconds;
using Tensors = std::vector<Tensor>;

constexpr double kForever = 1e9;
constexpr const char* kName = "regroup";
constexpr const char* kMonitored = "monitored_barrier";

double seconds_of(Milliseconds time) { return std::chrono::duration<double>(time).count(); }

// Throws torch's exception for a failure that the table has returned.
struct Failure {
  int code = REGROUP_OK;
  std::array<char, 1024> text{};

  [[nodiscard]] std::exception_ptr exception(const std::string& what) const {
    try {
      const char* const late =
          code == REGROUP_TIMEOUT ? "timeout while waiting for other ranks: " : "";
      const std::string message = std::string(kName) + ": " + what + ": " + late + text.data();
      if (code == REGROUP_INVALID) C10_THROW_ERROR(ValueError, message);
      C10_THROW_ERROR(DistBackendError, message);
    } catch (...) {
      return std::current_exception();
    }
  }
  // Of an operation, or a future, that came after callbacks which have not ended.
  static std::exception_ptr late(const std::string& what) {
    try {
      const std::string message = std::string(kName) + ": " + what +
                                  ": a callback of an earlier operation has not ended in time: it "
                                  "must not wait for what comes after it";
      C10_THROW_ERROR(DistBackendError, message);
    } catch (...) {
      return std::current_exception();
    }
  }
  void check(const std::string& what) const {
    if (code != REGROUP_OK) std::rethrow_exception(exception(what));
  }
};

// Owns the group. The backend and its operations share it, and the last of them frees it.
class Group {
 public:
  Group(const regroup_collective_v1* api, regroup_group* group) : api_(api), group_(group) {}
  ~Group() { api_->leave(group_); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] const regroup_collective_v1& api() const { return *api_; }
  [[nodiscard]] regroup_group* get() const { return group_; }

 private:
  const regroup_collective_v1* const api_;
  regroup_group* const group_;
};

// Whether this thread runs code that Python has called without releasing the GIL.
bool holds_gil() {
  static const auto check =
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));  // null: no Python
  return check != nullptr && check() == 1;
}

class RegroupWork;

// Callbacks that Python code adds to futures of collectives. They may start operations, as those of
// the hook powerSGD do, and all ranks must start the operations of a group in one order. So the
// callbacks of the futures run one after the other, in the order in which the futures were taken;
// and an operation begins after those of all futures that were taken before. Both holds within the
// code that one callback runs, and within all code outside of callbacks: a callback may wait for
// what it has started. The futures that torch's own C++ code takes do not count: their callbacks
// only compute.
class Callbacks {
 public:
  using Works = std::list<intrusive_ptr<RegroupWork>>;
  // The callbacks of a future. They have ended when those of the futures that they took have.
  struct Turn {
    std::shared_ptr<Turn> parent;                // null: all code outside of callbacks
    std::deque<std::shared_ptr<Turn>> children;  // whose callbacks have not ended
    bool has_run = false;
    bool is_late = false;
    intrusive_ptr<RegroupWork> held;  // complete before its turn has come
    std::chrono::steady_clock::time_point held_until;
  };

  explicit Callbacks(Milliseconds limit) : limit_(limit) {}

  // How long a future waits for its turn.
  void set_limit(Milliseconds limit) {
    const std::lock_guard lock(mutex_);
    limit_ = limit;
  }
  // The turn of a future that is taken now.
  std::shared_ptr<Turn> expect() {
    const std::lock_guard lock(mutex_);
    auto turn = std::make_shared<Turn>();
    turn->parent = current();
    turn->parent->children.push_back(turn);
    return turn;
  }
  // Whether the callbacks may run now. If not, holds the work.
  bool has_come(const std::shared_ptr<Turn>& turn, const intrusive_ptr<RegroupWork>& work) {
    const std::lock_guard lock(mutex_);
    if (turn->is_late || turn->parent->children.front() == turn) return true;
    turn->held = work;
    turn->held_until = std::chrono::steady_clock::now() + limit_;
    held_.push_back(turn);
    return false;
  }
  // Completes a future and so runs its callbacks. Returns the works whose turn has come.
  template <class Complete>
  Works run(const std::shared_ptr<Turn>& turn, const Complete& complete) {
    const auto outer = std::exchange(running_, {this, turn});
    complete();
    running_ = outer;
    const std::lock_guard lock(mutex_);
    turn->has_run = true;
    Works next;
    auto at = turn;
    while (at->parent && at->has_run && at->children.empty()) {
      const auto parent = at->parent;
      std::erase(parent->children, at);
      if (!parent->children.empty()) release(parent->children.front(), next);
      at = parent;
    }
    over_.notify_all();
    return next;
  }
  [[nodiscard]] bool holds_any() {
    const std::lock_guard lock(mutex_);
    return !held_.empty();
  }
  // The works that were held for too long: their futures get an error.
  Works take_late() {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    Works late;
    for (const auto& turn : std::list(held_)) {
      if (now < turn->held_until) continue;
      turn->is_late = true;
      release(turn, late);
    }
    return late;
  }
  // Waits up to `seconds` until an operation may begin; returns whether it may.
  bool wait(double seconds) {
    if (holds_gil()) return true;  // no callback could end
    std::unique_lock lock(mutex_);
    const auto turn = current();
    const auto limit = std::chrono::duration<double>(std::min(seconds, kForever));
    return over_.wait_for(lock, limit, [&] { return turn->children.empty(); });
  }

 private:
  struct Running {
    const Callbacks* of = nullptr;
    std::shared_ptr<Turn> turn;
  };

  [[nodiscard]] std::shared_ptr<Turn> current() const {
    return running_.of == this ? running_.turn : outside_;
  }
  void release(const std::shared_ptr<Turn>& turn, Works& to) {
    if (!turn->held) return;
    to.push_back(std::move(turn->held));
    held_.remove(turn);
  }

  std::mutex mutex_;  // guards the rest
  std::condition_variable over_;
  const std::shared_ptr<Turn> outside_ = std::make_shared<Turn>();
  std::list<std::shared_ptr<Turn>> held_;
  Milliseconds limit_;
  static thread_local Running running_;  // in this thread
};
thread_local Callbacks::Running Callbacks::running_;

// An operation in progress or complete. The first thread that waits for it or polls it finishes it,
// exactly once. Its future is completed in a thread of Completions only: callbacks may wait.
class RegroupWork final : public Work {
 public:
  // Runs `after` when the operation has succeeded, before any waiter returns. `held` is memory that
  // the operation uses. `title`, which is not copied, and `inputs` are for torch.profiler. `work`:
  // null: the maker has to call finish_once(). `callbacks`: null for a message.
  RegroupWork(std::shared_ptr<Group> group, std::shared_ptr<Callbacks> callbacks,
              regroup_work* work, int rank, OpType type, const char* title, const Tensors& inputs,
              std::string what, Tensors outputs, Tensors held, std::function<void()> after)
      : Work(rank, type, title, inputs),
        group_(std::move(group)),
        callbacks_(std::move(callbacks)),
        work_(work),
        what_(std::move(what)),
        outputs_(std::move(outputs)),
        held_(std::move(held)),
        after_(std::move(after)) {}
  ~RegroupWork() override {
    if (work_ != nullptr) group_->api().free(work_);
  }

  // Waits up to `seconds`; returns true if the operation is complete.
  bool settle(double seconds) {
    if (settled_.load(std::memory_order_acquire)) return true;
    if (group_->api().wait(work_, seconds) == 0) return false;
    finish_once();
    return true;
  }

  bool isCompleted() override { return settle(0); }
  bool isSuccess() const override {
    return settled_.load(std::memory_order_acquire) && exception_ == nullptr;
  }
  std::exception_ptr exception() const override { return exception_; }
  int sourceRank() const override { return source_; }
  Tensors result() override { return outputs_; }
  void synchronize() override { (void)wait(kNoTimeout); }
  bool wait(Milliseconds timeout) override {
    const bool limited = timeout > kNoTimeout;
    if (!settle(limited ? seconds_of(timeout) : kForever)) {
      const std::string message = std::string(kName) + ": " + what_ + ": not complete after " +
                                  std::to_string(timeout.count()) + " ms";
      C10_THROW_ERROR(DistBackendError, message);
    }
    if (exception_) std::rethrow_exception(exception_);
    return true;
  }
  void abort() override { group_->api().abort(group_->get(), "by Work.abort()"); }
  intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const std::lock_guard lock(mutex_);
    if (!future_) {
      future_ =
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
      if (closed_) complete(*future_);  // it has no callbacks yet
    }
    if (callbacks_ && !closed_ && !turn_ && holds_gil()) turn_ = callbacks_->expect();
    return future_;
  }

  // Ends the operation, which is complete.
  void finish_once() {
    std::function<void()> after;
    Tensors held;  // freed below: that may need the GIL, whose holder may wait in call_once()
    std::call_once(once_, [&] {
      std::exception_ptr failed;
      if (work_ != nullptr) {
        Failure failure;
        failure.code =
            group_->api().status(work_, &source_, failure.text.data(), failure.text.size());
        if (failure.code != REGROUP_OK) failed = failure.exception(what_);
      }
      after = std::exchange(after_, {});
      held = std::exchange(held_, {});
      if (!failed && after) {
        try {
          const at::NoGradGuard no_grad;
          after();
        } catch (...) {
          failed = std::current_exception();
        }
      }
      exception_ = failed;
      finish(failed);
      settled_.store(true, std::memory_order_release);
    });
    if (work_ == nullptr) (void)complete_future();
  }

  // Completes the future of a finished operation, if anybody has asked for it, and runs its
  // callbacks, with no lock held: they may run Python, and wait for other operations. Does nothing
  // if its turn has not come. Returns the works whose turn has come then.
  Callbacks::Works complete_future() {
    intrusive_ptr<c10::ivalue::Future> future;
    std::shared_ptr<Callbacks::Turn> turn;
    {
      const std::lock_guard lock(mutex_);
      if (turn_ && !callbacks_->has_come(turn_, intrusive_ptr<RegroupWork>::reclaim_copy(this)))
        return {};
      closed_ = true;
      future = future_;
      turn = turn_;
    }
    if (!future) return {};
    if (turn) return callbacks_->run(turn, [&] { complete(*future, turn->is_late); });
    complete(*future);
    return {};
  }

  // Whether complete_future() may run callbacks. If nobody has asked for the future, nobody's will.
  bool is_awaited() {
    const std::lock_guard lock(mutex_);
    if (!future_) closed_ = true;
    return !closed_;
  }

 private:
  void complete(c10::ivalue::Future& future, bool is_late = false) const {
    if (exception_) {
      future.setError(exception_);
    } else if (is_late) {
      future.setError(Failure::late(what_));
    } else {
      future.markCompleted(c10::IValue(outputs_));
    }
  }

  const std::shared_ptr<Group> group_;
  const std::shared_ptr<Callbacks> callbacks_;
  regroup_work* const work_;  // null: the operation ran in the thread that called it
  const std::string what_;
  const Tensors outputs_;
  Tensors held_;
  std::function<void()> after_;
  std::once_flag once_;
  std::atomic<bool> settled_ = false;
  int source_ = -1;
  std::mutex mutex_;                           // guards the rest
  intrusive_ptr<c10::ivalue::Future> future_;  // null until somebody asks for it
  bool closed_ = false;                        // the future is complete, or will be when it is made
  std::shared_ptr<Callbacks::Turn> turn_;      // null: it has no callbacks of Python code
};

// Keeps Python from ending while a thread of this backend may take the GIL: to free a tensor, or to
// run a callback. Python unwinds a thread that asks for the GIL after the end has begun, and the
// process aborts where a destructor asks.
class PythonEnd {
 public:
  // Returns false if Python ends: the caller then frees no tensor and runs no callback. Otherwise
  // Python does not end before leave().
  static bool enter() {
    const std::lock_guard lock(mutex_);
    if (!ends_) ++inside_;
    return !ends_;
  }
  static void leave() {
    const std::lock_guard lock(mutex_);
    --inside_;
    left_.notify_all();
  }
  // Lets no thread enter from now on, and waits until those inside have left, at most 5 s: a
  // callback may wait for something that never comes. The caller holds no GIL.
  static void begin() {
    std::unique_lock lock(mutex_);
    ends_ = true;
    left_.wait_for(lock, std::chrono::seconds(5), [] { return inside_ == 0; });
  }

 private:
  inline static std::mutex mutex_;  // guards the rest
  inline static std::condition_variable left_;
  inline static int inside_ = 0;
  inline static bool ends_ = false;
};

// Finishes operations for which no thread calls wait(), such as those whose future is awaited, and
// completes the futures. One thread at a time polls the operations. It completes no future before
// another thread can poll, since a callback may wait for an operation that is in progress. The
// threads end when they are idle, or with the last operation after the backend was destroyed: the
// destructor must not join a thread that needs the GIL. When Python ends, they end and free
// nothing.
class Completions {
 public:
  explicit Completions(std::shared_ptr<Callbacks> callbacks) {
    state_->callbacks = std::move(callbacks);
  }
  void add(intrusive_ptr<RegroupWork> work) {
    const std::lock_guard lock(state_->mutex);
    state_->works.push_back(std::move(work));
    call_thread(state_);
  }
  ~Completions() {
    const std::lock_guard lock(state_->mutex);
    state_->over = true;
    state_->changed.notify_all();
  }

 private:
  using Works = Callbacks::Works;
  struct State {
    std::shared_ptr<Callbacks> callbacks;
    std::mutex mutex;  // guards the rest
    std::condition_variable changed;
    Works works;  // in progress
    Works ready;  // complete, with a future that is not
    int idle = 0;
    bool polled = false, over = false;

    [[nodiscard]] bool has_task() const { return !ready.empty() || (!polled && !works.empty()); }
  };

  // Has a thread do what is to do, if anything is. The caller holds the mutex.
  static void call_thread(const std::shared_ptr<State>& state) {
    if (!state->has_task()) return;
    if (state->idle > 0) {
      state->changed.notify_one();
    } else {
      state->idle = 1;  // the new one
      std::thread(&run, state).detach();
    }
  }

  static void run(const std::shared_ptr<State>& state) {
    constexpr Milliseconds kIdle{10000}, kHeld{200};
    std::unique_lock lock(state->mutex);
    for (;;) {
      const bool holds = state->callbacks->holds_any();
      state->changed.wait_for(lock, holds ? kHeld : kIdle,
                              [&] { return state->has_task() || (state->over && !holds); });
      if (holds && !state->has_task()) {
        state->ready = state->callbacks->take_late();
        if (!state->has_task()) continue;
      }
      --state->idle;
      if (!state->has_task()) return;
      if (!PythonEnd::enter()) {
        new std::shared_ptr<State>(state);  // never freed, as are the tensors of its operations
        return;
      }
      if (state->ready.empty()) {
        poll(*state, lock);
      } else {
        Works first;
        first.splice(first.end(), state->ready, state->ready.begin());
        call_thread(state);
        lock.unlock();
        Works next = first.front()->complete_future();
        first.clear();
        lock.lock();
        state->ready.splice(state->ready.end(), next);
      }
      PythonEnd::leave();
      ++state->idle;
    }
  }

  // Waits a moment for the oldest operation, which is usually complete first; messages may complete
  // in any order. Only one thread at a time calls it, and nothing else removes from `works`.
  static void poll(State& state, std::unique_lock<std::mutex>& lock) {
    constexpr double kTurn = 0.002;
    state.polled = true;
    Works works = state.works;
    lock.unlock();
    double limit = kTurn;
    std::unordered_set<const RegroupWork*> done;
    for (const auto& work : works) {
      if (work->settle(std::exchange(limit, 0))) done.insert(work.get());
    }
    lock.lock();
    state.polled = false;
    for (auto next = state.works.begin(); next != state.works.end();) {
      const auto work = next++;
      if (!done.contains(work->get())) continue;
      if ((*work)->is_awaited()) {
        state.ready.splice(state.ready.end(), state.works, work);
      } else {
        state.works.erase(work);
      }
    }
    lock.unlock();
    works.clear();  // not under the lock: the last reference to a tensor may need the GIL
    lock.lock();
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// What an error and torch.profiler say of a call. The parts of another call are not `shown`.
struct Call {
  const char* what;
  OpType type;
  Tensors inputs = {};
  bool shown = true;
};

// The name of an operation in torch.profiler, under that of this backend or of Gloo, in whose place
// it is. The pointers stay valid.
const char* title_of(const Call& call, bool as_gloo) {
  if (!call.shown) return nullptr;
  // By OpType; as Gloo's where Gloo has one.
  static constexpr std::array<const char*, 20> kWords = {
      "broadcast",      "all_reduce",     "all_reduce",        "reduce",
      "all_gather",     "all_gather",     "all_gather",        "gather",
      "scatter",        "reduce_scatter", "all_to_all",        "all_to_all",
      "send",           "recv",           "recvAnySource",     "barrier",
      "reduce_scatter", "coalesced",      "sparse_all_reduce", "reduce_scatter"};
  static const auto kTitles = [] {
    std::array<std::array<std::string, kWords.size()>, 2> titles;
    for (std::size_t i = 0; i < kWords.size(); ++i) {
      titles[0][i] = std::string(kName) + ":" + kWords[i];
      titles[1][i] = std::string("gloo:") + kWords[i];
    }
    return titles;
  }();
  return kTitles[as_gloo ? 1 : 0].at(static_cast<std::size_t>(call.type)).c_str();
}

// How the table expresses a reduction of tensors of one type.
struct Reduction {
  int dtype = REGROUP_UINT8;
  int op = REGROUP_SUM;
};

[[noreturn]] void refuse(const char* what, const std::string& why) {
  const std::string message = std::string(kName) + ": " + what + ": " + why;
  C10_THROW_ERROR(ValueError, message);
}

const char* name_of(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
      return "SUM";
    case ReduceOp::AVG:
      return "AVG";
    case ReduceOp::PRODUCT:
      return "PRODUCT";
    case ReduceOp::MIN:
      return "MIN";
    case ReduceOp::MAX:
      return "MAX";
    case ReduceOp::BAND:
      return "BAND";
    case ReduceOp::BOR:
      return "BOR";
    case ReduceOp::BXOR:
      return "BXOR";
    case ReduceOp::PREMUL_SUM:
      return "PREMUL_SUM";
    default:
      return "UNUSED";
  }
}

std::optional<int> op_of(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::PREMUL_SUM:
      return REGROUP_SUM;
    case ReduceOp::AVG:
      return REGROUP_AVG;
    case ReduceOp::PRODUCT:
      return REGROUP_PROD;
    case ReduceOp::MIN:
      return REGROUP_MIN;
    case ReduceOp::MAX:
      return REGROUP_MAX;
    case ReduceOp::BAND:
      return REGROUP_BAND;
    case ReduceOp::BOR:
      return REGROUP_BOR;
    default:
      return std::nullopt;
  }
}

// bool reduces by or and and. Unsigned types wider than 8 bits reduce as signed ones if the bits
// are the same, complex numbers as pairs of floats.
Reduction reduction_of(const char* what, at::ScalarType type, ReduceOp::RedOpType op) {
  const auto refused = [&](const char* why) {
    refuse(what,
           std::string(name_of(op)) + " of " + c10::toString(type) + " is not supported" + why);
  };
  const std::optional<int> mapped = op_of(op);
  if (!mapped) refused("");
  const bool bits = op == ReduceOp::BAND || op == ReduceOp::BOR;
  const bool ordered = op == ReduceOp::MIN || op == ReduceOp::MAX;
  const auto number = [&](int dtype) {
    if (bits && c10::isFloatingType(type)) refused(": bit operations are for integers");
    return Reduction{dtype, *mapped};
  };
  const auto wide_unsigned = [&](int dtype) {
    if (ordered || op == ReduceOp::AVG) refused("");
    return number(dtype);
  };
  switch (type) {
    case at::kFloat:
      return number(REGROUP_FLOAT32);
    case at::kDouble:
      return number(REGROUP_FLOAT64);
    case at::kHalf:
      return number(REGROUP_FLOAT16);
    case at::kBFloat16:
      return number(REGROUP_BFLOAT16);
    case at::kChar:
      return number(REGROUP_INT8);
    case at::kShort:
      return number(REGROUP_INT16);
    case at::kInt:
      return number(REGROUP_INT32);
    case at::kLong:
      return number(REGROUP_INT64);
    case at::kByte:
      return number(REGROUP_UINT8);
    case at::kUInt16:
      return wide_unsigned(REGROUP_INT16);
    case at::kUInt32:
      return wide_unsigned(REGROUP_INT32);
    case at::kUInt64:
      return wide_unsigned(REGROUP_INT64);
    case at::kBool:
      if (op == ReduceOp::AVG) refused("");
      if (op == ReduceOp::PRODUCT || op == ReduceOp::MIN || op == ReduceOp::BAND)
        return {REGROUP_UINT8, REGROUP_MIN};
      return {REGROUP_UINT8, REGROUP_MAX};
    case at::kComplexFloat:
    case at::kComplexDouble:
      if (*mapped != REGROUP_SUM && op != ReduceOp::AVG) refused(": only SUM and AVG are");
      return {type == at::kComplexFloat ? REGROUP_FLOAT32 : REGROUP_FLOAT64, *mapped};
    default:
      refused("");
  }
  refused("");
}

void check_tensor(const char* what, const Tensor& tensor) {
  if (!tensor.device().is_cpu())
    refuse(what, "expected a CPU tensor, got one on " + tensor.device().str() +
                     "; name a backend for that device too, \"cpu:regroup,cuda:nccl\"");
  if (tensor.layout() != at::kStrided) refuse(what, "expected a dense tensor");
}

const Tensor& single(const char* what, const Tensors& tensors) {
  if (tensors.size() != 1) refuse(what, "expected 1 tensor, got " + std::to_string(tensors.size()));
  check_tensor(what, tensors[0]);
  return tensors[0];
}

void check_list(const char* what, const Tensors& tensors, std::size_t size, const Tensor& like) {
  if (tensors.size() != size)
    refuse(what, "expected a list of " + std::to_string(size) +
                     " tensors, one for each rank, got " + std::to_string(tensors.size()));
  for (const Tensor& tensor : tensors) {
    check_tensor(what, tensor);
    if (tensor.scalar_type() != like.scalar_type() || tensor.numel() != like.numel())
      refuse(what, std::string("all tensors must have one type and size, got ") +
                       c10::toString(tensor.scalar_type()) + "[" + std::to_string(tensor.numel()) +
                       "] and " + c10::toString(like.scalar_type()) + "[" +
                       std::to_string(like.numel()) + "]");
  }
}

// The memory that an operation writes for `target`: its own if it is dense, otherwise a copy, which
// is copied back.
struct Packed {
  explicit Packed(const Tensor& to) : target(to), memory(to.contiguous()) {}
  void write_back() const {
    if (!memory.is_same(target)) target.copy_(memory);
  }
  Tensor target, memory;
};

// What further groups of the same ranks are formed with.
struct Origin {
  intrusive_ptr<c10d::Store> store;
  std::string host;  // of the table's form()
};

class RegroupBackend final : public c10d::Backend {
 public:
  // `as_gloo`: torch.profiler shows the operations as Gloo's.
  RegroupBackend(std::shared_ptr<Group> group, Origin origin, int rank, int size,
                 Milliseconds timeout, bool as_gloo)
      : Backend(rank, size),
        group_(std::move(group)),
        origin_(std::move(origin)),
        callbacks_(std::make_shared<Callbacks>(timeout)),
        as_gloo_(as_gloo),
        timeout_(timeout),
        completions_(callbacks_) {
    init();
  }

  const std::string getBackendName() const override { return kName; }
  void setTimeout(Milliseconds timeout) override {
    timeout_ = timeout;
    callbacks_->set_limit(timeout);
  }
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void abort() override { group_->api().abort(group_->get(), "by abort()"); }
  void shutdown() override {}

  // Meets the other ranks in `origin.store`. Throws for `what` if that fails.
  static intrusive_ptr<c10d::Backend> form(const char* what, const regroup_collective_v1* api,
                                           Origin origin, int rank, int size, Milliseconds timeout,
                                           bool as_gloo);

  // Forms the group of the other ranks; only these call it, and they need not be in one operation:
  // after a failure too. No `override`: torch has not always had these.
  // NOLINTBEGIN(modernize-use-override)
  bool supportsShrinking() const { return true; }
  intrusive_ptr<c10d::Backend> shrink(const std::vector<std::int64_t>& excluded, int flags = 0,
                                      const intrusive_ptr<Options>& opts = nullptr) {
    constexpr int kAbort = 1;  // torch.distributed.SHRINK_ABORT
    if (flags == kAbort) abort();
    std::string name = "shrink-" + std::to_string(shrinks_++);
    for (const std::int64_t rank : excluded) name += "-" + std::to_string(rank);
    const auto before = std::count_if(excluded.begin(), excluded.end(),
                                      [&](auto rank) { return rank < getRank(); });
    return form("shrink_group", &group_->api(),
                {c10::make_intrusive<c10d::PrefixStore>(name, origin_.store), origin_.host},
                getRank() - static_cast<int>(before), getSize() - static_cast<int>(excluded.size()),
                opts ? opts->timeout : timeout_, as_gloo_);
  }
  // NOLINTEND(modernize-use-override)

  // torch asks for the buckets of DistributedDataParallel, if DDP_DISABLE_COMM_MEM=0, and for what
  // FSDP2 gathers, if its user wants that.
  bool supportsTensorAlloc(c10::DeviceIndex /*device*/) override { return true; }
  // Ordinary memory if the ranks of this host have too little to share.
  Tensor allocateTensor(long size,
                        at::TensorOptions options) override {  // NOLINT(google-runtime-int)
    const auto bytes = static_cast<std::size_t>(size) * options.dtype().itemsize();
    regroup_memory* memory = nullptr;
    void* const at = options.device().is_cpu() && bytes > 0
                         ? group_->api().allocate(group_->get(), bytes, &memory)
                         : nullptr;
    if (at == nullptr) return at::empty({size}, options);
    const auto release = group_->api().release;
    return at::from_blob(
        at, {size}, [release, memory](void*) { release(memory); }, options);
  }

  intrusive_ptr<Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    const Packed data(single("broadcast", tensors));
    regroup_operation operation = make(REGROUP_BROADCAST, {}, data.memory);
    operation.root = static_cast<int>(opts.rootRank);
    return launch({"broadcast", OpType::BROADCAST, tensors}, operation, opts, tensors,
                  {data.memory}, [data] { data.write_back(); });
  }

  intrusive_ptr<Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    if (tensors.size() == 1 && tensors[0].layout() == at::kSparse)
      return allreduce_sparse(tensors, opts);
    return reduce_to_all({"all_reduce", OpType::ALLREDUCE, tensors}, single("all_reduce", tensors),
                         tensors, opts);
  }

  // Sums COO tensors. Ranks may have different rows, so the concatenation is summed.
  intrusive_ptr<Work> allreduce_sparse(Tensors& tensors,
                                       const c10d::AllreduceOptions& opts) override {
    if (opts.reduceOp != ReduceOp::SUM) refuse("all_reduce", "expected SUM for a sparse tensor");
    const Tensor mine = tensors.at(0).coalesce();
    const Tensor count = at::tensor({mine._nnz()}, at::kLong);
    Tensor counts = at::empty({getSize()}, at::kLong);
    gather_now("all_reduce", count, counts, opts);
    const auto most = counts.max().item<std::int64_t>();
    const Tensor indices = padded(mine._indices().t(), most), values = padded(mine._values(), most);
    Tensor all_indices = at::empty({getSize(), most, indices.size(1)}, at::kLong);
    auto shape = values.sizes().vec();
    shape.insert(shape.begin(), getSize());
    Tensor all_values = at::empty(shape, values.options());
    gather_now("all_reduce", indices, all_indices, opts);
    gather_now("all_reduce", values, all_values, opts);
    Tensors rows, entries;
    for (int rank = 0; rank < getSize(); ++rank) {
      const auto here = counts[rank].item<std::int64_t>();
      rows.push_back(all_indices[rank].narrow(0, 0, here));
      entries.push_back(all_values[rank].narrow(0, 0, here));
    }
    const Tensor sum =
        at::sparse_coo_tensor(at::cat(rows).t(), at::cat(entries), mine.sizes(), mine.options())
            .coalesce();
    tensors[0].copy_(sum);
    return complete({"all_reduce", OpType::_ALLREDUCE_SPARSE, tensors}, tensors);
  }

  intrusive_ptr<Work> allreduce_coalesced(Tensors& tensors,
                                          const c10d::AllreduceCoalescedOptions& opts) override {
    if (tensors.empty()) refuse("all_reduce_coalesced", "expected at least 1 tensor");
    Tensors flat;
    for (const Tensor& tensor : tensors) {
      check_tensor("all_reduce_coalesced", tensor);
      if (tensor.scalar_type() != tensors[0].scalar_type())
        refuse("all_reduce_coalesced", "expected tensors of one type");
      flat.push_back(tensor.reshape({-1}));
    }
    Tensor packed = at::cat(flat);
    return reduce_to_all(
        {"all_reduce_coalesced", OpType::ALLREDUCE_COALESCED, tensors}, packed, tensors, opts,
        [tensors, packed] {
          std::int64_t at = 0;
          for (const Tensor& tensor : tensors) {
            tensor.copy_(packed.narrow(0, at, tensor.numel()).view(tensor.sizes()));
            at += tensor.numel();
          }
        });
  }

  intrusive_ptr<Work> reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    const Tensor& tensor = single("reduce", tensors);
    const Packed data(tensor);
    const bool is_root = getRank() == opts.rootRank;
    if (opts.reduceOp == ReduceOp::BXOR) {
      Tensor result = tensor.clone();
      xor_now("reduce", result, opts);
      if (is_root) tensor.copy_(result);
      return complete({"reduce", OpType::REDUCE, tensors}, tensors);
    }
    const Tensor input = scaled(data.memory, opts.reduceOp);
    const Reduction reduction = reduction_of("reduce", tensor.scalar_type(), opts.reduceOp);
    regroup_operation operation =
        make(REGROUP_REDUCE, input, is_root ? data.memory : Tensor(), reduction);
    operation.root = static_cast<int>(opts.rootRank);
    return launch({"reduce", OpType::REDUCE, tensors}, operation, opts, tensors,
                  {data.memory, input}, [data, is_root] {
                    if (is_root) data.write_back();
                  });
  }

  intrusive_ptr<Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& opts) override {
    return gather_list({"all_gather", OpType::ALLGATHER, inputs}, outputs, inputs, opts);
  }

  intrusive_ptr<Work> gather_list(const Call& call, std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& opts) {
    const Tensor input = single("all_gather", inputs).contiguous();
    const Tensors& out = lists("all_gather", outputs);
    // torch flattens all tensors and allows element types of other sizes.
    check_list("all_gather", out, static_cast<std::size_t>(getSize()), input);
    Tensor packed = at::empty({getSize(), input.numel()}, input.options());
    return launch(call, make(REGROUP_ALLGATHER, input, packed), opts, out, {input, packed},
                  [out, packed] { unpack(packed, out); });
  }

  intrusive_ptr<Work> _allgather_base(Tensor& output, Tensor& input,
                                      const c10d::AllgatherOptions& opts) override {
    check_base("all_gather_into_tensor", output, input);
    const Packed out(output);
    const Tensor in = input.contiguous();
    return launch({"all_gather_into_tensor", OpType::_ALLGATHER_BASE, {input}},
                  make(REGROUP_ALLGATHER, in, out.memory), opts, {output}, {in, out.memory},
                  [out] { out.write_back(); });
  }

  intrusive_ptr<Work> allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override {
    if (outputs.size() != static_cast<std::size_t>(getSize()))
      refuse("all_gather_coalesced", "expected a list of outputs for each rank");
    std::vector<std::vector<Tensors>> lists;
    Tensors all;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::vector<Tensors>& of_one = lists.emplace_back(1);
      for (Tensors& of_rank : outputs) of_one[0].push_back(of_rank.at(i));
      all.insert(all.end(), of_one[0].begin(), of_one[0].end());
    }
    auto whole = begin({"all_gather_coalesced", OpType::ALLGATHER_COALESCED, inputs}, all);
    std::vector<intrusive_ptr<Work>> works;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensors one{inputs[i]};
      works.push_back(
          gather_list({"all_gather", OpType::ALLGATHER, {}, false}, lists[i], one, opts));
    }
    return wait_all(std::move(whole), works);
  }

  intrusive_ptr<Work> allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) override {
    if (outputs.size() == 1) return _allgather_base(outputs[0], inputs.at(0), opts);
    std::vector<intrusive_ptr<Work>> works;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      works.push_back(_allgather_base(outputs[i], inputs.at(i), opts));
    return wait_all(
        begin({"all_gather_into_tensor_coalesced", OpType::COALESCED, {}, false}, outputs), works);
  }

  intrusive_ptr<Work> gather(std::vector<Tensors>& outputs, Tensors& inputs,
                             const c10d::GatherOptions& opts) override {
    const Tensor input = single("gather", inputs).contiguous();
    const bool is_root = getRank() == opts.rootRank;
    Tensors out;
    Tensor packed;
    if (is_root) {
      out = lists("gather", outputs);
      check_list("gather", out, static_cast<std::size_t>(getSize()), input);
      packed = at::empty({getSize(), input.numel()}, input.options());
    } else if (!outputs.empty()) {
      refuse("gather", "expected outputs at the destination only");
    }
    regroup_operation operation = make(REGROUP_GATHER, input, packed);
    operation.root = static_cast<int>(opts.rootRank);
    return launch({"gather", OpType::GATHER, inputs}, operation, opts, out, {input, packed},
                  [out, packed] {
                    if (packed.defined()) unpack(packed, out);
                  });
  }

  intrusive_ptr<Work> scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                              const c10d::ScatterOptions& opts) override {
    const Packed out(single("scatter", outputs));
    const bool is_root = getRank() == opts.rootRank;
    Tensor packed;
    if (is_root) {
      const Tensors& in = lists("scatter", inputs);
      check_list("scatter", in, static_cast<std::size_t>(getSize()), out.target);
      packed = pack(in);
    } else if (!inputs.empty()) {
      refuse("scatter", "expected inputs at the source only");
    }
    regroup_operation operation = make(REGROUP_SCATTER, packed, out.memory);
    operation.root = static_cast<int>(opts.rootRank);
    return launch({"scatter", OpType::SCATTER, is_root ? inputs[0] : Tensors()}, operation, opts,
                  outputs, {packed, out.memory}, [out] { out.write_back(); });
  }

  intrusive_ptr<Work> reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                     const c10d::ReduceScatterOptions& opts) override {
    const Tensors& in = lists("reduce_scatter", inputs);
    check_list("reduce_scatter", in, static_cast<std::size_t>(getSize()),
               single("reduce_scatter", outputs));
    return scatter_reduced({"reduce_scatter", OpType::REDUCE_SCATTER, in}, outputs[0], pack(in),
                           opts);
  }

  intrusive_ptr<Work> _reduce_scatter_base(Tensor& output, Tensor& input,
                                           const c10d::ReduceScatterOptions& opts) override {
    check_base("reduce_scatter_tensor", input, output);
    return scatter_reduced({"reduce_scatter_tensor", OpType::_REDUCE_SCATTER_BASE, {input}}, output,
                           input.contiguous(), opts);
  }

  intrusive_ptr<Work> reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) override {
    if (outputs.size() == 1) return _reduce_scatter_base(outputs[0], inputs.at(0), opts);
    std::vector<intrusive_ptr<Work>> works;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      works.push_back(_reduce_scatter_base(outputs[i], inputs.at(i), opts));
    return wait_all(
        begin(
            {"reduce_scatter_tensor_coalesced", OpType::REDUCE_SCATTER_TENSOR_COALESCED, {}, false},
            outputs),
        works);
  }

  intrusive_ptr<Work> alltoall_base(Tensor& output, Tensor& input,
                                    std::vector<std::int64_t>& output_splits,
                                    std::vector<std::int64_t>& input_splits,
                                    const c10d::AllToAllOptions& opts) override {
    check_tensor("all_to_all_single", output);
    check_tensor("all_to_all_single", input);
    if (input.scalar_type() != output.scalar_type())
      refuse("all_to_all_single", "expected input and output of one type");
    c10d::checkSplitSizes(input_splits, input, getSize());
    c10d::checkSplitSizes(output_splits, output, getSize());
    const Packed out(output);
    const Tensor in = input.contiguous();
    // One rank cannot know whether the splits are equal on all ranks.
    if (output_splits.empty() && input_splits.empty())
      return launch({"all_to_all_single", OpType::ALLTOALL_BASE, {input}},
                    make(REGROUP_ALLTOALL, in, out.memory), opts, {output}, {in, out.memory},
                    [out] { out.write_back(); });
    return exchange({"all_to_all_single", OpType::ALLTOALL_BASE, {input}}, parts(in, input_splits),
                    parts(out.memory, output_splits), opts, {output}, {in, out.memory},
                    [out] { out.write_back(); });
  }

  intrusive_ptr<Work> alltoall(Tensors& outputs, Tensors& inputs,
                               const c10d::AllToAllOptions& opts) override {
    const auto size = static_cast<std::size_t>(getSize());
    if (outputs.size() != size || inputs.size() != size)
      refuse("all_to_all",
             "expected a list of " + std::to_string(size) + " tensors, one for each rank");
    Tensors in, out;
    for (std::size_t i = 0; i < size; ++i) {
      check_tensor("all_to_all", inputs[i]);
      check_tensor("all_to_all", outputs[i]);
      in.push_back(inputs[i].contiguous());
      out.push_back(outputs[i].contiguous());
    }
    Tensors held = in;
    held.insert(held.end(), out.begin(), out.end());
    return exchange({"all_to_all", OpType::ALLTOALL, inputs}, in, out, opts, outputs, held,
                    [outputs, out] {
                      for (std::size_t i = 0; i < out.size(); ++i) {
                        if (!out[i].is_same(outputs[i])) outputs[i].copy_(out[i]);
                      }
                    });
  }

  intrusive_ptr<Work> send(Tensors& tensors, int to, int tag) override {
    const Tensor data = single("send", tensors).contiguous();
    regroup_work* const work =
        begin_send("send", to, static_cast<std::uint32_t>(tag), data, seconds_of(timeout_));
    return follow(work, {"send", OpType::SEND, tensors}, "send to rank " + std::to_string(to), {},
                  {data}, {});
  }

  intrusive_ptr<Work> recv(Tensors& tensors, int from, int tag) override {
    return receive(tensors, from, tag, OpType::RECV, "recv from rank " + std::to_string(from));
  }

  intrusive_ptr<Work> recvAnysource(Tensors& tensors, int tag) override {
    return receive(tensors, REGROUP_ANY_RANK, tag, OpType::RECVANYSOURCE, "recv from any rank");
  }

  // Rank 0 waits for a message of each rank, then answers all; the words are those of Gloo's. The
  // group remains usable: a wait ends, but no operation. What remains of a barrier that failed
  // matches no later one.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override {
    const std::uint32_t tag = next_barrier();
    const Milliseconds limit = opts.timeout == c10d::kUnsetTimeout ? timeout_ : opts.timeout;
    const auto end = std::chrono::steady_clock::now() + limit;
    const auto left = [&] {
      return std::max(
          0.0, std::chrono::duration<double>(end - std::chrono::steady_clock::now()).count());
    };
    const auto name = "Rank " + std::to_string(getRank());
    if (getRank() != 0) {
      const auto came = send_empty(0, tag), answered = receive_empty(0, tag);
      if (!came->settle(left()) || !answered->settle(left()) || !answered->isSuccess())
        C10_THROW_ERROR(DistBackendError,
                        name +
                            " successfully reached monitoredBarrier, but received errors while "
                            "waiting for send/recv from rank 0. Please check rank 0 logs for "
                            "faulty rank.");
      return;
    }
    if (left() == 0) C10_THROW_ERROR(DistBackendError, name + " timed out in monitoredBarrier.");
    std::vector<intrusive_ptr<RegroupWork>> arrivals;
    for (int rank = 1; rank < getSize(); ++rank) arrivals.push_back(receive_empty(rank, tag));
    std::string missing;
    int count = 0;
    for (int rank = 1; rank < getSize() && (missing.empty() || wait_all_ranks); ++rank) {
      const auto& arrival = arrivals[static_cast<std::size_t>(rank - 1)];
      if (arrival->settle(left()) && arrival->isSuccess()) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      ++count;
    }
    if (!missing.empty())
      C10_THROW_ERROR(DistBackendError, (count > 1 ? "Ranks " : "Rank ") + missing +
                                            " failed to pass monitoredBarrier in " +
                                            std::to_string(limit.count()) + " ms");
    for (int rank = 1; rank < getSize(); ++rank) (void)send_empty(rank, tag)->wait(kNoTimeout);
  }

  intrusive_ptr<Work> barrier(const c10d::BarrierOptions& opts) override {
    return launch({"barrier", OpType::BARRIER}, make(REGROUP_BARRIER, {}, {}), opts, {}, {}, {});
  }

 private:
  static regroup_operation make(int kind, const Tensor& in, const Tensor& out,
                                Reduction reduction = {}) {
    regroup_operation made{};
    made.kind = kind;
    made.dtype = reduction.dtype;
    made.op = reduction.op;
    if (in.defined()) {
      made.in = in.const_data_ptr();
      made.in_bytes = in.nbytes();
    }
    if (out.defined()) {
      made.out = out.mutable_data_ptr();
      made.out_bytes = out.nbytes();
    }
    return made;
  }

  // Start a message; an undefined `data` is an empty one. Both throw for `what` if they fail.
  regroup_work* begin_send(const char* what, int to, std::uint32_t tag, const Tensor& data,
                           double seconds) {
    const bool empty = !data.defined();
    regroup_work* work = nullptr;
    Failure failure;
    failure.code = group_->api().send(
        group_->get(), to, tag, empty ? nullptr : data.const_data_ptr(), empty ? 0 : data.nbytes(),
        seconds, &work, failure.text.data(), failure.text.size());
    failure.check(what);
    return work;
  }
  regroup_work* begin_receive(const char* what, int from, std::uint32_t tag, const Tensor& data,
                              double seconds) {
    const bool empty = !data.defined();
    regroup_work* work = nullptr;
    Failure failure;
    failure.code = group_->api().receive(
        group_->get(), from, tag, empty ? nullptr : data.mutable_data_ptr(),
        empty ? 0 : data.nbytes(), seconds, &work, failure.text.data(), failure.text.size());
    failure.check(what);
    return work;
  }

  // The tag of the next monitored barrier: users cannot pass it, and it is not that of exchange().
  // A rank that missed a barrier agrees with the others again after the next collective.
  std::uint32_t next_barrier() {
    constexpr std::uint32_t kBarriers = 1023, kCollectives = 0x1fffff;
    const std::lock_guard lock(count_mutex_);
    return 0x80000000 | (collectives_ & kCollectives) << 10 | barriers_++ % kBarriers;
  }
  void count_collective() {
    const std::lock_guard lock(count_mutex_);
    ++collectives_;
    barriers_ = 0;
  }

  // An empty message of a monitored barrier, whose caller limits its own wait.
  intrusive_ptr<RegroupWork> send_empty(int to, std::uint32_t tag) {
    return follow(begin_send(kMonitored, to, tag, {}, kForever),
                  {kMonitored, OpType::SEND, {}, false}, kMonitored, {}, {}, {});
  }
  intrusive_ptr<RegroupWork> receive_empty(int from, std::uint32_t tag) {
    return follow(begin_receive(kMonitored, from, tag, {}, kForever),
                  {kMonitored, OpType::RECV, {}, false}, kMonitored, {}, {}, {});
  }

  double seconds(Milliseconds asked) const {
    return seconds_of(asked == c10d::kUnsetTimeout ? timeout_ : asked);
  }

  // The work of a call that runs in this thread, from before it begins.
  intrusive_ptr<RegroupWork> begin(const Call& call, Tensors outputs) {
    return c10::make_intrusive<RegroupWork>(group_, callbacks_, nullptr, getRank(), call.type,
                                            title_of(call, as_gloo_), call.inputs, call.what,
                                            std::move(outputs), Tensors(), std::function<void()>());
  }
  intrusive_ptr<RegroupWork> complete(const Call& call, Tensors outputs) {
    auto out = begin(call, std::move(outputs));
    out->finish_once();
    return out;
  }

  // `what`: for errors, in place of that of the call.
  intrusive_ptr<RegroupWork> follow(regroup_work* work, const Call& call, std::string what,
                                    Tensors outputs, Tensors held, std::function<void()> after) {
    const bool is_message = call.type == OpType::SEND || call.type == OpType::RECV ||
                            call.type == OpType::RECVANYSOURCE;
    auto out = c10::make_intrusive<RegroupWork>(group_, is_message ? nullptr : callbacks_, work,
                                                getRank(), call.type, title_of(call, as_gloo_),
                                                call.inputs, std::move(what), std::move(outputs),
                                                std::move(held), std::move(after));
    completions_.add(out);
    return out;
  }

  // If the caller waits at once, runs the operation in this thread: the hand-over to another thread
  // would take longer than a small operation.
  template <class Options>
  intrusive_ptr<Work> launch(const Call& call, const regroup_operation& operation,
                             const Options& opts, Tensors outputs, Tensors held,
                             std::function<void()> after) {
    ++sequence_;
    Failure failure;
    if (!opts.asyncOp) {
      auto out = begin(call, std::move(outputs));
      run_now(call.what, operation, opts);
      const at::NoGradGuard no_grad;
      if (after) after();
      out->finish_once();
      return out;
    }
    begin_collective(call.what, opts);
    regroup_work* work = nullptr;
    failure.code = group_->api().start(group_->get(), &operation, seconds(opts.timeout), &work,
                                       failure.text.data(), failure.text.size());
    failure.check(call.what);
    return follow(work, call, call.what, std::move(outputs), std::move(held), std::move(after));
  }

  // Waits until a collective may begin, and counts it: once for each that all ranks call.
  template <class Options>
  void begin_collective(const char* what, const Options& opts) {
    count_collective();
    if (!callbacks_->wait(seconds(opts.timeout))) std::rethrow_exception(Failure::late(what));
  }

  template <class Options>
  void run_now(const char* what, const regroup_operation& operation, const Options& opts) {
    begin_collective(what, opts);
    Failure failure;
    failure.code = group_->api().run(group_->get(), &operation, seconds(opts.timeout),
                                     failure.text.data(), failure.text.size());
    failure.check(what);
  }

  template <class Options>
  void gather_now(const char* what, const Tensor& in, Tensor& out, const Options& opts) {
    const Tensor dense = in.contiguous();
    run_now(what, make(REGROUP_ALLGATHER, dense, out), opts);
  }

  // For a reduction that the table lacks: every rank gathers and combines all inputs.
  template <class Options>
  void xor_now(const char* what, const Tensor& tensor, const Options& opts) {
    if (c10::isFloatingType(tensor.scalar_type()) || c10::isComplexType(tensor.scalar_type()))
      refuse(what,
             std::string("BXOR of ") + c10::toString(tensor.scalar_type()) + " is not supported");
    auto shape = tensor.sizes().vec();
    shape.insert(shape.begin(), getSize());
    Tensor all = at::empty(shape, tensor.options());
    gather_now(what, tensor, all, opts);
    Tensor out = all[0].clone();
    for (int rank = 1; rank < getSize(); ++rank) out.bitwise_xor_(all[rank]);
    const at::NoGradGuard no_grad;
    tensor.copy_(out);
  }

  static Tensor scaled(const Tensor& tensor, const ReduceOp& op) {
    if (op != ReduceOp::PREMUL_SUM) return tensor;
    const auto* const by = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
    return by->tensor_factor.defined() ? tensor.mul(by->tensor_factor)
                                       : tensor.mul(by->double_factor);
  }

  template <class Options>
  intrusive_ptr<Work> reduce_to_all(const Call& call, const Tensor& tensor, const Tensors& outputs,
                                    const Options& opts, std::function<void()> after = {}) {
    if (opts.reduceOp == ReduceOp::BXOR) {
      xor_now(call.what, tensor, opts);
      if (after) after();
      return complete(call, outputs);
    }
    const Reduction reduction = reduction_of(call.what, tensor.scalar_type(), opts.reduceOp);
    const Packed data(tensor);
    const Tensor input = scaled(data.memory, opts.reduceOp);
    return launch(call, make(REGROUP_ALLREDUCE, input, data.memory, reduction), opts, outputs,
                  {data.memory, input}, [data, after = std::move(after)] {
                    data.write_back();
                    if (after) after();
                  });
  }

  template <class Options>
  intrusive_ptr<Work> scatter_reduced(const Call& call, const Tensor& output, const Tensor& packed,
                                      const Options& opts) {
    if (opts.reduceOp == ReduceOp::BXOR) {
      const Tensor all = packed.clone();
      xor_now(call.what, all, opts);
      const at::NoGradGuard no_grad;
      output.copy_(all.view({getSize(), -1})[getRank()].view(output.sizes()));
      return complete(call, {output});
    }
    const Reduction reduction = reduction_of(call.what, output.scalar_type(), opts.reduceOp);
    const Packed out(output);
    const Tensor input = scaled(packed, opts.reduceOp);
    return launch(call, make(REGROUP_REDUCE_SCATTER, input, out.memory, reduction), opts, {output},
                  {input, out.memory}, [out] { out.write_back(); });
  }

  void check_base(const char* what, const Tensor& whole, const Tensor& part) const {
    check_tensor(what, whole);
    check_tensor(what, part);
    if (whole.scalar_type() != part.scalar_type() || whole.numel() != part.numel() * getSize())
      refuse(what, "expected " + std::to_string(getSize()) +
                       " times as many elements of one type, got " +
                       c10::toString(whole.scalar_type()) + "[" + std::to_string(whole.numel()) +
                       "] and " + c10::toString(part.scalar_type()) + "[" +
                       std::to_string(part.numel()) + "]");
  }

  static const Tensors& lists(const char* what, const std::vector<Tensors>& lists) {
    if (lists.size() != 1)
      refuse(what, "expected 1 list of tensors, got " + std::to_string(lists.size()));
    return lists[0];
  }

  static Tensor pack(const Tensors& tensors) {
    Tensors flat;
    for (const Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
    return at::cat(flat);
  }
  static void unpack(const Tensor& packed, const Tensors& out) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i].copy_(packed[static_cast<std::int64_t>(i)].view(out[i].sizes()));
  }
  static Tensor padded(const Tensor& rows, std::int64_t to) {
    auto shape = rows.sizes().vec();
    shape[0] = to;
    Tensor out = at::zeros(shape, rows.options());
    out.narrow(0, 0, rows.size(0)).copy_(rows);
    return out;
  }
  // Splits the first dimension; into equal parts if there are no splits.
  Tensors parts(const Tensor& tensor, const std::vector<std::int64_t>& splits) const {
    Tensors out;
    const std::int64_t each = splits.empty() ? tensor.size(0) / getSize() : 0;
    std::int64_t at = 0;
    for (int rank = 0; rank < getSize(); ++rank) {
      const std::int64_t rows = splits.empty() ? each : splits[static_cast<std::size_t>(rank)];
      out.push_back(tensor.narrow(0, at, rows));
      at += rows;
    }
    return out;
  }

  // All-to-all of parts of different sizes, by messages with a tag that users cannot pass.
  template <class Options>
  intrusive_ptr<Work> exchange(const Call& call, const Tensors& in, const Tensors& out,
                               const Options& opts, Tensors outputs, Tensors held,
                               const std::function<void()>& after) {
    constexpr std::uint32_t kTag = 0xffffffff;
    ++sequence_;
    const char* const what = call.what;
    begin_collective(what, opts);
    auto whole = begin(call, std::move(outputs));
    std::vector<intrusive_ptr<RegroupWork>> works;
    for (int turn = 1; turn < getSize(); ++turn) {
      const int to = (getRank() + turn) % getSize();
      const int from = (getRank() - turn + getSize()) % getSize();
      const Tensor& sent = in[static_cast<std::size_t>(to)];
      const Tensor& taken = out[static_cast<std::size_t>(from)];
      const double limit = seconds(opts.timeout);
      works.push_back(follow(begin_receive(what, from, kTag, taken, limit),
                             {what, OpType::RECV, {}, false}, what, {}, {taken}, {}));
      works.push_back(follow(begin_send(what, to, kTag, sent, limit),
                             {what, OpType::SEND, {}, false}, what, {}, {sent}, {}));
    }
    const auto self = static_cast<std::size_t>(getRank());
    {
      const at::NoGradGuard no_grad;
      out[self].copy_(in[self]);
    }
    for (const auto& work : works) (void)work->wait(kNoTimeout);
    const at::NoGradGuard no_grad;
    after();
    whole->finish_once();
    return whole;
  }

  static intrusive_ptr<Work> wait_all(intrusive_ptr<RegroupWork> whole,
                                      const std::vector<intrusive_ptr<Work>>& works) {
    for (const auto& work : works) (void)work->wait(kNoTimeout);
    whole->finish_once();
    return whole;
  }

  intrusive_ptr<Work> receive(Tensors& tensors, int from, int tag, OpType type, std::string what) {
    const Packed data(single("recv", tensors));
    regroup_work* const work = begin_receive(what.c_str(), from, static_cast<std::uint32_t>(tag),
                                             data.memory, seconds_of(timeout_));
    return follow(work, {"recv", type, tensors}, std::move(what), tensors, {data.memory},
                  [data] { data.write_back(); });
  }

  const std::shared_ptr<Group> group_;
  const Origin origin_;
  const std::shared_ptr<Callbacks> callbacks_;
  const bool as_gloo_;
  int shrinks_ = 0;  // calls of shrink()
  Milliseconds timeout_;
  std::atomic<std::uint64_t> sequence_ = 0;
  std::mutex count_mutex_;  // guards these
  std::uint32_t collectives_ = 0;
  std::uint32_t barriers_ = 0;  // monitored ones since the last collective
  Completions completions_;
};

// Wraps torch's store in the functions of the table, which must not throw.
int store_set(void* self, const char* key, const void* value, std::size_t bytes) {
  try {
    const auto* const data = static_cast<const std::uint8_t*>(value);
    static_cast<c10d::Store*>(self)->set(key, std::vector<std::uint8_t>(data, data + bytes));
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

std::int64_t store_get(void* self, const char* key, void* value, std::size_t most, double seconds) {
  auto* const store = static_cast<c10d::Store*>(self);
  try {
    const auto limit =
        std::chrono::duration_cast<Milliseconds>(std::chrono::duration<double>(seconds));
    store->wait({key}, std::max(limit, Milliseconds(1)));
  } catch (const std::exception&) {
    return -1;
  }
  try {
    const std::vector<std::uint8_t> found = store->get(key);
    std::memcpy(value, found.data(), std::min(found.size(), most));
    return static_cast<std::int64_t>(found.size());
  } catch (const std::exception&) {
    return -2;
  }
}

intrusive_ptr<c10d::Backend> RegroupBackend::form(const char* what,
                                                  const regroup_collective_v1* api, Origin origin,
                                                  int rank, int size, Milliseconds timeout,
                                                  bool as_gloo) {
  const regroup_store adapter{origin.store.get(), store_set, store_get};
  regroup_group* formed = nullptr;
  Failure failure;
  failure.code = api->form(&adapter, rank, size, origin.host.c_str(), seconds_of(timeout), &formed,
                           failure.text.data(), failure.text.size());
  failure.check(what);
  return c10::make_intrusive<RegroupBackend>(std::make_shared<Group>(api, formed),
                                             std::move(origin), rank, size, timeout, as_gloo);
}

// Makes the backend for CPU tensors of `group` from the table at address `table`. Its keys in the
// group's store begin with `prefix`: another group may have used the store before. `host` is that
// of the table's form(). `as_gloo`: torch.profiler shows the operations as Gloo's.
void attach(const intrusive_ptr<c10d::ProcessGroup>& group, std::int64_t table, double seconds,
            const std::string& prefix, const std::string& host, bool as_gloo) {
  const auto* const api = reinterpret_cast<const regroup_collective_v1*>(table);
  TORCH_CHECK(api->version == REGROUP_COLLECTIVE_VERSION && api->bytes >= sizeof *api,
              "regroup: the torch backend was built for another version of the regroup package");
  const auto timeout =
      std::chrono::duration_cast<Milliseconds>(std::chrono::duration<double>(seconds));
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                    RegroupBackend::form(
                        "init_process_group", api,
                        {c10::make_intrusive<c10d::PrefixStore>(prefix, group->getStore()), host},
                        group->getRank(), group->getSize(), timeout, as_gloo));
}

}  // namespace

TORCH_LIBRARY(regroup, library) {
  library.def(
      "attach(__torch__.torch.classes.c10d.ProcessGroup group, int table, float seconds, str "
      "prefix, str host, bool as_gloo) -> ()",
      &attach);
  library.def("begin_python_end() -> ()", &PythonEnd::begin);
}
