// Accepts connections, and makes the calls of each.
#include "collective/ps/gateway.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/tcp_peer.h"
#include "base/uninterrupted.h"
#include "collective/ps/client.h"
#include "collective/ps/consistency.h"

namespace regroup::collective::ps {
namespace {

using base::Status;
using shmem::RealPolicy;

constexpr std::chrono::seconds kHelloWithin{5};
constexpr std::chrono::milliseconds kLookForLost{500};
constexpr std::size_t kMostFailed = 1024;  // pushes whose error nobody has asked for

// False: the connection is broken or closed, or a receive timed out.
bool receive_all(int socket, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t count =
        base::uninterrupted([&] { return ::recv(socket, to.data(), to.size(), MSG_WAITALL); });
    if (count <= 0) return false;
    to = to.subspan(static_cast<std::size_t>(count));
  }
  return true;
}
bool send_all(int socket, std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t count =
        base::uninterrupted([&] { return ::send(socket, from.data(), from.size(), MSG_NOSIGNAL); });
    if (count <= 0) return false;
    from = from.subspan(static_cast<std::size_t>(count));
  }
  return true;
}
template <class T>
bool receive_one(int socket, T& out) {
  return receive_all(socket, std::as_writable_bytes(std::span(&out, 1)));
}
bool send_answer(int socket, Answer answer, const Status& status, Input payload = {}) {
  const std::string& text = status.message();
  answer.code = static_cast<std::uint32_t>(status.code());
  answer.text = static_cast<std::uint32_t>(std::min<std::size_t>(text.size(), kMostAnswerText));
  if (!status.ok()) payload = {};
  answer.bytes = payload.size();
  std::vector<std::byte> head(sizeof answer + answer.text);
  std::memcpy(head.data(), &answer, sizeof answer);
  std::memcpy(head.data() + sizeof answer, text.data(), answer.text);
  return send_all(socket, head) && send_all(socket, payload);
}

// Does not tell by its time how much of the token is right.
bool is_right(const Hello& hello, const LinkToken& token) {
  unsigned differs = 0;
  for (std::size_t i = 0; i < token.size(); ++i)
    differs |= std::to_integer<unsigned>(hello.token[i] ^ token[i]);
  return differs == 0 && hello.magic == kLinkMagic;
}

template <std::size_t N>
std::string text_of(const std::array<char, N>& text) {
  return {text.data(), ::strnlen(text.data(), N)};
}

// The calls of one client. One thread.
class Session {
 public:
  Session(int socket, std::unique_ptr<Client::Impl> client)
      : socket_(socket), client_(std::move(client)) {}
  // Until the client leaves, or its connection breaks, or it sends what no client sends.
  void run() {
    Request request;
    while (receive_one(socket_, request) && is_well_formed(request)) {
      payload_.resize(request.bytes);
      if (!receive_all(socket_, payload_)) return;
      last_ = request.number;
      if (!perform(request)) return;
    }
  }

 private:
  // A push of the client: one or several here.
  struct Pushed {
    std::uint64_t number;  // of its last request
    std::vector<Ticket> tickets;
    Status status;  // the first error
  };

  [[nodiscard]] bool is_well_formed(const Request& request) const {
    if (request.number <= last_) return false;
    const std::uint64_t id = sizeof(std::int64_t);
    const auto bytes_are = [&](std::uint64_t of_each, std::uint64_t with_each) {
      const std::uint64_t each = std::max<std::uint64_t>(of_each, with_each);
      return request.count <= std::max<std::uint64_t>(kMostRowBytes / each, 1) &&
             request.bytes == request.count * of_each;
    };
    switch (request.kind) {
      case RequestKind::kOpen:
        return request.bytes == sizeof(OpenContent);
      case RequestKind::kPush: {
        if (!has(request, true)) return false;
        const TableSpec& spec = specs_[request.table];
        const std::uint64_t each = id + spec.dim * size_of(spec.compute_dtype());
        return bytes_are(each, each);
      }
      case RequestKind::kPull:
        return has(request, true) && bytes_are(id, specs_[request.table].value_bytes());
      case RequestKind::kPushDense: {
        if (!has(request, false)) return false;
        const TableSpec& spec = specs_[request.table];
        return request.bytes == dense_elements(spec) * size_of(spec.compute_dtype());
      }
      case RequestKind::kPullDense:
        return has(request, false) && request.bytes == 0;
      case RequestKind::kWait:
      case RequestKind::kFlush:
      case RequestKind::kAdvance:
      case RequestKind::kNextLeaf:
      case RequestKind::kStepState:
      case RequestKind::kBeginLeaf:
      case RequestKind::kEndLeaf:
      case RequestKind::kPropose:
      case RequestKind::kLost:
      case RequestKind::kLeave:
        return request.bytes == 0;
      case RequestKind::kClaimLeaf:
        return request.bytes == sizeof(LeafSet);
      case RequestKind::kTold:
        return request.bytes == 0 && request.of <= request.count;
    }
    return false;
  }
  [[nodiscard]] bool has(const Request& request, bool rows) const {
    return request.table < specs_.size() &&
           (specs_[request.table].kind != TableKind::kDense) == rows;
  }

