// What a command line asks for, before the machine is asked for anything; parse.h reads one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/spec/job_spec.h"

namespace regroup::cli {

enum class Verb : std::uint8_t {
  kRun,
  kHelp,
  kVersion,
  kGenerate,
  kStatus,
  kResize,
  kNotice,
  kKillMember,
  kTop,
  kBench,
  kCheckpoint,
  kSave,
  kLedger,
  kPlace,
  kTopo,
  kAllocation,
  kDoctor,
  kJoin
};

// What `regroup status | top | resize | notice | kill-member | checkpoint save` asks a running job.
struct ControlRequest {
  std::string job;           // "": the user's only one
  std::uint32_t number = 0;  // members of resize, or a member's id
  std::string member;        // of kill-member: a number, or "worker:1" in a job of roles
  bool servers = false;      // resize ps=N: `number` is one of servers
  bool json = false;
  bool follow = false;
  bool prometheus = false;
  bool once = false;                       // top
  std::optional<base::Duration> interval;  // top; none: the default
};

struct CommandLine {
  Verb verb = Verb::kRun;
  spec::JobSpec job;       // kRun
  ControlRequest control;  // the five control commands
  std::string topic;       // kHelp: "", "all", an option or a group; kGenerate: man, bash or zsh
  std::vector<std::string> words;  // of the verbs that read theirs elsewhere: kBench, kDoctor ...
  spec::Environment environment;   // of this process, unchanged; kRun: `job` has it
};

}  // namespace regroup::cli
