// Hands calls to threads, and waits for them.
#include "collective/ps/store_threads.h"

#include <csignal>
#include <utility>

namespace regroup::collective::ps {

StoreThreads::StoreThreads(std::size_t stores) : workers_(stores) {
  // Signals are for the program's own threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  for (std::size_t store = 0; store < stores; ++store)
    workers_[store].thread = std::thread(&StoreThreads::work, this, store);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

StoreThreads::~StoreThreads() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  for (Worker& worker : workers_) worker.begun.notify_one();
  for (Worker& worker : workers_) worker.thread.join();
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
  call(stores.front());
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return running_ == 0; });
}

void StoreThreads::work(std::size_t store) {
  Worker& own = workers_[store];
  std::unique_lock lock(mutex_);
  while (true) {
    own.begun.wait(lock, [&] { return own.call != nullptr || ending_; });
    if (own.call == nullptr) return;
    const Call& call = *std::exchange(own.call, nullptr);
    lock.unlock();
    call(store);
    lock.lock();
    if (--running_ == 0) ended_.notify_one();
  }
}

}  // namespace regroup::collective::ps