  // False: the connection is over.
  [[nodiscard]] bool perform(const Request& request) {
    switch (request.kind) {
      case RequestKind::kPush:
      case RequestKind::kPushDense:
        return push(request);
      case RequestKind::kOpen:
        return open(request);
      case RequestKind::kPull:
      case RequestKind::kPullDense:
        return pull(request);
      case RequestKind::kWait:
        return wait(request);
      case RequestKind::kFlush:
        return answer_flush(request, flush());
      case RequestKind::kStepState:
        return step_state(request);
      case RequestKind::kClaimLeaf:
        return claim_leaf(request);
      case RequestKind::kBeginLeaf:
        // Errors of a leaf that was abandoned are none of this one.
        pushes_.clear();
        failed_.clear();
        return client_->begin_leaf({request.step, request.leaf}).ok();
      case RequestKind::kEndLeaf:
        return answer(request, client_->end_leaf(client_->deadline()));
      case RequestKind::kPropose:
        return client_->propose(request.of).ok();
      case RequestKind::kTold:
        failed_.erase(failed_.lower_bound(request.of), failed_.upper_bound(request.count));
        return true;
      case RequestKind::kAdvance: {
        if (const Status pushed = flush(); !pushed.ok()) return answer_flush(request, pushed);
        const Status status = advance(request);
        return answer(request, status, client_->clock());
      }
      case RequestKind::kNextLeaf:
        return next_leaf(request);
      case RequestKind::kLost:
        return answer(request, {});
      case RequestKind::kLeave:
        static_cast<void>(answer(request, {}));
        return false;
    }
    return false;
  }
  [[nodiscard]] bool answer(const Request& request, const Status& status, std::uint64_t value = 0,
                            Input payload = {}) const {
    return send_answer(socket_,
                       {.number = request.number,
                        .value = value,
                        .settled = settled(request),
                        .lost = client_->known_lost_stores()},
                       status, payload);
  }
  // The answer to a request that asks for errors of pushes. It may come too late for the client, so
  // errors stay until kTold.
  [[nodiscard]] bool answer_with_error_of(const Request& request, std::uint64_t first,
                                          std::uint64_t last, const Status& status) const {
    return send_answer(socket_,
                       {.number = request.number,
                        .first_failed = first,
                        .last_failed = last,
                        .settled = settled(request),
                        .lost = client_->known_lost_stores()},
                       status);
  }
  [[nodiscard]] bool answer_flush(const Request& request, const Status& status) const {
    if (!pushes_.empty() || failed_.empty()) return answer(request, status);
    return answer_with_error_of(request, failed_.begin()->first, failed_.rbegin()->first, status);
  }
  [[nodiscard]] std::uint64_t settled(const Request& request) const {
    std::uint64_t next = request.number;
    if (!pushes_.empty()) next = std::min(next, pushes_.front().number);
    if (!failed_.empty()) next = std::min(next, failed_.begin()->first);
    return next - 1;
  }

  [[nodiscard]] bool open(const Request& request) {
    OpenContent content;
    std::memcpy(&content, payload_.data(), sizeof content);
    const base::Result<TableSpec> spec = spec_in(content);
    if (!spec.ok()) return answer(request, spec.status());
    const base::Result<Table> table = client_->open(*spec);
    if (!table.ok()) return answer(request, table.status());
    specs_.push_back(*spec);
    return answer(request, {}, table->number);
  }

