// A part of an operation, as a coroutine. Calling it runs it up to its first wait; the engine
// (ucx/engine.h) resumes it when the condition that it awaits holds. A task cannot fail: an error
// fails the engine, which then destroys all suspended tasks.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace regroup::collective::net {

// Owns the coroutine: destroying the Task ends it. At most one other task may await it. Used by the
// engine's thread.
class [[nodiscard]] Task {
 public:
  struct Promise {
    std::coroutine_handle<> next = std::noop_coroutine();  // the task that awaits the end

    struct Finish {
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) noexcept {
        return self.promise().next;
      }
      void await_resume() const noexcept {}
    };
    Task get_return_object() { return Task(std::coroutine_handle<Promise>::from_promise(*this)); }
    std::suspend_never initial_suspend() noexcept { return {}; }
    Finish final_suspend() noexcept { return {}; }
    void return_void() {}
    [[noreturn]] void unhandled_exception() { std::terminate(); }
  };
  using promise_type =
      Promise;  // NOLINT(readability-identifier-naming): the language asks for the name

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  [[nodiscard]] bool done() const { return handle_.done(); }

  [[nodiscard]] bool await_ready() const { return done(); }
  void await_suspend(std::coroutine_handle<> awaiter) { handle_.promise().next = awaiter; }
  void await_resume() const {}

 private:
  explicit Task(std::coroutine_handle<Promise> handle) : handle_(handle) {}

  std::coroutine_handle<Promise> handle_;
};

}  // namespace regroup::collective::net
