// regroup-ledger: what `regroup ledger` executes.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/printable.h"
#include "base/status.h"
#include "tools/ledger/verify.h"

namespace {

using namespace regroup;

constexpr std::string_view kHelp =
    "usage: regroup ledger verify DIR\n"
    "Check the ledger that a job wrote with --ledger DIR, or the file DIR: compute the\n"
    "samples of each step from the seed, and compare. Exit status 0: every step has its\n"
    "line, and every complete epoch has used every sample once; 1: it differs, or is no\n"
    "ledger; 2: wrong arguments.\n";

int fail(std::string_view why, int status) {
  fmt::print(stderr, "regroup ledger: {}\n", base::escaped(why));
  return status;
}

int verify(const std::string& place) {
  struct stat info {};
  const bool folder = ::stat(place.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  const std::string path = folder ? place + "/" + elastic::kLedgerFile : place;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             &std::fclose);
  if (file == nullptr) return fail(base::system_error("open", path, errno).message(), 1);
  ledger_tool::Verifier verifier;
  const base::Status read = ledger_tool::read_ledger(file.get(), path, &verifier);
  if (!read.ok()) return fail(read.message(), 1);
  for (const std::string& difference : verifier.differences()) fmt::print("{}\n", difference);
  const auto count = verifier.number_of_differences();
  if (count > verifier.differences().size())
    fmt::print("and {} more\n", count - verifier.differences().size());
  fmt::print("{}: {}{}\n", base::escaped(path), verifier.summary(),
             count == 0 ? "ok" : fmt::format("differences: {}", count));
  return count == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto is_help = [](std::string_view word) {
    return word == "--help" || word == "-h" || word == "help";
  };
  if (std::any_of(argv + std::min(argc, 1), argv + argc, is_help)) {
    fmt::print("{}", kHelp);
    return 0;
  }
  if (argc < 2) {
    fmt::print(stderr, "{}", kHelp);
    return fail("expected a verb", 2);
  }
  if (std::string_view(argv[1]) != "verify")
    return fail(fmt::format("unknown verb {}; the verb is verify", argv[1]), 2);
  if (argc != 3 || std::string_view(argv[2]).starts_with("-"))
    return fail("verify: expected one directory or file", 2);
  return verify(argv[2]);
}