  // False: too many have failed.
  [[nodiscard]] bool push(const Request& request) {
    const Scalars scalars{.lr = request.lr};
    const std::span<const std::byte> bytes = payload_;
    base::Result<Ticket> ticket = [&] {
      if (request.kind == RequestKind::kPushDense)
        return client_->push_dense({request.table}, bytes, scalars);
      const std::size_t ids = request.count * sizeof(std::int64_t);
      return client_->push({request.table}, ids_in(request), bytes.subspan(ids), scalars);
    }();
    if (request.first != 0 || pushes_.empty()) {
      settle_answered();
      pushes_.push_back({});
    }
    Pushed& pushed = pushes_.back();
    pushed.number = request.number;
    if (ticket.ok()) pushed.tickets.push_back(*ticket);
    if (pushed.status.ok()) pushed.status = final_status(ticket.status());
    if (failed_.size() < kMostFailed) return true;
    static_cast<void>(send_answer(socket_, {},
                                  base::resource_exhausted(fmt::format(
                                      "{} pushes have failed since the last flush(); the first: {}",
                                      failed_.size(), failed_.begin()->second.message()))));
    return false;
  }
  [[nodiscard]] std::span<const std::int64_t> ids_in(const Request& request) const {
    return {reinterpret_cast<const std::int64_t*>(payload_.data()), request.count};
  }
  // kDeadlineExceeded would mean that the push may still count, and that it can be waited for
  // again.
  [[nodiscard]] static Status final_status(const Status& sent) {
    if (sent.code() != base::Code::kDeadlineExceeded) return sent;
    return base::unavailable(fmt::format("the push is not sent whole: {}", sent.message()));
  }
  // In mode sync next_leaf() must find the errors of the leaf's pushes.
  void settle_answered() {
    while (!leaf_ && !pushes_.empty() && settle(pushes_.front(), RealPolicy::now()))
      pushes_.pop_front();
  }
  // Waits until all of a push is answered, and notes an error. False: `until` has passed.
  [[nodiscard]] bool settle(Pushed& pushed, base::TimePoint until) {
    for (; !pushed.tickets.empty(); pushed.tickets.pop_back()) {
      const Status status = client_->wait(pushed.tickets.back(), until);
      if (status.code() == base::Code::kDeadlineExceeded) {
        late_ = status;
        return false;
      }
      if (pushed.status.ok()) pushed.status = status;
    }
    if (!pushed.status.ok()) failed_[pushed.number] = pushed.status;
    return true;
  }

  // False: the connection is over.
  [[nodiscard]] bool wait(const Request& request) {
    const auto found = std::ranges::find(pushes_, request.of, &Pushed::number);
    if (found != pushes_.end()) {
      const base::Duration most(std::max<std::int64_t>(request.wait, 0));
      if (!settle(*found, base::deadline_after(RealPolicy::now(), most)))
        return answer(request, late_);
      pushes_.erase(found);
      settle_answered();
    }
    const auto failed = failed_.find(request.of);
    if (failed == failed_.end()) return answer(request, {});
    return answer_with_error_of(request, request.of, request.of, failed->second);
  }
  [[nodiscard]] Status flush() {
    for (const base::TimePoint until = client_->deadline(); !pushes_.empty(); pushes_.pop_front()) {
      if (!settle(pushes_.front(), until)) return late_;
    }
    return failed_.empty() ? Status() : failed_.begin()->second;
  }

  [[nodiscard]] Status advance(const Request& request) {
    if (request.of == 0) return client_->advance().status();
    constexpr std::uint64_t kMost = 1ULL << 62;
    if (request.of > kMost) {
      return base::invalid_argument(
          fmt::format("clock {}: expected at most {}", request.of, kMost));
    }
    return client_->raise_clock(request.of, client_->deadline());
  }

