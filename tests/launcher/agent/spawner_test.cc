// Agents come up with exactly their words, folder and secret, or fail in one sentence, whatever
// shell and tool.
#include "launcher/agent/spawner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "launcher/agent/process_spawner.h"
#include "launcher/agent/remote_script.h"
#include "tests/launcher/transport/net_test.h"

namespace regroup::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
namespace fs = std::filesystem;

const std::vector<std::string> kWords = {
    "",  "two words", "it's",     "\"$HOME\"", "`id`", "!!",       "a\nb",      "\\", "~",
    "*", "-n",        "\xc3\xa9", "\x01\x7f",  "}",    "; exit 9", "$(exit 9)", "#"};

// Everything that a spawner has told.
struct Told {
  explicit Told(boost::asio::io_context& l) : loop(l) {}
  SpawnEvents events() {
    return {.up = [this](proto::NodeId node) { up.push_back(node); },
            .line = [this](proto::NodeId node,
                           const std::string& line) { lines[node].push_back(line); },
            .ended = [this](proto::NodeId node,
                            const base::Status& why) { ended[node].push_back(why); }};
  }
  bool wait_ended(proto::NodeId node) {
    return transport::run_until(loop, [&] { return !ended[node].empty(); });
  }
  bool wait_line(proto::NodeId node, const std::string& line) {
    return transport::run_until(loop, [&] { return std::ranges::count(lines[node], line) > 0; });
  }
  boost::asio::io_context& loop;
  std::vector<proto::NodeId> up;
  std::map<proto::NodeId, std::vector<std::string>> lines;
  std::map<proto::NodeId, std::vector<base::Status>> ended;
};

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

class SpawnerTest : public testing::Test {
 protected:
  SpawnerTest() {
    char name[] = "/tmp/spawner-XXXXXX";
    folder_ = ::mkdtemp(name);
    options_.environment = {{"PATH", "/usr/bin:/bin"}};
    options_.limit = transport::kDeadline;
  }
  ~SpawnerTest() override { fs::remove_all(folder_); }
  AgentOrder order(proto::NodeId node, std::vector<std::string> arguments = {}) {
    const fs::path bin =
        std::getenv("REGROUP_BIN_DIR") != nullptr ? std::getenv("REGROUP_BIN_DIR") : "build/bin";
    return {node, "node" + std::to_string(node),
            fs::absolute(bin.parent_path() / "tests/bin/spawn_agent"), std::move(arguments),
            folder_};
  }
  // By a tool that stands for ssh: a shell command whose $1 is the host and $2 the remote command.
  std::unique_ptr<Spawner> by_tool(const std::string& script) {
    return make_ssh_spawner(loop_, secret_, told_.events(), options_,
                            {"/bin/sh", "-c", script, "tool"})
        .value();
  }
  std::unique_ptr<Spawner> by_fork() {
    return make_fork_spawner(loop_, secret_, told_.events(), options_).value();
  }
  // Returns the status with which an order fails.
  base::Status failure(Spawner& spawner, AgentOrder order) {
    const proto::NodeId node = order.node;
    spawner.start(std::move(order));
    EXPECT_TRUE(told_.wait_ended(node));
    EXPECT_THAT(told_.ended[node], SizeIs(1));
    return told_.ended[node].at(0);
  }
  std::string file(const std::string& name, const std::string& text, fs::perms rights) {
    std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    fs::permissions(path, rights);
    return path;
  }

  std::string folder_;
  boost::asio::io_context loop_;
  std::shared_ptr<const transport::JobSecret> secret_ = transport::new_secret();
  SpawnOptions options_;
  Told told_{loop_};
};

