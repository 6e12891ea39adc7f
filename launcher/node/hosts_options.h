// What the controller of a job needs to know of its other hosts to bring their agents up, and whom it tells.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "launcher/node/children.h"
#include "launcher/node/messages.h"

namespace regroup::node {

struct HostsOptions {
  std::string job;    // its id
  std::string build;  // of this regroup: agents must be of the same
  struct Host {
    std::string name;       // as the user wrote it
    bool here = false;      // this host: its agent is forked
    std::string user = {};  // to log in there as; "": as ssh has it
    HostAccess access = {};
  };
  std::vector<Host> hosts;
  std::string program;                  // regroup, by its path there
  std::string preferred;                // another one, that is taken where it is there; "": none
  std::string wdir;                     // where members run
  launcher::Environment environment;    // of ssh
  std::vector<std::string> ssh{"ssh"};  // the command that reaches a host; empty: all agents are forked
  core::Duration limit = std::chrono::seconds(5);  // as of ChildrenOptions
  bool verbose = false;                            // agents' own output is shown
  std::size_t radix = 0;  // agents that one may have below it; 0: all are the controller's
};

// How they are waited for.
struct BringUp {
  std::function<bool()> over = {};  // asked ten times a second; true: it ends
  // True: those that are up will do, and it ends when no other has come up for one limit. Others come, or are
  // lost, after serve().
  std::function<bool()> enough = {};
  std::function<void(const core::Status&)> failed = {};  // at once, of each that fails, until serve()
};

// Of an elastic job, each host of which has a set_up() of its own: what agents tell the coordinator, who is
// not heard for a second, or again, who has come up after bring_up().
struct HostsElastic {
  std::function<void(core::NodeId, const core::Message&)> membership;
  std::function<void(core::NodeId, bool)> silent;
  std::function<void(std::size_t, const HostNotice&)> noticed = [](auto, const auto&) {};  // wanted back
  std::function<void(std::size_t index)> came;
  std::function<void(std::size_t index)> left;  // after dismiss()
};

}  // namespace regroup::node
