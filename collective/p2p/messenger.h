// The messages of one collective operation, where each rank is a host of its own.
#pragma once

#include <functional>
#include <vector>

#include "base/status.h"
#include "collective/net/messenger.h"
#include "collective/p2p/inbox.h"
#include "collective/p2p/runner.h"

namespace regroup::collective::p2p {

class Messenger final : public net::Messenger {
 public:
  // `fail` fails the operation in all ranks, and returns.
  Messenger(Inbox& inbox, Runner& runner, std::uint64_t number, CollectiveSignature signature,
            std::function<void(base::Status)> fail)
      : inbox_(inbox),
        runner_(runner),
        number_(number),
        signature_(signature),
        fail_(std::move(fail)) {}

  [[nodiscard]] net::Task send(int to, net::MessageTag tag, Input data) override;
  [[nodiscard]] net::Task receive(int from, net::MessageTag tag, Output data) override;
  [[nodiscard]] net::Task receive_up_to(std::size_t limit, int from, net::MessageTag tag,
                                        std::vector<std::byte>* data) override;
  [[nodiscard]] net::Task receive_in_place(int from, net::MessageTag tag, std::size_t bytes,
                                           net::Received* out) override;
  void release(int from, net::MessageTag tag) override { inbox_.drop(key_of(from, tag)); }
  [[nodiscard]] net::Task run_locally(Operation operation) override;
  [[nodiscard]] net::Task fail(base::Status why) override;

 private:
  [[nodiscard]] Key key_of(int from, net::MessageTag tag) const {
    return {from, HeaderKind::kData, number_, tag.pack()};
  }
  [[nodiscard]] Runner::Until complete(const Incoming& message) {
    return {runner_, [&message] { return message.complete; }};
  }

  Inbox& inbox_;
  Runner& runner_;
  const std::uint64_t number_;
  const CollectiveSignature signature_;
  const std::function<void(base::Status)> fail_;
};

}  // namespace regroup::collective::p2p
