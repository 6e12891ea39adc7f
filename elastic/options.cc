// Reads and checks the environment of a member.
#include "elastic/options.h"

#include <fcntl.h>
#include <features.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>

#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "base/cpu.h"
#include "base/crc32c.h"
#include "base/fd.h"
#include "base/values.h"
#include "elastic/carrier_settings.h"
#include "elastic/timeline.h"
#include "proto/device_line.h"
#include "regroup/session.h"

namespace regroup::elastic {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

std::string own_variable(const std::string& name) { return std::string(variable(name.c_str())); }

template <class T>
base::Status parse(const char* name, T min, T max, T* out) {
  const std::string_view text = variable(name);
  if (text.empty()) return {};
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
    return base::invalid_argument(std::string(name) + "=" + std::string(text) +
                                  ": expected a number from " + std::to_string(min) + " to " +
                                  std::to_string(max));
  }
  *out = value;
  return {};
}

// The launcher has refused another value.
double time_limit_factor() {
  double factor = 1;
  return parse("REGROUP_TIME_LIMIT_FACTOR", 0.01, 1000.0, &factor).ok() ? factor : 1;
}

// CRC32C of this process's executable: compiler, flags and what was linked into it. "?" if it
// cannot be read.
std::string build_digest() {
  const base::Fd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  std::array<std::byte, 1 << 16> buffer;
  std::uint32_t crc = 0;
  ssize_t count = -1;
  while (file.valid() && (count = ::read(file.get(), buffer.data(), buffer.size())) > 0)
    crc = base::crc32c(std::span(buffer).first(static_cast<std::size_t>(count)), crc);
  return count == 0 ? fmt::format("{:08x}", crc) : "?";
}

// It provides the mathematical functions.
std::string libc_version() {
#ifdef __GLIBC__
  return ::gnu_get_libc_version();
#else
  return "?";
#endif
}

}  // namespace

base::Result<Environment> read_environment() {
  Environment env;
  env.agent_socket = variable("REGROUP_AGENT");
  env.job = variable("REGROUP_JOB");
  env.rank_exits = variable("REGROUP_RANK_EXITS");
  env.fixed = variable("REGROUP_WORLD") == "fixed";
  env.alone = variable("REGROUP_WORLD") == "alone";
  if (!variable("OMP_NUM_THREADS").empty()) env.threads = variable("OMP_NUM_THREADS");
  REGROUP_RETURN_IF_ERROR(parse<proto::MemberId>("REGROUP_MEMBER", 0, UINT32_MAX - 1, &env.member));
  REGROUP_RETURN_IF_ERROR(
      parse<std::uint32_t>("REGROUP_SHARDS", 1, proto::kMaxShards, &env.shards));
  REGROUP_RETURN_IF_ERROR(parse<std::uint64_t>("REGROUP_SEED", 0, UINT64_MAX, &env.seed));
  REGROUP_RETURN_IF_ERROR(
      parse<proto::Step>("REGROUP_CHECKPOINT_EVERY", 0, proto::kMaxStep, &env.checkpoint_every));
  env.resume_from = variable("REGROUP_CHECKPOINT_FROM");
  env.resume_local = variable("REGROUP_CHECKPOINT_LOCAL");
  int check_state = 1;
  REGROUP_RETURN_IF_ERROR(parse("REGROUP_CHECK_STATE", 0, 1, &check_state));
  env.check_state = check_state != 0;
  REGROUP_RETURN_IF_ERROR(
      parse<proto::Step>("REGROUP_AUDIT", 0, proto::kMaxStep, &env.audit_every));
  env.ledger = variable("REGROUP_LEDGER");
  REGROUP_RETURN_IF_ERROR(
      parse<std::uint32_t>("REGROUP_DEVICE_MEMORY", 0, proto::kMaxLeafBuffers, &env.device_memory));
  REGROUP_RETURN_IF_ERROR(
      parse<std::uint32_t>("REGROUP_NCCL_TIMEOUT", 1, 86400, &env.nccl_timeout));
  int health = 0;
  REGROUP_RETURN_IF_ERROR(parse("REGROUP_HEALTH", 0, 1, &health));
  env.health = health != 0;
  std::uint32_t health_limit = 30;
  REGROUP_RETURN_IF_ERROR(parse<std::uint32_t>("REGROUP_HEALTH_LIMIT", 1, 86400, &health_limit));
  // A shorter limit may refuse a healthy GPU.
  env.health_limit = std::chrono::duration_cast<base::Duration>(std::chrono::seconds(health_limit) *
                                                                std::max(1.0, time_limit_factor()));
  return env;
}

// The folder of the agent's socket is private, and the agent empties it.
std::optional<collective::mpi::CarrierSettings> carrier_settings(const Environment& env) {
  if (own_variable("REGROUP_PLANE") != "mpi") return std::nullopt;
  collective::mpi::CarrierSettings out{.program = own_variable("REGROUP_MPI_PROGRAM"),
                                       .place = own_variable("REGROUP_MPI_DIR"),
                                       .path = own_variable("PATH"),
                                       .job = env.job};
  if (out.program.empty()) return std::nullopt;
  for (base::Duration* limit : {&out.limits.start, &out.limits.answer})
    *limit = std::chrono::duration_cast<base::Duration>(*limit * time_limit_factor());
  out.folder = std::filesystem::path(env.agent_socket).parent_path();
  for (char** each = environ; *each != nullptr; ++each) out.environment.emplace_back(*each);
  return out;
}

std::string why_not_nccl() {
  if (const std::string blocking = own_variable("NCCL_COMM_BLOCKING");
      std::strtol(blocking.c_str(), nullptr, 0) == 1)
    return fmt::format("NCCL_COMM_BLOCKING is {}, with which no call of NCCL has a deadline",
                       blocking);
  if (const std::string id = own_variable("NCCL_COMM_ID"); !id.empty())
    return fmt::format("NCCL_COMM_ID is {}, one address for all communicators of the job", id);
  return "";
}

std::vector<std::string> read_parameter_servers() {
  const std::string stores = own_variable("REGROUP_PS");
  return stores.empty() ? std::vector<std::string>() : base::split(stores, ";");
}

std::string read_role_member() {
  const std::string role = own_variable("REGROUP_ROLE");
  return role.empty() ? role : role + " " + own_variable("REGROUP_ROLE_RANK");
}

bool read_fake_device() { return variable("REGROUP_FAKE_DEVICE") == "1"; }

base::Result<std::optional<DetectedLaunch>> read_launch() {
  return find_launch(own_variable, read_ancestors());
}

std::string timeline_file() { return own_variable("REGROUP_TIMELINE"); }

TimelinePlace timeline_place() {
  TimelinePlace place{.job = own_variable("REGROUP_JOB")};
  // Values of another program's are no reason to fail.
  (void)parse<proto::NodeId>("GROUP_RANK", 0, UINT32_MAX - 1, &place.node).ok();
  (void)parse<proto::MemberId>("REGROUP_MEMBER", 0, UINT32_MAX - 1, &place.member).ok();
  return place;
}

pid_t read_rank_above() { return rank_above(own_variable, read_ancestors()); }

std::string default_fingerprint() {
  const auto env = read_environment();
  return fmt::format("isa={} threads={} libc={} build={}", base::instruction_set(),
                     env.ok() ? env->threads : "?", libc_version(), build_digest());
}

}  // namespace regroup::elastic
