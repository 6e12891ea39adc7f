// Finds the Python that has the package: what is examined is that of the user's programs.
#include "launcher/cli/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "launcher/cli/helper.h"
#include "launcher/process/environment.h"

namespace regroup::cli {
namespace {

constexpr const char* kDoctorHelp =
    "usage: regroup doctor [--json] [--python PROGRAM]\n"
    "Examine this machine: versions, allocator, kernel, limits, GPUs, Python packages, the\n"
    "torch.distributed backend; time an all-reduce of two ranks beside Gloo; and train with one\n"
    "member and with two, of which one is killed, and compare the weights. Each line is ok, a "
    "note,\n"
    "or bad with what to do. It takes half a minute. Exit status 1: a line is bad.\n\n"
    "  --json            print JSON\n"
    "  --python PROGRAM  the Python to examine (default: python3 beside regroup, or in PATH)\n"
    "  -h, --help        print this help\n";

constexpr const char* kModule =
    "import importlib.util, runpy, sys\n"
    "if importlib.util.find_spec('regroup') is None:\n"
    "    sys.exit(f'regroup doctor: {sys.executable} has no package regroup: install it there "
    "(pip install regroup), or name another Python by --python')\n"
    "sys.argv[0] = 'regroup'\n"
    "runpy.run_module('regroup._doctor', run_name='__main__')\n";

std::string default_python() {
  const std::filesystem::path beside =
      std::filesystem::path(process::own_program()).parent_path() / "python3";
  return ::access(beside.c_str(), X_OK) == 0 ? beside.string() : "python3";
}

}  // namespace

int run_doctor(const CommandLine& command) {
  std::string python;
  bool json = false;
  const std::vector<std::string>& words = command.words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--json") {
      json = true;
    } else if (words[i] == "--python" && i + 1 < words.size()) {
      python = words[++i];
    } else {
      const bool help = words[i] == "--help" || words[i] == "-h";
      if (!help)
        fmt::print(stderr, "regroup doctor: unexpected argument '{}'\n", base::escaped(words[i]));
      fmt::print(help ? stdout : stderr, "{}", kDoctorHelp);
      return help ? 0 : 1;
    }
  }
  if (python.empty()) python = default_python();
  std::vector<std::string> line = {python, "-c", kModule, process::own_program()};
  if (json) line.emplace_back("--json");
  const int error = execute(python, std::move(line), command.environment);
  fmt::print(stderr, "regroup doctor: Python {} cannot be started: {}\n", base::escaped(python),
             std::strerror(error));
  return 1;
}

}  // namespace regroup::cli
