// Notes between the carriers of two members begin with a NoteKind.
#include "collective/mpi/client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "base/unix_address.h"

namespace regroup::collective::mpi {
namespace {

constexpr std::chrono::milliseconds kAttemptInterval(20);
constexpr std::chrono::seconds kCloseTimeout(2);
// A member that waits looks this often; if more time has passed, it computed or stood still.
constexpr std::chrono::milliseconds kLongestLook(500);
constexpr int kProbesPerLimit = 4;
constexpr const char* kConfused = "regroup-mpi has sent what it never sends";
constexpr const char* kEnded = "regroup-mpi has ended";

enum class NoteKind : std::uint8_t {
  kConnect,  // says nothing; makes the mesh connect, which it does from the lower rank only
  kCarrier,  // bytes from the carrier process of one host to that of another
  kOver,     // from a leader to others and the members of its host: a carrier process has ended
  kQuery,    // from a sender: up to which message have all of mine arrived?
  kArrived,  // the answer: a number
};

std::vector<std::byte> note_of(NoteKind kind, Input bytes = {}) {
  std::vector<std::byte> out{static_cast<std::byte>(kind)};
  out.insert(out.end(), bytes.begin(), bytes.end());
  return out;
}

}  // namespace

Client::Client(ClientOptions options)
    : options_(std::move(options)),
      hosts_(*std::ranges::max_element(options_.host_of) + 1),
      peers_(options_.host_of.size()) {
  writer_.put(make_frame({.kind = FrameKind::kHello, .from = options_.rank}));
  // The carriers of all hosts write to that of host 0 first.
  for (int other = 1; options_.rank == 0 && other < hosts_; ++other)
    notes_.push_back({leader_of(other), note_of(NoteKind::kConnect)});
}

std::optional<Carrier::Parcel> Client::pop(std::deque<Parcel>& queue) {
  if (queue.empty()) return std::nullopt;
  std::optional<Parcel> first = std::move(queue.front());
  queue.pop_front();
  return first;
}

std::optional<Carrier::Message> Client::receive() {
  if (arrived_.empty()) return std::nullopt;
  std::optional<Message> first = std::move(arrived_.front());
  arrived_.pop_front();
  return first;
}

int Client::leader_of(int host) const {
  return static_cast<int>(std::ranges::find(options_.host_of, host) - options_.host_of.begin());
}

bool Client::carries(int to, std::size_t bytes) const {
  return phase_ == Phase::kReady && options_.host_of[index(to)] != host() &&
         unacknowledged_ + bytes <= options_.window;
}

std::uint64_t Client::send(int to, Input header, Input data) {
  Peer& peer = peers_[index(to)];
  peer.sent += 1;
  SharedFrame frame =
      make_frame({.kind = FrameKind::kData, .from = options_.rank, .to = to, .number = peer.sent},
                 header, data);
  unacknowledged_ += frame->size();
  peer.kept.push_back({peer.sent, frame});
  const std::uint64_t number = writer_.put(std::move(frame));
  if (!writer_.flush(socket_.get()).ok()) fail(kEnded);
  return number;
}

// Once it is over, a message has passed when its receiver has it, or the mesh.
std::uint64_t Client::passed() const {
  if (phase_ != Phase::kOver) return writer_.written();
  return unacknowledged_ == 0 ? UINT64_MAX : 0;
}

void Client::connect() {
  const base::TimePoint now = base::SystemClock().now();
  if (now < next_attempt_) return;
  next_attempt_ = now + kAttemptInterval;
  const auto address = base::abstract_address(options_.socket);
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!address.ok() || !socket.valid() ||
      ::connect(socket.get(), address->get(), address->size) != 0)
    return;
  if (!base::is_of_this_user(socket.get())) return fail("its socket is another user's");
  socket_ = std::move(socket);
  phase_ = Phase::kStarting;
}

