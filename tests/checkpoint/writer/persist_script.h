// A shell script in place of regroup-persist, and a loop that runs until an event.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "launcher/spec/checkpoint_plan.h"

namespace regroup::writer {

class PersistScript : public testing::Test {
 protected:
  PersistScript() : folder_(testing::TempDir() + "persist_script-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~PersistScript() override { std::filesystem::remove_all(folder_); }

  // The path of a program that runs `script`; its arguments are those of regroup-persist.
  std::string program(const std::string& script) {
    const std::string path = folder_ + "/regroup-persist";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  bool run_until(const std::function<bool()>& reached) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!reached() && std::chrono::steady_clock::now() < deadline) {
      loop_.restart();
      loop_.run_one_for(std::chrono::milliseconds(100));
    }
    return reached();
  }

  const std::string folder_;
  boost::asio::io_context loop_;
  spec::CheckpointPlan plan_{.directory = "/local", .shared = "/shared", .job = "job-1"};
  std::vector<std::string> said_;
};

}  // namespace regroup::writer
