// The connection between a client on another host and the gateway of the servers' host: the bytes
// of its messages, and the address where the gateway is. docs/design/ps_hosts.md.
//
// The client sends a Hello, then requests, each a Request with its payload. The gateway deals with
// them in their order, and answers each with an Answer, except pushes, and
// requests "without an answer". Structures are
// sent as they lie in memory: all processes run one build on one architecture, as kVersion says.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "collective/ps/steps.h"
#include "regroup/ps.h"

namespace regroup::collective::ps {

inline constexpr std::uint32_t kLinkVersion = 5;
inline constexpr std::uint64_t kLinkMagic = 0x4b4e494c53505252ULL;  // "RRPSLINK"
// A host that acknowledges no bytes for so long is lost. Shorter than the 5 s after which an agent
// ends the members of a lost controller, so that they can say what they have lost.
inline constexpr std::chrono::seconds kLinkSilence{3};
// Of a request and of an answer that have rows, unless they have one row only.
inline constexpr std::uint64_t kMostRowBytes = 8 << 20;

// The secret of a job's gateway. A client that has it may push and pull.
using LinkToken = std::array<std::byte, 16>;

// `text` and zeros; at most N - 1 bytes of it.
template <std::size_t N>
[[nodiscard]] std::array<char, N> fixed_text(std::string_view text) {
  std::array<char, N> out{};
  std::copy_n(text.begin(), std::min(text.size(), N - 1), out.begin());
  return out;
}

struct Hello {
  std::uint64_t magic = kLinkMagic;
  std::uint32_t version = kLinkVersion;
  std::uint32_t reserved = 0;
  LinkToken token{};
  std::uint64_t consistency = 0;  // as Lane::consistency
  std::int64_t deadline = 0;      // nanoseconds, as ClientOptions::deadline
  std::uint64_t process = 0;      // the client's pid
  std::array<char, 64> name{};    // ClientOptions::name
  std::array<char, 64> host{};    // the client's
};

enum class RequestKind : std::uint32_t {
  kOpen = 1,   // payload: OpenContent; the answer's value: the table's number
  kPush,       // payload: `count` ids, their gradients
  kPushDense,  // payload: gradients
  kWait,       // of the push whose last request was `of`, for at most `wait` nanoseconds
  kFlush,
  kAdvance,  // to clock `of` or a later one; 0: by one turn. The answer's value: the clock
  // The answer's value: in mode sync, the steps that the rows have.
  kPull,       // payload: `count` ids; the answer's: their rows
  kPullDense,  // the answer's payload: the table
  // Mode sync. `leaf` and `step`: of the one that ends; `first` is 0 if there is none; `of` is 1 if
  // a push of it was not sent whole, so that it does not count. The answer's payload: NextLeaf.
  kNextLeaf,
  // Mode sync at several stores: the calls of StoreBackend.
  kStepState,  // of `step`; waits at most `wait` nanoseconds, `first` 1: for other words than at
               // `of`. The answer's payload: StepState
  kClaimLeaf,  // of `step`, payload: LeafSet; `first` 1: also of others. The answer's value: the
               // leaf's number + 1; 0: none
  kBeginLeaf,  // `leaf` of `step`; without an answer
  kEndLeaf,
  kPropose,  // `of` steps; without an answer
  kTold,     // the errors of pushes `of` to `count` have been told; without an answer
  kLost,     // for Answer::lost
  kLeave,    // the last request: all before have been dealt with
};
struct Request {
  RequestKind kind = RequestKind::kFlush;
  std::uint32_t table = 0;
  std::uint64_t number = 0;  // 1, 2 ...
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;  // of the payload
  std::uint64_t of = 0;
  std::int64_t wait = 0;
  double lr = 0;
  std::uint32_t first = 1;  // of a push: 0: it goes on with the push of the request before
  std::uint32_t leaf = 0;
  std::uint64_t step = 0;
};
struct Answer {
  std::uint64_t number = 0;  // of the request; 0: of the Hello
  std::uint32_t code = 0;    // base::Code
  std::uint32_t text = 0;    // bytes of the status' message, which come first
  std::uint64_t bytes = 0;   // of the payload
  std::uint64_t value = 0;
  // The status is an error of pushes first_failed to last_failed, which the gateway keeps until it
  // reads kTold: the answer may come after the deadline of its call. 0: it is none.
  std::uint64_t first_failed = 0;
  std::uint64_t last_failed = 0;
  // Pushes up to this one are applied, or their errors have been told.
  std::uint64_t settled = 0;
  std::uint64_t lost = 0;  // stores of the job, as lost_stores() of the store says it
};
// The payload of the answer to a Hello.
struct Welcome {
  std::uint64_t clock = 0;
  std::uint64_t shards = 0;  // of the store
};
struct NextLeaf {
  std::uint64_t clock = 0;
  std::uint64_t leaf = 0;  // its number + 1; 0: none
};
inline constexpr std::uint32_t kMostAnswerText = 4096;

// Where a gateway is.
struct GatewayAddress {
  std::string host;  // its name, for messages
  std::string address;
  std::uint16_t port = 0;
  LinkToken token{};
};
// "tcp,HOST,ADDRESS,PORT,TOKEN", the token in hexadecimal.
[[nodiscard]] std::string to_text(const GatewayAddress& address);
// True if `text` begins as to_text() does.
[[nodiscard]] bool is_gateway_address(std::string_view text);
// The inverse of to_text(). kInvalidArgument: `text` is none; the message does not have the token.
[[nodiscard]] base::Result<GatewayAddress> parse_gateway_address(std::string_view text);

// Connects to a numeric address; the socket is non-blocking. kUnavailable: nobody listens there.
// kDeadlineExceeded. Blocks until `deadline`.
[[nodiscard]] base::Result<base::Fd> connect_link(const std::string& address, std::uint16_t port,
                                                  base::TimePoint deadline);

}  // namespace regroup::collective::ps
