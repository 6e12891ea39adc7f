// Runs a call that may block indefinitely (on a hung NFS mount, for example) on a detached thread,
// so that the caller can time out.
#pragma once

#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "base/status.h"

namespace regroup::base {

// Runs `work` on a detached thread and returns a future of its result. `work` must own everything
// that it uses: a caller that stops waiting leaves the thread behind. If no thread can be created,
// runs `work` in the calling thread. What `work` throws becomes kInternal.
[[nodiscard]] inline std::future<Status> call_detached(const std::function<Status()>& work) {
  const auto call = [](const std::function<Status()>& callee) {
    try {
      return callee();
    } catch (const std::exception& error) {
      return internal_error(error.what());
    }
  };
  auto result = std::make_shared<std::promise<Status>>();
  std::future<Status> status = result->get_future();
  try {
    std::thread([result, work, call] { result->set_value(call(work)); }).detach();
  } catch (const std::system_error&) {
    result->set_value(call(work));
  }
  return status;
}

}  // namespace regroup::base