TEST_F(SpawnerTest, GivesTheAgentItsWordsFolderAndSecret) {
  const auto spawner = by_fork();
  spawner->start(order(1, kWords));
  EXPECT_TRUE(told_.up.empty());
  ASSERT_TRUE(told_.wait_line(1, "to error?[31m"));
  EXPECT_THAT(told_.up, ElementsAre(1));
  std::array<std::byte, transport::JobSecret::kBytes> key{};
  ASSERT_TRUE(secret_->derive("test", key).ok());
  std::vector<std::string> wanted{"key " +
                                  hex({reinterpret_cast<const char*>(key.data()), key.size()})};
  for (const std::string& word : kWords) wanted.push_back("argument " + hex(word));
  wanted.push_back("folder " + folder_);
  ASSERT_TRUE(told_.wait_line(1, wanted.back()));
  std::erase(told_.lines[1], "to error?[31m");
  EXPECT_EQ(told_.lines[1], wanted);
  spawner->end(1);
  ASSERT_TRUE(told_.wait_ended(1));
  EXPECT_TRUE(told_.ended[1][0].ok()) << told_.ended[1][0].to_string();
  EXPECT_EQ(told_.lines[1].back(), "input ended");
}

TEST_F(SpawnerTest, PassesThroughAnyLoginShell) {
  proto::NodeId node = 0;
  for (const std::string shell : {"/bin/bash", "/bin/dash", "/bin/tcsh", "/bin/csh"}) {
    const auto spawner = by_tool("exec " + shell + " -c \"$2\"");
    spawner->start(order(++node, kWords));
    ASSERT_TRUE(told_.wait_line(node, "folder " + folder_))
        << shell << told_.ended[node].at(0).to_string();
    for (const std::string& word : kWords)
      EXPECT_EQ(std::ranges::count(told_.lines[node], "argument " + hex(word)), 1);
  }
}

TEST_F(SpawnerTest, SaysWhichProgramOrFolderIsMissing) {
  const auto spawner = by_fork();
  AgentOrder no_program = order(1), no_folder = order(2), plain = order(3), broken = order(4);
  no_program.program = "/no/such/agent";
  no_folder.wdir = "/no/such/folder";
  plain.program = file("plain", "text", fs::perms::owner_read);
  broken.program = file("broken", "#!/no/such/interpreter\n", fs::perms::owner_all);
  EXPECT_EQ(failure(*spawner, no_program).message(),
            "node1: program /no/such/agent does not exist");
  EXPECT_EQ(failure(*spawner, no_folder).message(),
            "node2: cannot change to folder /no/such/folder");
  EXPECT_EQ(failure(*spawner, plain).message(), "node3: " + plain.program + " is not executable");
  EXPECT_TRUE(told_.up.empty() && told_.lines[1].empty() && told_.lines[2].empty() &&
              told_.lines[3].empty());
  // Its end may be there before the line that it was begun is read.
  for (proto::NodeId node = 4; node < 24; ++node) {
    broken.node = node;
    EXPECT_THAT(failure(*spawner, broken).message(),
                HasSubstr("node4: cannot run " + broken.program));
  }
}

TEST_F(SpawnerTest, PrefersAnotherProgramWhereItIsThere) {
  const auto spawner = by_fork();
  AgentOrder first = order(1), second = order(2);
  first.preferred =
      file("other", "#!/bin/sh\necho the other one\nexec sleep 100\n", fs::perms::owner_all);
  second.preferred = folder_ + "/not-there";
  spawner->start(first);
  ASSERT_TRUE(told_.wait_line(1, "the other one"));
  spawner->start(second);
  ASSERT_TRUE(told_.wait_line(2, "folder " + folder_));
}

TEST_F(SpawnerTest, LogsInAsTheUserWhoIsNamed) {
  AgentOrder someone = order(1), option = order(2), nobody = order(3);
  someone.user = "me";
  option.user = "-oProxyCommand=x";
  const auto showing = by_tool("echo $1 $2 $3 >&2; exit 3");
  EXPECT_THAT(failure(*showing, someone).message(), HasSubstr(": -l me node1"));
  EXPECT_THAT(failure(*showing, nobody).message(), HasSubstr(": node3 /bin/sh"));
  EXPECT_EQ(failure(*showing, option).message(),
            "node2: '-oProxyCommand=x': expected the name of a user");
}

