// Gets the memory of the job's parameter server from the agent of this host.
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/descriptor_message.h"
#include "base/unix_address.h"
#include "collective/ps/handover.h"
#include "elastic/options.h"
#include "regroup/ps.h"

namespace regroup::ps {
namespace {

base::Result<base::DescriptorMessage> ask_agent(const std::string& path,
                                                std::chrono::nanoseconds deadline) {
  REGROUP_ASSIGN_OR_RETURN(const auto address, base::unix_address(path));
  const base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return base::system_error("socket", "AF_UNIX", errno);
  if (::connect(socket.get(), address.get(), address.size) != 0)
    return base::system_error("connect", "agent at " + path, errno);
  return base::receive_descriptors(socket.get(), base::SystemClock().now() + deadline);
}

}  // namespace

// The agent's text is "CLIENT MEMORY", where MEMORY has places among the descriptors.
base::Result<std::unique_ptr<Client>> join(std::chrono::nanoseconds deadline) {
  const std::string path = elastic::read_parameter_server();
  if (path.empty()) {
    return base::invalid_argument(
        "ps::join: this job has no parameter server; start it with --role ps=1 --ps-memory BYTES");
  }
  REGROUP_ASSIGN_OR_RETURN(const base::DescriptorMessage answer, ask_agent(path, deadline));
  const std::string_view text = answer.text;
  ClientOptions options{.memory = {}, .client = 0, .deadline = deadline};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), options.client);
  const std::size_t at = text.find(' ');
  if (error != std::errc() || at == std::string_view::npos || end != text.data() + at)
    return base::data_loss("ps::join: the agent's answer has no client number");
  REGROUP_ASSIGN_OR_RETURN(auto memory, collective::ps::parse_server_memory(text.substr(at + 1)));
  const auto place = [&](int& number) {
    if (static_cast<std::size_t>(number) >= answer.descriptors.size()) return false;
    number = answer.descriptors[static_cast<std::size_t>(number)].get();
    return true;
  };
  for (auto& shard : memory.shards) {
    bool all = place(shard.lanes);
    for (int& segment : shard.segments) all = place(segment) && all;
    if (!all) return base::data_loss("ps::join: the agent's answer has too few descriptors");
  }
  options.memory = collective::ps::to_text(memory);
  return Client::attach(options);  // it maps the memory: the descriptors may be closed
}

}  // namespace regroup::ps
