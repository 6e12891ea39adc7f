// The launcher links neither HDF5 nor cairo nor the benchmarks: verbs that need them execute
// another program.
#include "launcher/cli/helper.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/printable.h"
#include "launcher/process/environment.h"

namespace regroup::cli {
namespace {

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

int execute(const std::string& program, std::vector<std::string> words,
            const spec::Environment& environment) {
  std::vector<std::string> variables = process::to_strings(environment);
  ::execvpe(program.c_str(), pointers_to(words).data(), pointers_to(variables).data());
  return errno;
}

int become_helper(const std::string& verb, std::vector<std::string> words,
                  const spec::Environment& environment) {
  const std::string name = "regroup-" + verb;
  const std::string program = process::find_helper(name);
  words.insert(words.begin(), name);
  const int error = execute(program, std::move(words), environment);
  fmt::print(stderr, "regroup {}: program {} cannot be started: {}\n", verb, base::escaped(program),
             std::strerror(error));
  return 1;
}

}  // namespace regroup::cli