  // A leaf that the client does not end is one of which it has not heard, or whose end it could not
  // send: what it has pushed for that must not count.
  [[nodiscard]] bool next_leaf(const Request& request) {
    const auto fail = [&](const char* why) {
      client_->fail_leaf(base::deadline_exceeded(
          fmt::format("leaf {} of step {} {}: it begins again", leaf_->number, leaf_->step, why)));
    };
    const bool ends = leaf_ && request.first != 0 && Leaf{request.step, request.leaf} == *leaf_;
    if (leaf_ && !ends) {
      fail("was not ended");
      static_cast<void>(client_->next_leaf());
    } else if (leaf_ && request.of != 0) {
      fail("lacks a push, which was not sent whole");
    }
    leaf_.reset();
    const base::Result<std::optional<Leaf>> next = client_->next_leaf();
    if (next.code() != base::Code::kDeadlineExceeded) pushes_.clear();  // all are answered
    if (!next.ok()) return answer(request, next.status());
    leaf_ = *next;
    NextLeaf out{.clock = client_->clock()};
    if (leaf_) out.leaf = leaf_->number + std::uint64_t{1};
    return answer(request, {}, 0, std::as_bytes(std::span(&out, 1)));
  }

  [[nodiscard]] bool step_state(const Request& request) {
    const base::Duration most(std::max<std::int64_t>(request.wait, 0));
    const base::TimePoint until = base::deadline_after(RealPolicy::now(), most);
    const auto state = client_->step_state(
        request.step, request.first != 0 ? std::optional(request.of) : std::nullopt,
        std::min(until, client_->deadline()));
    if (!state.ok()) return answer(request, state.status());
    return answer(request, {}, 0, std::as_bytes(std::span(&*state, 1)));
  }
  [[nodiscard]] bool claim_leaf(const Request& request) {
    LeafSet lacking;
    std::memcpy(&lacking, payload_.data(), sizeof lacking);
    const auto leaf = client_->claim_leaf(request.step, lacking, request.first != 0);
    if (!leaf.ok()) return answer(request, leaf.status());
    return answer(request, {}, *leaf ? **leaf + std::uint64_t{1} : 0);
  }

  [[nodiscard]] bool pull(const Request& request) {
    const TableSpec& spec = specs_[request.table];
    const bool dense = request.kind == RequestKind::kPullDense;
    rows_.resize(dense ? dense_elements(spec) * size_of(spec.dtype)
                       : request.count * spec.value_bytes());
    const auto step = dense ? client_->pull_dense_of_step({request.table}, rows_)
                            : client_->pull_of_step({request.table}, ids_in(request), rows_);
    return answer(request, step.status(), step.ok() ? *step : 0, rows_);
  }

  const int socket_;
  const std::unique_ptr<Client::Impl> client_;
  std::vector<TableSpec> specs_;  // of opened tables
  std::uint64_t last_ = 0;        // request
  std::vector<std::byte> payload_;
  std::vector<std::byte> rows_;
  std::deque<Pushed> pushes_;               // that are not answered, for all that is known
  std::map<std::uint64_t, Status> failed_;  // by number: answered, and the client has no error yet
  Status late_;                             // what settle() waited for
  std::optional<Leaf> leaf_;                // of mode sync: what the client was given
};

}  // namespace

