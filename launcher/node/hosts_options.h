// What the head of a job needs to know of its other hosts to bring their agents up.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "core/clock.h"
#include "launcher/node/children.h"

namespace regroup::node {

struct HostsOptions {
  std::string job;    // its id
  std::string build;  // of this regroup: agents must be of the same
  struct Host {
    std::string name;       // as the user wrote it
    bool here = false;      // this host: its agent is forked
    std::string user = {};  // to log in there as; "": as ssh has it
    HostWay way = {};
  };
  std::vector<Host> hosts;
  std::string program;                  // regroup, by its path there
  std::string preferred;                // another one, that is taken where it is there; "": none
  std::string wdir;                     // where members run
  launcher::Environment environment;    // of ssh
  std::vector<std::string> ssh{"ssh"};  // the command that reaches a host; empty: all agents are forked
  core::Duration limit = std::chrono::seconds(5);  // as of ChildrenOptions
  bool verbose = false;                            // agents' own output is shown
  std::size_t radix = 0;                           // agents that one may have below it; 0: all are the head's
};

}  // namespace regroup::node
