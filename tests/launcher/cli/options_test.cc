// The command line: what is accepted, and what is said about the rest.
#include "launcher/cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/nearest.h"
#include "launcher/job/resolve.h"
#include "launcher/job/start.h"
#include "launcher/process/time_limit.h"

namespace regroup::cli {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

CommandLine parsed_line(const Words& words) {
  auto command = parse_options(words, {});
  EXPECT_TRUE(command.ok()) << command.status().message();
  return command.ok() ? *command : CommandLine{};
}

spec::JobSpec parsed(const Words& words) { return parsed_line(words).job; }

std::string why_refused(const Words& words) {
  auto command = parse_options(words, {});
  EXPECT_FALSE(command.ok());
  return command.status().message();
}

TEST(Options, TakesOneDashTwoDashesAndEquals) {
  for (const Words& words : {Words{"-np", "3", "p"}, Words{"--np", "3", "p"}, Words{"-n", "3", "p"},
                             Words{"-np=3", "p"}, Words{"--n=3", "p"}, Words{"-c", "3", "p"}}) {
    EXPECT_EQ(parsed(words).min, 3U);
    EXPECT_EQ(parsed(words).max, 3U);
    EXPECT_FALSE(parsed(words).elastic);
    EXPECT_EQ(parsed(words).apps.at(0).command, Words{"p"});
  }
}

TEST(Options, ARangeMakesTheJobElastic) {
  const spec::JobSpec spec = parsed({"--initial-size", "3", "-np", "2:8", "--replace=never",
                                     "--reproducible", "off", "python", "t.py"});
  EXPECT_TRUE(spec.elastic);
  EXPECT_EQ(spec.min, 2U);
  EXPECT_EQ(spec.max, 8U);
  EXPECT_EQ(spec.initial_size, 3U);
  EXPECT_FALSE(spec.replace);
  EXPECT_TRUE(spec.any_fingerprint);
  EXPECT_TRUE(parsed({"-np", "2:2", "p"}).elastic);
}

TEST(Options, APlaneIsAutoOrOneByName) {
  EXPECT_EQ(parsed({"-np", "1:2", "p"}).plane, std::nullopt);
  EXPECT_EQ(parsed({"-np", "1:2", "--plane", "auto", "p"}).plane, std::nullopt);
  EXPECT_EQ(parsed({"-np", "1:2", "--plane=staged", "p"}).plane, proto::Plane::kStaged);
  EXPECT_EQ(why_refused({"-np", "1:2", "--plane", "gloo", "p"}),
            "option --plane gloo: expected auto, shm, staged, ucx, cuda, nccl or mpi");
}

TEST(Options, FastSumsAreRefusedWithWhatFits) {
  EXPECT_EQ(parsed({"-np", "1:2", "--reduce", "canonical", "p"}).max, 2U);
  const char* none =
      "--reduce fast: this version has no fast reduction; --reduce canonical, the default, fits "
      "every plane";
  EXPECT_EQ(why_refused({"-np", "1:2", "--reduce", "fast", "p"}), none);
  EXPECT_EQ(why_refused({"-np", "1:2", "--reduce=fast", "--bits=off", "p"}), none);
  const char* contradiction =
      "--reduce fast and --reproducible strict cannot be combined: fast sums depend on the number "
      "of members in the last bits; --reduce canonical fits";
  EXPECT_EQ(why_refused({"-np", "1:2", "--reduce", "fast", "--bits=on", "p"}), contradiction);
  EXPECT_EQ(why_refused({"-np", "1:2", "--reproducible", "strict", "--reduce", "fast", "p"}),
            contradiction);
}

TEST(Options, RolesCountTheMembersOfTheJob) {
  const spec::JobSpec spec = parsed({"--role", "chief=1", "--role", "worker=3", "p"});
  ASSERT_EQ(spec.roles.size(), 2U);
  EXPECT_EQ(spec.roles[1].name, "worker");
  EXPECT_EQ(spec.roles[1].count, 3U);
  EXPECT_EQ(spec.min, 4U);
  EXPECT_EQ(spec.max, 4U);
  EXPECT_TRUE(spec.oversubscribe);  // servers mostly wait
  EXPECT_TRUE(job::has_roles(spec));
  EXPECT_FALSE(job::has_roles(parsed({"-np", "2", "p"})));
  EXPECT_EQ(why_refused({"--role", "a=1", "p", ":", "-np", "1", "q"}),
            "--role: expected one for every program of the job");
}

TEST(Options, CopiesOfTablesAreOnHostsOfTheirOwn) {
  const Words roles{"--role", "ps=80", "--role", "worker=2"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), roles.begin(), roles.end());
    more.emplace_back("p");
    return more;
  };
  const spec::JobSpec spec =
      parsed(with({"--ps-memory", "1G", "--ps-hosts", "3", "--ps-replicas", "2"}));
  EXPECT_EQ(spec.ps_replicas, 2U);
  EXPECT_EQ(parsed(with({"--ps-memory", "1G", "--ps-hosts", "3"})).ps_replicas, 1U);
  const struct {
    Words options;
    std::string why;
  } rows[] = {
      {{"--ps-replicas", "2"}, "--ps-replicas: expected --ps-memory BYTES and a role ps"},
      {{"--ps-memory", "1G", "--ps-hosts", "2", "--ps-replicas", "3"},
       "--ps-replicas 3: expected a host for each copy, --ps-hosts 3 or more, got 2"},
      {{"--ps-memory", "1G", "--ps-hosts", "65", "--ps-replicas", "2"},
       "--ps-replicas 2: expected --ps-hosts 64 or less, got 65"},
      {{"--ps-memory", "1G", "--ps-hosts", "2", "--ps-replicas", "2", "--checkpoint", "d"},
       "--ps-replicas 2: not with --checkpoint: checkpoints have no tables with several copies"},
  };
  for (const auto& row : rows) EXPECT_EQ(why_refused(with(row.options)), row.why);
}

