// Hands calls to threads, and waits for them.
#include "collective/ps/store_threads.h"

#include <utility>

#include "collective/ps/signals_blocked.h"

namespace regroup::collective::ps {

StoreThreads::StoreThreads(std::size_t stores) : workers_(stores) {
  const SignalsBlocked blocked;
  try {
    for (std::size_t store = 0; store < stores; ++store)
      workers_[store].thread = std::thread(&StoreThreads::work, this, store);
  } catch (...) {
    end();
    throw;
  }
}

StoreThreads::~StoreThreads() { end(); }

void StoreThreads::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  for (Worker& worker : workers_) worker.begun.notify_one();
  for (Worker& worker : workers_) {
    if (worker.thread.joinable()) worker.thread.join();
  }
}

void StoreThreads::run(std::span<const std::size_t> stores, const Call& call) {
  if (stores.empty()) return;
  const std::span<const std::size_t> others = stores.subspan(1);
  {
    const std::lock_guard lock(mutex_);
    running_ = others.size();
    for (const std::size_t store : others) workers_[store].call = &call;
  }
  for (const std::size_t store : others) workers_[store].begun.notify_one();
  std::exception_ptr thrown;
  try {
    call(stores.front());
  } catch (...) {
    thrown = std::current_exception();
  }
  std::unique_lock lock(mutex_);
  // Workers use `call` until then, and what it refers to.
  ended_.wait(lock, [&] { return running_ == 0; });
  if (!thrown) thrown = thrown_;
  thrown_ = nullptr;
  lock.unlock();
  if (thrown) std::rethrow_exception(thrown);
}

void StoreThreads::work(std::size_t store) {
  Worker& own = workers_[store];
  std::unique_lock lock(mutex_);
  while (true) {
    own.begun.wait(lock, [&] { return own.call != nullptr || ending_; });
    if (own.call == nullptr) return;
    const Call& call = *std::exchange(own.call, nullptr);
    lock.unlock();
    std::exception_ptr thrown;
    try {
      call(store);
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    if (!thrown_) thrown_ = std::move(thrown);
    if (--running_ == 0) ended_.notify_one();
  }
}

}  // namespace regroup::collective::ps
