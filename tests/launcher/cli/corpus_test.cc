// Command lines as people write them, with what they must be understood as:
// tests/launcher/cli/corpus.txt. With REGROUP_CORPUS_OUT=FILE in the environment, what they are
// understood as is written there: to be read, line by line, before it replaces the corpus.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "base/status.h"
#include "base/values.h"
#include "tests/launcher/spec/describe.h"

namespace regroup::cli {
namespace {

const std::map<std::string, std::string> kFiles = {
    {"hosts.openmpi", "# two sockets\nnode0 slots=4 max_slots=8\n"},
    {"hosts.prrte", "node0 slots=4\nnode7 slots=4\n^node7\n"},
    {"hosts.hydra", "node0:4\n"},
    {"hosts.plain", "localhost\nlocalhost\n"},
    {"hosts.two", "node0 slots=8\nnode1 slots=8\n"},
    {"hosts.bad", "node0 slots=4\nnode1 slots=many\n"},
    {"apps",
     "# servers first\n-np 1 ./server --port 80\n-np 3 -x ROLE='a worker' ./client : -np 1 "
     "./logger\n"},
    {"apps.peers",
     "-np 1 echo one \\\n# a comment between\n\ttwo \\ \n three\n-np 1 echo it's John's \\d+ a\\ b "
     "'c d' "
     "x='e f'\n"
     "-np 1 echo a#b #c\n-np 1 echo 'open\n-np 1 echo last \\\n"},
    {"apps.bad", "-np 1 ./a\n-np one ./b\n"},
    {"ranks", "rank 1=localhost slot=1:0-1\nrank 0=node0 slot=0,2  # first\n"},
    {"ranks.many", "rank 0=node0 slot=0\nrank 1=node0 slot=1\n"},
    {"ranks.relative", "rank 0=+n1 slot=0\nrank 1=+n0 slot=0\n"},
    {"ranks.name", "rank 0=-oProxyCommand slot=0\n"},
    {"hosts.limits", "node0 slots=1 max_slots=1\nnode1 slots=2\n"},
    {"ranks.bad", "rank 0=node0 slot=0\nrank 2=node0 slot=1\n"},
    {"tune.conf", "# tuned\n-mca btl self,vader -x OMP_NUM_THREADS=4\nmpi_show_handle_leaks = 1\n"},
};

ParseContext parse_context(const std::string& program) {
  return {program,
          {{"PATH", "/usr/bin"},
           {"HOME", "/home/u"},
           {"NCCL_DEBUG", "INFO"},
           {"LD_LIBRARY_PATH", "/opt/lib"}},
          {"node0.cluster"},
          [](const std::string& path) -> base::Result<std::string> {
            const auto found = kFiles.find(path);
            if (found == kFiles.end()) return base::not_found("no such file");
            return found->second;
          },
          [](const std::string& path) {
            return path == "./executable.py" || path == "executable.py" || path == "/opt/tool.py";
          }};
}

std::string understood(const std::string& line) {
  auto words = base::shell_words(line);
  if (!words.ok() || words->empty()) return "no command line\n";
  const std::string program = (*words)[0];
  words->erase(words->begin());
  const ParseContext context = parse_context(program);
  auto command = parse_command_line(*words, context);
  return command.ok() ? describe(command->job, context.environment)
                      : "error: " + command.status().message() + "\n";
}

// Reading the addresses of interfaces and /etc/hosts takes a launch longer than all else that it
// parses.
TEST(HostNames, AreLookedUpOnceAndOnlyWhereSomebodyNamedAHost) {
  std::vector<std::vector<std::string>> asked;
  ParseContext context = parse_context("regroup");
  context.look_up = [&](const std::vector<std::string>& named) {
    asked.push_back(named);
    return spec::HostNames{{"node0.cluster", "front"}, {{"b", "10.0.0.2"}, {"c", "10.0.0.2"}}};
  };
  ASSERT_TRUE(parse_command_line({"-np", "2", "--map-by", "core", "true"}, context).ok());
  EXPECT_TRUE(asked.empty());
  const auto options = parse_command_line({"-np", "4", "-H", "front,b,c,user@d", "true"}, context);
  ASSERT_TRUE(options.ok()) << options.status().message();
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0], (std::vector<std::string>{"front", "b", "c", "d"}));
  ASSERT_EQ(options->job.hosts.size(), 3U);
  EXPECT_TRUE(options->job.hosts[0].here);
  EXPECT_EQ(options->job.hosts[1].slots, 2U);
}

// Lines beginning with "$ " are command lines; what follows up to the next blank line is expected.
TEST(Corpus, IsUnderstood) {
  std::ifstream file("tests/launcher/cli/corpus.txt");
  ASSERT_TRUE(file) << "run in the root of the repository";
  const char* const path = std::getenv("REGROUP_CORPUS_OUT");
  std::ofstream out(path != nullptr ? path : "/dev/null");
  std::string line, command, expected;
  int commands = 0;
  const auto check = [&] {
    if (command.empty()) return;
    const std::string is = understood(command);
    EXPECT_EQ(is, expected) << "$ " << command;
    out << is;
    ++commands;
    command.clear();
    expected.clear();
  };
  while (std::getline(file, line)) {
    if (line.empty()) check();
    if (line.starts_with("$ ")) {
      check();
      command = line.substr(2);
    } else if (!command.empty()) {
      expected += line + "\n";
      continue;
    }
    out << line << "\n";
  }
  check();
  EXPECT_GE(commands, 60);
}

}  // namespace
}  // namespace regroup::cli
