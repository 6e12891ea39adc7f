// What only an elastic job (-np MIN:MAX) has, and roles with the limits of their members.
#include <fmt/format.h>

#include "launcher/options/spec.h"
#include "launcher/options/values.h"

namespace regroup::launcher {
namespace {

using core::Status;
using D = OptionsBuilder;
using G = const ParsedArgument;

constexpr std::uint32_t kMostLearnerSteps = 64;  // core::kMaxKeptResults

Status add_role(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string& text = argument.value();
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  std::uint32_t count = 0;
  if (equals == std::string::npos || name.empty() ||
      !read_number(std::string_view(text).substr(equals + 1), count) || count == 0) {
    return bad_value(argument.name, text, "NAME=N is wanted, for example worker=3");
  }
  if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") !=
      std::string::npos) {
    return bad_value(argument.name, text, "a role's name is made of letters, digits, - and _");
  }
  builder.app.roles.push_back(text);
  return {};
}

Status set_policy(OptionsBuilder& builder, const ParsedArgument& argument) {
  bool restart = false;
  Status status = parse_word(argument.name, argument.value(), "restart", "end", restart);
  builder.out.restart_policy = restart ? RestartPolicy::kRestart : RestartPolicy::kEnd;
  return status;
}

Status set_hung(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string& text = argument.value();
  builder.out.hung.drop = text == "drop";
  builder.out.hung.kill = text == "replace" || text == "drop";
  if (builder.out.hung.kill || text == "report") return {};
  return bad_value(argument.name, text, "report, replace or drop is wanted");
}

}  // namespace

std::vector<Spec> elastic_options() {
  constexpr auto kJob = Scope::kJob;
  constexpr auto kYes = Common::kYes;
  return {
      {{"initial-size"},
       "N",
       "members to begin with, and to replace lost ones up to (default: min(MAX, slots))",
       [](D& d, G& g) { return parse_count(g.name, g.value(), 1, d.out.start); },
       kJob,
       kYes},
      {{"replace"},
       "auto|never",
       "start a new member for a lost one (default: auto)",
       [](D& d, G& g) { return parse_word(g.name, g.value(), "auto", "never", d.out.replace); },
       kJob,
       kYes},
      {{"spares"},
       "K",
       "members beyond those, kept ready to take a lost one's place, where there are slots (default: 0)",
       [](D& d, G& g) { return parse_count(g.name, g.value(), 0, d.out.spares); },
       kJob,
       kYes},
      {{"shards"},
       "V",
       "logical shards of each batch (default: smallest power of two >= MAX)",
       [](D& d, G& g) { return parse_count(g.name, g.value(), 1, d.out.shards); }},
      {{"seed"},
       "S",
       "of the job's random numbers (default: 0)",
       [](D& d, G& g) { return parse_count(g.name, g.value(), d.out.seed); }},
      {{"reproducible"},
       "strict|off",
       "off: admit members whose results may differ in the last bits; states are not compared (default: "
       "strict)",
       [](D& d, G& g) {
         bool strict = true;
         Status status = parse_word(g.name, g.value(), "strict", "off", strict);
         d.out.any_fingerprint = !strict;
         return status;
       }},
      {{"learner-steps"},
       "N",
       "results that a host keeps, so that who joins learns while the others train; 0: all wait for a copy "
       "(default: 8)",
       [](D& d, G& g) {
         const std::string value = g.value();
         REGROUP_RETURN_IF_ERROR(parse_count(g.name, value, 0, d.out.learner_steps));
         if (d.out.learner_steps <= kMostLearnerSteps) return Status();
         return bad_value(g.name, value, fmt::format("at most {} are possible", kMostLearnerSteps));
       }},
      {{"learner-state"},
       "BYTES",
       "smaller states are copied while the others wait (default: 64M)",
       [](D& d, G& g) { return parse_bytes(g.name, g.value(), d.out.learner_state); }},
      {{"checkpoint"},
       "DIR",
       "keep checkpoints there, and go on from the newest (docs/guide/checkpoint.md)",
       [](D& d, G& g) { return d.out.checkpoint.directory = g.value(), Status(); },
       kJob,
       kYes},
      {{"checkpoint-shared"},
       "DIR",
       "copy each checkpoint there, behind the training; go on from the newest of both",
       [](D& d, G& g) { return d.out.checkpoint.shared = g.value(), Status(); },
       kJob,
       kYes},
      {{"checkpoint-interval"},
       "N",
       "steps from one checkpoint to the next; 0: make none (default: 100)",
       [](D& d, G& g) { return parse_count(g.name, g.value(), d.out.checkpoint.every); }},
      {{"checkpoint-memory"},
       "BYTES",
       "most that a snapshot may take on a host (default: what the state needs)",
       [](D& d, G& g) { return parse_bytes(g.name, g.value(), d.out.checkpoint.memory); }},
      {{"checkpoint-keep"},
       "K",
       "keep the newest K checkpoints, never fewer than two (default: 3)",
       [](D& d, G& g) { return parse_count(g.name, g.value(), 1, d.out.checkpoint.keep); }},
      {{"checkpoint-keep-every"},
       "N",
       "and those whose step is a multiple of N (default: none)",
       [](D& d, G& g) { return parse_count(g.name, g.value(), d.out.checkpoint.keep_every); }},
      {{"min-members-timeout"},
       "SECONDS",
       "end the job when it has had fewer than MIN members for this long (default: 60)",
       [](D& d, G& g) { return parse_seconds(g.name, g.value(), d.out.wait); }},
      {{"ready-timeout"},
       "SECONDS",
       "give up a new member that is not ready after this time (default: 300)",
       [](D& d, G& g) { return parse_seconds(g.name, g.value(), d.out.ready_timeout); }},
      {{"on-hang"},
       "report|replace|drop",
       "a member that stands still while others wait for it: say so, kill and replace it, or do without it",
       set_hung},
      {{"hang-timeout"},
       "SECONDS",
       "when a member stands still: after this time and ten median steps; 0: never (default: 60)",
       [](D& d, G& g) { return parse_seconds(g.name, g.value(), d.out.hung.after); }},
      {{"orphan-timeout"},
       "SECONDS",
       "how long the job goes on without its launcher (default: 10)",
       [](D& d, G& g) { return parse_seconds(g.name, g.value(), d.out.orphan_timeout); }},
  };
}

std::vector<Spec> role_options() {
  constexpr auto kJob = Scope::kJob;
  constexpr auto kApp = Scope::kApp;
  constexpr auto kYes = Common::kYes;
  return {
      {{"role"},
       "NAME=N",
       "N members of a role, for example --role chief=1 --role worker=3; each gets TF_CONFIG",
       add_role,
       kApp,
       kYes},
      {{"job"},
       "FILE",
       "read roles, programs and limits from a YAML file",
       [](D& d, G& g) { return d.out.job_file = g.value(), Status(); },
       kJob,
       kYes},
      {{"restart-policy"},
       "end|restart",
       "what a dead chief or ps does to the job (default: end)",
       set_policy},
      {{"cpus"},
       "N",
       "processor time of each member, in processors",
       [](D& d, G& g) { return parse_cpus(g.name, g.value(), d.app.app.limits.cpus); },
       kApp},
      {{"memory"},
       "SIZE",
       "memory of each member, 512M or 2G",
       [](D& d, G& g) { return parse_bytes(g.name, g.value(), d.app.app.limits.memory_bytes); },
       kApp},
  };
}

}  // namespace regroup::launcher
