// Any bytes as a line between `regroup join` and the controller of a job: refused with a reason, or
// understood as something that is the same when it is said and heard once more.
#include "launcher/lease/grant_lines.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/node_message.h"
#include "shmem/arena.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using regroup::fuzz::require;

namespace {

constexpr std::size_t kCut = 500;  // what an agent says is cut there, if need be within a letter

// Returns what was parsed from `bytes`, if anything.
template <class Parse>
auto understood(std::string_view bytes, Parse parse) {
  auto first = parse(bytes);
  if (!first.ok()) {
    require(!first.status().message().empty());
    return first;
  }
  const std::string line = lease::to_line(*first);
  require(line.find('\n') == line.size() - 1);
  const auto second = parse(line);
  require(second.ok());
  if (bytes.size() < kCut) require(lease::to_line(*second) == line);
  return first;
}

void check(const std::vector<spec::HostRequest>& hosts) {
  for (const spec::HostRequest& host : hosts) {
    require(!host.name.empty() && host.slots <= proto::kMaxMembers);
    require(std::ranges::none_of(host.cores, [](int core) { return core < 0; }));
  }
}

void check(base::Duration within) {
  require(within >= base::Duration::zero() && within <= std::chrono::hours(24));
}

bool printable(std::string_view text) {
  return std::ranges::none_of(text, [](char c) { return c >= 0 && (c < ' ' || c == 0x7f); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto offer = understood(bytes, lease::parse_offer); offer.ok()) {
    require(!offer->grant.hosts.empty());
    check(offer->grant.hosts);
    check(offer->grace);
  }
  if (const auto revoke = understood(bytes, lease::parse_revoke); revoke.ok()) {
    check(revoke->hosts);
    check(revoke->within);
  }
  if (const auto reconnect = understood(bytes, lease::parse_reconnect); reconnect.ok()) {
    require(!reconnect->token.empty());
    check(reconnect->revoke.within);
  }
  if (const auto resized = understood(bytes, lease::parse_resized); resized.ok())
    require(resized->members <= proto::kMaxMembers);
  if (const auto start = understood(bytes, lease::parse_agent_start); start.ok())
    require(start->order.node < proto::kEveryNode && !start->order.host.empty() &&
            !start->order.program.empty());
  if (const auto end = understood(bytes, lease::parse_agent_end); end.ok())
    require(end->node < proto::kEveryNode);
  if (const auto news = understood(bytes, lease::parse_agent_news); news.ok()) {
    require(news->node < proto::kEveryNode && news->why.code() <= base::Code::kInternal);
    require(printable(news->line) && printable(news->why.message()));
  }
  static_cast<void>(understood(bytes, lease::parse_reply));
  return 0;
}
