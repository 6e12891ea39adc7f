// What the controller of a job says to `regroup join` through whatever command leads there: lines,
// and behind some of them the job's secret. Whatever comes, each line is read as it was sent, the
// secret is in none of them, and no agent is started but on a host of the allocation, of which
// there is none here.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "launcher/lease/grant_lines.h"
#include "launcher/lease/leased_agents.h"
#include "launcher/lease/socket_line_reader.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using lease::SocketLineReader;
using regroup::fuzz::require;

namespace {

constexpr std::string_view kMark = "regroup1";

struct Door {
  Door() {
    std::array<int, 2> fds{};
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
    ours = base::Fd(fds[0]);
    controller = base::Fd(fds[1]);
  }
  // All of it, and the end.
  void say(std::string_view bytes) const {
    require(::send(controller.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) ==
            static_cast<ssize_t>(bytes.size()));
    require(::shutdown(controller.get(), SHUT_WR) == 0);
  }
  base::Fd ours, controller;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view left(reinterpret_cast<const char*>(data), std::min<std::size_t>(size, 48 << 10));
  if (left.empty()) return 0;
  const Door door;
  door.say(left);
  boost::asio::io_context loop;
  std::size_t reported = 0, starts = 0;
  lease::LeasedAgents agents(loop, {}, {}, [&reported](const std::string& line) {
    const auto news = lease::parse_agent_news(line);
    require(news.ok() && news->what == lease::AgentNews::What::kEnded && !news->why.ok());
    ++reported;
  });
  SocketLineReader reader;
  for (;;) {
    const auto outcome = reader.receive(door.ours.get());
    if (outcome == SocketLineReader::Outcome::kEnd) break;
    if (outcome == SocketLineReader::Outcome::kNothing)
      continue;  // a longer line than is looked at at once
    const std::string line = reader.take();
    require(line == left.substr(0, left.find('\n') + 1));
    left.remove_prefix(line.size());
    const auto about_agents = agents.on_line(line, door.ours.get());
    const auto start = lease::parse_agent_start(line);
    if (start.ok() && !lease::parse_agent_end(line).ok()) {
      const bool secret =
          left.size() >= transport::JobSecret::kMessageBytes && left.starts_with(kMark);
      require(about_agents.ok() == (!start->secret || secret));
      if (!about_agents.ok()) return 0;
      if (start->secret) left.remove_prefix(transport::JobSecret::kMessageBytes);
      ++starts;
    }
    require(about_agents.ok() && reported == starts);
  }
  require(left.find('\n') == std::string_view::npos);
  return 0;
}
