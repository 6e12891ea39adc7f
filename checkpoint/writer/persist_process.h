// Starts regroup-persist, and joins what it prints on standard error.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/process/piped_process.h"

namespace regroup::writer {

// The path of regroup-persist as installed with this program.
[[nodiscard]] std::string persist_program();

// Starts `program` with the arguments `words`. `inherited`: a descriptor that it gets as
// process::kInheritedFd; -1: none.
[[nodiscard]] base::Result<std::shared_ptr<process::PipedProcess>> start_persist(
    boost::asio::io_context& loop, const std::string& program, std::vector<std::string> words,
    int inherited, process::PipedProcess::Events events);

// Adds a line of standard error to the sentence `errors`.
void add_error(std::string_view line, std::string* errors);

// A sentence about the end of a process that printed no error.
[[nodiscard]] std::string silent_end(int wait_status);

}  // namespace regroup::writer
