// PMI-1 as MPICH speaks it: what a client sends, and what it is answered.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tools/pmi/pmi1_group.h"
#include "tools/pmi/pmi1_wire.h"

namespace regroup::pmi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Runs whole commands of `rank`; the effects, one string each.
std::vector<std::string> tell(Pmi1Group& group, std::uint32_t rank, std::string_view bytes) {
  Pmi1Reader reader;
  reader.append(bytes);
  std::vector<std::string> out;
  const auto add = [&out](const Effect& effect) {
    if (const auto* answer = std::get_if<Answer>(&effect)) {
      out.push_back(std::to_string(answer->rank) + ": " +
                    answer->text.substr(0, answer->text.size() - 1));
    } else if (std::holds_alternative<Begun>(effect)) {
      out.emplace_back("begun");
    } else if (std::holds_alternative<Ended>(effect)) {
      out.emplace_back("ended");
    } else if (const auto* abort = std::get_if<AbortAll>(&effect)) {
      out.push_back("abort " + std::to_string(abort->status));
    } else if (const auto* more = std::get_if<StartMore>(&effect)) {
      for (const SpawnApp& app : more->apps) {
        std::string text = "start " + std::to_string(app.count) + " " + app.command;
        for (const std::string& argument : app.arguments) text += " [" + argument + "]";
        out.push_back(text + (app.wdir.empty() ? "" : " in " + app.wdir));
      }
      for (const auto& [key, value] : more->values) out.push_back(fmt::format("{}={}", key, value));
    } else if (const auto* barrier = std::get_if<EnterBarrier>(&effect)) {
      out.push_back("meet " + barrier->values);
    }
  };
  for (;;) {
    const auto command = reader.next();
    EXPECT_TRUE(command.ok()) << command.status().message();
    if (!command.ok() || !command->has_value()) return out;
    for (const Effect& effect : group.on_command(rank, **command)) add(effect);
  }
}

struct Pmi1 : testing::Test {
  PublishedNames names;
  Pmi1Group group{{"kvs", {1, 2}, 8, "(vector,(0,1,3))", {{"given", "yes"}}}, names};
};

constexpr struct {
  std::uint32_t rank;
  const char* in;
  const char* out;
} kTable[] = {
    {0, "cmd=get_maxes\n", "0: cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"},
    {0, "cmd=get_appnum\n", "0: cmd=appnum appnum=0"},
    {2, "cmd=get_appnum\n", "2: cmd=appnum appnum=1"},
    {1, "cmd=get_universe_size\n", "1: cmd=universe_size size=8"},
    {1, "cmd=get_my_kvsname\n", "1: cmd=my_kvsname kvsname=kvs"},
    {1, "cmd=get kvsname=kvs key=given\n", "1: cmd=get_result rc=0 msg=success value=yes"},
    {1, "cmd=get kvsname=kvs key=PMI_process_mapping\n",
     "1: cmd=get_result rc=0 msg=success value=(vector,(0,1,3))"},
    {1, "cmd=get kvsname=kvs key=none\n",
     "1: cmd=get_result rc=-1 msg=key_none_not_found value=unknown"},
    {1, "cmd=get kvsname=other key=given\n",
     "1: cmd=get_result rc=-1 msg=kvs_not_found value=unknown"},
    {1, "cmd=put kvsname=other key=a value=b\n", "1: cmd=put_result rc=-1 msg=kvs_not_found"},
    {1, "cmd=put kvsname=kvs key= value=b\n", "1: cmd=put_result rc=-1 msg=bad_key_or_value"},
    {1, "cmd=getbyidx kvsname=kvs idx=1\n",
     "1: cmd=getbyidx_results rc=0 nextidx=2 key=given val=yes"},
    {1, "cmd=getbyidx kvsname=kvs idx=2\n", "1: cmd=getbyidx_results rc=-2 reason=no_more_keyvals"},
    {1, "cmd=getbyidx kvsname=kvs idx=-1\n",
     "1: cmd=getbyidx_results rc=-2 reason=no_more_keyvals"},
    {1, "cmd=init pmi_version=2 pmi_subversion=0\n",
     "1: cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1"},
    {1, "cmd=nonsense\n", "1: cmd=nonsense_result rc=-1 msg=unknown_command"},
    {1, "cmd=abort exitcode=5\n", "abort 5"},
    {1, "cmd=abort\n", "abort 1"},
    {1, "mcmd=spawn\nnprocs=0\nexecname=a\ntotspawns=1\nendcmd\n",
     "1: cmd=spawn_result rc=-1 status=bad_spawn"},
    {1, "mcmd=spawn\nnprocs=1\nexecname=a\nargcnt=99999999\ntotspawns=1\nendcmd\n",
     "1: cmd=spawn_result rc=-1 status=bad_spawn"},
};

