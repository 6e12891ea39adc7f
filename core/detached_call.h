// Work that may hang for ever, as whatever asks a file system that does not answer.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "core/status.h"

namespace regroup::core {

// Does `work`, which owns all that it uses, in a thread of its own; whoever has waited long enough for what
// it returns goes on, and the thread is left behind. Where there can be no more threads: in this one.
[[nodiscard]] inline std::future<Status> call_detached(const std::function<Status()>& work) {
  auto answer = std::make_shared<std::promise<Status>>();
  std::future<Status> told = answer->get_future();
  try {
    std::thread([answer, work] { answer->set_value(work()); }).detach();
  } catch (const std::system_error&) {
    answer->set_value(work());
  }
  return told;
}

}  // namespace regroup::core
