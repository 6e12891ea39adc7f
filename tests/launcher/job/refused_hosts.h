// Hosts for tests in which no agent can start.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launcher/agent/fake_spawner.h"
#include "launcher/agent/hosts.h"

namespace regroup::job {

// How to reach a host whose name is "refused": the start fails at once.
inline agent::HostAccess refused_access(boost::asio::io_context& loop) {
  agent::HostAccess access;
  access.before = {"fake"};
  access.make = [&loop](auto, agent::SpawnEvents events) {
    auto fake = std::make_unique<agent::FakeSpawner>(loop, std::move(events));
    fake->fail("refused", {base::Code::kUnavailable, "refused: connection refused"});
    return fake;
  };
  return access;
}

// One such host, whose start has failed.
inline std::unique_ptr<agent::Hosts> refused_host(boost::asio::io_context& loop) {
  agent::HostsOptions options{.job = "job-1", .build = "1"};
  options.hosts.push_back({.name = "refused", .access = refused_access(loop)});
  auto made = agent::Hosts::make(loop, std::move(options), [](const std::string&) {});
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ((*made)->bring_up().size(), 1U);
  return std::move(*made);
}

}  // namespace regroup::job