TEST_F(Pmi1, AnswersAsHydraDoes) {
  for (const auto& row : kTable)
    EXPECT_THAT(tell(group, row.rank, row.in), ElementsAre(row.out)) << row.in;
}

TEST_F(Pmi1, TellsWhoBeginsAndEnds) {
  EXPECT_THAT(tell(group, 0, "cmd=init pmi_version=1 pmi_subversion=1\n"),
              ElementsAre("begun", "0: cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"));
  EXPECT_THAT(tell(group, 0, "cmd=finalize\n"), ElementsAre("ended", "0: cmd=finalize_ack"));
}

TEST_F(Pmi1, ABarrierHoldsUntilTheLast) {
  EXPECT_TRUE(tell(group, 0, "cmd=barrier_in\n").empty());
  EXPECT_TRUE(tell(group, 2, "cmd=barrier_in\n").empty());
  EXPECT_TRUE(tell(group, 2, "cmd=barrier_in\n").empty());  // twice is no third
  EXPECT_THAT(tell(group, 1, "cmd=barrier_in\n"),
              ElementsAre("0: cmd=barrier_out", "1: cmd=barrier_out", "2: cmd=barrier_out"));
  EXPECT_TRUE(tell(group, 1, "cmd=barrier_in\n").empty());
}

TEST_F(Pmi1, WhatOnePutsAnotherGets) {
  tell(group, 0, "cmd=put kvsname=kvs key=P0 value=tcp#a=b\n");
  EXPECT_THAT(tell(group, 2, "cmd=get kvsname=kvs key=P0\n"),
              ElementsAre("2: cmd=get_result rc=0 msg=success value=tcp#a=b"));
  EXPECT_THAT(tell(group, 0, "cmd=create_kvs\n"), ElementsAre("0: cmd=newkvs kvsname=kvs_1"));
  tell(group, 1, "cmd=put kvsname=kvs_1 key=k value=v\n");
  EXPECT_THAT(
      tell(group, 2, "cmd=get kvsname=kvs_1 key=k\ncmd=destroy_kvs kvsname=kvs_1\n"),
      ElementsAre("2: cmd=get_result rc=0 msg=success value=v", "2: cmd=kvs_destroyed rc=0"));
}

// Ranks 0 and 1 are here, 2 elsewhere.
struct Pmi1OfHosts : testing::Test {
  static std::string bytes_of(std::initializer_list<std::string_view> parts) {
    std::string out;
    for (const std::string_view part : parts) out.append(part).push_back('\0');
    return out;
  }
  std::vector<std::string> get(std::string_view space, std::string_view key) {
    return tell(group, 0, fmt::format("cmd=get kvsname={} key={}\n", space, key));
  }
  PublishedNames names;
  Pmi1Group group{{"kvs", {3}, 3, "", {}, {0, 1}}, names};
};

