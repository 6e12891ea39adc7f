// MPI delivers what it has taken, so that no message needs an ack.
#include "collective/p2p/messenger.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "collective/reduce/tree_fold.h"

namespace regroup::collective::p2p {
namespace {

bool reduces(Kind kind) {
  return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
}

void copy(Output to, const std::byte* from) {
  if (!to.empty() && to.data() != from) std::memmove(to.data(), from, to.size());
}

}  // namespace

net::Task Messenger::send(int to, net::MessageTag tag, Input data) {
  const Inbox::Sent sent =
      inbox_.send(to, {HeaderKind::kData, number_, tag.pack(), signature_}, data);
  co_await Runner::Until(runner_, [&sent] { return *sent; });
}

net::Task Messenger::receive(int from, net::MessageTag tag, Output data) {
  const Key key = key_of(from, tag);
  inbox_.want(key, data);
  Incoming& message = inbox_.find(key);
  co_await complete(message);
  if (message.bytes != data.size())
    co_await fail(base::internal_error("message size differs from the size of its operation"));
  if (!message.is_wanted) copy(data, message.room.data());
  inbox_.drop(key);
}

net::Task Messenger::receive_up_to(std::size_t limit, int from, net::MessageTag tag,
                                   std::vector<std::byte>* data) {
  const Key key = key_of(from, tag);
  Incoming& message = inbox_.find(key);
  co_await complete(message);
  if (message.bytes > limit) {
    co_await fail(base::internal_error(
        fmt::format("message of {} bytes exceeds the maximum of {}", message.bytes, limit)));
  }
  *data = std::move(message.room);
  inbox_.drop(key);
}

net::Task Messenger::receive_in_place(int from, net::MessageTag tag, std::size_t bytes,
                                      net::Received* out) {
  Incoming& message = inbox_.find(key_of(from, tag));
  co_await complete(message);
  if (message.bytes != bytes)
    co_await fail(base::internal_error("partial sum size differs from the size of its segment"));
  out->borrowed = true;
  out->data = message.room.data();
}

// Among one rank.
net::Task Messenger::run_locally(Operation o) {
  if (o.kind == Kind::kBroadcast || o.kind == Kind::kBarrier) co_return;
  if (!reduces(o.kind)) {
    copy(o.out.first(o.in.size()), o.in.data());
    co_return;
  }
  const proto::Interval leaf{0, 1};
  const auto fold = reduce::TreeFold::compile(std::span(&leaf, 1), 1);
  const std::byte* const in = o.in.data();
  if (fold.ok() && !o.in.empty())
    fold->run(std::span(&in, 1), {0, o.in.size()}, o.out.data(), o.dtype, o.op,
              reduce::Stores::kPlain);
}

net::Task Messenger::fail(base::Status why) {
  fail_(std::move(why));
  co_await Runner::Until(runner_, [] { return false; });
}

}  // namespace regroup::collective::p2p
