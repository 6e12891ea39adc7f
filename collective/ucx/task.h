// A piece of an operation that waits now and then, written as a coroutine. It runs when it is called, until
// it first waits; the engine (engine.h) resumes it when what it waits for has come. A task cannot fail: what
// goes wrong ends the engine, which then destroys all tasks where they stand.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace regroup::collective {

// Owns the coroutine. Awaited by one task at most, or asked with done().
class [[nodiscard]] Task {
 public:
  struct Promise {
    std::coroutine_handle<> next = std::noop_coroutine();  // who awaits the end

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
  using promise_type = Promise;  // NOLINT(readability-identifier-naming): the language asks for the name

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
  void await_suspend(std::coroutine_handle<> who) { handle_.promise().next = who; }
  void await_resume() const {}

 private:
  explicit Task(std::coroutine_handle<Promise> handle) : handle_(handle) {}

  std::coroutine_handle<Promise> handle_;
};

}  // namespace regroup::collective