TEST_F(Pmi1OfHosts, MeetWithWhatTheyHavePutSinceTheLastTime) {
  tell(group, 1, "cmd=put kvsname=kvs key=P1 value=a\n");
  EXPECT_TRUE(tell(group, 0, "cmd=barrier_in\n").empty());
  EXPECT_THAT(tell(group, 1, "cmd=barrier_in\n"),
              ElementsAre("meet " + bytes_of({"kvs", "P1", "a"})));
  const Effects out =
      group.barrier_done(bytes_of({"kvs", "P1", "a", "kvs", "P2", "b", "kvs_7", "c", ""}));
  ASSERT_EQ(out.size(), 2U) << "all of this host leave";
  EXPECT_EQ(std::get<Answer>(out[0]).text, "cmd=barrier_out\n");
  EXPECT_EQ(std::get<Answer>(out[1]).rank, 1U);
  EXPECT_THAT(get("kvs", "P2"), ElementsAre("0: cmd=get_result rc=0 msg=success value=b"));
  EXPECT_THAT(get("kvs_7", "c"), ElementsAre("0: cmd=get_result rc=0 msg=success value="));
  EXPECT_TRUE(tell(group, 0, "cmd=barrier_in\n").empty());
  EXPECT_THAT(tell(group, 1, "cmd=barrier_in\n"), ElementsAre("meet "));
}

TEST_F(Pmi1OfHosts, TakeNothingThatNoProcessCouldHavePut) {
  const std::string long_key(kMaxKeyBytes + 1, 'k'), long_value(kMaxValueBytes + 1, 'v');
  static_cast<void>(group.barrier_done(
      bytes_of({"kvs", "two", "x\ncmd=barrier_out", "kvs", "a\nb", "x", "kvs", "", "x", "kvs",
                long_key, "x", "kvs", "long", long_value, "", "a", "x"})));
  EXPECT_THAT(tell(group, 0, "cmd=getbyidx kvsname=kvs idx=1\n"),  // 0: PMI_process_mapping
              ElementsAre("0: cmd=getbyidx_results rc=-2 reason=no_more_keyvals"));
  EXPECT_THAT(get("", "a"), ElementsAre(HasSubstr("kvs_not_found")));
  for (const std::string& cut :
       {std::string("kvs"), std::string("kvs\0P", 5), bytes_of({"kvs", "P"})})
    EXPECT_EQ(group.barrier_done(cut).size(), 2U);
}

TEST_F(Pmi1OfHosts, CannotMakeSpacesWithoutEnd) {
  std::string values;
  for (int i = 0; i < 2000; ++i) values += bytes_of({fmt::format("of{}", i), "k", "v"});
  static_cast<void>(group.barrier_done(values));
  EXPECT_THAT(get("of1000", "k"), ElementsAre(HasSubstr("rc=0")));
  EXPECT_THAT(get("of1999", "k"), ElementsAre(HasSubstr("kvs_not_found")));
  EXPECT_THAT(get("kvs", "PMI_process_mapping"), ElementsAre(HasSubstr("rc=0")));
}

TEST_F(Pmi1OfHosts, AValueWithAZeroByteIsRefused) {
  constexpr char kPut[] = "cmd=put kvsname=kvs key=a value=b\0kvs\0c\0d\n";
  tell(group, 0, std::string(kPut, sizeof kPut - 1));
  EXPECT_THAT(get("kvs", "a"), ElementsAre(HasSubstr("not_found")));
}

TEST_F(Pmi1, NamesAreSharedByAllSpaces) {
  Pmi1Group other({"kvs2", {1}, 1, {}}, names);
  EXPECT_THAT(tell(group, 0,
                   "cmd=lookup_name service=ocean\ncmd=publish_name service=ocean port=tag#0$p\n"),
              ElementsAre("0: cmd=lookup_result rc=-1 msg=service_not_found",
                          "0: cmd=publish_result rc=0 info=ok"));
  EXPECT_THAT(
      tell(other, 0, "cmd=publish_name service=ocean port=q\ncmd=lookup_name service=ocean\n"),
      ElementsAre("0: cmd=publish_result rc=-1 msg=duplicate_service",
                  "0: cmd=lookup_result rc=0 info=ok port=tag#0$p"));
  EXPECT_THAT(
      tell(other, 0, "cmd=unpublish_name service=ocean\ncmd=unpublish_name service=ocean\n"),
      ElementsAre("0: cmd=unpublish_result rc=0 info=ok",
                  "0: cmd=unpublish_result rc=-1 msg=service_not_found"));
}

