// getifaddrs, and bytes.
#include "collective/ucx/contact.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>

namespace regroup::collective {
namespace {

std::uint32_t ones_in(const std::uint8_t* bytes, std::size_t count) {
  std::uint32_t ones = 0;
  for (std::size_t i = 0; i < count; ++i) ones += static_cast<std::uint32_t>(std::popcount(bytes[i]));
  return ones;
}

Contact contact_of(const sockaddr& address, const sockaddr* mask, std::uint16_t port) {
  Contact out{address.sa_family, port};
  const bool four = address.sa_family == AF_INET;
  const std::size_t offset = four ? offsetof(sockaddr_in, sin_addr) : offsetof(sockaddr_in6, sin6_addr);
  const std::size_t bytes = four ? 4 : 16;
  std::memcpy(out.address.data(), reinterpret_cast<const std::byte*>(&address) + offset, bytes);
  if (mask != nullptr) out.prefix = ones_in(reinterpret_cast<const std::uint8_t*>(mask) + offset, bytes);
  return out;
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

std::vector<Contact> contacts_here(std::uint16_t port) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> release(list, ::freeifaddrs);
  std::vector<Contact> four;
  std::vector<Contact> six;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    const auto family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const Contact contact = contact_of(*i->ifa_addr, i->ifa_netmask, port);
    if (!is_link_local(contact)) (family == AF_INET ? four : six).push_back(contact);
  }
  if (!four.empty() || !six.empty()) return four.empty() ? six : four;
  return {{AF_INET, port, 8, {127, 0, 0, 1}}};
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
  SocketAddress out = any_address(contact.family);
  if (contact.family == AF_INET) {
    auto& in = reinterpret_cast<sockaddr_in&>(out.storage);
    in.sin_port = htons(contact.port);
    std::memcpy(&in.sin_addr, contact.address.data(), sizeof in.sin_addr);
  } else {
    auto& in = reinterpret_cast<sockaddr_in6&>(out.storage);
    in.sin6_port = htons(contact.port);
    std::memcpy(&in.sin6_addr, contact.address.data(), sizeof in.sin6_addr);
  }
  return out;
}

SocketAddress any_address(std::uint16_t family) {
  SocketAddress out;
  out.storage.ss_family = family;
  out.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return out;
}

}  // namespace regroup::collective