TEST(Options, AJobFileIsReadWithThem) {
  const spec::JobSpec spec =
      parsed({"-x", "B=line", "--job", "tests/golden/job_file/parameter_server.yaml"});
  EXPECT_EQ(spec.job_name, "digits");
  ASSERT_EQ(spec.apps.size(), 3U);
  ASSERT_EQ(spec.roles.size(), 3U);
  EXPECT_EQ(spec.apps[1].role, "worker");
  EXPECT_EQ(spec.apps[1].environment.at("B"), "line");
  EXPECT_EQ(spec.max, 4U);
  EXPECT_EQ(spec.max_restarts, 2U);
  EXPECT_EQ(parsed({"--max-restarts", "7", "--job", "tests/golden/job_file/parameter_server.yaml"})
                .max_restarts,
            7U);
  EXPECT_EQ(parsed({"--job", "tests/golden/job_file/openpai.json"}).notes.size(), 2U);
  EXPECT_THAT(why_refused({"--job", "no/such.yaml"}),
              testing::StartsWith("option --job no/such.yaml: "));
}

TEST(Options, EverythingAfterTheProgramIsItsOwn) {
  EXPECT_EQ(parsed({"-np", "1", "prog", "-np", "7", "--help"}).apps.at(0).command,
            (Words{"prog", "-np", "7", "--help"}));
  EXPECT_EQ(parsed({"--", "-prog"}).apps.at(0).command, Words{"-prog"});
}

