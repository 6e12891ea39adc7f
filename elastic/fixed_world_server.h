// Serves the membership of a World of fixed size on one host, in a thread of the first rank that
// joins, since other launchers than regroup provide no agent. docs/design/fixed_size_worlds.md.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "elastic/detected_launch.h"
#include "elastic/rank_watch.h"
#include "membership/agent/agent_core.h"
#include "membership/coordinator/coordinator.h"
#include "proto/message.h"
#include "proto/wire.h"

namespace regroup::elastic {

struct FixedWorldServerOptions {
  std::string name;  // of the abstract Unix socket
  std::uint32_t size = 2;
  std::uint32_t shards = 2;
  std::uint64_t seed = 0;
  std::chrono::seconds ready_timeout{300};  // between the first ready rank and the last
  // Called each second until all ranks have joined. Empty: a rank that ends before it joins is not
  // detected.
  std::function<RankScan()> scan_ranks = {};
};

class FixedWorldServer {
 public:
  // Returns null if another process serves that name.
  [[nodiscard]] static base::Result<std::unique_ptr<FixedWorldServer>> start(
      const FixedWorldServerOptions& options);
  ~FixedWorldServer();  // ranks that are still connected fail

 private:
  struct Link {
    base::Fd socket;
    base::Fd process;  // a pidfd, or invalid
    pid_t pid = 0;
    proto::FrameReader reader;
    std::optional<proto::MemberId> member;  // once it has sent Join
    bool refused = false;
    bool ended = false;  // the process ended before its connection was accepted
  };

  FixedWorldServer(const FixedWorldServerOptions& options, base::Fd listener, base::Fd stop);
  void serve();
  void accept_links();
  void receive(std::uint64_t id);
  void on_message(std::uint64_t id, const proto::Message& message);
  void on_gone(std::uint64_t id);
  [[nodiscard]] static bool has_ended(const Link& link);
  void check_ranks();
  void fail(const std::string& why);
  void send(Link& link, const proto::Body& body, int fd = -1);
  [[nodiscard]] Link* link_of(proto::MemberId member);
  [[nodiscard]] bool is_done(proto::MemberId member) const;

  // Performs effects, and those that follow from them.
  void perform(const membership::AgentEffects& effects);
  void perform(const membership::Effects& effects);
  void take(const membership::AgentEffects& effects);
  void take(const membership::Effects& effects);
  void take_one(const membership::ToMember& effect);
  void take_one(const membership::ToAgent& effect);
  void settle();

  const FixedWorldServerOptions options_;
  const base::Fd listener_;
  const base::Fd stop_;  // an eventfd
  membership::AgentCore agent_;
  membership::Coordinator coordinator_;
  std::map<std::uint64_t, Link> links_;
  std::uint64_t last_link_ = 0;
  std::map<proto::MemberId, proto::SlotIndex> slots_;  // of members that have one
  std::deque<proto::Body> to_coordinator_;
  std::deque<proto::Body> to_agent_;
  RankWatch watch_;
  base::TimePoint next_check_{};
  std::optional<std::string> failed_;  // why
  std::thread thread_;                 // last member: it uses all others
};

}  // namespace regroup::elastic