bool Client::progress() {
  if (phase_ == Phase::kOver && (process_.valid() || !loss_.empty()) &&
      base::SystemClock().now() >= lost_at_ + options_.limits.end) {
    end_process();  // a stopped one has not read that it must end
    tell_loss();
  }
  if (phase_ == Phase::kConnecting) connect();
  const bool heard = exchange_frames();
  if (phase_ != Phase::kOver) watch(heard);
  return heard;
}

// True if a frame has come, or the process has ended.
bool Client::exchange_frames() {
  bool moved = false;
  while (socket_.valid()) {
    Frame frame;
    const auto read = reader_.next(socket_.get(), &frame);
    if (read == FrameReader::Read::kEnd) return fail(kEnded), true;
    if (read == FrameReader::Read::kLater) break;
    on_frame(std::move(frame));
    moved = true;
  }
  if (socket_.valid() && !writer_.flush(socket_.get()).ok()) fail(kEnded);
  return moved;
}

// Data and acks come from the thread that calls MPI, as do answers to probes: whatever is heard is
// a sign that it is alive. Until then the mesh serves, so a start may be slow.
void Client::watch(bool heard) {
  const base::TimePoint now = base::SystemClock().now();
  const auto passed = now - std::exchange(last_look_, now);
  waited_ += std::min<base::Duration>(passed, kLongestLook);
  const auto seconds = [](base::Duration limit) {
    return std::chrono::duration<double>(limit).count();
  };
  if (phase_ != Phase::kReady) {
    if (waited_ >= options_.limits.start)
      fail(fmt::format("MPI has not connected the hosts for {:.3g} s",
                       seconds(options_.limits.start)));
    return;
  }
  if (heard) waited_ = {};
  if (probing_ && waited_ >= options_.limits.answer) {
    return fail(
        fmt::format("regroup-mpi (process {}) has not answered for {:.3g} s: it is stopped, or "
                    "stuck in the MPI",
                    pid_, seconds(options_.limits.answer)));
  }
  if (probing_ || waited_ < options_.limits.answer / kProbesPerLimit) return;
  probing_ = true;
  waited_ = {};
  writer_.put(make_frame({.kind = FrameKind::kProbe, .from = options_.rank}));
  if (!writer_.flush(socket_.get()).ok()) fail(kEnded);
}

// The number is not another process's: the carrier process is at the other end of the socket.
void Client::adopt_process(std::uint64_t pid) {
  pid_ = static_cast<pid_t>(pid);
  process_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
}

void Client::tell_loss() {
  const std::string why = std::exchange(loss_, {});
  if (!why.empty() && options_.on_lost) options_.on_lost(why);
}

void Client::end_process() {
  if (!process_.valid()) return;
  static_cast<void>(::syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0));
  process_.reset();
}

void Client::on_frame(Frame frame) {
  const FrameHeader& header = frame.header;
  const bool from_member = header.from >= 0 && index(header.from) < peers_.size();
  switch (header.kind) {
    case FrameKind::kHello:
      return adopt_process(header.number);
    case FrameKind::kReady:
      phase_ = Phase::kReady;
      waited_ = {};
      return;
    case FrameKind::kProbe:
      probing_ = false;
      return;
    case FrameKind::kFail:
      return fail({reinterpret_cast<const char*>(frame.bytes.get()), header.bytes});
    case FrameKind::kData:
      return from_member ? on_data(std::move(frame)) : fail(kConfused);
    case FrameKind::kAck:
      return from_member ? acknowledged(header.from, header.number) : fail(kConfused);
    case FrameKind::kNote:
      if (header.to < 0 || header.to >= hosts_ || !is_leader()) return fail(kConfused);
      notes_.push_back(
          {leader_of(header.to), note_of(NoteKind::kCarrier, {frame.bytes.get(), header.bytes})});
      return;
    default:
      return fail(kConfused);
  }
}

void Client::on_data(Frame frame) {
  const int from = frame.header.from;
  Peer& peer = peers_[index(from)];
  if (peer.over) return;
  if (frame.header.number != peer.received + 1) return fail(kConfused);
  peer.received += 1;
  writer_.put(make_frame(
      {.kind = FrameKind::kAck, .from = options_.rank, .to = from, .number = peer.received}));
  arrived_.push_back({from, std::move(frame.bytes), frame.header.bytes});
}