TEST(Options, TakesTheRest) {
  const spec::JobSpec spec = parsed({"--oversubscribe",
                                     "-tag-output",
                                     "--timeout",
                                     "1.5",
                                     "--min-members-timeout",
                                     "2",
                                     "-wd",
                                     "/",
                                     "--term-grace",
                                     "0",
                                     "--shards",
                                     "6",
                                     "--seed",
                                     "18446744073709551615",
                                     "-x",
                                     "A=b=c",
                                     "-x",
                                     "PATH",
                                     "--allow-run-as-root",
                                     "-q",
                                     "--orphan-timeout",
                                     "3",
                                     "--ready-timeout",
                                     "4",
                                     "--on-hang",
                                     "drop",
                                     "--hang-timeout",
                                     "7",
                                     "--progress",
                                     "p"});
  EXPECT_TRUE(spec.oversubscribe && spec.quiet && spec.progress);
  EXPECT_EQ(spec.output.tag, spec::OutputRequest::Tag::kJobRank);
  EXPECT_EQ(spec.timeout, 1500ms);
  EXPECT_EQ(spec.min_members_timeout, 2s);
  EXPECT_EQ(spec.term_grace, 0s);
  EXPECT_EQ(spec.orphan_timeout, 3s);
  EXPECT_EQ(spec.ready_timeout, 4s);
  EXPECT_EQ(spec.hang.timeout, 7s);
  EXPECT_EQ(spec.hang.action, proto::OnHang::kDrop);
  EXPECT_EQ(spec.apps.at(0).wdir, "/");
  EXPECT_EQ(spec.shards, 6U);
  EXPECT_EQ(spec.seed, ~0ULL);
  EXPECT_EQ(spec.apps.at(0).environment.at("A"), "b=c");
}

TEST(Options, SaysWhatIsWrong) {
  EXPECT_EQ(why_refused({"-np", "-3", "p"}), "option -np -3: expected a whole number >= 1");
  EXPECT_EQ(why_refused({"-np", "two", "p"}), "option -np two: expected a whole number");
  EXPECT_EQ(why_refused({"-np", "4:2", "p"}), "option -np 4:2: expected MIN <= MAX");
  EXPECT_EQ(why_refused({"-np", "0:2", "p"}),
            "option -np '0:2': expected MIN:MAX, two whole numbers >= 1");
  EXPECT_EQ(why_refused({"-np", "2:", "p"}),
            "option -np '2:': expected MIN:MAX, two whole numbers >= 1");
  EXPECT_EQ(why_refused({"-np", "1", ""}), "the program's name is empty");
  EXPECT_EQ(why_refused({"-np", "99999999999", "p"}),
            "option -np 99999999999: expected a whole number");
  EXPECT_EQ(why_refused({"--shards", "0", "p"}), "option --shards 0: expected a whole number >= 1");
  EXPECT_EQ(why_refused({"--replace", "maybe", "p"}),
            "option --replace maybe: expected auto or never");
  EXPECT_EQ(why_refused({"--timeout", "nan", "p"}),
            "option --timeout nan: expected a number of seconds");
  EXPECT_EQ(why_refused({"-np"}), "option -np: N|MIN:MAX is missing");
  EXPECT_THAT(why_refused({"-np", "2"}), testing::HasSubstr("no program was given"));
  EXPECT_EQ(why_refused({"--oversubscribe=1", "p"}), "option --oversubscribe=1: takes no value");
}

TEST(Options, SuggestsTheNearestName) {
  EXPECT_EQ(why_refused({"--overubscribe", "p"}),
            "unknown option --overubscribe; did you mean --oversubscribe?");
  EXPECT_EQ(why_refused({"-tagoutput", "p"}),
            "unknown option -tagoutput; did you mean --tag-output?");
  EXPECT_EQ(why_refused({"--completely-different", "p"}), "unknown option --completely-different");
  EXPECT_EQ(base::nearest("np", {"np", "n"}), "np");
}

TEST(Options, ControlCommands) {
  CommandLine command = parsed_line({"status", "--json"});
  EXPECT_EQ(command.verb, Verb::kStatus);
  EXPECT_TRUE(command.control.json);
  command = parsed_line({"resize", "3", "abc"});
  EXPECT_EQ(command.verb, Verb::kResize);
  EXPECT_EQ(command.control.number, 3U);
  EXPECT_EQ(command.control.job, "abc");
  EXPECT_FALSE(command.control.servers);
  command = parsed_line({"resize", "ps=3", "abc"});
  EXPECT_TRUE(command.control.servers);
  EXPECT_EQ(command.control.number, 3U);
  EXPECT_THAT(why_refused({"resize", "ps=0"}), testing::HasSubstr("expected a whole number >= 1"));
  EXPECT_EQ(parsed_line({"notice", "0"}).verb, Verb::kNotice);
  EXPECT_EQ(parsed_line({"kill-member", "2"}).verb, Verb::kKillMember);
  EXPECT_EQ(why_refused({"resize"}), "resize: MEMBERS is missing");
  EXPECT_THAT(why_refused({"resize", "0"}), testing::HasSubstr("expected a whole number >= 1"));
  EXPECT_THAT(why_refused({"notice", "x"}), testing::HasSubstr("expected a whole number"));
  EXPECT_THAT(why_refused({"status", "--jsn"}), testing::HasSubstr("unknown option --jsn"));
  EXPECT_THAT(why_refused({"status", "a", "b"}), testing::HasSubstr("unexpected argument 'b'"));
}

