// Tries the Python in the folder of this program, as in a virtual environment, then that of PATH,
// and takes the first that finds both packages. In a build folder the packages lie in ../python.
#include "tools/checkpoint/torch_import.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

namespace regroup::checkpoint_tool {
namespace {

namespace fs = std::filesystem;

constexpr int kFirstMissing = 3;  // exit status of the check: this plus the package's number
constexpr const char* kPackages[] = {"regroup", "torch"};
// Each Python searches the folder of the packages of a build, which need not exist, but not the
// current folder, whose files it would execute.
constexpr const char* kLook =
    "import importlib.util, sys\n"
    "sys.path = [path for path in sys.path if path] + [sys.argv[1]]\n"
    "for number, name in enumerate(['regroup', 'torch']):\n"
    "    found = importlib.util.find_spec(name)\n"
    "    if found is None or found.origin is None: sys.exit(3 + number)\n";
constexpr const char* kImport =
    "import runpy, sys\n"
    "sys.path = [path for path in sys.path if path] + [sys.argv.pop(1)]\n"
    "runpy.run_module('regroup.torch_checkpoint', run_name='__main__', alter_sys=True)\n";

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// Returns why `python` cannot import the file; empty if it can.
std::string lacks(const std::string& python, const std::string& packages) {
  std::vector<std::string> words{python, "-c", kLook, packages};
  pid_t pid = 0;
  const int error =
      ::posix_spawnp(&pid, python.c_str(), nullptr, nullptr, pointers(words).data(), environ);
  if (error != 0) return std::strerror(error);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return "killed";
  const int code = WEXITSTATUS(status);
  if (code == kFirstMissing || code == kFirstMissing + 1)
    return fmt::format("package {} is missing", kPackages[code - kFirstMissing]);
  return code == 0 ? "" : fmt::format("exit status {}", code);
}

}  // namespace

base::Status import_torch(const std::string& file, const std::string& directory, proto::Step step) {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  const std::string packages = folder.parent_path() / "python";
  std::string why;
  for (const std::string& python : {(folder / "python3").string(), std::string("python3")}) {
    const std::string missing = lacks(python, packages);
    if (!missing.empty()) {
      why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", python, missing);
      continue;
    }
    std::vector<std::string> words{
        python, "-c", kImport, packages, file, directory, std::to_string(step)};
    ::execvp(python.c_str(), pointers(words).data());
    return base::system_error("execve", python, errno);
  }
  return base::invalid_argument(fmt::format(
      "import --from torch: requires a Python with the packages regroup and torch ({})", why));
}

}  // namespace regroup::checkpoint_tool
