// Job files: what they mean, what is said of wrong ones, and the schema that is made from the same
// table.
#include "launcher/job/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "launcher/job/job_fields.h"

namespace regroup::job {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(JobFile, ReadsEveryField) {
  auto job = read_job("tests/golden/job_file/parameter_server.yaml", {{"A", "1"}}, 0);
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_EQ(job->name, "digits");
  EXPECT_EQ(job->retry_count, 2U);
  EXPECT_TRUE(job->notes.empty());
  EXPECT_EQ(
      job->roles,
      (std::vector<Role>{{"chief", 1},
                         {"worker", 2, 0, {{"http", 2, 0}, {"debug", 1, 5005}}, /*min_failed=*/2},
                         {"ps", 1, 0, {}, /*min_failed=*/0}}));
  ASSERT_EQ(job->apps.size(), 3U);
  EXPECT_THAT(job->apps[0].command,
              ElementsAre("sh", "-c", "python examples/tensorflow/parameter_server.py"));
  const spec::AppRequest& worker = job->apps[1];
  EXPECT_EQ(worker.role, "worker");
  EXPECT_EQ(worker.count, 2U);
  EXPECT_THAT(worker.command, ElementsAre("python", "examples/tensorflow/parameter_server.py"));
  EXPECT_EQ(worker.limits, (spec::Limits{0.5, std::uint64_t{2048} << 20}));
  EXPECT_EQ(worker.environment, (spec::Environment{{"A", "1"},
                                                   {"GREETING", "hello, world"},
                                                   {"PAI_DATA_DIR", "/data/digits"},
                                                   {"PAI_OUTPUT_DIR", "hdfs://cluster/out"},
                                                   {"TF_CPP_MIN_LOG_LEVEL", "2"}}));
}

TEST(JobFile, TakesFilesOfOpenPaiAndSaysWhatItLeavesOut) {
  auto job = read_job("tests/golden/job_file/openpai.json", {}, 0);
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_THAT(
      job->notes,
      ElementsAre(
          "tests/golden/job_file/openpai.json:3: image: Ignored: members run without containers",
          "tests/golden/job_file/openpai.json:5: codeDir: Ignored: programs are not copied"));
  EXPECT_EQ(job->roles[1].min_succeeded, 2U);
}

TEST(JobFile, NamesFileLineAndField) {
  const std::string good = "jobName: j\ntaskRoles:\n- name: worker\n  command: a\n";
  const struct {
    std::string text;
    const char* message;
  } cases[] = {
      {good + "  taskNumber: two\n",
       "f:5: taskRoles[0].taskNumber: expected a whole number from 1 to 65536, got \"two\""},
      {good + "  taskNumber: 0\n",
       "f:5: taskRoles[0].taskNumber: expected a whole number from 1 to 65536, got \"0\""},
      {good + "  taskNumber: 1.5\n",
       "f:5: taskRoles[0].taskNumber: expected a whole number from 1 to 65536, got \"1.5\""},
      {good + "  taskNumber:\n",
       "f:5: taskRoles[0].taskNumber: expected a whole number from 1 to 65536, got nothing"},
      {good + "  cpuNumber: [1]\n",
       "f:5: taskRoles[0].cpuNumber: expected a number from 0 to 65536, got a list"},
      {good + "  cpuNumber: nan\n",
       "f:5: taskRoles[0].cpuNumber: expected a number from 0 to 65536, got \"nan\""},
      {good + "  minFailedTaskCount: 0\n",
       "f:5: taskRoles[0].minFailedTaskCount: expected a whole number from 1 to 65536, or -1 for "
       "never, got "
       "\"0\""},
      {good + "  tasknumber: 2\n",
       "f:5: taskRoles[0].tasknumber: unknown field; did you mean taskNumber?"},
      {good + "  zzz: 2\n", "f:5: taskRoles[0].zzz: unknown field"},
      {good + "  name: ps\n", "f:5: taskRoles[0].name: given twice"},
      {good + "  portList: 80\n",
       "f:5: taskRoles[0].portList: expected a list of ports, got \"80\""},
      {good + "  portList:\n  - portNumber: 2\n",
       "f:6: taskRoles[0].portList[0].label: missing; expected a string"},
      {good + "- name: ps\n",
       "f:5: taskRoles[1].command: missing; expected a string for sh -c, or a list of a program "
       "and its "
       "arguments"},
      {good + "- name: ps\n  command: []\n",
       "f:6: taskRoles[1].command: expected a string for sh -c, or a list of a program and its "
       "arguments, "
       "got an empty list"},
      {good + "- worker\n", "f:5: taskRoles[1]: expected a map of fields, got \"worker\""},
      {good + "- name: worker\n  command: b\n",
       "f:5: taskRoles: role worker: given twice; expected each role once"},
      {good + "jobEnvs: {a: [b]}\n",
       "f:5: jobEnvs: expected a map of variable names to scalar values, got a map"},
      {good + "? [a]\n: b\n", "f:5: expected a field name, got a list"},
      {"jobName: j\n", "f:1: taskRoles: missing; expected a list of one role or more"},
      {"jobName: j\ntaskRoles: []\n",
       "f:2: taskRoles: expected a list of one role or more, got an empty list"},
      {"[]", "f:1: expected a map of fields, got an empty list"},
      {"", "f: expected one document, got none"},
      {"{},", "f: expected one document, got several"},
      {good + "---\n" + good, "f: expected one document, got several"},
  };
  for (const auto& [text, message] : cases) {
    auto job = parse_job(text, "f", {}, 0);
    ASSERT_FALSE(job.ok()) << message;
    EXPECT_EQ(job.code(), base::Code::kInvalidArgument);
    EXPECT_EQ(job.status().message(), message);
  }
  EXPECT_TRUE(parse_job(good, "f", {}, 0).ok());
}

TEST(JobFile, NamesTheLineOfWhatIsNotYaml) {
  EXPECT_THAT(parse_job("jobName: j\ntaskRoles: [\n", "f", {}, 0).status().message(),
              HasSubstr(": not YAML: "));
  EXPECT_THAT(parse_job("jobName: j\n\tx: y\n", "f", {}, 0).status().message(),
              HasSubstr("f:2: not YAML: "));
}

TEST(JobFile, RefusesGpusThatAreNotThere) {
  const std::string text =
      "jobName: j\ntaskRoles:\n- {name: ps, command: a}\n- name: worker\n  command: a\n  "
      "taskNumber: 2\n  "
      "gpuNumber: 2\n";
  EXPECT_EQ(parse_job(text, "f", {}, 0).status().message(),
            "f:7: taskRoles[1].gpuNumber: 2 for each of 2 members of worker, but this machine has "
            "no GPU");
  EXPECT_EQ(parse_job(text, "f", {}, 3).status().message(),
            "f:7: taskRoles[1].gpuNumber: 2 for each of 2 members of worker, but this machine has "
            "3 in all");
  auto job = parse_job(text, "f", {}, 4);
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->roles[1].gpus, 2U);
}

TEST(JobFile, NamesAFileThatIsNotThere) {
  auto job = read_job("no/such.yaml", {}, 0);
  EXPECT_EQ(job.code(), base::Code::kNotFound);
  EXPECT_EQ(job.status().message(), "option --job no/such.yaml: No such file or directory");
  EXPECT_EQ(read_job("tests", {}, 0).code(), base::Code::kNotFound);  // a folder
}

TEST(JobFile, ItsSchemaIsInStep) {
  EXPECT_EQ(contents("docs/reference/formats/job.schema.json"), job_schema());
}

}  // namespace
}  // namespace regroup::job