TEST(Options, TopHasAnInterval) {
  CommandLine command = parsed_line({"top", "--interval", "0.5", "abc"});
  EXPECT_EQ(command.verb, Verb::kTop);
  EXPECT_EQ(command.control.interval, 500ms);
  EXPECT_EQ(command.control.job, "abc");
  EXPECT_FALSE(command.control.once);
  command = parsed_line({"top", "--once", "--interval=60"});
  EXPECT_TRUE(command.control.once);
  EXPECT_EQ(command.control.interval, 60s);
  EXPECT_EQ(parsed_line({"top"}).control.interval, std::nullopt);
  for (const char* wrong : {"0", "-1", "x", "", "1e9"})
    EXPECT_THAT(why_refused({"top", "--interval", wrong}),
                testing::HasSubstr("expected 0.1 to 86400 seconds"))
        << wrong;
  EXPECT_EQ(why_refused({"top", "--interval"}), "top: --interval: SECONDS is missing");
  EXPECT_EQ(why_refused({"top", "--onec"}), "top: unknown option --onec; did you mean --once?");
  EXPECT_THAT(why_refused({"status", "--once"}), testing::HasSubstr("unknown option --once"));
}

TEST(Options, AskForHelp) {
  EXPECT_EQ(parsed_line({"-h"}).verb, Verb::kHelp);
  EXPECT_EQ(parsed_line({"help"}).verb, Verb::kHelp);
  EXPECT_EQ(parsed_line({"status", "--help"}).verb, Verb::kHelp);
  EXPECT_EQ(parsed_line({"resize", "-h"}).verb, Verb::kHelp);
  EXPECT_EQ(parsed_line({"--version"}).verb, Verb::kVersion);
}

TEST(Options, BenchReadsItsOwnArguments) {
  const CommandLine command = parsed_line({"bench", "allreduce", "-b", "8", "--help"});
  EXPECT_EQ(command.verb, Verb::kBench);
  EXPECT_EQ(command.words, (std::vector<std::string>{"allreduce", "-b", "8", "--help"}));
  EXPECT_EQ(parsed_line({"-np", "2", "bench"}).verb, Verb::kRun);
}

TEST(Options, ALedgerLiesWhereTheJobWasStarted) {
  const auto ledger_of = [](const Words& words) -> std::string {
    const spec::Environment environment = parsed(words).apps.at(0).environment;
    const auto found = environment.find("REGROUP_LEDGER");
    return found == environment.end() ? "none" : found->second;
  };
  EXPECT_EQ(ledger_of({"-np", "1:2", "p"}), "none");
  EXPECT_EQ(ledger_of({"-np", "1:2", "--ledger", "/a/./b", "p"}), "/a/b");
  EXPECT_EQ(ledger_of({"-np", "2", "--ledger=a", "p"}),
            std::filesystem::current_path().string() + "/a");
  EXPECT_EQ(why_refused({"--ledger", "", "p"}), "option --ledger: expected a directory");
  EXPECT_EQ(job::unheeded_options(parsed({"-np", "2", "--ledger", "d", "-q", "p"})), "");
  EXPECT_THAT(job::unheeded_options(parsed({"--role", "a=1", "--ledger", "d", "-q", "p"})),
              testing::HasSubstr("--ledger: ignored"));
}

