// What the controller needs to start agents on the other hosts of a job, and its callbacks.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/agent/children.h"
#include "launcher/agent/messages.h"

namespace regroup::agent {

struct HostsOptions {
  std::string job;    // its id
  std::string build;  // version of regroup; agents must have the same
  struct Host {
    std::string name;       // as the user wrote it
    bool here = false;      // this host: its agent is forked
    std::string user = {};  // login name; "": as ssh has it
    HostAccess access = {};
  };
  std::vector<Host> hosts;
  std::string program;            // path of regroup on those hosts
  std::string preferred;          // path that is preferred where it exists; "": none
  std::string wdir;               // where members run
  spec::Environment environment;  // of ssh
  std::vector<std::string> ssh{
      "ssh"};  // the command that reaches a host; empty: all agents are forked
  base::Duration limit = std::chrono::seconds(5);  // as of ChildrenOptions
  bool verbose = false;                            // print the agents' own output
  std::size_t radix = 0;  // children per agent; 0: all agents are children of the controller
};

// How bring_up() waits for the agents.
struct BringUp {
  std::function<bool()> over = {};  // polled ten times a second; true: stop waiting
  // True: the agents that are up suffice, and waiting ends when no other has come up for one limit.
  // The others may come up, or are lost, after serve().
  std::function<bool()> enough = {};
  // Called for each agent that fails, until serve().
  std::function<void(const base::Status&)> failed = {};
};

// Callbacks of an elastic job, whose hosts get their set_up() one by one: membership messages of
// agents, silence for a second and its end, notices, and hosts that came up after bring_up().
struct HostsElastic {
  std::function<void(proto::NodeId, const proto::Message&)> membership;
  std::function<void(proto::NodeId, bool)> silent;
  // Preemption notice.
  std::function<void(std::size_t, const HostNotice&)> noticed = [](auto, const auto&) {};
  std::function<void(std::size_t index)> came;
  std::function<void(std::size_t index)> dismissed;  // after dismiss()
};

}  // namespace regroup::agent
