// regroup-ledger: what `regroup ledger` executes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/printable.h"
#include "base/status.h"
#include "tools/ledger/verify.h"

namespace {

using namespace regroup;

constexpr std::string_view kHelp =
    "usage: regroup ledger verify [--partial] [--max-samples N] DIR\n"
    "Check the ledger that a job wrote with --ledger DIR, or the file DIR: compute the\n"
    "samples of each step from the seed, and compare. Exit status 0: every step has its\n"
    "line, and every complete epoch has used every sample once; 1: it differs, is not\n"
    "complete, or is no ledger; 2: wrong arguments.\n"
    "  --partial        the ledger of a run that goes on or was stopped, or a part of one:\n"
    "                   steps may be missing before its first line and after its last one\n"
    "  --max-samples N  compute at most N samples (default: 20000000000)\n";

int fail(std::string_view why, int status) {
  fmt::print(stderr, "regroup ledger: {}\n", base::escaped(why));
  return status;
}

struct Request {
  std::string place;
  bool partial = false;
  std::uint64_t most_computed = ledger_tool::kMostComputed;
};

// The files next to `path` that a job has set aside there: `path`.1, `path`.2 ...
std::vector<std::string> set_aside(const std::string& path) {
  std::vector<std::string> out;
  std::error_code error;
  const std::filesystem::path file(path);
  for (const auto& entry : std::filesystem::directory_iterator(file.parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    const std::string begin = file.filename().string() + ".";
    if (name.starts_with(begin) && name.size() > begin.size() &&
        name.find_first_not_of("0123456789", begin.size()) == std::string::npos)
      out.push_back(entry.path().string());
  }
  std::ranges::sort(out);
  return out;
}

int verify(const Request& request) {
  const std::string& place = request.place;
  struct stat info {};
  const bool folder = ::stat(place.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  const std::string path = folder ? place + "/" + elastic::kLedgerFile : place;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             &std::fclose);
  if (file == nullptr) return fail(base::system_error("open", path, errno).message(), 1);
  ledger_tool::Verifier verifier(request.most_computed);
  const base::Status read = ledger_tool::read_ledger(file.get(), path, &verifier);
  if (!read.ok()) return fail(read.message(), 1);
  for (const std::string& difference : verifier.differences()) fmt::print("{}\n", difference);
  const auto count = verifier.number_of_differences();
  if (count > verifier.differences().size())
    fmt::print("and {} more\n", count - verifier.differences().size());
  std::vector<std::string> lacks = verifier.missing();
  const bool complete = lacks.empty();
  for (const std::string& other : folder ? set_aside(path) : std::vector<std::string>()) {
    const std::string note =
        fmt::format("{} has other lines, verify it by its name", base::escaped(other));
    if (complete)
      fmt::print("{}\n", note);
    else
      lacks.push_back(note);
  }
  std::string verdict = count == 0 ? "ok" : fmt::format("differences: {}", count);
  if (const auto step = verifier.unchecked(); step && count == 0)
    verdict = fmt::format("not checked from step {} on: more than {} samples; give --max-samples",
                          *step, request.most_computed);
  else if (count == 0 && !lacks.empty())
    verdict = fmt::format("{}: {}", request.partial ? "ok, in part" : "incomplete",
                          fmt::join(lacks, "; "));
  fmt::print("{}: {}{}\n", base::escaped(path), verifier.summary(), verdict);
  const bool whole = lacks.empty() || request.partial;
  return count == 0 && whole && !verifier.unchecked() ? 0 : 1;
}

// Empty: the words are wrong, and an error was printed.
std::optional<Request> parse(std::span<char*> words) {
  Request request;
  bool wrong = false;
  for (std::size_t i = 0; i < words.size() && !wrong; ++i) {
    const std::string_view word = words[i];
    if (word == "--partial") {
      request.partial = true;
    } else if (word == "--max-samples") {
      const std::string_view value = ++i < words.size() ? words[i] : "";
      const auto [end, error] =
          std::from_chars(value.data(), value.data() + value.size(), request.most_computed);
      if (value.empty() || error != std::errc() || end != value.data() + value.size())
        return fail(fmt::format("--max-samples: expected a whole number, got {:?}", value), 2),
               std::nullopt;
    } else if (word.starts_with("-")) {
      return fail(fmt::format("verify: unknown option {}", word), 2), std::nullopt;
    } else {
      wrong = !request.place.empty();
      request.place = word;
    }
  }
  if (wrong || request.place.empty())
    return fail("verify: expected one directory or file", 2), std::nullopt;
  return request;
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
  const auto request = parse(std::span(argv, static_cast<std::size_t>(argc)).subspan(2));
  return request ? verify(*request) : 2;
}
