// Messages with keys over PointToPoint: a header, by which the receiver finds where the data goes,
// then the data in pieces. Data of which somebody waits is received in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collective/signature.h"
#include "regroup/point_to_point.h"

namespace regroup::collective::p2p {

enum class HeaderKind : std::uint8_t {
  kData,     // of a collective operation
  kMessage,  // of send() and receive()
  kProbe,    // the sender is in that collective operation; no data
  kFailure,  // the operation has failed in the sender; the data says why
  kBye,      // the last one: the sender destroys its communicator
};

// Orders messages by what a receiver waits for.
struct Key {
  int from = 0;
  HeaderKind kind = HeaderKind::kData;
  std::uint64_t number = 0;  // of the collective operation, or of the message from that rank
  std::uint64_t tag = 0;     // net::MessageTag
  auto operator<=>(const Key&) const = default;
};

struct Header {
  HeaderKind kind = HeaderKind::kData;
  std::uint64_t number = 0;
  std::uint64_t tag = 0;
  CollectiveSignature signature;
  std::uint64_t bytes = 0;  // that follow
};

// A message that has arrived, or is to arrive.
struct Incoming {
  bool announced = false;  // its header has come
  bool complete = false;
  CollectiveSignature signature;
  std::size_t bytes = 0;
  Output wanted;                // where the receiver wants it, if `is_wanted`
  bool is_wanted = false;       // before the header came
  std::vector<std::byte> room;  // otherwise
};

// Used by one thread. Errors are those of PointToPoint::error().
class Inbox {
 public:
  // `on_header` is called for each header, before its data has come.
  Inbox(PointToPoint& messages, std::function<void(int from, const Header&)> on_header)
      : messages_(messages), on_header_(std::move(on_header)) {}
  // Ends what can be ended, and leaves the memory of what cannot.
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Whether a send is complete.
  using Sent = std::shared_ptr<const bool>;
  // `data` must stay until then, unless the header's kind is kFailure: that is copied.
  Sent send(int to, Header header, Input data);
  // The message with that key; stays until drop().
  [[nodiscard]] Incoming& find(const Key& key) { return incoming_[key]; }
  void drop(const Key& key) { incoming_.erase(key); }
  // Receives that message into `data` if its header has not come yet.
  void want(const Key& key, Output data);
  // Advances all messages; true if anything moved.
  [[nodiscard]] bool progress();
  // Receives no more data: the memory of receivers is theirs again as far as MPI allows it.
  void close();

 private:
  // Parts of one message under way.
  struct Outgoing {
    Header header;
    std::vector<std::byte> copy;
    std::vector<std::size_t> numbers;  // of PointToPoint
    std::shared_ptr<bool> done = std::make_shared<bool>(false);
  };
  struct Arriving {
    Key key;
    std::vector<std::size_t> numbers;
  };
  struct HeaderArriving {
    int from = 0;
    std::size_t number = 0;
    std::unique_ptr<Header> header = std::make_unique<Header>();
  };

  void take_header(int from, const Header& header);

  PointToPoint& messages_;
  const std::function<void(int from, const Header&)> on_header_;
  bool closed_ = false;
  std::map<Key, Incoming> incoming_;
  std::list<Outgoing> outgoing_;
  std::list<Arriving> arriving_;
  std::deque<HeaderArriving> headers_;  // those of a rank in their order
};

}  // namespace regroup::collective::p2p
