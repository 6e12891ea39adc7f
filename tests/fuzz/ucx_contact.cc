// Any bytes as the address of another member: refused or understood, and what is understood can be called,
// and is the same when it is said again.
#include "collective/ucx/contact.h"

#include <algorithm>
#include <cstdint>

#include "tests/fuzz/require.h"

using namespace regroup::collective;
using regroup::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const std::vector<Contact> contacts = decode(bytes);
  const std::string word = last_word_in(bytes);
  require(word.size() <= size);
  if (contacts.empty()) return 0;
  require(std::ranges::equal(encode(nonce_in(bytes), contacts, word), bytes));
  const std::vector<Contact> mine = {{AF_INET, 4000, 24, {10, 0, 0, 1}}, {AF_INET6, 4000, 64, {0xfd}}};
  const std::vector<Contact> sorted = nearest_first(contacts, mine);
  require(std::ranges::is_permutation(sorted, contacts));
  require(nearest_first(contacts, contacts).size() == contacts.size());  // networks as they say
  for (const Contact& contact : sorted) {
    const SocketAddress address = to_socket_address(contact);
    require(address.storage.ss_family == contact.family && address.bytes <= sizeof address.storage);
  }
  return 0;
}
