// The command line and the environment of `regroup` as plain data.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "launcher/supervise/environment.h"

namespace regroup::cmd {

enum class Verb : std::uint8_t { kRun, kHelp, kVersion, kStatus, kResize, kNotice, kKillMember };

struct Options {
  Verb verb = Verb::kRun;

  // kRun
  std::uint32_t min = 0;  // -np MIN:MAX; equal unless elastic; 0: one member per slot
  std::uint32_t max = 0;
  bool elastic = false;
  std::uint32_t start = 0;  // 0: min(MAX, slots)
  bool replace = true;
  bool oversubscribe = false;
  std::uint32_t shards = 0;  // 0: smallest power of two >= MAX
  std::uint64_t seed = 0;
  bool any_fingerprint = false;  // --bits=off
  bool tag_output = false;
  bool quiet = false;
  bool verbose = false;
  core::Duration timeout{};  // 0: none
  core::Duration wait = std::chrono::seconds(60);
  core::Duration ready_timeout = std::chrono::seconds(300);
  core::Duration orphan_timeout = std::chrono::seconds(10);
  core::Duration term_grace = std::chrono::seconds(5);
  std::string wdir;
  std::vector<std::string> command;
  std::vector<std::string> elastic_options;  // those given that only an elastic job has, as they were written

  // Control commands
  std::uint32_t number = 0;  // members of resize, or a member's id
  std::string job;           // "": the user's only one
  bool json = false;
  bool follow = false;

  launcher::Environment environment;  // of this process, changed by -x
};

// kInvalidArgument names the option, what is wrong with it and, for an unknown one, the nearest there is.
[[nodiscard]] core::Result<Options> parse_options(const std::vector<std::string>& args,
                                                  launcher::Environment environment);

// What stands in `slots` for a job: fills in min, max, start and shards that were not given, and refuses what
// does not fit.
[[nodiscard]] core::Status fit_to_slots(Options& options, std::uint32_t slots);

// A sentence on options that this job does not heed; "" if there are none.
[[nodiscard]] std::string unheeded_options(const Options& options);

// Of this process: the one place where the launcher reads it.
[[nodiscard]] launcher::Environment read_environment();

[[nodiscard]] std::string help_text();

}  // namespace regroup::cmd