TEST(Options, AnAuditIsOfThisJob) {
  const auto audit_of = [](const Words& words) -> std::string {
    const spec::Environment environment = parsed(words).apps.at(0).environment;
    const auto found = environment.find("REGROUP_AUDIT");
    return found == environment.end() ? "none" : found->second;
  };
  EXPECT_EQ(audit_of({"-np", "1:2", "p"}), "none");
  EXPECT_EQ(audit_of({"-np", "1:2", "--audit", "50", "p"}), "50");
  EXPECT_EQ(audit_of({"-np", "1:2", "--audit", "5", "--audit", "0", "--reproducible=off", "p"}),
            "none");
  const spec::Environment outer{{"REGROUP_AUDIT", "5"}, {"PATH", "/bin"}};
  const auto inner = parse_options({"-np", "1:2", "p"}, outer);
  ASSERT_TRUE(inner.ok());
  EXPECT_FALSE(inner->job.apps.at(0).environment.contains("REGROUP_AUDIT"));
  EXPECT_THAT(why_refused({"-np", "1:2", "--audit", "5", "--reproducible=off", "p"}),
              testing::StartsWith("--audit and --reproducible off cannot be combined"));
}

TEST(Options, ChecksOfGpusAreAsTheEnvironmentSaysUnlessAskedFor) {
  const auto health_of = [](const Words& words) -> std::string {
    const auto job = parse_options(words, {{"REGROUP_HEALTH", "of the user"}});
    return job.ok() ? job->job.apps.at(0).environment.at("REGROUP_HEALTH") : "";
  };
  EXPECT_EQ(health_of({"-np", "1:2", "p"}), "of the user");
  EXPECT_EQ(health_of({"-np", "1:2", "--health", "p"}), "1");
}

TEST(Options, NamesThoseThatAPlainJobDoesNotHeed) {
  EXPECT_EQ(job::unheeded_options(
                parsed({"-np", "2", "--min-members-timeout", "3", "-shards=4", "-q", "p"})),
            "--min-members-timeout: ignored; requires an elastic job (-np MIN:MAX)");
  EXPECT_EQ(job::unheeded_options(parsed({"--role", "worker=2", "--checkpoint", "d", "-q", "p"})),
            "--checkpoint: ignored; requires -np MIN:MAX or -np N without --role");
  EXPECT_EQ(
      job::unheeded_options(
          parsed({"--role", "a=1", "--hang-timeout", "5", "--checkpoint-interval", "3",
                  "--ready-timeout", "9", "--shards", "4", "--seed=7", "-q", "p"})),
      "--hang-timeout, --checkpoint-interval, --ready-timeout: ignored; requires -np MIN:MAX or "
      "-np N "
      "without --role");
  EXPECT_EQ(job::unheeded_options(parsed({"--role", "ps=1", "--role", "a=1", "--ps-memory", "1G",
                                          "--hang-timeout", "5", "-q", "p"})),
            "");
  EXPECT_EQ(job::unheeded_options(parsed({"-np", "2:3", "--min-members-timeout", "3", "p"})), "");
  EXPECT_EQ(job::unheeded_options(parsed({"-np", "2", "-q", "p"})), "");
}

base::Result<job::Members> fitted(const spec::JobSpec& spec, std::uint32_t slots) {
  return job::fit_to_slots(spec, {spec.min, spec.max}, slots);
}

std::string misfit(const spec::JobSpec& spec, std::uint32_t slots) {
  return fitted(spec, slots).status().message();
}

TEST(FitToSlots, FillsInWhatWasNotGiven) {
  EXPECT_EQ(fitted(parsed({"p"}), 2)->max, 2U);
  EXPECT_EQ(fitted(parsed({"p"}), 2)->counts, std::vector<std::uint32_t>{2});
  EXPECT_EQ(fitted(parsed({"-np", "2:6", "p"}), 4)->start, 4U);
  EXPECT_EQ(fitted(parsed({"-np", "2:6", "p"}), 4)->shards, 8U);
  EXPECT_EQ(fitted(parsed({"-np", "2:6", "p"}), 100)->start, 6U);
}

