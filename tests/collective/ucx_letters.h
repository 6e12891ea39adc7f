// Heads of letters: one of each kind, and some that no member sends.
#pragma once

#include <climits>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "collective/operation.h"
#include "collective/ucx/letter.h"
#include "core/arena.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing {

struct Said {
  std::string what;
  Bytes head;
  std::size_t bytes = 0;  // of data behind it
};

// Of a communicator of all ranks of a World, as make_ucx() makes it unless it is told otherwise.
inline constexpr LineId kAllRanks{core::Position().value, 0,
                                  static_cast<std::uint32_t>(core::ChannelKind::kSteps)};

// The same bytes each time: with nothing between the members.
[[nodiscard]] inline Bytes bytes_of(const LetterHead& head) {
  Bytes bytes(sizeof head);
  const auto put = [&](const auto& member) {
    const auto at = reinterpret_cast<const std::byte*>(&member) - reinterpret_cast<const std::byte*>(&head);
    std::memcpy(bytes.data() + at, &member, sizeof member);
  };
  put(head.key.line), put(head.key.kind), put(head.key.number), put(head.key.piece), put(head.key.from);
  put(head.call), put(head.thanks), put(head.nonce);
  return bytes;
}

inline constexpr std::uint64_t kNonce = 0x1234'5678'9abc'def0;

// From rank `from` in its first operation or message, which has 8 bytes.
[[nodiscard]] inline LetterHead head_of(LetterKind kind, int from, std::uint64_t nonce = kNonce) {
  static Bytes eight(8);
  const bool message = kind == LetterKind::kReady || kind == LetterKind::kMessage;
  const Operation o =
      message ? Operation::send(eight, 0) : Operation::allreduce(eight, eight, Dtype::kFloat32, Op::kSum);
  return {{kAllRanks, kind, 1, 0, from}, signature_of(o, 3), 1, nonce};
}

[[nodiscard]] inline std::vector<Said> good_letters(int from, std::uint64_t nonce = kNonce) {
  const auto one = [&](const char* what, LetterKind kind, std::size_t bytes) {
    return Said{what, bytes_of(head_of(kind, from, nonce)), bytes};
  };
  return {one("call", LetterKind::kCall, 0),       one("data", LetterKind::kData, 4096),
          one("ready", LetterKind::kReady, 0),     one("message", LetterKind::kMessage, 8),
          one("receipt", LetterKind::kReceipt, 0), one("hello", LetterKind::kHello, 0),
          one("failure", LetterKind::kFailure, 20)};
}

// To a member of a World of three, from one who knows its nonce.
[[nodiscard]] inline std::vector<Said> bad_letters(int from, std::uint64_t nonce = kNonce) {
  std::vector<Said> out;
  const auto add = [&](const char* what, LetterKind kind, std::size_t bytes, auto change) {
    LetterHead head = head_of(kind, from, nonce);
    change(head);
    out.push_back({what, bytes_of(head), bytes});
  };
  const auto nothing = [](LetterHead&) {};
  const Bytes whole = bytes_of(head_of(LetterKind::kCall, from, nonce));
  out.push_back({"no head", {}});
  out.push_back({"a short head", {whole.begin(), whole.end() - 1}});
  out.push_back({"a long head", whole});
  out.back().head.emplace_back();
  for (const int kind : {7, 255}) add("an unknown kind", static_cast<LetterKind>(kind), 0, nothing);
  for (const int rank : {-1, 3, INT_MIN, INT_MAX}) {
    for (const LetterKind kind : {LetterKind::kCall, LetterKind::kHello})
      add("of no rank", kind, 0, [rank](LetterHead& head) { head.key.from = rank; });
  }
  for (const LetterKind kind : {LetterKind::kCall, LetterKind::kData}) {
    add("an unknown operation", kind, 0, [](LetterHead& head) { head.call.what = 12; });
    add("an unknown operation", kind, 0, [](LetterHead& head) { head.call.what = 255; });
    add("an unknown dtype", kind, 0, [](LetterHead& head) { head.call.what = 1 | 9 << 8; });
    add("an unknown op", kind, 0, [](LetterHead& head) { head.call.what = 1 | 7 << 16; });
  }
  for (const std::size_t bytes : {7, 9, 4096}) add("of another size", LetterKind::kMessage, bytes, nothing);
  for (const LetterKind kind :
       {LetterKind::kCall, LetterKind::kReady, LetterKind::kReceipt, LetterKind::kHello})
    add("with data that it has not", kind, 8, nothing);
  return out;
}

}  // namespace regroup::collective::testing
