// One table: the parser takes every option of it with the values it says, and help, the manual page
// and the completions know it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <regex>

#include "launcher/cli/help.h"
#include "launcher/cli/spec.h"

namespace regroup::cli {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

base::Result<CommandLine> parse(const Words& words, const std::string& program = "regroup",
                                const spec::Environment& environment = {}) {
  return parse_command_line(words,
                            {program,
                             environment,
                             {"here"},
                             [](const std::string&) { return std::string("here slots=2\n"); },
                             {}});
}

std::string refusal(const Words& words, const std::string& program = "regroup") {
  auto command = parse(words, program);
  return command.ok() ? "accepted" : command.status().message();
}

std::string program_of(const Spec& spec) {
  return spec.dialect == Dialect::kMpich ? "mpiexec.hydra" : "mpirun";
}

// Values that are right for an option, one for each of its value_names().
Words sample_values(const Spec& spec) {
  static const std::map<std::string, Words> kByName = {{"tune", {"tuned"}},
                                                       {"map-by", {"core"}},
                                                       {"rank-by", {"slot"}},
                                                       {"bind-to", {"core"}},
                                                       {"binding", {"core"}},
                                                       {"ppr", {"2:core"}},
                                                       {"cpu-set", {"0"}},
                                                       {"H", {"here"}},
                                                       {"hosts", {"here"}},
                                                       {"role", {"worker=2"}},
                                                       {"with-ft", {"ulfm"}},
                                                       {"notice-url", {"http://a/"}},
                                                       {"forward-signals", {"USR1"}},
                                                       {"runtime-options", {"timeout=1"}},
                                                       {"output", {"tag"}},
                                                       {"display", {"map"}},
                                                       {"memory", {"1M"}},
                                                       {"stdin", {"all"}},
                                                       {"s", {"all"}}};
  if (spec.value.empty()) return {};
  if (const auto found = kByName.find(spec.names[0]); found != kByName.end()) return found->second;
  Words out;
  for (const std::string& name : value_names(spec)) {
    const std::string first = name.substr(0, name.find('|'));
    if (name.starts_with('[')) continue;
    const bool word = first.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == std::string::npos;
    out.push_back(word                                                    ? first
                  : name.starts_with("VAR") && spec.names[0] == "set-env" ? "A=1"
                                                                          : "1");
  }
  return out;
}

// Options whose effect is not a job of one program.
bool stands_alone(const Spec& spec) {
  static const std::set<std::string> kAlone = {"help",    "version", "generate", "app",     "job",
                                               "nolocal", "m",       "rankfile", "run-path"};
  return kAlone.count(spec.names[0]) > 0;
}

// What the command line must have besides the option.
Words needed_by(const Spec& spec) {
  if (spec.names[0] == "ps-memory") return {"--role", "ps=1", "--role", "worker=2"};
  if (spec.names[0] == "ps-hosts" || spec.names[0] == "ps-replicas")
    return {"--role", "ps=1", "--role", "worker=2", "--ps-memory", "1G"};
  if (spec.names[0] == "mpi-dir") return {"-np", "2:4", "--plane", "mpi"};
  return {};
}

TEST(Table, NamesAreUniqueInADialect) {
  std::set<std::pair<std::string, spec::Compat>> seen;
  for (const Spec& spec : table()) {
    for (const std::string& name : spec.names) {
      EXPECT_EQ(name.find_first_of("_=: "), std::string::npos) << name;
      for (const spec::Compat compat : {spec::Compat::kOpenMpi, spec::Compat::kMpich}) {
        if (spec.dialect == Dialect::kOpenMpi && compat == spec::Compat::kMpich) continue;
        if (spec.dialect == Dialect::kMpich && compat == spec::Compat::kOpenMpi) continue;
        EXPECT_TRUE(seen.emplace(name, compat).second) << name << " is given twice";
        EXPECT_EQ(find_option(name, compat), &spec) << name;
      }
    }
  }
  EXPECT_GT(table().size(), 150U);
}

TEST(Table, TheParserTakesEveryNameWithItsValues) {
  for (const Spec& spec : table()) {
    if (stands_alone(spec)) continue;
    for (const std::string& name : spec.names) {
      for (const char* dashes : {"-", "--"}) {
        Words words = needed_by(spec);
        words.push_back(dashes + name);
        const Words values = sample_values(spec);
        words.insert(words.end(), values.begin(), values.end());
        words.insert(words.end(), {"prog", "argument"});
        auto command = parse(words, program_of(spec));
        ASSERT_TRUE(command.ok()) << words[0] << ": " << command.status().message();
        ASSERT_FALSE(command->job.apps.empty()) << words[0];
        EXPECT_EQ(command->job.apps[0].command, (Words{"prog", "argument"})) << words[0];
      }
    }
  }
}

TEST(Table, TheParserSaysWhichValueIsMissing) {
  for (const Spec& spec : table()) {
    const Words names = value_names(spec);
    if (names.empty() || names[0].starts_with('[')) continue;
    EXPECT_EQ(refusal({"-" + spec.names[0]}, program_of(spec)),
              "option -" + spec.names[0] + ": " + names[0] + " is missing");
    if (names.size() > 1) {
      EXPECT_EQ(refusal({"-" + spec.names[0], "A"}, program_of(spec)),
                "option -" + spec.names[0] + ": " + names[1] + " is missing");
    }
  }
}

// For one release: scripts that use an old name run on, and a line says what to write instead.
struct Renamed {
  const char* name;
  const char* value;
  const char* note;
  bool (*applied)(const spec::JobSpec&);
};
class RenamedOptions : public testing::TestWithParam<Renamed> {};
INSTANTIATE_TEST_SUITE_P(
    All, RenamedOptions,
    testing::Values(
        Renamed{"bits", "off", "--bits off is now --reproducible off",
                [](const spec::JobSpec& o) { return o.any_fingerprint; }},
        Renamed{"bits", "on", "--bits on is now --reproducible strict",
                [](const spec::JobSpec& o) { return !o.any_fingerprint; }},
        Renamed{"every", "7", "--every 7 is now --checkpoint-interval 7",
                [](const spec::JobSpec& o) { return o.checkpoint.every == 7; }},
        Renamed{"wait", "7", "--wait 7 is now --min-members-timeout 7",
                [](const spec::JobSpec& o) {
                  return o.min_members_timeout == std::chrono::seconds(7);
                }},
        Renamed{"hung", "drop", "--hung drop is now --on-hang drop",
                [](const spec::JobSpec& o) { return o.hang.action == proto::OnHang::kDrop; }},
        Renamed{"hung-after", "7", "--hung-after 7 is now --hang-timeout 7",
                [](const spec::JobSpec& o) { return o.hang.timeout == std::chrono::seconds(7); }},
        Renamed{"start", "2", "--start 2 is now --initial-size 2",
                [](const spec::JobSpec& o) { return o.initial_size == 2; }}));

TEST_P(RenamedOptions, OldNameIsAcceptedWithANote) {
  const std::string dashes = "--";
  for (const Words& written : {Words{dashes + GetParam().name, GetParam().value},
                               Words{dashes + GetParam().name + "=" + GetParam().value}}) {
    Words words = {"-np", "1:4"};
    words.insert(words.end(), written.begin(), written.end());
    words.emplace_back("prog");
    auto command = parse(words);
    ASSERT_TRUE(command.ok()) << command.status().message();
    EXPECT_TRUE(GetParam().applied(command->job));
    EXPECT_EQ(command->job.notes, Words{GetParam().note});
  }
}

TEST_P(RenamedOptions, OldNameIsNotDocumented) {
  const std::regex old(std::string("--") + GetParam().name + R"((?![-\w]))");
  std::string man = man_page("1");
  man.erase(std::remove(man.begin(), man.end(), '\\'), man.end());
  for (const std::string& text : {help_text("all"), man, bash_completion(), zsh_completion()})
    EXPECT_FALSE(std::regex_search(text, old)) << GetParam().name;
}

TEST(Table, MistakesAreReportedUnderTheNewName) {
  EXPECT_EQ(refusal({"-np", "1:4", "--wait", "x", "prog"}),
            "option --min-members-timeout x: expected a number of seconds");
}

TEST(Table, OptionsWithoutEffectAreTold) {
  for (const Spec& spec : table()) {
    if (spec.group != Group::kElsewhere || spec.names[0] == "noprefix") continue;
    Words words = {"--" + spec.names[0]};
    for (const std::string& value : sample_values(spec)) words.push_back(value);
    words.emplace_back("prog");
    auto command = parse(words, program_of(spec));
    ASSERT_TRUE(command.ok()) << words[0];
    EXPECT_EQ(command->job.notes, Words{"ignored, without effect in regroup: " + words[0]});
  }
}

TEST(Table, HelpKnowsEveryOption) {
  const std::string all = help_text("all");
  for (const Spec& spec : table()) {
    for (const std::string& name : spec.names) EXPECT_THAT(all, HasSubstr(dashed(name)));
    EXPECT_THAT(all, HasSubstr(spec.value));
  }
  std::set<std::string> begun;
  for (const GroupText& group : groups()) {
    const std::string part = help_text(group.name);
    EXPECT_THAT(part, testing::StartsWith(group.title));
    for (const Spec& spec : table()) {
      const std::string line = "\n  " + dashed(spec.names[0]);
      EXPECT_TRUE(spec.group != group.group || part.find(line) != std::string::npos)
          << spec.names[0];
    }
    EXPECT_THAT(help_text(""), HasSubstr(group.name));
  }
}

TEST(Table, HelpFitsATerminal) {
  for (const char* topic : {"", "all", "status", "top", "resize", "notice", "kill-member", "ps"}) {
    std::istringstream lines(help_text(topic));
    for (std::string line; std::getline(lines, line);) {
      const bool list_of_names = line.starts_with("  -");  // it is not broken
      EXPECT_TRUE(line.size() <= 80 || list_of_names) << line;
    }
  }
}

TEST(Table, TheFirstScreenFitsATerminalAndNamesTheTopics) {
  const std::string screen = help_text("");
  std::istringstream lines(screen);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_LE(count, 40U);
  for (const std::string& topic : help_topics()) {
    EXPECT_TRUE(std::regex_search(screen, std::regex("[ ,]" + topic + "[ ,\n]"))) << topic;
    EXPECT_FALSE(help_text(topic).empty()) << topic;
    EXPECT_EQ(refusal({"--help", topic}), "accepted") << topic;
  }
  EXPECT_THAT(refusal({"--help", "hostz"}),
              testing::StartsWith(
                  "--help hostz: unknown topic; did you mean hosts?; topics are any option, "
                  "members, environment, "));
}

TEST(Table, HelpOnTheParameterServerHasItsOptionsAndCommands) {
  const std::string text = help_text("ps");
  for (const char* part : {"--role ps=1", "\n  --role NAME=N", "\n  --ps-memory BYTES",
                           "\n  --ps-hosts N", "\n  --hang-timeout ", "\n  --checkpoint ",
                           "regroup resize ps=N ", "regroup kill-member ps:0 "})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_EQ(refusal({"--help", "ps"}), "accepted");
  EXPECT_THAT(refusal({"--help", "pz"}), testing::StartsWith("--help pz: unknown topic"));
}

TEST(Table, EveryHelpIsInOneVoice) {
  const std::regex vague(
      R"(\b(who(?!=)|whoever|nobody|so many|as many|of it|those|told|tells?|comes?|beside|behind)\b)");
  for (const Spec& spec : table()) {
    EXPECT_FALSE(std::regex_search(spec.help, vague)) << spec.help;
    const std::size_t at = spec.help.find("(default: ");
    EXPECT_TRUE(at == std::string::npos || spec.help.ends_with(')')) << spec.help;
  }
}

TEST(Table, EveryHelpIsASentenceOfItsOwn) {
  for (const Spec& spec : table()) {
    EXPECT_FALSE(spec.help.empty()) << spec.names[0];
    EXPECT_FALSE(spec.help.ends_with('.')) << spec.names[0];
    EXPECT_EQ(spec.help.find("  "), std::string::npos) << spec.names[0];
  }
}

std::string without_roff(const std::string& page) {
  return std::regex_replace(std::regex_replace(page, std::regex(R"(\\f[BIR])"), ""),
                            std::regex(R"(\\-)"), "-");
}

TEST(Table, TheManualPageKnowsEveryOption) {
  const std::string page = without_roff(man_page("1.2.3"));
  EXPECT_THAT(page, HasSubstr("regroup 1.2.3"));
  for (const Spec& spec : table()) {
    std::string line = "\n.TP\n";
    for (const std::string& name : spec.names)
      line += (name == spec.names[0] ? "" : ", ") + dashed(name);
    if (!spec.value.empty()) line += " " + spec.value;
    EXPECT_THAT(page, HasSubstr(line + "\n" + spec.help + ".\n"));
  }
}

// All words of a text that begin with a dash.
std::set<std::string> dashed_words(const std::string& text, const std::string& pattern) {
  const std::regex word(pattern);
  std::set<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), word), end; it != end; ++it)
    out.insert((*it)[1]);
  return out;
}

