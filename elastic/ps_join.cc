// Gets the memory of the job's parameter servers from the agent of this host, and connects to the
// agents of other hosts that have some.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/descriptor_message.h"
#include "base/text.h"
#include "base/unix_address.h"
#include "base/values.h"
#include "collective/ps/consistency.h"
#include "collective/ps/handover.h"
#include "collective/ps/link.h"
#include "elastic/options.h"
#include "regroup/ps.h"

namespace regroup::ps {
namespace {

// An agent that does not accept connections makes connect() wait once its backlog is full.
base::Status connect_until(const base::Fd& socket, const base::UnixAddress& address,
                           base::TimePoint until, const std::string& path) {
  using std::chrono::microseconds;
  while (true) {
    const auto left = std::chrono::ceil<microseconds>(until - base::SystemClock().now()).count();
    if (left <= 0) break;
    constexpr std::int64_t kMost = 60'000'000;
    const std::int64_t wait = std::min<std::int64_t>(left, kMost);
    const timeval at_most{.tv_sec = wait / 1'000'000, .tv_usec = wait % 1'000'000};
    if (::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &at_most, sizeof at_most) != 0)
      return base::system_error("setsockopt(SO_SNDTIMEO)", path, errno);
    if (::connect(socket.get(), address.get(), address.size) == 0) return {};
    if (errno != EAGAIN && errno != EINTR)
      return base::system_error("connect", "agent at " + path, errno);
  }
  return base::deadline_exceeded(
      fmt::format("ps::join: the agent at {} has not accepted a connection in time", path));
}

base::Result<base::DescriptorMessage> ask_agent(const std::string& path, base::TimePoint until) {
  REGROUP_ASSIGN_OR_RETURN(const auto address, base::unix_address(path));
  const base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return base::system_error("socket", "AF_UNIX", errno);
  REGROUP_RETURN_IF_ERROR(connect_until(socket, address, until, path));
  return base::receive_descriptors(socket.get(), until);
}

// Where a client attaches to one store. `memory` keeps the descriptors open until it has.
struct Store {
  ClientOptions options;
  base::DescriptorMessage memory;
};

// `where`: an element of REGROUP_PS. The agent's text is "CLIENT MEMORY", where MEMORY has places
// among the descriptors.
base::Result<Store> find_store(const std::string& where, ClientOptions options,
                               base::TimePoint until) {
  Store out{std::move(options), {}};
  out.options.memory = where;
  if (collective::ps::is_gateway_address(where)) return out;  // another host's
  if (where.find('/') == std::string::npos) {
    return base::invalid_argument(
        fmt::format("REGROUP_PS: expected sockets and addresses of parameter servers, separated by "
                    "semicolons, got \"{}\"",
                    base::printable_word(where)));
  }
  REGROUP_ASSIGN_OR_RETURN(out.memory, ask_agent(where, until));
  const std::string_view text = out.memory.text;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, out.options.client);
  const std::size_t at = text.find(' ');
  if (error != std::errc() || at == std::string_view::npos || end != text.data() + at)
    return base::data_loss("ps::join: the agent's answer has no client number");
  REGROUP_ASSIGN_OR_RETURN(auto memory, collective::ps::parse_server_memory(text.substr(at + 1)));
  const auto place = [&](int& number) {
    if (static_cast<std::size_t>(number) >= out.memory.descriptors.size()) return false;
    number = out.memory.descriptors[static_cast<std::size_t>(number)].get();
    return true;
  };
  for (auto& shard : memory.shards) {
    bool all = place(shard.lanes);
    for (int& segment : shard.segments) all = place(segment) && all;
    if (!all) return base::data_loss("ps::join: the agent's answer has too few descriptors");
  }
  out.options.memory = collective::ps::to_text(memory);
  return out;
}

// Takes "replicas=N", the last element of REGROUP_PS, from `places`; 1 if it is not there.
base::Result<std::uint32_t> take_replicas(std::vector<std::string>& places) {
  constexpr std::string_view kName = "replicas=";
  std::uint32_t replicas = 1;
  if (places.empty() || !places.back().starts_with(kName)) return replicas;
  if (!base::read_number(std::string_view(places.back()).substr(kName.size()), replicas)) {
    return base::invalid_argument(fmt::format("REGROUP_PS: expected replicas=N, got \"{}\"",
                                              base::printable_word(places.back())));
  }
  places.pop_back();
  return replicas;
}

}  // namespace

base::Result<std::unique_ptr<Client>> join(std::chrono::nanoseconds deadline) {
  return join(Consistency{}, deadline);
}

base::Result<std::unique_ptr<Client>> join(const Consistency& consistency,
                                           std::chrono::nanoseconds deadline) {
  // What is wrong in any job is refused before one is asked for.
  REGROUP_RETURN_IF_ERROR(collective::ps::check(consistency));
  std::vector<std::string> places = elastic::read_parameter_servers();
  REGROUP_ASSIGN_OR_RETURN(const std::uint32_t replicas, take_replicas(places));
  if (places.empty()) {
    return base::invalid_argument(
        "ps::join: this job has no parameter server; start it with --role ps=1 --ps-memory BYTES");
  }
  const ClientOptions options{.memory = {},
                              .client = 0,
                              .deadline = deadline,
                              .consistency = consistency,
                              .name = elastic::read_role_member()};
  const base::TimePoint until = base::deadline_after(base::SystemClock().now(), deadline);
  std::vector<Store> stores;
  std::vector<ClientOptions> attached;
  for (const std::string& place : places) {
    REGROUP_ASSIGN_OR_RETURN(Store store, find_store(place, options, until));
    attached.push_back(store.options);
    stores.push_back(std::move(store));
  }
  return Client::attach(attached, replicas);
}

}  // namespace regroup::ps
