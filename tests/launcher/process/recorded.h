// Recorded machines: the control groups in /proc and their folders, copied to a folder of the test.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace regroup::process {

class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "rgXXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  void put(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  [[nodiscard]] std::string get(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path_ + name).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

// A machine under systemd with version 2 only, seen from a user's session.
inline void put_session_v2(const Folder& folder) {
  folder.put("/proc/self/cgroup", "0::/user.slice/user-1000.slice/session-2.scope\n");
  folder.put(
      "/proc/self/mountinfo",
      "25 30 0:23 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw\n"
      "36 25 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 "
      "rw,nsdelegate,memory_recursiveprot\n");
  const std::string user = "/sys/fs/cgroup/user.slice/user-1000.slice";
  folder.put(user + "/cgroup.controllers", "cpu memory pids\n");
  folder.put(user + "/cgroup.subtree_control", "cpu memory pids\n");
  folder.put(user + "/cgroup.procs", "");
  folder.put(user + "/session-2.scope/cgroup.controllers", "cpu memory pids\n");
  folder.put(user + "/session-2.scope/cgroup.procs", "4711\n");
}

// Writes the files that the kernel would create in the groups of job 0000abcd and of its member 0.
inline void put_groups_v2(const Folder& folder, const std::string& parent) {
  const std::string group = parent + "/regroup-0000abcd";
  folder.put(group + "/cgroup.subtree_control", "");
  for (const char* file :
       {"cgroup.procs", "cpu.max", "memory.max", "memory.swap.max", "memory.oom.group"}) {
    folder.put(group + "/member-0/" + file, "");
  }
  folder.put(group + "/member-0/memory.events",
             "low 0\nhigh 0\nmax 31\noom 1\noom_kill 2\noom_group_kill 1\n");
}

}  // namespace regroup::process