std::set<std::string> all_dashed() {
  std::set<std::string> out;
  for (const Spec& spec : table()) {
    for (const std::string& name : spec.names) out.insert(dashed(name));
  }
  return out;
}

TEST(Table, CompletionsKnowEveryOptionAndNoOther) {
  const std::string bash = bash_completion();
  const std::size_t from = bash.find("compgen -W '-");
  ASSERT_NE(from, std::string::npos);
  const std::string words =
      bash.substr(from + std::strlen("compgen -W"), bash.find('\n', from) - from);
  EXPECT_EQ(dashed_words(words, "[ '](-\\w[-\\w]*|--[-\\w]+)(?=[ '])"), all_dashed());
  EXPECT_EQ(dashed_words(zsh_completion(), "\n  '\\*(-[-\\w]+)\\["), all_dashed());
}

TEST(CommandLine, ItsNameChoosesTheDialect) {
  EXPECT_EQ(parse({"p"}, "/usr/bin/mpirun")->job.compat, spec::Compat::kOpenMpi);
  EXPECT_EQ(parse({"p"}, "mpiexec")->job.compat, spec::Compat::kOpenMpi);
  EXPECT_EQ(parse({"p"}, "/opt/bin/mpiexec.hydra")->job.compat, spec::Compat::kMpich);
  EXPECT_EQ(parse({"--compat=mpich", "p"})->job.compat, spec::Compat::kMpich);
  EXPECT_EQ(parse({"status"}, "mpirun")->verb, Verb::kRun);
  EXPECT_EQ(parse({"status"}, "regroup")->verb, Verb::kStatus);
  EXPECT_EQ(version_text("/bin/regroup", "0.1"), "regroup 0.1\n");
  EXPECT_EQ(version_text("mpirun", "0.1"), "mpirun (regroup 0.1, with the options of Open MPI)\n");
  EXPECT_EQ(version_text("mpiexec.hydra", "0.1"),
            "mpiexec.hydra (regroup 0.1, with the options of MPICH's HYDRA)\n");
}

