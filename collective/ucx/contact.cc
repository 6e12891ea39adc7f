// getifaddrs, and bytes.
#include "collective/ucx/contact.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>

namespace regroup::collective {
namespace {

std::uint32_t ones_in(const std::uint8_t* bytes, std::size_t count) {
  std::uint32_t ones = 0;
  for (std::size_t i = 0; i < count; ++i) ones += static_cast<std::uint32_t>(std::popcount(bytes[i]));
  return ones;
}

Contact contact_of(const sockaddr& address, const sockaddr* mask) {
  Contact out{address.sa_family};
  const bool four = address.sa_family == AF_INET;
  const std::size_t offset = four ? offsetof(sockaddr_in, sin_addr) : offsetof(sockaddr_in6, sin6_addr);
  const std::size_t bytes = four ? 4 : 16;
  std::memcpy(out.address.data(), reinterpret_cast<const std::byte*>(&address) + offset, bytes);
  if (mask != nullptr) out.prefix = ones_in(reinterpret_cast<const std::uint8_t*>(mask) + offset, bytes);
  return out;
}

// Mbit/s; 0 if the kernel does not know.
int speed_of(const std::string& interface) {
  int speed = 0;
  std::ifstream("/sys/class/net/" + interface + "/speed") >> speed;
  return std::max(speed, 0);
}

bool is_link_local(const Contact& c) {
  if (c.family == AF_INET) return c.address[0] == 169 && c.address[1] == 254;
  return c.address[0] == 0xfe && (c.address[1] & 0xc0) == 0x80;
}

bool same_network(const Contact& a, const Contact& b) {
  if (a.family != b.family) return false;
  for (std::uint32_t bit = 0; bit < b.prefix && bit < 128; ++bit) {
    const auto mask = static_cast<std::uint8_t>(0x80U >> bit % 8);
    if (((a.address[bit / 8] ^ b.address[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

// The nonce, the number of contacts, they, the word.
constexpr std::size_t kNonce = sizeof(std::uint64_t);
constexpr std::size_t kHead = kNonce + sizeof(std::uint32_t);

// Nothing where there are not that many.
std::optional<std::size_t> count_in(std::span<const std::byte> bytes) {
  std::uint32_t count = 0;
  if (bytes.size() < kHead) return std::nullopt;
  std::memcpy(&count, bytes.data() + kNonce, sizeof count);
  if (count > (bytes.size() - kHead) / sizeof(Contact)) return std::nullopt;
  return count;
}

}  // namespace

std::vector<Contact> contacts_here(std::string_view devices) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> release(list, ::freeifaddrs);
  const bool all_but = devices.starts_with('^');
  const std::string names = "," + std::string(devices.substr(all_but ? 1 : 0)) + ",";
  std::vector<Contact> four;
  std::vector<Contact> six;
  std::vector<Contact> chosen;
  std::vector<const ifaddrs*> addresses;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr != nullptr && (i->ifa_flags & IFF_UP) != 0) addresses.push_back(i);
  }
  std::ranges::stable_sort(addresses, std::greater(), [](const ifaddrs* i) { return speed_of(i->ifa_name); });
  for (const ifaddrs* i : addresses) {
    const auto family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const Contact contact = contact_of(*i->ifa_addr, i->ifa_netmask);
    const bool named = names.find(fmt::format(",{},", i->ifa_name)) != std::string::npos;
    if (is_link_local(contact) || (!named && (i->ifa_flags & IFF_LOOPBACK) != 0)) continue;
    if (named != all_but) chosen.push_back(contact);
    if ((i->ifa_flags & IFF_LOOPBACK) == 0) (family == AF_INET ? four : six).push_back(contact);
  }
  if (!chosen.empty()) {
    const bool has_four = std::ranges::find(chosen, AF_INET, &Contact::family) != chosen.end();
    std::erase_if(chosen, [&](const Contact& c) { return (c.family == AF_INET) != has_four; });
    return chosen;
  }
  if (!four.empty() || !six.empty()) return four.empty() ? six : four;
  return {{AF_INET, 0, 8, {127, 0, 0, 1}}};
}

core::Result<PortRange> read_port_range(std::string_view text) {
  if (text.empty() || text == "0") return PortRange{};
  PortRange out;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, out.first);
  const bool dash = first.ec == std::errc() && first.ptr != end && *first.ptr == '-';
  const auto last = dash ? std::from_chars(first.ptr + 1, end, out.last) : first;
  if (dash && last.ec == std::errc() && last.ptr == end && out.first != 0 && out.first <= out.last)
    return out;
  return core::invalid_argument(
      fmt::format("UCX_TCP_PORT_RANGE={}: ports as in 20000-20999 are wanted, or 0 for any", text));
}

std::vector<std::byte> encode(std::uint64_t nonce, std::span<const Contact> contacts,
                              std::string_view last_word) {
  const auto count = static_cast<std::uint32_t>(contacts.size());
  std::vector<std::byte> out;
  for (const auto bytes : {std::as_bytes(std::span(&nonce, 1)), std::as_bytes(std::span(&count, 1)),
                           std::as_bytes(contacts), std::as_bytes(std::span(last_word))}) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

std::uint64_t nonce_in(std::span<const std::byte> bytes) {
  std::uint64_t nonce = 0;
  if (count_in(bytes)) std::memcpy(&nonce, bytes.data(), sizeof nonce);
  return nonce;
}

std::vector<Contact> decode(std::span<const std::byte> bytes) {
  std::vector<Contact> out(count_in(bytes).value_or(0));
  if (!out.empty()) std::memcpy(out.data(), bytes.data() + kHead, out.size() * sizeof(Contact));
  const auto is_odd = [](const Contact& c) {
    return (c.family != AF_INET && c.family != AF_INET6) || c.port == 0;
  };
  if (std::ranges::any_of(out, is_odd)) return {};
  return out;
}

std::string last_word_in(std::span<const std::byte> bytes) {
  const auto count = count_in(bytes);
  if (!count) return {};
  const auto word = bytes.subspan(kHead + *count * sizeof(Contact));
  return {reinterpret_cast<const char*>(word.data()), word.size()};
}

std::vector<Contact> nearest_first(std::vector<Contact> theirs, std::span<const Contact> mine) {
  const auto is_near = [&](const Contact& c) {
    return std::ranges::any_of(mine, [&](const Contact& m) { return same_network(c, m); });
  };
  const auto is_other = [&](const Contact& c) {
    return std::ranges::none_of(
        mine, [&](const Contact& m) { return m.family == c.family && m.address == c.address; });
  };
  const auto others = std::stable_partition(theirs.begin(), theirs.end(), is_other);
  std::stable_partition(theirs.begin(), others, is_near);
  return theirs;
}

SocketAddress to_socket_address(const Contact& contact) {
  SocketAddress out;
  out.storage.ss_family = contact.family;
  if (contact.family == AF_INET) {
    auto& in = reinterpret_cast<sockaddr_in&>(out.storage);
    out.bytes = sizeof in;
    in.sin_port = htons(contact.port);
    std::memcpy(&in.sin_addr, contact.address.data(), sizeof in.sin_addr);
  } else {
    auto& in = reinterpret_cast<sockaddr_in6&>(out.storage);
    out.bytes = sizeof in;
    in.sin6_port = htons(contact.port);
    std::memcpy(&in.sin6_addr, contact.address.data(), sizeof in.sin6_addr);
  }
  return out;
}

}  // namespace regroup::collective