TEST(FitToSlots, CountsTheMembersOfEachProgram) {
  const auto members = fitted(parsed({"-np", "1", "p", ":", "-np", "2", "q"}), 4);
  ASSERT_TRUE(members.ok());
  EXPECT_EQ(members->counts, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(members->max, 3U);
  EXPECT_EQ(members->shards, 4U);
  EXPECT_EQ(fitted(parsed({"-np", "3", "--shards", "5", "p"}), 4)->shards, 5U);
}

TEST(FitToSlots, TakesTheCountOfPprInPlaceOfSlots) {
  const auto members = job::fit_to_slots(parsed({"--map-by", "ppr:2:package", "p"}), {4, 4}, 8);
  ASSERT_TRUE(members.ok()) << members.status().message();
  EXPECT_EQ(members->counts, std::vector<std::uint32_t>{4});
}

TEST(FitToSlots, NotesSparesWithoutRoom) {
  const auto members = fitted(parsed({"-np", "2:4", "--spares", "2", "p"}), 4);
  ASSERT_TRUE(members.ok());
  EXPECT_THAT(members->notes,
              testing::ElementsAre("--spares 2: 4 slots have room for 0 in addition to 4 "
                                   "members"));
}

TEST(FitToSlots, RefusesMoreMembersThanSlots) {
  const std::string told =
      "4 members requested, 2 slots (cores) available; --oversubscribe allows more";
  EXPECT_EQ(misfit(parsed({"-np", "4", "p"}), 2), told);
  EXPECT_EQ(misfit(parsed({"-np", "4:8", "p"}), 2), told);
  EXPECT_EQ(misfit(parsed({"-np", "1:8", "--initial-size", "4", "p"}), 2), told);
  EXPECT_EQ(misfit(parsed({"-np", "4", "--oversubscribe", "p"}), 2), "");
}

TEST(FitToSlots, RefusesAStartOutsideTheRange) {
  EXPECT_EQ(misfit(parsed({"-np", "2:4", "--initial-size", "5", "p"}), 8),
            "--initial-size 5: expected a number in the range 2:4 of -np");
  EXPECT_EQ(misfit(parsed({"-np", "2:4", "--initial-size", "1", "p"}), 8),
            "--initial-size 1: expected a number in the range 2:4 of -np");
  EXPECT_EQ(misfit(parsed({"-np", "4", "--initial-size", "2", "p"}), 8),
            "--initial-size 2: requires an elastic job (-np MIN:MAX)");
  EXPECT_THAT(misfit(parsed({"-np", "1:200", "p"}), 8), testing::HasSubstr("at most 127 members"));
  EXPECT_THAT(misfit(parsed({"-np", "1:4294967295", "p"}), 8),
              testing::HasSubstr("at most 127 members"));
  EXPECT_THAT(misfit(parsed({"-np", "1:2", "--shards", "20000", "p"}), 8),
              testing::HasSubstr("at most 16384"));
}

TEST(TimeLimit, IsMultipliedByTheFactorOfTheEnvironment) {
  constexpr const char* kFactor = "REGROUP_TIME_LIMIT_FACTOR";
  EXPECT_EQ(process::time_limit({}, 10s), 10s);
  EXPECT_EQ(process::time_limit({{kFactor, ""}}, 10s), 10s);
  EXPECT_EQ(process::time_limit({{kFactor, "0.1"}}, 10s), 1s);
  EXPECT_EQ(process::time_limit({{kFactor, "1e3"}}, 10s), 10000s);
}

TEST(TimeLimit, HoldsForMembersThatHangInTheKernel) {
  spec::JobSpec spec = parsed({"p"});
  EXPECT_EQ(job::agent_options(spec, {}, {}).teardown_limit, 10s);
  spec.environment["REGROUP_TIME_LIMIT_FACTOR"] = "0.5";
  EXPECT_EQ(job::agent_options(spec, {}, {}).teardown_limit, 5s);
}

TEST(TimeLimit, AFactorThatIsNoneIsRefused) {
  for (const char* factor : {"0", "-1", "0.001", "1001", "nan", "inf", "1s", " 1", "one"}) {
    const auto command = parse_options({"p"}, {{"REGROUP_TIME_LIMIT_FACTOR", factor}});
    ASSERT_FALSE(command.ok()) << factor;
    EXPECT_EQ(command.status().message(),
              std::string("REGROUP_TIME_LIMIT_FACTOR must be a number from 0.01 to 1000, got \"") +
                  factor + "\"");
  }
}

}  // namespace
}  // namespace regroup::cli
