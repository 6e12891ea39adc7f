// The variables that describe a cluster to its members.
#include "launcher/job/cluster_spec.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace regroup::job {
namespace {

// Rank r listens at 10.0.0.r:2000+r.
Cluster cluster_of(std::vector<Role> roles) {
  Cluster cluster{.job_name = "digits", .roles = std::move(roles), .coordinator_port = 9000};
  for (const Task& task : tasks_of(cluster.roles)) {
    const auto rank = cluster.members.size();
    MemberPorts member{
        "10.0.0." + std::to_string(rank), static_cast<std::uint16_t>(2000 + rank), {}};
    for (const PortRequest& request : cluster.roles[task.role].ports) {
      auto& ports = member.labelled.emplace_back();
      for (std::uint32_t n = 0; n < request.count; ++n) {
        ports.push_back(static_cast<std::uint16_t>(3000 + rank * 10 + n));
      }
    }
    cluster.members.push_back(std::move(member));
  }
  return cluster;
}

const std::vector<Role> kTraining{{"chief", 1}, {"worker", 2}, {"ps", 1}, {"evaluator", 1}};

TEST(ClusterSpec, GivesRanksRoleByRole) {
  std::vector<std::string> names;
  for (const Task& task : tasks_of(kTraining)) names.push_back(task_name(kTraining, task));
  EXPECT_EQ(names,
            (std::vector<std::string>{"chief 0", "worker 0", "worker 1", "ps 0", "evaluator 0"}));
}

TEST(ClusterSpec, FindsAMemberByItsNumberOrByRoleAndIndex) {
  constexpr struct {
    const char* member;
    int rank;  // -1: there is none
  } kMembers[] = {{"0", 0},       {"4", 4},   {"chief:0", 0},   {"worker:0", 1}, {"worker:1", 2},
                  {"ps:0", 3},    {"5", -1},  {"worker:2", -1}, {"work:0", -1},  {"worker:", -1},
                  {"worker", -1}, {":0", -1}, {"", -1},         {"-1", -1},      {"worker:1x", -1}};
  for (const auto& [member, rank] : kMembers) {
    const auto found = rank_of(kTraining, member);
    EXPECT_EQ(found.ok() ? static_cast<int>(*found) : -1, rank) << member;
  }
  EXPECT_EQ(rank_of(kTraining, "worker:2").status().message(),
            "kill-member worker:2: no such member; there are chief:0, worker:0 to 1, ps:0, "
            "evaluator:0");
}

TEST(ClusterSpec, WritesTfConfigAsTensorFlowWantsIt) {
  const spec::Environment environment = cluster_environment(cluster_of(kTraining), 2);
  EXPECT_EQ(environment.at("TF_CONFIG"),
            R"({"cluster":{"chief":["10.0.0.0:2000"],"worker":["10.0.0.1:2001","10.0.0.2:2002"],)"
            R"("ps":["10.0.0.3:2003"]},"task":{"type":"worker","index":1}})");
}

TEST(ClusterSpec, TellsTheEvaluatorOfAClusterItIsNotIn) {
  const auto config =
      nlohmann::json::parse(cluster_environment(cluster_of(kTraining), 4).at("TF_CONFIG"));
  EXPECT_EQ(config["task"], (nlohmann::json{{"type", "evaluator"}, {"index", 0}}));
  EXPECT_FALSE(config["cluster"].contains("evaluator"));
  EXPECT_EQ(config["cluster"].size(), 3U);
}

TEST(ClusterSpec, TellsJaxItsProcessAndCoordinator) {
  const spec::Environment environment = cluster_environment(cluster_of({{"worker", 3}}), 2);
  EXPECT_EQ(environment.at("JAX_COORDINATOR_ADDRESS"), "10.0.0.0:9000");
  EXPECT_EQ(environment.at("JAX_NUM_PROCESSES"), "3");
  EXPECT_EQ(environment.at("JAX_PROCESS_ID"), "2");
}

TEST(ClusterSpec, SetsTheVariablesOfOpenPai) {
  const Cluster cluster = cluster_of({{"ps", 1}, {"worker", 2, 0, {{"grpc", 2}, {"http", 1}}}});
  const spec::Environment environment = cluster_environment(cluster, 2);
  const spec::Environment wanted{
      {"PAI_JOB_NAME", "digits"},
      {"PAI_TASK_ROLE_COUNT", "2"},
      {"PAI_TASK_ROLE_LIST", "ps,worker"},
      {"PAI_TASK_ROLE_TASK_COUNT_ps", "1"},
      {"PAI_TASK_ROLE_TASK_COUNT_worker", "2"},
      {"PAI_TASK_ROLE_ps_HOST_LIST", "10.0.0.0:2000"},
      {"PAI_TASK_ROLE_worker_HOST_LIST", "10.0.0.1:2001,10.0.0.2:2002"},
      {"PAI_HOST_IP_ps_0", "10.0.0.0"},
      {"PAI_HOST_IP_worker_0", "10.0.0.1"},
      {"PAI_HOST_IP_worker_1", "10.0.0.2"},
      {"PAI_PORT_LIST_worker_0_grpc", "3010,3011"},
      {"PAI_PORT_LIST_worker_0_http", "3010"},
      {"PAI_PORT_LIST_worker_1_grpc", "3020,3021"},
      {"PAI_PORT_LIST_worker_1_http", "3020"},
      {"PAI_CURRENT_TASK_ROLE_NAME", "worker"},
      {"PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "1"},
  };
  spec::Environment pai;
  for (const auto& [name, value] : environment) {
    if (name.starts_with("PAI_")) pai[name] = value;
  }
  EXPECT_EQ(pai, wanted);
}

TEST(ClusterSpec, SharesOutGpusOnlyWhenAskedTo) {
  Cluster with = cluster_of({{"ps", 1}, {"worker", 2, 2}});
  EXPECT_EQ(cluster_environment(with, 2).at("CUDA_VISIBLE_DEVICES"), "0,1");  // of another host
  for (MemberPorts& member : with.members) member.host = "10.0.0.1";
  EXPECT_EQ(cluster_environment(with, 0).at("CUDA_VISIBLE_DEVICES"), "");
  EXPECT_EQ(cluster_environment(with, 1).at("CUDA_VISIBLE_DEVICES"), "0,1");
  EXPECT_EQ(cluster_environment(with, 2).at("CUDA_VISIBLE_DEVICES"), "2,3");
  EXPECT_FALSE(cluster_environment(cluster_of(kTraining), 1).contains("CUDA_VISIBLE_DEVICES"));
}

TEST(ClusterSpec, RefusesRolesThatMakeNoCluster) {
  EXPECT_TRUE(check_roles(kTraining).ok());
  const struct {
    std::vector<Role> roles;
    const char* message;
  } cases[] = {
      {{{"", 1}}, "a role has no name"},
      {{{"work er", 1}}, "role work er: expected a name of letters, digits, _ and -"},
      {{{"a=b", 1}}, "role a=b: expected a name of letters, digits, _ and -"},
      {{{"worker", 1}, {"ps", 1}, {"worker", 2}},
       "role worker: given twice; expected each role once"},
      {{{"worker", 0}}, "role worker has no member"},
      {{{"chief", 2}}, "expected at most one chief, got 2"},
      {{{"chief", 1}, {"master", 1}}, "expected at most one chief, got 2"},
  };
  for (const auto& [roles, message] : cases) {
    const base::Status status = check_roles(roles);
    EXPECT_EQ(status.code(), base::Code::kInvalidArgument);
    EXPECT_EQ(status.message(), message);
  }
}

}  // namespace
}  // namespace regroup::job
