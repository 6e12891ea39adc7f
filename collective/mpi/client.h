// A member's side of the carrier: messages to and from the carrier process of its host.
//
// A message is kept until the receiving member has acknowledged it. If a carrier process ends, all
// processes of the generation do, and each sender asks each receiver up to which message it has
// received all; the mesh then sends the others. So the end of a carrier process loses no message
// and needs no new generation.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "collective/carrier.h"
#include "collective/mpi/frame.h"

namespace regroup::collective::mpi {

// How long a member waits for its carrier process. Only time counts in which it waits in an
// operation.
struct ClientLimits {
  base::Duration start = std::chrono::seconds(120);  // until its MPI has connected all hosts
  base::Duration answer = std::chrono::seconds(10);  // while it neither answers nor brings anything
  // After its loss: until it is killed if it has not ended, and the loss is told. The loss of a
  // member, which revokes the generation, ends all carrier processes, too.
  base::Duration end = std::chrono::seconds(1);
};

struct ClientOptions {
  int rank = 0;              // of this member in the World
  std::vector<int> host_of;  // by rank: number of its host among those of the World
  std::string socket;        // abstract name of the carrier process of this host
  // Greatest number of bytes that are not acknowledged: the mesh sends further messages.
  std::size_t window = std::size_t{256} << 20;
  ClientLimits limits = {};
  // Called once if this member is the first to learn why nothing is carried any more: a sentence
  // about the carrier process of its host. May be empty.
  std::function<void(const std::string& why)> on_lost = {};
};

class Client final : public Carrier {
 public:
  explicit Client(ClientOptions options);

  [[nodiscard]] bool carries(int to, std::size_t bytes) const override;
  [[nodiscard]] std::uint64_t send(int to, Input header, Input data) override;
  [[nodiscard]] std::uint64_t passed() const override;
  [[nodiscard]] bool holds(int to) const override { return !peers_[index(to)].kept.empty(); }
  [[nodiscard]] bool progress() override;
  [[nodiscard]] std::optional<Message> receive() override;
  [[nodiscard]] std::optional<Parcel> returned() override { return pop(returned_); }
  [[nodiscard]] std::optional<Parcel> note() override { return pop(notes_); }
  void on_note(int from, Input note) override;
  [[nodiscard]] pollfd awaited() const override;
  void close(bool revoked) override;

  // Ends the carrier: no process could be started. The members of all hosts learn of it, and
  // on_lost() why, unless that is empty.
  void fail(const std::string& why);

 private:
  enum class Phase { kConnecting, kStarting, kReady, kOver };
  struct Kept {
    std::uint64_t number = 0;
    SharedFrame frame;
  };
  struct Peer {
    std::uint64_t sent = 0;      // number of the last message to it
    std::uint64_t received = 0;  // number of the last message from it
    bool over = false;           // it has asked what had arrived: takes no later one from it
    std::deque<Kept> kept;       // messages to it that it has not acknowledged
  };

  [[nodiscard]] static std::optional<Parcel> pop(std::deque<Parcel>& queue);
  [[nodiscard]] bool is_leader() const { return leader_of(host()) == options_.rank; }
  [[nodiscard]] int host() const { return options_.host_of[index(options_.rank)]; }
  [[nodiscard]] int leader_of(int host) const;
  [[nodiscard]] static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  void connect();
  [[nodiscard]] bool exchange_frames();
  void watch(bool heard);
  void adopt_process(std::uint64_t pid);
  void end_process();
  void tell_loss();
  void on_frame(Frame frame);
  void on_data(Frame frame);
  void acknowledged(int by, std::uint64_t number);

  const ClientOptions options_;
  const int hosts_;
  Phase phase_ = Phase::kConnecting;
  base::Fd socket_;
  base::TimePoint next_attempt_{};
  pid_t pid_ = 0;     // of the carrier process
  base::Fd process_;  // its pidfd
  base::TimePoint lost_at_{};
  std::string loss_;             // why; "": another member knows, or it has been told
  base::TimePoint last_look_{};  // when progress() was called last
  base::Duration waited_{};      // for the start; then since the carrier process was heard
  bool probing_ = false;         // a probe is not answered
  FrameReader reader_;
  FrameWriter writer_;
  std::vector<Peer> peers_;         // by rank
  std::size_t unacknowledged_ = 0;  // bytes
  std::deque<Message> arrived_;
  std::deque<Parcel> returned_;
  std::deque<Parcel> notes_;
};

}  // namespace regroup::collective::mpi