TEST(CommandLine, TheEnvironmentMaySetTheTimeout) {
  EXPECT_EQ(parse({"p"}, "mpirun", {{"MPIEXEC_TIMEOUT", "7"}})->job.timeout,
            std::chrono::seconds(7));
  EXPECT_EQ(parse({"--timeout", "3", "p"}, "mpirun", {{"MPIEXEC_TIMEOUT", "7"}})->job.timeout,
            std::chrono::seconds(3));
  EXPECT_EQ(parse({"p"}, "mpirun", {{"MPIEXEC_TIMEOUT", "soon"}}).status().message(),
            "option MPIEXEC_TIMEOUT soon: expected a number of seconds");
}

TEST(CommandLine, SlotsComeFromTheHostFile) {
  auto command = parse({"--hostfile", "any", "p"});
  ASSERT_TRUE(command.ok());
  EXPECT_EQ(command->job.hosts, (std::vector<spec::HostRequest>{{"here", 2, 0, true}}));
}

TEST(CommandLine, HelpTakesATopicButNoProgram) {
  EXPECT_EQ(parse({"--help", "hosts"})->topic, "hosts");
  EXPECT_EQ(parse({"--help", "./a.out"})->topic, "");
  EXPECT_EQ(parse({"--help", "python", "train.py"})->topic, "");
  EXPECT_EQ(parse({"--help", "map-by", "core", "true"})->topic, "map-by");
  EXPECT_THAT(refusal({"--help", "mapby"}),
              testing::StartsWith("--help mapby: unknown topic; did you mean map-by?; "));
  EXPECT_EQ(parse({"help", "all"})->topic, "all");
  EXPECT_EQ(parse({"--help=all"})->topic, "all");
  EXPECT_EQ(parse({"--generate", "man"})->topic, "man");
  EXPECT_EQ(refusal({"--generate", "html"}), "option --generate html: expected man, bash or zsh");
}

}  // namespace
}  // namespace regroup::cli
