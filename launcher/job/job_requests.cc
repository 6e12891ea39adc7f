// The answer is "ok TEXT" or "refused TEXT".
#include "launcher/job/job_requests.h"

#include <chrono>
#include <memory>
#include <utility>

#include "base/descriptor_message.h"

namespace regroup::job {
namespace {

constexpr std::chrono::milliseconds kRequest{50};  // the request is there already

JobRequests::Answer answer_to(base::Fd asker) {
  return [asker =
              std::make_shared<base::Fd>(std::move(asker))](const base::Result<std::string>& done) {
    const std::string text = done.ok() ? "ok " + *done : "refused " + done.status().message();
    // Best effort: the user may have gone.
    static_cast<void>(base::send_descriptors(asker->get(), text, {}));
  };
}

}  // namespace

JobRequests::JobRequests(boost::asio::io_context& loop, Handle handle)
    : loop_(loop),
      handle_(std::move(handle)),
      listener_(loop, [this](base::Fd socket, pid_t) { wait_for_request(std::move(socket)); }),
      asker_(loop) {}

void JobRequests::wait_for_request(base::Fd socket) {
  asker_ = boost::asio::posix::stream_descriptor(loop_, socket.release());
  asker_.async_wait(asker_.wait_read, [this](const boost::system::error_code& error) {
    if (!error) receive();
  });
}

void JobRequests::receive() {
  base::Fd asker(asker_.release());
  const auto request = base::receive_descriptors(asker.get(), base::SystemClock().now() + kRequest);
  if (request.ok()) handle_(request->text, answer_to(std::move(asker)));
}

base::Result<std::string> ask_job(const std::string& path, const std::string& none,
                                  const std::string& request, base::Duration limit) {
  const auto socket = transport::connect_unix(path);
  if (!socket.ok()) return base::not_found(none);
  REGROUP_RETURN_IF_ERROR(base::send_descriptors(socket->get(), request, {}));
  REGROUP_ASSIGN_OR_RETURN(
      const base::DescriptorMessage answer,
      base::receive_descriptors(socket->get(), base::SystemClock().now() + limit));
  if (answer.text.starts_with("ok ")) return answer.text.substr(3);
  return base::invalid_argument(answer.text.substr(answer.text.find(' ') + 1));
}

}  // namespace regroup::job