TEST_F(SpawnerTest, SaysOnceWhyTheToolFailed) {
  const auto failing = by_tool("echo warning >&2; echo 'ssh: cannot reach '$1 >&2; exit 255");
  const base::Status why = failure(*failing, order(1));
  EXPECT_EQ(why.message(),
            "node1: sh ended with status 255 before the agent started: ssh: cannot reach node1");
  EXPECT_TRUE(told_.lines[1].empty());
  const auto nologin = by_tool("echo 'This account is not available' >&2; exit 1");
  EXPECT_THAT(failure(*nologin, order(2)).message(), HasSubstr("This account is not available"));
}

TEST_F(SpawnerTest, EndsWhatDoesNotReachAShellInTime) {
  options_.limit = std::chrono::milliseconds(1500);
  const auto spawner = by_tool("echo connecting >&2; exec sleep 100");
  const auto begin = std::chrono::steady_clock::now();
  const base::Status why = failure(*spawner, order(1));
  EXPECT_EQ(why.code(), base::Code::kDeadlineExceeded);
  EXPECT_THAT(why.message(), HasSubstr("node1: sh did not reach a shell within"));
  EXPECT_THAT(why.message(), HasSubstr(": connecting"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, transport::kDeadline);
}

TEST_F(SpawnerTest, HearsTheShellThroughItsChatter) {
  const auto spawner =
      by_tool("echo welcome; echo 'regroup-spawn: nonsense'; echo careful >&2; exec $2");
  spawner->start(order(1));
  ASSERT_TRUE(told_.wait_line(1, "folder " + folder_));
  EXPECT_THAT(told_.lines[1],
              testing::IsSupersetOf({"welcome", "careful", "regroup-spawn: nonsense"}));
}

TEST_F(SpawnerTest, GivesNoSecretToAShellThatDoesNotAnswer) {
  options_.limit = std::chrono::milliseconds(1500);
  const std::string got = folder_ + "/got";
  const auto spawner = by_tool("exec cat > " + got);
  EXPECT_EQ(failure(*spawner, order(1)).code(), base::Code::kDeadlineExceeded);
  std::ifstream file(got);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(bytes, HasSubstr("exec '"));  // the script did arrive
  EXPECT_EQ(bytes.find("regroup1"), std::string::npos);
  EXPECT_EQ(bytes.size(), script_of(order(1)).value().size());
}

TEST_F(SpawnerTest, StartsOnlySoManyAtATime) {
  options_.parallel = 3;
  const auto spawner =
      by_tool("cd " + folder_ +
              " && mkdir here-$1 && ls -d here-* | wc -l >> counts && sleep 0.05 && "
              "rmdir here-$1 && exec $2");
  for (proto::NodeId node = 0; node < 12; ++node) spawner->start(order(node));
  ASSERT_TRUE(transport::run_until(loop_, [&] { return told_.up.size() == 12; }));
  std::ifstream counts(folder_ + "/counts");
  int most = 0;
  for (int count = 0; counts >> count;) most = std::max(most, count);
  EXPECT_GE(most, 2);
  EXPECT_LE(most, 3);
}

TEST_F(SpawnerTest, AgentsLoseTheirInputWithTheSpawner) {
  // In a session of its own, out of the reach of the signal that ends the tool.
  auto spawner = by_tool("setsid sh -c \"$2; touch " + folder_ + "/gone\"; true");
  spawner->start(order(1));
  ASSERT_TRUE(told_.wait_line(1, "folder " + folder_));
  EXPECT_FALSE(fs::exists(folder_ + "/gone"));
  spawner.reset();
  EXPECT_TRUE(transport::run_until(loop_, [&] { return fs::exists(folder_ + "/gone"); }));
  EXPECT_THAT(told_.ended[1], SizeIs(0));
}

TEST_F(SpawnerTest, RefusesNamesThatAreNoHosts) {
  const auto spawner = by_tool("exit 0");
  proto::NodeId node = 0;
  for (const std::string host : {"-oProxyCommand=x", "", "a b", "a\nb"}) {
    AgentOrder bad = order(++node);
    bad.host = host;
    EXPECT_EQ(failure(*spawner, bad).code(), base::Code::kInvalidArgument) << host;
  }
  AgentOrder zero = order(++node);
  zero.arguments = {std::string("a\0b", 3)};
  EXPECT_EQ(failure(*spawner, zero).code(), base::Code::kInvalidArgument);
}

TEST_F(SpawnerTest, NamesAToolThatIsNotThere) {
  const auto made = make_ssh_spawner(loop_, secret_, told_.events(), options_, {"no-such-ssh"});
  EXPECT_EQ(made.code(), base::Code::kNotFound);
  EXPECT_THAT(made.status().message(), HasSubstr("no-such-ssh"));
}

TEST(RemoteScript, WordsTheEndsOfSsh) {
  const AgentOrder order{1, "node1", "/x/agent", {}, ""};
  EXPECT_EQ(explain(Ending{"ssh", 255 << 8, false, "ssh: connect to host node1: No route"}, order)
                .message(),
            "node1: ssh failed: connect to host node1: No route");
  EXPECT_EQ(explain(Ending{"ssh", 255 << 8, true, ""}, order).code(), base::Code::kPeerLost);
  EXPECT_TRUE(explain(Ending{"ssh", 0, true, ""}, order).ok());
  EXPECT_FALSE(explain(Ending{"ssh", 0, false, ""}, order).ok());
  EXPECT_EQ(explain(Ending{"ssh", 3 << 8, true, ""}, order).message(),
            "node1: the agent ended with status 3");
  EXPECT_THAT(explain(Ending{"ssh", SIGKILL, true, ""}, order).message(),
              HasSubstr("killed by signal 9"));
  EXPECT_EQ(explain(Ending{"ssh", kSaidWhy << 8, true, "it is another one"}, order).message(),
            "node1: it is another one");
  EXPECT_EQ(explain(Ending{"ssh", kSaidWhy << 8, true, ""}, order).message(),
            "node1: the agent ended with status 76");
}

TEST(RemoteScript, PrintsUtf8WithoutControlCharacters) {
  const struct {
    std::string_view in, out;
  } rows[] = {
      {"plain ~", "plain ~"},
      {"\n\x1b[2J\x7f", "??[2J?"},
      {"\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0", "??????\xc2\xa0"},  // the last is no control character
      {"\x9b", "?"},
      {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82"},
      {"\xc3", "?"},
      {"\xc3x", "?x"},
      {"\xc0\x8a\xc1\xbf", "????"},  // overlong
      {"\xe0\x80\x8a", "???"},
      {"\xed\xa0\x80", "???"},  // a surrogate
      {"\xf4\x90\x80\x80\xff", "?????"}};
  for (const auto& [in, out] : rows) EXPECT_EQ(printable(in), out) << hex(in);
  EXPECT_EQ(printable("ab\xc3\xa9", 3), "ab?");
  EXPECT_EQ(printable(std::string(600, 'a')), std::string(500, 'a'));
}

TEST(OutputLines, AreTheSameHoweverTheyAreRead) {
  const std::string bytes = "one\n\ntwo\r\nrest";
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    process::OutputLines lines;
    std::vector<std::string> out = lines.add(bytes.substr(0, cut));
    for (const std::string& line : lines.add(bytes.substr(cut))) out.push_back(line);
    EXPECT_THAT(out, testing::ElementsAre("one", "", "two\r")) << cut;
    EXPECT_EQ(lines.take_rest(), "rest");
    EXPECT_EQ(lines.take_rest(), "");
  }
}

TEST(OutputLines, KeepNoLineWithoutEnd) {
  process::OutputLines lines;
  std::size_t told = 0;
  for (int i = 0; i < 100; ++i) {
    for (const std::string& piece : lines.add(std::string(10'000, 'x'))) told += piece.size();
  }
  EXPECT_GT(told, 1'000'000 - process::OutputLines::kLongestPiece);
  EXPECT_EQ(told + lines.take_rest().size(), 1'000'000U);
}

}  // namespace
}  // namespace regroup::agent
