// The handlers of the process keep the Hook alive.
#include "launcher/process/hook.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <boost/asio/post.hpp>
#include <utility>

#include "launcher/process/environment.h"

namespace regroup::process {
namespace {

constexpr std::size_t kMostPrinted = 64 << 20;
constexpr std::size_t kMostComplaint = 200;

}  // namespace

std::shared_ptr<Hook> Hook::start(boost::asio::io_context& loop,
                                  const std::vector<std::string>& argv,
                                  const spec::Environment& environment, base::Duration limit,
                                  Done done) {
  std::shared_ptr<Hook> self(new Hook(loop, std::move(done)));
  self->run(loop, argv, environment, limit);
  return self;
}

void Hook::run(boost::asio::io_context& loop, const std::vector<std::string>& argv,
               const spec::Environment& environment, base::Duration limit) {
  const auto fail = [&](const base::Status& why) {
    boost::asio::post(loop, [self = shared_from_this(), why] { self->end(why); });
  };
  auto path = find_program(argv.at(0), "", environment);
  if (!path.ok()) return fail(path.status());
  SpawnSpec spec;
  spec.path = std::move(*path);
  spec.argv = argv;
  spec.environment = to_strings(environment);
  auto process = PipedProcess::start(
      loop, std::move(spec),
      {.line = [self = shared_from_this()](std::string_view line,
                                           bool error) { self->on_line(line, error); },
       .ended = [self = shared_from_this()](int wait_status) { self->on_end(wait_status); }});
  if (!process.ok()) return fail(process.status());
  process_ = std::move(*process);
  process_->close_input();
  timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit));
  timer_.async_wait([self = shared_from_this(), limit](const boost::system::error_code& error) {
    if (error || !self->process_) return;
    std::exchange(self->process_, nullptr)->abandon();
    self->end(base::deadline_exceeded(fmt::format("did not end within {:g} s and was killed",
                                                  std::chrono::duration<double>(limit).count())));
  });
}

void Hook::abandon() {
  done_ = nullptr;
  timer_.cancel();
  if (process_) std::exchange(process_, nullptr)->abandon();
}

void Hook::on_line(std::string_view line, bool error) {
  if (error) complaint_ = line.substr(0, kMostComplaint);
  if (!error && printed_.size() < kMostPrinted) printed_.append(line).push_back('\n');
}

void Hook::on_end(int wait_status) {
  process_.reset();
  timer_.cancel();
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) return end(std::move(printed_));
  const std::string how = WIFEXITED(wait_status)
                              ? fmt::format("ended with status {}", WEXITSTATUS(wait_status))
                              : fmt::format("was killed by signal {}", WTERMSIG(wait_status));
  end(base::unavailable(complaint_.empty() ? how : how + ": " + complaint_));
}

void Hook::end(base::Result<std::string> result) {
  if (done_) std::exchange(done_, nullptr)(std::move(result));
}

}  // namespace regroup::process
