// Reads the interfaces of the host by getifaddrs(3) and /sys/class/net.
#include "collective/ucx/peer_address.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

namespace regroup::collective::ucx {
namespace {

std::uint32_t ones_in(const std::uint8_t* bytes, std::size_t count) {
  std::uint32_t ones = 0;
  for (std::size_t i = 0; i < count; ++i)
    ones += static_cast<std::uint32_t>(std::popcount(bytes[i]));
  return ones;
}

PeerAddress address_from(const sockaddr& address, const sockaddr* mask) {
  PeerAddress out{address.sa_family};
  const bool four = address.sa_family == AF_INET;
  const std::size_t offset =
      four ? offsetof(sockaddr_in, sin_addr) : offsetof(sockaddr_in6, sin6_addr);
  const std::size_t bytes = four ? 4 : 16;
  std::memcpy(out.address.data(), reinterpret_cast<const std::byte*>(&address) + offset, bytes);
  if (mask != nullptr)
    out.prefix = ones_in(reinterpret_cast<const std::uint8_t*>(mask) + offset, bytes);
  return out;
}

bool is_link_local(const PeerAddress& c) {
  if (c.family == AF_INET) return c.address[0] == 169 && c.address[1] == 254;
  return c.address[0] == 0xfe && (c.address[1] & 0xc0) == 0x80;
}

bool same_network(const PeerAddress& a, const PeerAddress& b) {
  if (a.family != b.family) return false;
  for (std::uint32_t bit = 0; bit < b.prefix && bit < 128; ++bit) {
    const auto mask = static_cast<std::uint8_t>(0x80U >> bit % 8);
    if (((a.address[bit / 8] ^ b.address[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

struct Local {
  std::string interface;
  PeerAddress address;
  bool loopback = false;
};

// Sort key: hardware before bridges and virtual interfaces (whose reported speeds mean nothing),
// then by speed.
std::pair<bool, int> speed_of(const std::string& interface) {
  const std::filesystem::path folder = "/sys/class/net/" + interface;
  std::error_code error;
  int speed = 0;
  std::ifstream(folder / "speed") >> speed;
  return {std::filesystem::exists(folder / "device", error), std::max(speed, 0)};
}

// The addresses of this host, the fastest first.
std::vector<Local> locals() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> release(list, ::freeifaddrs);
  std::vector<Local> out;
  std::map<std::string, std::pair<bool, int>> speeds;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    const auto family = i->ifa_addr == nullptr ? AF_UNSPEC : i->ifa_addr->sa_family;
    if ((i->ifa_flags & IFF_UP) == 0 || (family != AF_INET && family != AF_INET6)) continue;
    const PeerAddress address = address_from(*i->ifa_addr, i->ifa_netmask);
    if (is_link_local(address)) continue;
    out.push_back({i->ifa_name, address, (i->ifa_flags & IFF_LOOPBACK) != 0});
    if (!speeds.contains(out.back().interface))
      speeds[out.back().interface] = speed_of(i->ifa_name);
  }
  std::ranges::stable_sort(out, std::greater(),
                           [&](const Local& i) { return speeds[i.interface]; });
  return out;
}

template <class Wanted>
std::vector<PeerAddress> of_one_family(const std::vector<Local>& all, Wanted wanted) {
  for (const std::uint16_t family : {AF_INET, AF_INET6}) {
    std::vector<PeerAddress> out;
    for (const Local& i : all) {
      if (i.address.family == family && wanted(i)) out.push_back(i.address);
    }
    if (!out.empty()) return out;
  }
  return {};
}

// Layout: nonce, number of addresses, addresses, failure reason.
constexpr std::size_t kNonce = sizeof(std::uint64_t);
constexpr std::size_t kHead = kNonce + sizeof(std::uint32_t);

// The number of addresses in `bytes`; empty if `bytes` is too short for them.
std::optional<std::size_t> count_in(std::span<const std::byte> bytes) {
  std::uint32_t count = 0;
  if (bytes.size() < kHead) return std::nullopt;
  std::memcpy(&count, bytes.data() + kNonce, sizeof count);
  if (count > (bytes.size() - kHead) / sizeof(PeerAddress)) return std::nullopt;
  return count;
}

}  // namespace

std::vector<PeerAddress> local_addresses() {
  const std::vector<Local> all = locals();
  std::vector<PeerAddress> out = of_one_family(all, [](const Local& i) { return !i.loopback; });
  if (out.empty()) out.push_back({AF_INET, 0, 8, {127, 0, 0, 1}});
  return out;
}

std::vector<PeerAddress> addresses_of_devices(std::string_view devices) {
  if (devices.empty()) return {};
  const bool all_but = devices.starts_with('^');
  const std::string names = "," + std::string(devices.substr(all_but ? 1 : 0)) + ",";
  const auto is_named = [&](const Local& i) {
    return names.find(fmt::format(",{},", i.interface)) != std::string::npos;
  };
  const std::vector<Local> all = locals();
  if (std::ranges::none_of(all, is_named)) return {};
  return of_one_family(
      all, [&](const Local& i) { return all_but ? !is_named(i) && !i.loopback : is_named(i); });
}

base::Result<PortRange> read_port_range(std::string_view text) {
  if (text.empty() || text == "0") return PortRange{};
  PortRange out;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, out.first);
  const bool dash = first.ec == std::errc() && first.ptr != end && *first.ptr == '-';
  const auto last = dash ? std::from_chars(first.ptr + 1, end, out.last) : first;
  if (dash && last.ec == std::errc() && last.ptr == end && out.first != 0 && out.first <= out.last)
    return out;
  return base::invalid_argument(fmt::format(
      "UCX_TCP_PORT_RANGE={}: expected a range such as 20000-20999, or 0 for any port", text));
}

std::vector<std::byte> encode(std::uint64_t nonce, std::span<const PeerAddress> addresses,
                              std::string_view failure_reason) {
  const auto count = static_cast<std::uint32_t>(addresses.size());
  std::vector<std::byte> out;
  for (const auto bytes : {std::as_bytes(std::span(&nonce, 1)), std::as_bytes(std::span(&count, 1)),
                           std::as_bytes(addresses), std::as_bytes(std::span(failure_reason))}) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

std::uint64_t nonce_in(std::span<const std::byte> bytes) {
  std::uint64_t nonce = 0;
  if (count_in(bytes)) std::memcpy(&nonce, bytes.data(), sizeof nonce);
  return nonce;
}

std::vector<PeerAddress> decode(std::span<const std::byte> bytes) {
  std::vector<PeerAddress> out(count_in(bytes).value_or(0));
  if (!out.empty()) std::memcpy(out.data(), bytes.data() + kHead, out.size() * sizeof(PeerAddress));
  const auto is_odd = [](const PeerAddress& c) {
    return (c.family != AF_INET && c.family != AF_INET6) || c.port == 0;
  };
  if (std::ranges::any_of(out, is_odd)) return {};
  return out;
}

std::string failure_reason_in(std::span<const std::byte> bytes) {
  const auto count = count_in(bytes);
  if (!count) return {};
  const auto word = bytes.subspan(kHead + *count * sizeof(PeerAddress));
  return {reinterpret_cast<const char*>(word.data()), word.size()};
}

std::vector<PeerAddress> nearest_first(std::vector<PeerAddress> theirs,
                                       std::span<const PeerAddress> mine) {
  const auto is_near = [&](const PeerAddress& c) {
    return std::ranges::any_of(mine, [&](const PeerAddress& m) { return same_network(c, m); });
  };
  const auto is_other = [&](const PeerAddress& c) {
    return std::ranges::none_of(
        mine, [&](const PeerAddress& m) { return m.family == c.family && m.address == c.address; });
  };
  const auto others = std::stable_partition(theirs.begin(), theirs.end(), is_other);
  std::stable_partition(theirs.begin(), others, is_near);
  return theirs;
}

SocketAddress to_socket_address(const PeerAddress& address) {
  SocketAddress out;
  out.storage.ss_family = address.family;
  if (address.family == AF_INET) {
    auto& in = reinterpret_cast<sockaddr_in&>(out.storage);
    out.bytes = sizeof in;
    in.sin_port = htons(address.port);
    std::memcpy(&in.sin_addr, address.address.data(), sizeof in.sin_addr);
  } else {
    auto& in = reinterpret_cast<sockaddr_in6&>(out.storage);
    out.bytes = sizeof in;
    in.sin6_port = htons(address.port);
    std::memcpy(&in.sin6_addr, address.address.data(), sizeof in.sin6_addr);
  }
  return out;
}

}  // namespace regroup::collective::ucx
