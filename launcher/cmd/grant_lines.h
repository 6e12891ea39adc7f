// What `regroup join` and the hub of a job say to each other: lines of JSON on a Unix socket of the user's.
// docs/design/allocators.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "launcher/options/hosts.h"
#include "launcher/spawn/spawner.h"

namespace regroup::cmd {

// Hosts for a job that runs already. They stay whose they are: the offer ends with its connection.
struct Offer {
  launcher::Grant grant;
  core::Duration grace{};    // from a notice to the loss of a host
  bool own = false;          // they are of the job's own allocation, which has grown: the job keeps them
  std::string request = {};  // the id of the allocator's job that gives them; "": it has none
  std::string token = {};    // by which the connection is known again after it was lost; "": it is not
  bool starts = false;       // who offers them starts the agents there: nobody else can
};
// Joiner -> hub, first and once.
[[nodiscard]] std::string to_line(const Offer& offer);
// kInvalidArgument: it is no offer, or names no host, or one with more slots than a job can have.
[[nodiscard]] core::Result<Offer> parse_offer(std::string_view line);

// Joiner -> hub: the hosts are wanted back, and lost in `within`. From one who has offered none: those of
// `hosts` (names, and all their slots), of the job's own allocation.
struct Recall {
  core::Duration within{};
  std::string why;
  std::vector<launcher::HostRequest> hosts = {};
};
[[nodiscard]] std::string to_line(const Recall& recall);
[[nodiscard]] core::Result<Recall> parse_recall(std::string_view line);

// Joiner -> hub, first, where its connection was lost: the hosts of that offer are wanted back, and who says
// so is told when they are free.
struct Again {
  std::string token;
  Recall recall;
};
[[nodiscard]] std::string to_line(const Again& again);
[[nodiscard]] core::Result<Again> parse_again(std::string_view line);

// `regroup resize` -> hub, first and once: the job is to have so many members.
struct Resized {
  std::uint32_t members = 0;
};
[[nodiscard]] std::string to_line(const Resized& resized);
[[nodiscard]] core::Result<Resized> parse_resized(std::string_view line);

// Hub -> joiner, of an offer that `starts`: an agent on one of its hosts. `secret`: the bytes of the job's
// secret come behind the line, as JobSecret writes them.
struct AgentStart {
  launcher::AgentOrder order;  // without user and address, which are the joiner's matter
  bool secret = false;
};
[[nodiscard]] std::string to_line(const AgentStart& start);
[[nodiscard]] core::Result<AgentStart> parse_agent_start(std::string_view line);

// Hub -> joiner: that agent is to leave.
struct AgentEnd {
  core::NodeId node = 0;
};
[[nodiscard]] std::string to_line(const AgentEnd& end);
[[nodiscard]] core::Result<AgentEnd> parse_agent_end(std::string_view line);

// Joiner -> hub: what SpawnEvents tell of such an agent.
struct AgentNews {
  enum class What : std::uint8_t { kUp, kLine, kEnded };
  core::NodeId node = 0;
  What what = What::kUp;
  std::string line = {};  // of kLine
  core::Status why = {};  // of kEnded
};
[[nodiscard]] std::string to_line(const AgentNews& news);
[[nodiscard]] core::Result<AgentNews> parse_agent_news(std::string_view line);

// Hub -> joiner: a sentence; `over`: the hosts are not used any more, and this is the last line.
struct Told {
  std::string text;
  bool over = false;
  bool ok = true;  // of the last one
};
[[nodiscard]] std::string to_line(const Told& told);
[[nodiscard]] core::Result<Told> parse_told(std::string_view line);

}  // namespace regroup::cmd
