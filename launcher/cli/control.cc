// `regroup status`, and the commands that change a running job.
#include "launcher/cli/control.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/printable.h"
#include "base/status.h"
#include "launcher/cli/control_client.h"
#include "launcher/job/fixed_job.h"
#include "launcher/job/job_files.h"
#include "launcher/lease/grant_lines.h"
#include "launcher/metrics/usage_columns.h"
#include "launcher/metrics/usage_text.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::cli {
namespace {

using nlohmann::json;

constexpr base::Duration kAllocatorDeadline = std::chrono::seconds(60);  // two of its commands
constexpr base::Duration kAllocatorPause = std::chrono::seconds(5);  // until a message to the user
constexpr std::chrono::milliseconds kFollow{250};

std::string text_of(const json& value) {
  if (value.is_null()) return "-";
  return value.is_number_float() ? fmt::format("{:.6g}", value.get<double>()) : value.dump();
}

// Adds the newest usage file of this host's agent to the members in `status`.
void add_usage(const std::string& path, json& status) {
  std::ifstream file(path);
  const json usage = json::parse(file, nullptr, false);
  if (!usage.is_object() || !status.contains("members")) return;
  for (json& member : status["members"]) {
    for (const json& used : usage.value("members", json::array())) {
      if (used.value("id", json()) != member.value("id", json(-1))) continue;
      for (const char* field : {"pid", "host", "cpu_seconds", "cpus", "memory_bytes", "gpus"}) {
        if (used.contains(field)) member[field] = used[field];
      }
    }
  }
}

std::string members_table(const json& status) {
  std::string out =
      fmt::format("job {}: {}, generation {} with {} (target {}, range {}:{}), step {}\n",
                  status.value("job", ""), status.value("stage", ""), status.value("generation", 0),
                  base::counted(status.value("size", 0U), "member"), status.value("target", 0),
                  status.value("min", 0), status.value("max", 0), status.value("step", 0));
  if (status.value("attempt", 1) > 1) {
    out += fmt::format(
        "attempt {}; before it, {} ended on a notice, {} failed, {} ended without a report\n",
        status.value("attempt", 1), status.value("preempted_before", 0),
        status.value("failed_before", 0), status.value("killed_before", 0));
  }
  if (const std::string plane = status.value("plane_why", ""); !plane.empty())
    out += fmt::format("plane: {}\n", plane);
  if (const std::string held = status.value("held", ""); !held.empty())
    out += fmt::format("waiting: {}\n", held);
  const json members = status.value("members", json::array());
  std::size_t wide = 4;
  for (const json& member : members) wide = std::max(wide, member.value("host", "-").size());
  out += fmt::format("{:>6} {:>5} {:<{}} {:>10} {:>8} {:>12} {:>6} {:>10} {}\n", "member", "rank",
                     "host", wide, "state", "step", "loss", "cpus", "memory", "GPUs");
  for (const json& member : members) {
    out += fmt::format("{:>6} {:>5} {:<{}} {:>10} {:>8} {:>12} {}\n", text_of(member["id"]),
                       text_of(member["rank"]), member.value("host", "-"), wide,
                       member.value("state", ""), text_of(member["step"]), text_of(member["loss"]),
                       metrics::usage_columns(member));
  }
  out += metrics::gpu_fault_lines(members);
  out += metrics::refused_gpu_lines(status);
  for (const json& event : status.value("history", json::array())) {
    out += fmt::format("{:9.3f} s  {}\n", event.value("at", 0.0), event.value("why", ""));
  }
  return out;
}

std::string one_line(const json& status) {
  std::string members;
  for (const json& member : status.value("members", json::array())) {
    members += (members.empty() ? "" : " ") + text_of(member["id"]);
  }
  if (status.contains("fixed"))
    return fmt::format("members {}  {}\n", members, status.value("stage", ""));
  return fmt::format("generation {}  step {}  members {}  {}\n", status.value("generation", 0),
                     status.value("step", 0), members, status.value("stage", ""));
}

using Source = std::function<base::Result<std::string>()>;  // of a job's status

int show_status(const ControlRequest& request, const Source& source, const std::string& usage) {
  auto text = source();
  if (!text.ok()) return command_failed(text.status().message());
  json status = json::parse(*text);
  const bool fixed = status.contains("fixed");
  if (!fixed) add_usage(usage, status);
  if (request.prometheus) {
    fmt::print("{}", metrics::prometheus_text(status.dump()));
  } else if (request.json) {
    fmt::print("{}\n", status.dump());
  } else {
    fmt::print("{}",
               base::escaped_lines(fixed ? job::fixed_job_table(*text) : members_table(status)));
  }
  return 0;
}

// Prints a line for each change until the job is over.
int follow_status(const ControlRequest& request, const Source& source) {
  std::string before;
  for (;;) {
    auto text = source();
    if (!text.ok()) return before.empty() ? command_failed(text.status().message()) : 0;
    const std::string line = request.json ? *text + "\n" : one_line(json::parse(*text));
    if (line != before) fmt::print("{}", request.json ? line : base::escaped_lines(line));
    std::fflush(stdout);
    before = line;
    std::this_thread::sleep_for(kFollow);
  }
}

proto::Body request_of(const CommandLine& command) {
  if (command.verb == Verb::kResize) return proto::ResizeRequest{command.control.number};
  if (command.verb == Verb::kNotice) return proto::NoticeRequest{command.control.number};
  return proto::KillRequest{command.control.number};
}

// Tells the user for how long the allocator has not answered. False: stop waiting.
bool still_waits(base::Duration waited) {
  const bool waits = waited < kAllocatorDeadline;
  fmt::print(stderr, "regroup: the allocator has not answered for {:g} s{}\n",
             std::chrono::duration<double>(waited).count(),
             waits ? "" : ": its answer will appear in the output of the job");
  return waits;
}

// Makes the controller of a job on several hosts request missing slots from the allocator, or
// return hosts that are not needed, and prints its answer. The job has its new size in any case.
void notify_controller(const job::JobFiles& files, std::uint32_t members) {
  auto socket = transport::connect_unix(files.grants_socket());
  if (!socket.ok()) return;
  const std::string line = lease::to_line(lease::Resized{members});
  if (::send(socket->get(), line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size()))
    return;
  base::SystemClock clock;
  const base::TimePoint began = clock.now();
  base::TimePoint next = began + kAllocatorPause;
  std::string read;
  for (std::array<char, 4096> bytes{};;) {
    const std::size_t end = read.find('\n');
    if (end == std::string::npos) {
      if (clock.now() >= next) {
        if (!still_waits(next - began)) return;
        next += kAllocatorPause;
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - clock.now());
      pollfd poll{socket->get(), POLLIN, 0};
      if (::poll(&poll, 1, std::max(static_cast<int>(left.count()), 0)) < 0 && errno != EINTR)
        return;
      const ssize_t count = ::recv(socket->get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return;
      if (count > 0) read.append(bytes.data(), static_cast<std::size_t>(count));
      continue;
    }
    const auto reply = lease::parse_reply(std::string_view(read).substr(0, end));
    read.erase(0, end + 1);
    if (reply.ok() && !reply->text.empty())
      fmt::print(reply->ok ? stdout : stderr, "{}{}\n",
                 reply->ok ? "" : "regroup: ", base::escaped_lines(reply->text));
    if (reply.ok() && reply->over) return;
  }
}

int tell_status(const ControlRequest& request, const job::JobFiles& files, const Source& source) {
  return request.follow ? follow_status(request, source)
                        : show_status(request, source, files.usage());
}

int print_answer(const base::Result<std::string>& answer) {
  if (!answer.ok()) return command_failed(answer.status().message());
  fmt::print("{}\n", base::escaped_lines(*answer));
  return 0;
}

// What the agent of a parameter server does.
int ask_servers(const CommandLine& command) {
  const auto files = job::find_job(command.environment, command.control.job, job::JobKind::kAny);
  if (!files.ok()) return command_failed(files.status().message());
  const auto done = command.verb == Verb::kSave
                        ? job::save_tables(*files)
                        : job::resize_servers(*files, command.control.number);
  return print_answer(done);
}

}  // namespace

int run_control(const CommandLine& command) {
  if (command.control.servers || command.verb == Verb::kSave) return ask_servers(command);
  const bool status = command.verb == Verb::kStatus;
  const bool kill = command.verb == Verb::kKillMember;
  auto files = job::find_job(command.environment, command.control.job,
                             status || kill ? job::JobKind::kAny : job::JobKind::kElastic);
  if (!files.ok()) return command_failed(files.status().message());
  if (kill && job::is_fixed(*files))
    return print_answer(job::kill_member(*files, command.control.member));
  if (kill && command.control.member.find(':') != std::string::npos)
    return command_failed(
        fmt::format("kill-member {}: job {} has no roles; expected a number of "
                    "`regroup status`",
                    command.control.member, files->id()));
  if (status && job::is_fixed(*files))
    return tell_status(command.control, *files, [&files] { return job::fixed_job_status(*files); });
  auto socket = transport::connect_unix(files->control_socket());
  if (!socket.ok()) return command_failed(socket.status().message());
  ControlClient client(std::move(*socket));
  if (status) return tell_status(command.control, *files, [&client] { return client.status(); });
  auto body = client.ask(request_of(command));
  if (!body.ok()) return command_failed(body.status().message());
  const auto* reply = std::get_if<proto::Reply>(&*body);
  if (reply == nullptr) return command_failed("unexpected answer of the coordinator");
  if (!reply->ok) return command_failed(reply->message);
  fmt::print("{}\n", base::escaped_lines(reply->message));
  if (command.verb == Verb::kResize) notify_controller(*files, command.control.number);
  return 0;
}

}  // namespace regroup::cli
