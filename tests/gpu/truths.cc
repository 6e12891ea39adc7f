// Asks a GPU and its driver what the design of device memory assumes about them
// (docs/results/gpu.md). Each question is asked in a process of its own, within a limit, by
// processes that may be killed. Prints a line for each answer.
//
//   gpu_truths [--library libcuda.so.1] [--json FILE] [--only NAME]...
//
// Ends with 0 if every question had an answer, whatever it was: 3 if one had none.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <thread>

#include "tests/gpu/questions.h"
#include "tests/gpu/role.h"

namespace regroup::gpu {
namespace {

using std::chrono::milliseconds;

struct Options {
  std::string library = "libcuda.so.1";
  std::string json;
  std::vector<std::string> only;
};

constexpr Question kQuestions[] = {
    {"driver", "POSIX file descriptors and virtual memory management are supported",
     milliseconds(20'000), ask_driver},
    {"create without context", "a process without a context can create and export device memory",
     milliseconds(20'000), ask_create_without_context},
    {"context", "a context takes some 500 MiB, which are free at the reap of its process",
     milliseconds(20'000), ask_context},
    {"forked child", "CUDA does not work in a child of fork()", milliseconds(20'000),
     ask_forked_child},
    {"outlives", "device memory lives as long as one descriptor of it", milliseconds(20'000),
     ask_outlives},
    {"read-only map", "a store through a read-only map ends the storing process only",
     milliseconds(30'000), ask_read_only},
    {"killed kernel", "a kernel of a killed process stores nothing after the reap",
     milliseconds(30'000), ask_killed_kernel},
    {"killed copies", "copies of a killed process store nothing after the reap",
     milliseconds(30'000), ask_killed_copies},
    {"held by a child", "a forked child that lives on holds its parent's device memory",
     milliseconds(30'000), ask_held_by_child},
    {"costs", "mapping 1 GiB takes less than 10 ms", milliseconds(30'000), ask_costs},
    {"event to host", "the host knows the end of a kernel within 20 us", milliseconds(20'000),
     ask_event_to_host},
    {"pinning", "two processes can pin the same shared memory", milliseconds(45'000), ask_pinning},
};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c < ' ' ? ' ' : c;
  }
  return out + '"';
}

// The row of a question in JSON, from a process of its own. The second: whether it has an answer.
std::pair<std::string, bool> row_of(const Question& question, const std::string& library) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  const Time begin = Clock::now();
  const pid_t asker = ::fork();
  if (asker == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::string text;
    try {
      const Answer answer = question.ask(library);
      text = fmt::format("\"seen\": {}, \"figures\": {{", quoted(answer.seen));
      bool first = true;
      for (const auto& [name, value] : answer.figures) {
        text += fmt::format("{}{}: {:.6g}", first ? "" : ", ", quoted(name), value);
        first = false;
      }
      text += "}";
    } catch (const std::exception& error) {
      text = fmt::format("\"error\": {}", quoted(error.what()));
    }
    text += '\n';
    (void)!::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::setpgid(asker, asker);
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> part{};
  while (milliseconds_since(begin) < double(question.limit.count())) {
    pollfd wanted{ends[0], POLLIN, 0};
    if (::poll(&wanted, 1, 100) == 0) continue;
    const ssize_t count = ::read(ends[0], part.data(), part.size());
    if (count <= 0) break;
    text.append(part.data(), std::size_t(count));
    if (text.ends_with('\n')) break;  // roles that are left may have the pipe open
  }
  ::close(ends[0]);
  ::kill(-asker, SIGKILL);  // roles that are left
  for (int i = 0; ::waitpid(asker, nullptr, WNOHANG) == 0 && i < 500; ++i) pause(milliseconds(10));
  if (text.ends_with('\n'))
    text.pop_back();
  else
    text = fmt::format("\"error\": \"no answer within {} s\"", question.limit.count() / 1000);
  const bool answered = text.starts_with("\"seen\"");
  return {
      fmt::format("{{\"name\": {}, \"assumed\": {}, \"ms\": {:.0f}, {}}}", quoted(question.name),
                  quoted(question.assumed), milliseconds_since(begin), text),
      answered};
}

int run(const Options& options) {
  std::vector<std::string> rows;
  bool all_answered = true;
  for (const Question& question : kQuestions) {
    if (!options.only.empty() &&
        std::ranges::find(options.only, question.name) == options.only.end())
      continue;
    const auto [row, answered] = row_of(question, options.library);
    all_answered = all_answered && answered;
    rows.push_back(row);
    fmt::print("{}\n", row);
    (void)std::fflush(stdout);
    if (options.json.empty()) continue;
    std::ofstream file(options.json, std::ios::trunc);  // after each: a cut-off keeps what was done
    file << "[\n";
    for (std::size_t i = 0; i < rows.size(); ++i)
      file << rows[i] << (i + 1 < rows.size() ? ",\n" : "\n");
    file << "]\n";
    if (!file.flush()) throw std::runtime_error(fmt::format("write {}", options.json));
  }
  if (rows.empty()) throw std::runtime_error("--only: no question has this name");
  return all_answered ? 0 : 3;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (i + 1 == argc || (name != "--library" && name != "--json" && name != "--only"))
      throw std::runtime_error(
          fmt::format("{}: expected --library FILE, --json FILE or --only NAME", name));
    const std::string value = argv[++i];
    if (name == "--library") options.library = value;
    if (name == "--json") options.json = value;
    if (name == "--only") options.only.push_back(value);
  }
  return options;
}

}  // namespace
}  // namespace regroup::gpu

int main(int argc, char** argv) {
  try {
    return regroup::gpu::run(regroup::gpu::parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_truths: {}\n", error.what());
    return 2;
  }
}
