// Sends lines to a rival's ranks over Unix sockets and reads their answers.
#include "tools/bench/rivals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/values.h"

namespace regroup::bench {
namespace {

using base::Result;
using base::Status;

constexpr auto kEnd = std::chrono::seconds(10);

// True once `fd` has something to read.
bool wait_for_rival(int fd, base::TimePoint deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - base::SystemClock().now()).count();
    pollfd poll{fd, POLLIN, 0};
    const int ready = ::poll(&poll, 1, static_cast<int>(std::clamp<long>(left, 0, 60'000)));
    if (ready > 0) return true;
    if (left <= 0) return false;
  }
}

Result<base::Fd> listen_at(const std::string& path, int ranks) {
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  if (path.size() >= sizeof at.sun_path) return base::system_error("bind", path, ENAMETOOLONG);
  std::memcpy(&at.sun_path[0], path.data(), path.size());
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(socket.get(), ranks) != 0) {
    return base::system_error("bind", path, errno);
  }
  return socket;
}

// Replaces the word SOCKET in a command by `path`.
Words with_socket(Words command, const std::string& path) {
  std::ranges::replace(command, std::string("SOCKET"), path);
  return command;
}

}  // namespace

Result<std::unique_ptr<Rival>> Rival::start(const RivalPlan& plan, int ranks,
                                            const TemporaryFolder& folder, base::Duration timeout) {
  std::unique_ptr<Rival> rival(new Rival(plan.name, timeout));
  std::string file = plan.name;
  std::ranges::replace_if(
      file, [](char c) { return c == ' ' || c == '/' || c == ','; }, '-');
  const std::string path = folder.path(file);
  REGROUP_ASSIGN_OR_RETURN(auto listener, listen_at(path, ranks));
  for (std::size_t i = 0; i < plan.commands.size(); ++i) {
    REGROUP_ASSIGN_OR_RETURN(auto process, Process::start(with_socket(plan.commands[i], path),
                                                          fmt::format("{}.log{}", path, i)));
    rival->processes_.push_back(std::move(process));
  }
  REGROUP_RETURN_IF_ERROR(rival->meet(listener.get(), ranks));
  return rival;
}

Rival::~Rival() {
  const base::TimePoint deadline = base::SystemClock().now() + kEnd;
  for (Link& link : links_) {
    if (link.socket.valid()) static_cast<void>(::send(link.socket.get(), "end\n", 4, MSG_NOSIGNAL));
  }
  for (Process& process : processes_) static_cast<void>(process.wait(deadline).ok());
}

Status Rival::lost(const std::string& what) const {
  std::string output;
  for (const Process& process : processes_) {
    if (output.empty()) output = process.output_end();
  }
  return base::peer_lost(
      fmt::format("{}: {}{}{}", name_, what, output.empty() ? "" : ": ", output));
}

// The ranks connect in any order; each sends its number first.
Status Rival::meet(int listener, int ranks) {
  const base::TimePoint deadline = base::SystemClock().now() + timeout_;
  links_.resize(static_cast<std::size_t>(ranks));
  for (int met = 0; met < ranks; ++met) {
    while (!wait_for_rival(listener, base::SystemClock().now() + std::chrono::milliseconds(50))) {
      for (Process& process : processes_) {
        if (process.wait({}).ok())
          return lost(fmt::format("it ended before {} ranks were there", ranks));
      }
      if (base::SystemClock().now() >= deadline)
        return lost(fmt::format("{} of {} ranks came", met, ranks));
    }
    Link link{base::Fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)), ""};
    links_.push_back(std::move(link));
    REGROUP_ASSIGN_OR_RETURN(auto hello, read_line(links_.size() - 1, deadline));
    std::size_t rank = 0;
    const std::string wanted = fmt::format(" of {}", ranks);
    const std::string number = hello.substr(std::min<std::size_t>(5, hello.size()));
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
    if (!hello.starts_with("rank ") || error != std::errc() ||
        end != number.data() + number.find(wanted) || rank >= static_cast<std::size_t>(ranks) ||
        links_[rank].socket.valid()) {
      return lost(fmt::format("unexpected answer of one of {} ranks: {}", ranks, hello));
    }
    links_[rank] = std::move(links_.back());
    links_.pop_back();
  }
  return {};
}