void Client::acknowledged(int by, std::uint64_t number) {
  auto& kept = peers_[index(by)].kept;
  for (; !kept.empty() && kept.front().number <= number; kept.pop_front())
    unacknowledged_ -= kept.front().frame->size();
}

void Client::fail(const std::string& why) {
  if (phase_ == Phase::kOver) return;
  phase_ = Phase::kOver;
  loss_ = why;
  lost_at_ = base::SystemClock().now();
  if (socket_.valid()) {
    FrameWriter last;  // else the process ends when the socket is closed without kBye
    last.put(make_frame({.kind = FrameKind::kFail, .from = options_.rank}));
    if (writer_.empty()) static_cast<void>(last.flush(socket_.get()));
  }
  socket_.reset();
  writer_ = {};
  // A member of this host that has not connected yet would wait for the process for ever.
  const int ranks = static_cast<int>(peers_.size());
  for (int other = 0; is_leader() && other < ranks; ++other) {
    const int its = options_.host_of[index(other)];
    if (other != options_.rank && (its == host() || leader_of(its) == other))
      notes_.push_back({other, note_of(NoteKind::kOver)});
  }
  for (const Peer& peer : peers_) {
    const int rank = static_cast<int>(&peer - peers_.data());
    if (!peer.kept.empty()) notes_.push_back({rank, note_of(NoteKind::kQuery)});
  }
}

void Client::on_note(int from, Input note) {
  if (note.empty()) return;
  const auto kind = static_cast<NoteKind>(note.front());
  const Input bytes = note.subspan(1);
  Peer& peer = peers_[index(from)];
  std::uint64_t number = 0;
  switch (kind) {
    case NoteKind::kConnect:
      return;
    case NoteKind::kCarrier:
      if (phase_ == Phase::kOver) return;
      writer_.put(make_frame(
          {.kind = FrameKind::kNote, .from = options_.host_of[index(from)], .to = host()}, bytes));
      return;
    case NoteKind::kOver:
      return fail("");
    case NoteKind::kQuery:
      peer.over = true;
      notes_.push_back(
          {from, note_of(NoteKind::kArrived, std::as_bytes(std::span(&peer.received, 1)))});
      return;
    case NoteKind::kArrived:
      if (phase_ != Phase::kOver || bytes.size() != sizeof number) return;
      std::memcpy(&number, bytes.data(), sizeof number);
      acknowledged(from, number);
      for (const Kept& kept : std::exchange(peer.kept, {})) {
        const auto message = std::span(*kept.frame).subspan(sizeof(FrameHeader));
        returned_.push_back({from, {message.begin(), message.end()}});
        unacknowledged_ -= kept.frame->size();
      }
      return;
  }
}

pollfd Client::awaited() const {
  const int events = POLLIN | (writer_.empty() ? 0 : POLLOUT);
  return {socket_.get(), static_cast<short>(events), 0};
}

void Client::close(bool revoked) {
  const base::TimePoint end = base::SystemClock().now() + kCloseTimeout;
  writer_.put(make_frame({.kind = FrameKind::kBye, .from = options_.rank}));
  if (socket_.valid()) static_cast<void>(writer_.flush(socket_.get()).ok());
  while (!revoked && socket_.valid() && !writer_.empty() && base::SystemClock().now() < end) {
    pollfd entry{socket_.get(), POLLOUT, 0};
    ::poll(&entry, 1, 10);
    if (!writer_.flush(socket_.get()).ok()) break;
  }
  const bool is_stuck = probing_ && waited_ >= options_.limits.answer / kProbesPerLimit;
  if (phase_ == Phase::kOver || is_stuck) end_process();
  socket_.reset();
  phase_ = Phase::kOver;
}

}  // namespace regroup::collective::mpi
