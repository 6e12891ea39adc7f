// Messages between `regroup join` (the joiner) and the controller of a job: lines of JSON on a Unix
// socket of the user. docs/design/allocators.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/agent/spawner.h"
#include "launcher/spec/hosts.h"

namespace regroup::lease {

// Leases hosts to a running job, for as long as the connection lives.
struct LeaseOffer {
  spec::Grant grant;
  base::Duration grace{};  // from a notice to the loss of a host
  bool own = false;  // the hosts belong to the job's own, grown allocation: the job keeps them
  std::string request = {};  // id of the allocator's job that has these hosts; "": none
  std::string token = {};    // identifies the lease in a LeaseReconnect; "": no reconnect
  bool starts = false;       // the joiner starts the agents, since the controller cannot
};
// Joiner -> controller: the first line, sent once.
[[nodiscard]] std::string to_line(const LeaseOffer& offer);
// kInvalidArgument: malformed, no host, or a host with more slots than a job can have.
[[nodiscard]] base::Result<LeaseOffer> parse_offer(std::string_view line);

// Joiner -> controller: revokes the lease; the hosts will be lost after `within`. From a client
// without a lease: the allocator reclaims `hosts` (by name, with all their slots) of the job's own
// allocation.
struct LeaseRevoke {
  base::Duration within{};
  std::string why;
  std::vector<spec::HostRequest> hosts = {};
};
[[nodiscard]] std::string to_line(const LeaseRevoke& revoke);
[[nodiscard]] base::Result<LeaseRevoke> parse_revoke(std::string_view line);

// Joiner -> controller: the first line after a lost connection. Revokes the lease with that token;
// the controller replies when its hosts are free.
struct LeaseReconnect {
  std::string token;
  LeaseRevoke revoke;
};
[[nodiscard]] std::string to_line(const LeaseReconnect& reconnect);
[[nodiscard]] base::Result<LeaseReconnect> parse_reconnect(std::string_view line);

// `regroup resize` -> controller: the only line; the new number of members.
struct Resized {
  std::uint32_t members = 0;
};
[[nodiscard]] std::string to_line(const Resized& resized);
[[nodiscard]] base::Result<Resized> parse_resized(std::string_view line);

// Controller -> joiner, for an offer with `starts`: start an agent on one of its hosts. `secret`:
// the job's secret follows the line, as JobSecret writes it.
struct AgentStart {
  agent::AgentOrder order;  // without user and address, which the joiner adds
  bool secret = false;
};
[[nodiscard]] std::string to_line(const AgentStart& start);
[[nodiscard]] base::Result<AgentStart> parse_agent_start(std::string_view line);

// Controller -> joiner: end that agent.
struct AgentEnd {
  proto::NodeId node = 0;
};
[[nodiscard]] std::string to_line(const AgentEnd& end);
[[nodiscard]] base::Result<AgentEnd> parse_agent_end(std::string_view line);

// Joiner -> controller: an event of such an agent, as in SpawnEvents.
struct AgentNews {
  enum class What : std::uint8_t { kUp, kLine, kEnded };
  proto::NodeId node = 0;
  What what = What::kUp;
  std::string line = {};  // for kLine
  base::Status why = {};  // for kEnded
};
[[nodiscard]] std::string to_line(const AgentNews& news);
[[nodiscard]] base::Result<AgentNews> parse_agent_news(std::string_view line);

// Controller -> joiner: a sentence; `over`: the lease has ended, and this is the last line.
struct LeaseReply {
  std::string text;
  bool over = false;
  bool ok = true;  // with `over`: the lease ended as requested
};
[[nodiscard]] std::string to_line(const LeaseReply& reply);
[[nodiscard]] base::Result<LeaseReply> parse_reply(std::string_view line);

}  // namespace regroup::lease
