// Messages with tags, from a given rank or any, over the messages of a Communicator, which match in
// the order of their start. Each message is two: a header, then the data.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "regroup/communicator.h"

namespace regroup::collective::group {

inline constexpr int kAnyRank = -1;

// A message that was started. `status` and `source` are valid once `done`.
struct TaggedMessage {
  int peer = kAnyRank;  // the destination, or the source asked for
  bool done = false;
  base::Status status = {};
  int source = kAnyRank;  // of a receive: the rank whose message it took
};

// Used by one thread at a time; nothing blocks. All ranks of the communicator must exchange their
// messages through an object of this class.
class TaggedMessages {
 public:
  // `communicator` must outlive the messages.
  explicit TaggedMessages(Communicator& communicator);

  // `data` must live until the message is done: the receiver has taken it.
  [[nodiscard]] base::Result<std::shared_ptr<TaggedMessage>> send(int to, std::uint32_t tag,
                                                                  Input data,
                                                                  base::TimePoint deadline);
  // Takes the next message with `tag` of rank `from`, or of any rank. `out` must live until it is
  // done; a message of another size is kInvalidArgument.
  [[nodiscard]] base::Result<std::shared_ptr<TaggedMessage>> receive(int from, std::uint32_t tag,
                                                                     Output out,
                                                                     base::TimePoint deadline);
  // Advances all messages. An error is that of the communicator: all messages have it.
  [[nodiscard]] base::Status advance();
  // A message to or from `rank` is in progress.
  [[nodiscard]] bool waits_for(int rank) const;
  [[nodiscard]] bool empty() const { return sends_.empty() && receives_.empty(); }

 private:
  using Header = std::array<std::uint64_t, 2>;  // tag, bytes
  struct Send {
    std::shared_ptr<TaggedMessage> message;
    std::unique_ptr<Header> header;
    Request data;
  };
  struct Receive {
    std::shared_ptr<TaggedMessage> message;
    std::uint32_t tag = 0;
    Output out;
    base::TimePoint deadline;
  };
  // A message whose data came before anybody asked for it.
  struct Unexpected {
    std::uint32_t tag = 0;
    std::vector<std::byte> data;
    bool complete = false;  // false: in transfer, the last one of its rank
  };
  // What comes from one rank: a header, then its data, which go to a Receive or to `unexpected`.
  struct Inbox {
    Header header{};
    std::optional<Request> header_request, data_request;
    std::optional<Receive> receive;  // that the data in transfer goes to
    std::deque<Unexpected> unexpected;
  };

  [[nodiscard]] base::Status advance(int from);
  [[nodiscard]] base::Status start_data(int from);
  void end_data(int from);
  [[nodiscard]] bool take_unexpected(Receive& receive);
  [[nodiscard]] bool is_wanted(int from) const;
  static void complete(Receive& receive, int source, std::size_t bytes);

  Communicator& communicator_;
  std::list<Send> sends_;
  std::list<Receive> receives_;  // in the order of their start
  std::vector<Inbox> inboxes_;   // by rank
};

}  // namespace regroup::collective::group
