// One message each way.
#include "launcher/job/kill_requests.h"

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/descriptor_message.h"
#include "launcher/job/job_files.h"

namespace regroup::job {
namespace {

constexpr std::chrono::seconds kKillAnswer{60};        // of an agent on a busy machine
constexpr std::chrono::milliseconds kKillRequest{50};  // the request is there already

}  // namespace

KillRequests::KillRequests(boost::asio::io_context& loop, Kill kill)
    : loop_(loop),
      kill_(std::move(kill)),
      listener_(loop, [this](base::Fd socket, pid_t) { wait_for_request(std::move(socket)); }),
      asker_(loop) {}

void KillRequests::wait_for_request(base::Fd socket) {
  asker_ = boost::asio::posix::stream_descriptor(loop_, socket.release());
  asker_.async_wait(asker_.wait_read, [this](const boost::system::error_code& error) {
    if (!error) answer();
  });
}

void KillRequests::answer() {
  const base::Fd asker(asker_.release());
  const auto request =
      base::receive_descriptors(asker.get(), base::SystemClock().now() + kKillRequest);
  if (!request.ok()) return;
  const base::Result<std::string> done = kill_(request->text);
  // Best effort: the user may have gone.
  static_cast<void>(base::send_descriptors(
      asker.get(), done.ok() ? "ok " + *done : "refused " + done.status().message(), {}));
}

base::Result<std::string> kill_member(const JobFiles& files, const std::string& member) {
  const auto socket = transport::connect_unix(files.kill_socket());
  if (!socket.ok()) return base::not_found(only_status(files.id()));
  REGROUP_RETURN_IF_ERROR(base::send_descriptors(socket->get(), member, {}));
  REGROUP_ASSIGN_OR_RETURN(
      const base::DescriptorMessage answer,
      base::receive_descriptors(socket->get(), base::SystemClock().now() + kKillAnswer));
  if (answer.text.starts_with("ok ")) return answer.text.substr(3);
  return base::invalid_argument(answer.text.substr(answer.text.find(' ') + 1));
}

}  // namespace regroup::job
