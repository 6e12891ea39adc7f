// Looking at checkpoints wants HDF5, which the launcher does not link.
#include "launcher/cmd/checkpoint_tool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launcher/supervise/environment.h"

namespace regroup::cmd {

int run_checkpoint(const Options& options) {
  const std::string program = launcher::find_helper("regroup-checkpoint");
  std::vector<std::string> words = options.helper_words;
  std::vector<char*> pointers;
  std::string name = "regroup-checkpoint";
  pointers.push_back(name.data());
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  fmt::print(stderr, "regroup checkpoint: program {} cannot be started: {}\n", program, std::strerror(errno));
  return 1;
}

}  // namespace regroup::cmd