class Gateway::Impl {
 public:
  explicit Impl(GatewayOptions options) : options_(std::move(options)) {}
  ~Impl() {
    stopping_.store(true);
    wake();
    if (watch_.joinable()) watch_.join();
  }
  [[nodiscard]] Status start() {
    REGROUP_ASSIGN_OR_RETURN(shards_, Client::Impl::map(options_.memory));
    wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_.valid()) return base::system_error("eventfd", "a gateway", errno);
    // Signals are for the program's own threads; those that are started later inherit the mask.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    watch_ = std::thread([this] { watch(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return {};
  }

 private:
  struct Connection {
    explicit Connection(base::Fd its) : socket(std::move(its)) {}
    const base::Fd socket;
    std::atomic<bool> known = false;  // has shown the token
    std::atomic<bool> gone = false;   // as Caller::gone
    std::atomic<bool> ended = false;  // its thread uses it no more
    std::thread thread;
    void close() {
      gone.store(true, std::memory_order_relaxed);
      ::shutdown(socket.get(), SHUT_RDWR);
    }
  };

  void wake() const {
    const std::uint64_t one = 1;
    static_cast<void>(::write(wake_.get(), &one, sizeof one));
  }

  void watch() {
    while (!stopping_.load()) {
      std::vector<pollfd> wanted{{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                                 {.fd = options_.listener.get(), .events = POLLIN, .revents = 0}};
      std::vector<Connection*> watched;
      for (Connection& connection : connections_) {
        if (connection.gone.load(std::memory_order_relaxed)) continue;
        wanted.push_back({.fd = connection.socket.get(), .events = POLLRDHUP, .revents = 0});
        watched.push_back(&connection);
      }
      static_cast<void>(::poll(wanted.data(), wanted.size(), kLookForLost.count()));
      std::uint64_t ignored = 0;
      static_cast<void>(::read(wake_.get(), &ignored, sizeof ignored));
      for (std::size_t i = 0; i < watched.size(); ++i) {
        // A client that has closed may have sent requests before, which are still read.
        if (wanted[i + 2].revents != 0) watched[i]->gone.store(true, std::memory_order_relaxed);
        if (!base::check_alive(watched[i]->socket.get(), kLinkSilence).ok()) watched[i]->close();
      }
      remove_ended();
      if ((wanted[1].revents & POLLIN) != 0) accept_one();
    }
    for (Connection& connection : connections_) connection.close();
    for (Connection& connection : connections_) connection.thread.join();
  }
  void remove_ended() {
    connections_.remove_if([](Connection& connection) {
      if (!connection.ended.load(std::memory_order_acquire)) return false;
      connection.thread.join();
      return true;
    });
  }
  void accept_one() {
    base::Fd socket(::accept4(options_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) {
      // Out of descriptors, for example: the connection stays in the backlog.
      if (errno != EAGAIN) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return;
    }
    if (!base::keep_alive(socket.get(), kLinkSilence).ok()) return;
    const auto is_stranger = [](const Connection& connection) {
      return !connection.known.load(std::memory_order_relaxed);
    };
    if (static_cast<std::size_t>(std::ranges::count_if(connections_, is_stranger)) >=
        kMostStrangers)
      std::ranges::find_if(connections_, is_stranger)->close();
    Connection& connection = connections_.emplace_back(std::move(socket));
    connection.thread = std::thread([this, &connection] {
      serve(connection);
      ::shutdown(connection.socket.get(), SHUT_RDWR);
      connection.ended.store(true, std::memory_order_release);
      wake();
    });
  }

  // A connection without the token gets no answer.
  void serve(Connection& connection) {
    const int socket = connection.socket.get();
    const timeval within{.tv_sec = kHelloWithin.count(), .tv_usec = 0}, never{};
    Hello hello;
    if (::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &within, sizeof within) != 0 ||
        !receive_one(socket, hello) || !is_right(hello, options_.token) ||
        ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof never) != 0)
      return;
    connection.known.store(true, std::memory_order_relaxed);
    base::Result<std::unique_ptr<Client::Impl>> client = attach(hello, connection.gone);
    Welcome welcome{.shards = shards_->size()};
    Answer answer{.number = 0};
    if (client.ok()) {
      welcome.clock = (*client)->clock();
      answer.lost = (*client)->known_lost_stores();
    }
    const Input payload = std::as_bytes(std::span(&welcome, 1));
    if (!send_answer(socket, answer, client.status(), payload) || !client.ok()) return;
    Session(socket, std::move(*client)).run();
  }
  [[nodiscard]] base::Result<std::unique_ptr<Client::Impl>> attach(const Hello& hello,
                                                                   const std::atomic<bool>& gone) {
    if (hello.version != kLinkVersion) {
      return base::invalid_argument(fmt::format(
          "parameter server: expected version {} of its protocol, got {}: another build "
          "of Regroup",
          kLinkVersion, hello.version));
    }
    const ClientOptions options{
        .memory = {},
        .client = options_.next_client(),
        .deadline = std::chrono::nanoseconds(std::max<std::int64_t>(hello.deadline, 0)),
        .consistency = from_word(hello.consistency),
        .name = text_of(hello.name)};
    return Client::Impl::attach(
        options, options_.memory, shards_,
        {.process = hello.process, .host = text_of(hello.host), .gone = &gone},
        base::deadline_after(RealPolicy::now(), options.deadline));
  }

  const GatewayOptions options_;
  Client::Impl::Shards shards_;
  base::Fd wake_;
  std::atomic<bool> stopping_ = false;
  std::list<Connection> connections_;  // of the watching thread
  std::thread watch_;
};

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gateway::~Gateway() = default;

base::Result<std::unique_ptr<Gateway>> Gateway::start(GatewayOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  REGROUP_RETURN_IF_ERROR(impl->start());
  return std::unique_ptr<Gateway>(new Gateway(std::move(impl)));
}

}  // namespace regroup::collective::ps
