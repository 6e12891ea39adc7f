// Hosts, mappings and values by tables: what is read, and what is said about the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/values.h"
#include "launcher/spec/hosts.h"
#include "launcher/spec/mapping.h"
#include "tests/launcher/spec/describe.h"

namespace regroup::spec {
namespace {

using testing::HasSubstr;

// "name:slots/max ..." or the error.
std::string shown(const base::Result<std::vector<HostRequest>>& hosts) {
  if (!hosts.ok()) return "error: " + hosts.status().message();
  std::string out;
  for (const HostRequest& host : *hosts) {
    out += fmt::format("{}{}{}{}:{}", out.empty() ? "" : " ", host.user,
                       host.user.empty() ? "" : "@", host.name, host.slots);
    if (host.max_slots != 0) out += fmt::format("/{}", host.max_slots);
    if (host.no_slots) out += " (none)";
  }
  return out;
}

TEST(Hosts, ParsesLists) {
  constexpr std::pair<const char*, const char*> kLists[] = {
      {"a", "a:1"},
      {"a,b:4,a", "a:2 b:4"},
      {"a:2,a:3", "a:5"},
      {"a:*", "a:0"},
      {"a:*,a:2", "a:0"},
      {"user@a", "user@a:1"},
      {"a,user@a:2", "user@a:3"},
      {"user@a,other@a", "user@a:2"},
      {"@a", "error: '@a': expected USER@HOST"},
      {"-oProxyCommand@a", "error: '-oProxyCommand@a': expected USER@HOST"},
      {"::1", "::1:1"},
      {"[::1]:4", "::1:4"},
      {"me@[::1]:4", "me@::1:4"},
      {"10.0.0.1:2", "10.0.0.1:2"},
      {"a, b", "a:1 b:1"},
      {"a,,b", "error: 'a,,b': a host name is missing"},
      {"", "error: '': a host name is missing"},
      {"a:0,b:2", "a:0 (none) b:2"},
      {"a:0,a:2", "a:2"},
      {"a:2,a:0", "a:2"},
      {"a:0,a", "a:1"},
      {"a:0,a:*", "a:0"},
      {"a:0x", "error: 'a:0x': expected HOST:SLOTS with SLOTS a whole number"},
      {"a:-1", "error: 'a:-1': expected HOST:SLOTS with SLOTS a whole number"},
      {"a=b", "error: 'a=b' is not a host name"},
  };
  for (const auto& [text, wanted] : kLists) EXPECT_EQ(shown(parse_host_list(text)), wanted) << text;
}

TEST(Hosts, ParsesFiles) {
  constexpr std::pair<const char*, const char*> kFiles[] = {
      {"a slots=2\nb slots=4 max_slots=8\n", "a:2 b:4/8"},
      {"a slots = 2 max-slots = 4", "a:2/4"},
      {"# all\n\n  a   # first\nb\r\n", "a:0 b:0"},
      {"a\na\nb\n", "a:2 b:0"},
      {"a\na\na\n", "a:3"},
      {"a slots=2\na slots=3\n", "a:5"},
      {"a:4\nb:2\n", "a:4 b:2"},
      {"a:4 binding=user:0,1\n", "a:4"},
      {"u@a slots=2\n", "u@a:2"},
      {"a slots=2 user=u\nb username=v\n", "u@a:2 v@b:0"},
      {"a user=-x\n", "error: F, line 1: field 'user=-x': expected a user name"},
      {"a slots=2\nb slots=2\n^b\n", "a:2"},
      {"a\tslots=2\n", "a:2"},
      {"a slots=0\nb slots=2\n", "a:0 (none) b:2"},
      {"a slots=0\na slots=2\n", "a:2"},
      {"a slots=2\na slots=0\n", "a:2"},
      {"a slots=0 max_slots=2\n", "a:0/2 (none)"},
      {"a max_slots=3\n", "a:3/3"},
      {"a max_slots=0\n", "error: F, line 1: field 'max_slots=0': expected a whole number >= 1"},
      {"a slots=-1\n", "error: F, line 1: field 'slots=-1': expected a whole number"},
      {"a slots=x\n", "error: F, line 1: field 'slots=x': expected a whole number"},
      {"a\nb slots=2 color=red\n",
       "error: F, line 2: field 'color=red': unknown; expected slots=N, max_slots=N or user=NAME"},
      {"a slots=4 max_slots=2\n", "error: F, line 1: max_slots=2 is less than slots=4"},
      {"\n\n= slots=2\n", "error: F, line 3: '=slots=2' is not a host name"},
      {"^a\na\n", "error: F: contains no host"},
      {"", "error: F: contains no host"},
  };
  for (const auto& [text, wanted] : kFiles)
    EXPECT_EQ(shown(parse_host_file(text, "F")), wanted) << text;
}

TEST(Hosts, AListFiltersAFile) {
  const std::vector<HostRequest> file = {{"a", 4, 0}, {"b", 2, 3}};
  EXPECT_EQ(shown(filter_hosts(file, {})), "a:4 b:2/3");
  EXPECT_EQ(shown(filter_hosts({}, {{"c", 1, 0}})), "c:1");
  EXPECT_EQ(shown(filter_hosts(file, {{"b", 1, 0}})), "b:2/3");
  EXPECT_EQ(shown(filter_hosts(file, {{"a", 2, 0}})), "a:2");
  EXPECT_EQ(shown(filter_hosts(file, {{"a", 1, 0, false, false, "u"}})), "u@a:4");
  EXPECT_EQ(shown(filter_hosts(file, {{"c", 1, 0}, {"b", 1, 0}})), "c:1 b:2/3");
}

TEST(Hosts, WithoutSlotsTakeMembersOnlyWhenOversubscribed) {
  std::vector<HostRequest> hosts = *parse_host_list("a:0,b:2");
  EXPECT_TRUE(drop_without_slots(hosts, false).ok());
  EXPECT_EQ(shown(hosts), "b:2");
  hosts = *parse_host_list("a:0,b:2");
  EXPECT_TRUE(drop_without_slots(hosts, true).ok());
  EXPECT_EQ(hosts[0].slots, 1U);
  hosts = *parse_host_list("a:0,b:0");
  EXPECT_THAT(drop_without_slots(hosts, false).message(),
              HasSubstr("host a, b: no slots (slots=0)"));
}

TEST(Hosts, AcceptsValidNamesAndRefusesOthers) {
  for (const char* name :
       {"a", "node-1.cluster_2", "_srv", "7", "10.0.0.1", "::1", "fe80::1%eth0", "a.b."})
    EXPECT_TRUE(is_host_name(name)) << name;
  for (const char* name : {"", "-oProxyCommand", "a/b", "a b", "a..b", ".a", "n[1-3]", "a$b",
                           "\xEF\xBB\xBF"
                           "a",
                           "a\xC2\xA0", "1:2", "a:b:c", "::1;x", "+n1", "a@b", "a*"})
    EXPECT_FALSE(is_host_name(name)) << name;
  EXPECT_FALSE(is_host_name(std::string(256, 'a')));
}

TEST(Hosts, SpellingsOfANameHaveOneKey) {
  EXPECT_EQ(host_key("Node1.Cluster."), "node1.cluster");
  EXPECT_EQ(host_key("0:0:0:0:0:0:0:1"), "::1");
  EXPECT_EQ(host_key("FE80::0001%eth0"), "fe80::1");
  EXPECT_EQ(host_key("::ffff:10.0.0.1"), "10.0.0.1");
}

TEST(Hosts, RecognisesThisHostByAllItsNames) {
  const std::vector<std::string> own = {"vm", "192.0.2.2", "fd00::2", "login.site", "alias"};
  for (const char* name :
       {"vm", "VM", "vm.site", "192.0.2.2", "FD00:0::2", "alias", "login", "LOCALHOST",
        "localhost.localdomain", "127.0.1.1", "0::1", "::ffff:192.0.2.2"})
    EXPECT_TRUE(is_this_host(own, name)) << name;
  for (const char* name : {"vm2", "192.0.2.20", "192.0.2", "login.other", "127.x", "localhost2"})
    EXPECT_FALSE(is_this_host(own, name)) << name;
}

TEST(Hosts, MergesNamesOfOneHost) {
  const HostAliases aliases = {
      {"10.0.0.7", "10.0.0.7"}, {"nodeb", "10.0.0.7"}, {"nodeb-ib", "10.0.0.7"}};
  const auto one = [&](const char* list) {
    return shown(by_one_name({"vm", "192.0.2.2"}, *parse_host_list(list), aliases));
  };
  EXPECT_EQ(one("nodeA:1,NODEA:2"), "nodeA:3");
  EXPECT_EQ(one("a,a.site,A.SITE."), "a:3");
  EXPECT_EQ(one("a.site:2,a"), "a.site:3");
  EXPECT_EQ(one("a.x,a.y"), "a.x:1 a.y:1");
  EXPECT_EQ(one("a.x,a.y,a"), "a.x:1 a.y:1 a:1");
  EXPECT_EQ(one("nodeB,nodeb-ib:2,10.0.0.7"), "nodeB:4");
  EXPECT_EQ(one("vm,192.0.2.2,localhost,vm.site"), "vm:4");
  EXPECT_EQ(one("10.0.0.1,10.0.0.2"), "10.0.0.1:1 10.0.0.2:1");
}

TEST(Hosts, ReportsNamesThatDifferAfterTheFirstDot) {
  EXPECT_EQ(unlike_names({"vm"}, *parse_host_list("vm.a,vm.b,vm.A")),
            "vm.a, vm.b: taken for this host, although the names differ after the first dot");
  EXPECT_EQ(unlike_names({"vm"}, *parse_host_list("vm.a,vm,other.b")), "");
}

TEST(Hosts, ReportsThoseThatTheHostFileDoesNotListOrExcludes) {
  const auto listed = *parse_host_file("a\nb\nc\n^b\n", "F");
  EXPECT_EQ(unlisted_hosts(listed, *parse_host_list("b,A,d:2,c")),
            "named by -H, not listed (or excluded) by the host file, used: host b, d");
  EXPECT_EQ(unlisted_hosts(listed, *parse_host_list("a,c")), "");
  EXPECT_EQ(unlisted_hosts({}, *parse_host_list("a")), "");
}

TEST(Hosts, RelativeOnesCountFromTheAllocation) {
  const std::vector<HostRequest> base = {{"a", 2}, {"b", 4}, {"c", 1}};
  const auto resolved = [&](const char* list) {
    return shown(resolve_relative(*parse_host_list(list), base, {"vm"}, {}));
  };
  EXPECT_EQ(resolved("+n1"), "b:0");
  EXPECT_EQ(resolved("+N1:2,+n0"), "b:2 a:0");
  EXPECT_EQ(resolved("+e"), "a:0 b:0 c:0");
  EXPECT_EQ(resolved("B,+e"), "B:1 a:0 c:0");
  EXPECT_EQ(resolved("+e:2"), "a:0 b:0");
  EXPECT_EQ(resolved("+n3"), "error: +n3: expected a number below 3, the number of hosts");
  EXPECT_EQ(resolved("a,b,c,+e"), "error: +e: every host is named already; expected one more");
  EXPECT_EQ(shown(resolve_relative({{"+n0"}}, {}, {"vm"}, {})),
            "error: +n0: requires an allocation or a host file");
  EXPECT_EQ(shown(parse_host_list("+x")), "error: '+x' is not a host name");
}

TEST(Words, ParsesTheWordsOfAnAppFile) {
  const std::pair<const char*, std::vector<std::string>> kLines[] = {
      {"echo it's John's", {"echo", "it's", "John's"}},
      {"echo 'c d' \"e  f\" x='g h' ''", {"echo", "c d", "e  f", "x=g h", ""}},
      {"echo 'open \"too", {"echo", "'open", "\"too"}},
      {"echo 'tis the season it's", {"echo", "'tis", "the", "season", "it's"}},
      {R"(echo \d+ a\ b \# \\n C:\dir)", {"echo", R"(\d+)", "a b", "#", R"(\n)", R"(C:\dir)"}},
      {"echo a#b #c", {"echo", "a#b"}},
      {" \t\r# all", {}},
  };
  for (const auto& [line, words] : kLines) EXPECT_EQ(base::file_words(line), words) << line;
}

template <class T>
std::string read_as(base::Status (*parse)(std::string_view, T&), const char* text) {
  T out;
  const base::Status status = parse(text, out);
  return status.ok() ? describe(out) : "error: " + status.message();
}

TEST(Mapping, ParsesMapBy) {
  constexpr std::pair<const char*, const char*> kTexts[] = {
      {"slot", " slot"},
      {"SLOT:PE=2", " slot 2 cpus each"},
      {"socket", " package"},
      {"package:span", " package span"},
      {"core,span", " core span"},
      {"L2", " l2cache"},
      {"hwthread:oversubscribe,nolocal", " hwthread oversubscribe nolocal"},
      {"ppr:2:node", " 2 per node"},
      {"ppr:1:numa:pe=4,span", " 1 per numa 4 cpus each span"},
      {":nooversubscribe:hwtcpus", " nooversubscribe hwthreads"},
      {"pe-list=0,4-6", " cpus 0,4,5,6"},
      {"rankfile:file=R", " rankfile file R"},
      {"seq:file=S", " seq file S"},
      {"dist:mlx5_0,span", " near mlx5_0 span"},
      {"core:2", " core 2 cpus each"},
      {"", "error: expected a mapping"},
      {"ppr:2", "error: ppr: expected a number and an object, for example ppr:2:package"},
      {"ppr:x:node", "error: ppr 'x': expected a whole number >= 1"},
      {"core:pe=0", "error: PE '0': expected a whole number >= 1"},
      {"pe-list=5-1", "error: '5-1': expected a processor list, for example 0,2-5"},
      {"pe-list=0-4294967295", "error: '0-4294967295': names more than 4096 processors"},
  };
  for (const auto& [text, wanted] : kTexts) EXPECT_EQ(read_as(parse_map_by, text), wanted) << text;
  EXPECT_THAT(read_as(parse_map_by, "sofa"),
              HasSubstr("'sofa' is not a valid mapping; expected slot, hwthread"));
  EXPECT_THAT(read_as(parse_map_by, "core:fast"),
              HasSubstr("'fast' is not a valid mapping qualifier"));
}

TEST(Mapping, AQualifierKeepsThePolicyBeforeIt) {
  MapBy map;
  ASSERT_TRUE(parse_map_by("numa:span", map).ok());
  ASSERT_TRUE(parse_map_by(":pe=2", map).ok());
  EXPECT_EQ(describe(map), " numa 2 cpus each span");
  EXPECT_FALSE(parse_map_by("nowhere", map).ok());
  EXPECT_EQ(describe(map), " numa 2 cpus each span");
}

TEST(Mapping, ParsesRankBy) {
  constexpr std::pair<const char*, const char*> kTexts[] = {
      {"slot", " slot"},          {"node", " node"}, {"fill", " fill"},
      {"span", " span"},          {"core", " core"}, {"socket:span", " package:span"},
      {"numa:fill", " numa:fill"}};
  for (const auto& [text, wanted] : kTexts) EXPECT_EQ(read_as(parse_rank_by, text), wanted) << text;
  EXPECT_THAT(read_as(parse_rank_by, "age"), HasSubstr("'age' is not a valid ranking"));
  EXPECT_THAT(read_as(parse_rank_by, "slot:fast"),
              HasSubstr("'fast' is not a valid ranking qualifier"));
}

TEST(Mapping, ParsesBindTo) {
  constexpr std::pair<const char*, const char*> kTexts[] = {
      {"none", " none"},
      {"core", " core"},
      {"core:2", " core x2"},
      {"socket:if-supported", " package if-supported"},
      {"l3cache:overload-allowed", " l3cache overload"},
      {"core:overload,if", " core overload if-supported"},
      {"rr", " hwthread"},
      {"user:0,1+3,4-5", " cpus 0 1+3 4+5"},
      {"cpu-list", " cpus"},
      {":overload-allowed", " overload"},
      {"user", "error: user: expected a processor list, for example user:0+1,2"},
      {"user:", "error: '': expected a processor list, for example 0,2-5"},
  };
  for (const auto& [text, wanted] : kTexts) EXPECT_EQ(read_as(parse_bind_to, text), wanted) << text;
  EXPECT_THAT(read_as(parse_bind_to, "chair"),
              HasSubstr("'chair' is not a valid binding; expected none, hwthread"));
  EXPECT_THAT(read_as(parse_bind_to, "core:tight"),
              HasSubstr("'tight' is not a valid binding qualifier"));
}

TEST(RankFile, NamesTheErrorAndItsLine) {
  constexpr std::pair<const char*, const char*> kFiles[] = {
      {"rank 0=a slot=0-2\nrank 1 = a slot = 1:*\n", "ok"},
      {"rank 0=a\n", "F, line 1: expected rank N=HOST slot=CPUS"},
      {"\nrank x=a slot=0\n", "F, line 2: expected rank N=HOST slot=CPUS"},
      {"rank 0=a slot=x\n", "F, line 1: 'x': expected a processor list, for example 0,2-5"},
      {"rank 0=a slot=p:0\n",
       "F, line 1: slot=p:0: expected PACKAGE:CORES with PACKAGE a whole number"},
      {"rank 0=a slot=0\nrank 0=a slot=1\n", "F: rank 0 is given twice"},
      {"rank 1=a slot=0\n", "F: rank 0 is missing"},
      {"# none\n", "F: contains no rank"},
  };
  for (const auto& [text, wanted] : kFiles)
    EXPECT_EQ(
        parse_rank_file(text, "F").ok() ? "ok" : parse_rank_file(text, "F").status().message(),
        wanted)
        << text;
}

TEST(Values, ParsesBytes) {
  std::uint64_t bytes = 0;
  constexpr std::pair<const char*, std::uint64_t> kSizes[] = {
      {"1", 1},       {"512M", 512ULL << 20}, {"2g", 2ULL << 30},
      {"4KiB", 4096}, {"1TB", 1ULL << 40},    {"7B", 7}};
  for (const auto& [text, wanted] : kSizes) {
    ASSERT_TRUE(base::parse_bytes("--memory", text, bytes).ok()) << text;
    EXPECT_EQ(bytes, wanted) << text;
  }
  for (const char* text :
       {"", "M", "0", "-1", "1X", "1MM", "1.5G", "99999999999999999999", "17179869184G"}) {
    EXPECT_EQ(base::parse_bytes("--memory", text, bytes).message(),
              fmt::format("option --memory{}{}: expected a size, for example 512M or 2G",
                          *text ? " " : "", text));
  }
}

TEST(Values, ParsesSignals) {
  std::vector<int> signals;
  ASSERT_TRUE(base::parse_signals("-s", "usr1,SIGHUP,34", signals).ok());
  EXPECT_EQ(signals, (std::vector<int>{SIGUSR1, SIGHUP, 34}));
  ASSERT_TRUE(base::parse_signals("-s", "none", signals).ok());
  EXPECT_TRUE(signals.empty());
  EXPECT_EQ(base::parse_signals("-s", "USR1,KILL", signals).message(),
            "option -s USR1,KILL: KILL cannot be forwarded, since no process can catch it");
  EXPECT_EQ(base::parse_signals("-s", "CHLD", signals).message(),
            "option -s CHLD: CHLD cannot be forwarded, since the launcher uses it");
  EXPECT_EQ(base::parse_signals("-s", "USR9", signals).message(),
            "option -s USR9: unknown signal 'USR9'");
}

TEST(Values, ParsesShellWords) {
  using Words = std::vector<std::string>;
  const std::pair<const char*, Words> kLines[] = {{"-np 2 ./a  b", {"-np", "2", "./a", "b"}},
                                                  {"'a b' \"c d\"", {"a b", "c d"}},
                                                  {"a\\ b", {"a b"}},
                                                  {"x='1 2'", {"x=1 2"}},
                                                  {"a # b", {"a"}},
                                                  {"a#b", {"a#b"}},
                                                  {"''", {""}},
                                                  {"'\\n' \"\\\"\"", {"\\n", "\""}},
                                                  {" \t\r", {}}};
  for (const auto& [line, words] : kLines) {
    auto read = base::shell_words(line);
    ASSERT_TRUE(read.ok()) << line;
    EXPECT_EQ(*read, words) << line;
  }
  EXPECT_EQ(base::shell_words("a 'b").status().message(), "unbalanced quote '");
}

}  // namespace
}  // namespace regroup::spec