TEST_F(Pmi1, SpawnTakesABlockPerProgram) {
  const std::string first =
      "mcmd=spawn\nnprocs=2\nexecname=./a b\ntotspawns=2\nspawnssofar=1\nargcnt=2\narg1=x "
      "y\narg2=k=v\n"
      "preput_num=1\npreput_key_0=PARENT_ROOT_PORT_NAME\npreput_val_0=tag#0\ninfo_num=1\n"
      "info_key_0=wdir\ninfo_val_0=/tmp\nendcmd\n";
  const std::string second =
      "mcmd=spawn\nnprocs=1\nexecname=c\ntotspawns=2\nspawnssofar=2\nargcnt=0\nendcmd\n";
  EXPECT_TRUE(tell(group, 0, first).empty());
  EXPECT_THAT(tell(group, 0, second), ElementsAre("start 2 ./a b [x y] [k=v] in /tmp", "start 1 c",
                                                  "PARENT_ROOT_PORT_NAME=tag#0"));
  EXPECT_EQ(std::get<Answer>(group.spawned(0, "")[0]).text, "cmd=spawn_result rc=0\n");
  EXPECT_EQ(std::get<Answer>(group.spawned(0, "no program")[0]).text, "cmd=spawn_result rc=-1\n");
}

TEST(Pmi1Reader, CutsCommandsAnywhere) {
  const std::string bytes = "cmd=put  key=a value=b\nmcmd=spawn\nnprocs=1\nendcmd\ncmd=finalize\n";
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    Pmi1Reader reader;
    std::vector<std::string> names;
    for (const std::string& part : {bytes.substr(0, cut), bytes.substr(cut)}) {
      reader.append(part);
      for (auto command = reader.next(); command.ok() && command->has_value();
           command = reader.next()) {
        names.push_back((*command)->name);
      }
    }
    EXPECT_THAT(names, ElementsAre("put", "spawn", "finalize")) << cut;
  }
}

TEST(Pmi1Reader, RefusesWhatIsNoCommand) {
  for (const std::string& bytes :
       {std::string("hello\n"), std::string("cmd=put key\n"), std::string("\n"),
        std::string("mcmd=spawn\nword\nendcmd\n"), std::string(2 << 20, 'x')}) {
    Pmi1Reader reader;
    reader.append(bytes);
    const auto first = reader.next();
    ASSERT_FALSE(first.ok()) << bytes.substr(0, 20);
    EXPECT_THAT(first.status().message(), HasSubstr("PMI-1"));
    reader.append("cmd=finalize\n");
    EXPECT_EQ(reader.next().status().message(), first.status().message());
  }
}

TEST(Pmi1Names, OfAnotherHostAreAskedForThere) {
  PublishedNames here, there;
  GroupOptions options{"kvs", {1, 1}, 2, "", {}, {1}};
  options.names_elsewhere = true;
  Pmi1Group group(options, here);
  const auto ask = [&](const char* line) {
    Pmi1Reader reader;
    reader.append(line);
    const Effects asked = group.on_command(1, **reader.next());
    const AskNames& question = std::get<AskNames>(asked.at(0));
    const Effects answered = Pmi1Group::named(question, act_on_names(there, question, 0));
    return std::get<Answer>(answered.at(0)).text;
  };
  EXPECT_EQ(ask("cmd=publish_name service=s port=p\n"), "cmd=publish_result rc=0 info=ok\n");
  EXPECT_EQ(ask("cmd=publish_name service=s port=q\n"),
            "cmd=publish_result rc=-1 msg=duplicate_service\n");
  EXPECT_EQ(ask("cmd=lookup_name service=s\n"), "cmd=lookup_result rc=0 info=ok port=p\n");
  EXPECT_EQ(ask("cmd=unpublish_name service=s\n"), "cmd=unpublish_result rc=0 info=ok\n");
  EXPECT_EQ(ask("cmd=lookup_name service=s\n"), "cmd=lookup_result rc=-1 msg=service_not_found\n");
  EXPECT_TRUE(here.empty());
}

}  // namespace
}  // namespace regroup::pmi
