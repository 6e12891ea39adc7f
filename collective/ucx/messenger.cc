// Tasks that wait for messages in the mesh and for the ranks of this host.
#include "collective/ucx/messenger.h"

#include <fmt/format.h>

#include <cassert>
#include <utility>

#include "base/status.h"

namespace regroup::collective::ucx {
namespace {

MatchKey ack_key_of(MatchKey key) {
  key.kind = MessageKind::kAck;
  return key;
}

}  // namespace

MatchKey UcxMessenger::key_of(int from, net::MessageTag tag) const {
  return {group_.communicator, MessageKind::kData, number_, tag.pack(),
          group_.ranks[static_cast<std::size_t>(from)]};
}

// Awaits the arrival of a message with this key. If that belongs to another operation, it is a
// mismatch.
class UcxMessenger::Arrival final : public Waiter {
 public:
  Arrival(UcxMessenger& messenger, const MatchKey& key)
      : Waiter(messenger.engine_, key.from), signature_(messenger.signature_), key_(key) {}

  [[nodiscard]] bool ready() override {
    message_ = engine_.mesh().find(key_);
    if (message_ == nullptr) return static_cast<void>(engine_.mesh().connect(key_.from)), false;
    if (message_->header.signature == signature_) return true;
    engine_.fail_mismatch(signature_, key_.from, message_->header.signature);
    return false;
  }
  [[nodiscard]] ActiveMessage& await_resume() const { return *message_; }

 private:
  const CollectiveSignature signature_;
  const MatchKey key_;
  ActiveMessage* message_ = nullptr;
};

net::Task UcxMessenger::send(int to, net::MessageTag tag, Input data) {
  const int peer = group_.ranks[static_cast<std::size_t>(to)];
  co_await Until(
      engine_, [this, peer] { return engine_.mesh().connect(peer); }, peer);
  const MessageHeader header{key_of(to, tag), signature_};
  const Transfer transfer = engine_.mesh().send(peer, header, data);
  if (!tag.needs_ack()) engine_.mesh().expect_ack(peer);
  co_await Until(
      engine_, [&transfer] { return transfer.done(); }, peer);
  if (!tag.needs_ack()) co_return;
  const MatchKey ack = ack_key_of(key_of(to, tag));
  co_await Until(
      engine_, [&] { return engine_.mesh().find(ack) != nullptr; }, peer);
  engine_.mesh().drop(ack);
}

net::Task UcxMessenger::receive(int from, net::MessageTag tag, Output data) {
  const MatchKey key = key_of(from, tag);
  const ActiveMessage& message = co_await Arrival(*this, key);
  if (message.bytes != data.size()) {
    engine_.fail(base::internal_error("message size differs from the size of its operation"));
    co_await Until(engine_, [] { return false; });
  }
  co_await take(key, tag, data);
}

net::Task UcxMessenger::receive_up_to(std::size_t limit, int from, net::MessageTag tag,
                                      std::vector<std::byte>* data) {
  const MatchKey key = key_of(from, tag);
  const ActiveMessage& message = co_await Arrival(*this, key);
  if (message.bytes > limit) {
    engine_.fail(base::internal_error(
        fmt::format("message of {} bytes exceeds the maximum of {}", message.bytes, limit)));
    co_await Until(engine_, [] { return false; });
  }
  data->resize(message.bytes);
  co_await take(key, tag, *data);
}

net::Task UcxMessenger::receive_in_place(int from, net::MessageTag tag, std::size_t bytes,
                                         net::Received* out) {
  assert(!tag.needs_ack());
  const MatchKey key = key_of(from, tag);
  const ActiveMessage& message = co_await Arrival(*this, key);
  if (message.bytes != bytes) {
    engine_.fail(base::internal_error("partial sum size differs from the size of its segment"));
    co_await Until(engine_, [] { return false; });
  }
  out->borrowed = !message.fetch;
  if (out->borrowed) {
    out->data = static_cast<const std::byte*>(message.data);
    engine_.mesh().queue_ack(key.from);
    co_return;
  }
  out->room = scratch_.get(bytes);
  out->data = out->room.data();
  co_await take(key, tag, {out->room.data(), bytes});
}

net::Task UcxMessenger::take(MatchKey key, net::MessageTag tag, Output data) {
  const Transfer transfer = engine_.mesh().take(key, data.data());
  co_await Until(
      engine_, [&transfer] { return transfer.done(); }, key.from);
  if (!tag.needs_ack()) {
    engine_.mesh().queue_ack(key.from);
    co_return;
  }
  const Transfer ack = engine_.mesh().send(key.from, {ack_key_of(key), signature_}, {});
  co_await Until(
      engine_, [&ack] { return ack.done(); }, key.from);
}

net::Task UcxMessenger::run_locally(Operation operation) {
  // The engine enforces the deadline.
  auto request = group_.local->start_part(signature_, operation, base::TimePoint::max());
  if (!request.ok()) engine_.fail(request.status());
  co_await Until(engine_, [&] {
    const auto done = request->test();
    if (!done.ok()) fail_locally(done.status());
    return done.ok() && *done;
  });
}

void UcxMessenger::fail_locally(const base::Status& why) {
  const auto other = group_.local->mismatch();
  if (!other || group_.layout.hosts.size() == 1) return engine_.fail(why);
  const int rank = group_.layout.here()[other->rank];
  engine_.fail_mismatch(signature_, group_.ranks[static_cast<std::size_t>(rank)], other->signature);
}

net::Task UcxMessenger::fail(base::Status why) {
  engine_.fail_all(why);
  co_await Until(engine_, [] { return false; });
}

}  // namespace regroup::collective::ucx
