// Calls on threads that can be left behind.
#include "base/detached_call.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

namespace regroup::base {
namespace {

constexpr std::chrono::seconds kMinute(60);

std::thread::id thread_of(DetachedWorker& worker) {
  auto id = std::make_shared<std::thread::id>();
  EXPECT_TRUE(worker.call([id] { return *id = std::this_thread::get_id(), Status(); }).get().ok());
  return *id;
}

TEST(DetachedWorker, RunsAllCallsOnOneThread) {
  DetachedWorker worker;
  const auto first = thread_of(worker);
  EXPECT_NE(first, std::this_thread::get_id());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(thread_of(worker), first);
}

TEST(DetachedWorker, ReturnsWhatACallReturnsOrThrows) {
  DetachedWorker worker;
  EXPECT_EQ(worker.call([] { return invalid_argument("a"); }).get().code(), Code::kInvalidArgument);
  const Status thrown = worker.call([]() -> Status { throw std::runtime_error("b"); }).get();
  EXPECT_EQ(thrown.code(), Code::kInternal);
  EXPECT_NE(thrown.message().find('b'), std::string::npos);
  EXPECT_TRUE(worker.call([] { return Status(); }).get().ok());
}

TEST(DetachedWorker, ItsEndDoesNotWaitForACallThatHangs) {
  auto go = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<void>>();
  std::future<void> seen = ended->get_future();
  std::future<Status> hung;
  {
    DetachedWorker worker;
    hung = worker.call([wait = go->get_future().share()] { return wait.wait(), Status(); });
    // What it owns is freed with the thread's last call.
    const std::shared_ptr<void> owned(nullptr, [ended](void*) { ended->set_value(); });
    (void)worker.call([owned] { return Status(); });
  }
  EXPECT_EQ(seen.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  go->set_value();
  EXPECT_TRUE(hung.get().ok());
  EXPECT_EQ(seen.wait_for(kMinute), std::future_status::ready);
}

#ifndef __SANITIZE_THREAD__  // ends a forked process that starts a thread
TEST(DetachedWorker, AForkedProcessHasAThreadOfItsOwn) {
  DetachedWorker worker;
  (void)thread_of(worker);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto done = worker.call([] { return Status(); });
    ::_exit(done.wait_for(kMinute) == std::future_status::ready ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

}  // namespace
}  // namespace regroup::base