Result<std::string> Rival::read_line(std::size_t rank, base::TimePoint deadline) {
  Link& link = links_[rank];
  for (;;) {
    if (const std::size_t end = link.unread.find('\n'); end != std::string::npos) {
      std::string line = link.unread.substr(0, end);
      link.unread.erase(0, end + 1);
      return line;
    }
    if (!wait_for_rival(link.socket.get(), deadline))
      return lost(fmt::format("rank {} is silent", rank));
    std::array<char, 65536> bytes;
    const ssize_t count = ::recv(link.socket.get(), bytes.data(), bytes.size(), 0);
    if (count <= 0) return lost(fmt::format("rank {} ended", rank));
    link.unread.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

Result<std::vector<std::string>> Rival::ask(const std::string& line, const std::string& expected) {
  const std::string text = line + "\n";
  const base::TimePoint deadline = base::SystemClock().now() + timeout_;
  for (Link& link : links_) {
    if (::send(link.socket.get(), text.data(), text.size(), MSG_NOSIGNAL) != std::ssize(text))
      return lost("a rank ended");
  }
  std::vector<std::string> out;
  Status refused;
  for (std::size_t rank = 0; rank < links_.size(); ++rank) {
    REGROUP_ASSIGN_OR_RETURN(auto answer, read_line(rank, deadline));
    if (answer.starts_with("no ")) {
      refused = base::unavailable(answer.substr(3));
    } else if (!answer.starts_with(expected)) {
      return lost(fmt::format("rank {}: unexpected answer {} to {}", rank, answer, line));
    }
    out.push_back(answer.substr(std::min(answer.size(), expected.size() + 1)));
  }
  if (!refused.ok()) return refused;
  return out;
}

Status RivalRanks::start(const std::vector<Baseline>& baselines, int ranks,
                         base::Duration timeout) {
  if (baselines.empty()) return {};
  REGROUP_RETURN_IF_ERROR(folder_.make());
  REGROUP_ASSIGN_OR_RETURN(
      auto plans, plan_rivals(baselines, ranks, folder_, base::SystemClock().now() + timeout));
  for (const RivalPlan& plan : plans) {
    REGROUP_ASSIGN_OR_RETURN(auto rival, Rival::start(plan, ranks, folder_, timeout));
    rivals_.push_back(std::move(rival));
  }
  return {};
}

RivalRunner::RivalRunner(Job& job, Rival* rival, const Case& c)
    : Runner(rival == nullptr ? "" : rival->name()), job_(job), rival_(rival), case_(c) {}

// Rank 0 asks the rival. A case that the rival cannot run counts as one wrong element.
Result<std::uint64_t> RivalRunner::ask_wrong(std::uint64_t iteration) {
  auto ready = rival_->ask(
      fmt::format("setup {} {} {} {} {}", case_.spec->name, collective::name_of(case_.dtype),
                  collective::name_of(case_.op), case_.root, case_.block),
      "ok");
  if (!ready.ok() && ready.code() != base::Code::kUnavailable) return ready.status();
  if (!ready.ok()) {
    refusal_ = ready.status().message();
    return 1;
  }
  std::uint64_t wrong = 0;
  REGROUP_ASSIGN_OR_RETURN(auto counts, rival_->ask(fmt::format("verify {}", iteration), "wrong"));
  for (const std::string& count : counts) {
    std::uint64_t of_rank = 0;
    if (!base::read_number(count, of_rank)) return base::internal_error("no count: " + count);
    wrong += of_rank;
  }
  return wrong;
}

Result<std::uint64_t> RivalRunner::verify(std::uint64_t iteration) {
  std::uint64_t wrong = 0;
  if (rival_ != nullptr) {
    auto found = ask_wrong(iteration);
    if (!found.ok()) return found;
    wrong = *found;
  }
  return job_.sum(wrong);
}

Result<std::vector<double>> RivalRunner::time(const Turn& turn) {
  std::vector<double> out;
  if (rival_ != nullptr) {
    REGROUP_ASSIGN_OR_RETURN(
        auto answers,
        rival_->ask(fmt::format("time {} {} {}", turn.first, turn.warmups, turn.count), "times"));
    out.resize(turn.count);
    for (const std::string& answer : answers) {
      const std::vector<std::string> words = base::split(answer, " ");
      for (std::size_t i = 0; i < out.size(); ++i) {
        std::uint64_t took = 0;
        if (words.size() != out.size() || !base::read_number(words[i], took))
          return base::internal_error(
              fmt::format("{}: no {} times: {}", name(), out.size(), answer));
        out[i] += static_cast<double>(took) / 1e3 / job_.size();
      }
    }
  }
  REGROUP_RETURN_IF_ERROR(job_.barrier());
  return out;
}

}  // namespace regroup::bench
