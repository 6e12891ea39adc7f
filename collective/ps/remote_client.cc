// Requests out, answers in, each with a deadline.
#include "collective/ps/remote_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/deadline.h"
#include "base/tcp_peer.h"
#include "base/uninterrupted.h"
#include "collective/ps/consistency.h"
#include "collective/ps/handover.h"
#include "collective/ps/lane.h"
#include "collective/ps/table.h"

namespace regroup::collective::ps {
namespace {

using base::Status;
using base::TimePoint;
using shmem::RealPolicy;

// The gateway gives up first, since it knows what it waits for.
constexpr std::chrono::seconds kGrace{2};
constexpr std::chrono::seconds kMostLeave{10};
// How often a thread that waits looks whether the other host lives.
constexpr std::chrono::milliseconds kInquire{500};

template <class T>
Input bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
TimePoint later(TimePoint until) {
  return until < TimePoint::max() - kGrace ? until + kGrace : TimePoint::max();
}
Status late(const std::string& what, const std::string& server) {
  return base::deadline_exceeded(fmt::format("{}: {} has not answered in time", what, server));
}

}  // namespace

base::Result<std::unique_ptr<Client::Remote>> Client::Remote::connect(const ClientOptions& options,
                                                                      TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(check(options.consistency));
  REGROUP_ASSIGN_OR_RETURN(GatewayAddress gateway, parse_gateway_address(options.memory));
  auto socket = connect_link(gateway.address, gateway.port, deadline);
  if (!socket.ok()) {
    return Status(socket.code(), fmt::format("parameter server on host {}: {}", gateway.host,
                                             socket.status().message()));
  }
  std::unique_ptr<Remote> remote(new Remote(options, std::move(gateway), std::move(*socket)));
  REGROUP_RETURN_IF_ERROR(remote->greet(deadline));
  return remote;
}

Client::Remote::Remote(const ClientOptions& options, GatewayAddress gateway, base::Fd socket)
    : StoreBackend(options),
      options_(options),
      gateway_(std::move(gateway)),
      socket_(std::move(socket)) {}

// The answer to kLeave means that the gateway has read all pushes. shutdown(), since children after
// fork() may have the socket.
Client::Remote::~Remote() {
  if (broken_.ok() && next_number_ > 1) {
    const TimePoint until = std::min(deadline(), RealPolicy::now() + kMostLeave);
    static_cast<void>(call({.kind = RequestKind::kLeave}, {}, {}, until, "end of a client"));
  }
  ::shutdown(socket_.get(), SHUT_RDWR);
}

std::string Client::Remote::server() const {
  return fmt::format("the parameter server on host {} ({} port {})", gateway_.host,
                     gateway_.address, gateway_.port);
}
Status Client::Remote::broken(const std::string& why) {
  broken_ = base::peer_lost(
      fmt::format("{}: {}{}{}", server(), why, reason_.ok() ? "" : ": ", reason_.message()));
  return broken_;
}

Status Client::Remote::greet(TimePoint until) {
  Hello hello;
  hello.token = gateway_.token;
  hello.consistency = to_word(options_.consistency);
  hello.deadline = options_.deadline.count();
  hello.process = static_cast<std::uint64_t>(::getpid());
  hello.name = fixed_text<sizeof hello.name>(options_.name);
  hello.host = fixed_text<sizeof hello.host>(this_host());
  REGROUP_RETURN_IF_ERROR(send({bytes_of(hello)}, until, "attach"));
  Welcome welcome;
  REGROUP_RETURN_IF_ERROR(
      receive(0, std::as_writable_bytes(std::span(&welcome, 1)), later(until), "attach").status());
  clock_.store(welcome.clock, std::memory_order_relaxed);
  if (welcome.shards == 0 || welcome.shards > kMaxShards)
    return broken("it has sent a malformed answer");
  shards_ = static_cast<std::uint32_t>(welcome.shards);
  return {};
}

base::Result<Client::Remote::Lock> Client::Remote::turn(TimePoint until,
                                                        const std::string& what) const {
  Lock lock(mutex_, std::defer_lock);
  // Not until TimePoint::max(), which try_lock_until() cannot convert.
  const TimePoint most = RealPolicy::now() + std::chrono::hours(24 * 365);
  if (!lock.try_lock_until(std::min(until, most)))
    return base::deadline_exceeded(fmt::format("{}: another thread's call has not ended", what));
  return lock;
}

// ---- bytes

Status Client::Remote::wait_for(short events, TimePoint until, const std::string& what) {
  while (true) {
    const TimePoint now = RealPolicy::now();
    if (now >= until) return late(what, server());
    const auto slice = std::chrono::ceil<std::chrono::milliseconds>(
        std::min<base::Duration>(until - now, kInquire));
    pollfd ready{.fd = socket_.get(), .events = static_cast<short>(events | POLLRDHUP)};
    const int count = ::poll(&ready, 1, static_cast<int>(slice.count()));
    if (count > 0 && (ready.revents & events) != 0) return {};
    if (count > 0) return broken("it has closed the connection");
    if (const Status alive = base::check_alive(socket_.get(), kLinkSilence); !alive.ok())
      return broken(alive.message());
  }
}

Status Client::Remote::send_some(std::vector<Input>& parts, TimePoint until,
                                 const std::string& what) {
  while (!parts.empty()) {
    std::array<iovec, 4> pieces;
    std::size_t count = 0;
    for (; count < std::min(parts.size(), pieces.size()); ++count)
      pieces[count] = {const_cast<std::byte*>(parts[count].data()), parts[count].size()};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t sent =
        base::uninterrupted([&] { return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL); });
    if (sent < 0 && errno != EAGAIN) return broken(std::strerror(errno));
    if (sent < 0) {
      REGROUP_RETURN_IF_ERROR(wait_for(POLLOUT, until, what));
      continue;
    }
    auto left = static_cast<std::size_t>(sent);
    while (!parts.empty() && left >= parts.front().size()) {
      left -= parts.front().size();
      parts.erase(parts.begin());
    }
    if (!parts.empty()) parts.front() = parts.front().subspan(left);
  }
  return {};
}

Status Client::Remote::send(std::vector<Input> parts, TimePoint until, const std::string& what) {
  REGROUP_RETURN_IF_ERROR(broken_);
  std::erase_if(parts, [](const Input& part) { return part.empty(); });
  std::vector<std::byte> kept = std::exchange(unsent_, {});
  std::size_t whole = 0;
  for (const Input& part : parts) whole += part.size();
  std::vector<Input> earlier;
  if (!kept.empty()) earlier.push_back(kept);
  Status status = send_some(earlier, until, what);
  if (status.ok()) status = send_some(parts, until, what);
  if (status.code() != base::Code::kDeadlineExceeded) return status;
  for (const Input& part : earlier) unsent_.insert(unsent_.end(), part.begin(), part.end());
  std::size_t rest = 0;
  for (const Input& part : parts) rest += part.size();
  if (rest != whole) {  // else nothing of this request was sent, and nothing will be
    for (const Input& part : parts) unsent_.insert(unsent_.end(), part.begin(), part.end());
  }
  return status;
}

base::Result<bool> Client::Remote::take(std::byte* to, std::size_t wanted, std::uint64_t& have) {
  const ssize_t count =
      base::uninterrupted([&] { return ::recv(socket_.get(), to, wanted, MSG_DONTWAIT); });
  if (count < 0 && errno == EAGAIN) return false;
  if (count < 0) return broken(std::strerror(errno));
  if (count == 0) return broken("it has closed the connection");
  have += static_cast<std::uint64_t>(count);
  return true;
}

// False: no byte is there.
base::Result<bool> Client::Remote::receive_some(std::uint64_t number, Output into) {
  constexpr std::uint64_t kHead = sizeof(Answer);
  if (have_ < kHead) {
    auto* const head = reinterpret_cast<std::byte*>(&answer_);
    REGROUP_ASSIGN_OR_RETURN(const bool came, take(head + have_, kHead - have_, have_));
    if (have_ < kHead) return came;
    const bool own = answer_.number == number;
    if (answer_.number > number || answer_.text > kMostAnswerText ||
        answer_.code > static_cast<std::uint32_t>(base::Code::kInternal) ||
        (own && answer_.bytes != (answer_.code == 0 ? into.size() : 0)))
      return broken("it has sent a malformed answer");
    text_.assign(answer_.text, '\0');
    return true;
  }
  if (have_ < kHead + answer_.text) {
    const std::uint64_t at = have_ - kHead;
    return take(reinterpret_cast<std::byte*>(text_.data()) + at, answer_.text - at, have_);
  }
  const std::uint64_t at = have_ - kHead - answer_.text;
  if (answer_.number == number) return take(into.data() + at, answer_.bytes - at, have_);
  std::array<std::byte, 16 << 10> ignored;  // of a call that reached its deadline
  return take(ignored.data(), std::min<std::uint64_t>(ignored.size(), answer_.bytes - at), have_);
}

std::optional<base::Result<std::uint64_t>> Client::Remote::finish_answer(std::uint64_t number) {
  have_ = 0;
  const auto code = static_cast<base::Code>(answer_.code);
  const Status status = code == base::Code::kOk ? Status() : Status(code, std::exchange(text_, {}));
  settled_ = std::max(settled_, answer_.settled);
  lost_stores_.fetch_or(answer_.lost, std::memory_order_relaxed);
  if (answer_.number == number) {
    if (answer_.last_failed != 0) confirm_errors(answer_.first_failed, answer_.last_failed);
    if (!status.ok()) return status;
    return answer_.value;
  }
  // The gateway keeps errors of pushes whose call reached its deadline: wait() or flush() asks
  // again.
  if (answer_.number == 0) reason_ = status;
  return std::nullopt;
}

void Client::Remote::confirm_errors(std::uint64_t first, std::uint64_t last) {
  const Request told{
      .kind = RequestKind::kTold, .number = next_number_++, .count = last, .of = first};
  const Input bytes = bytes_of(told);
  unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
}

base::Result<std::uint64_t> Client::Remote::receive(std::uint64_t number, Output into,
                                                    TimePoint until, const std::string& what) {
  while (true) {
    REGROUP_ASSIGN_OR_RETURN(const bool came, receive_some(number, into));
    if (!came) {
      REGROUP_RETURN_IF_ERROR(wait_for(POLLIN, until, what));
    } else if (have_ >= sizeof(Answer) && have_ == sizeof(Answer) + answer_.text + answer_.bytes) {
      if (auto own = finish_answer(number)) return std::move(*own);
    }
  }
}

base::Result<std::uint64_t> Client::Remote::call(Request request, Input payload, Output into,
                                                 TimePoint until, const std::string& what) {
  request.number = next_number_++;
  request.bytes = payload.size();
  REGROUP_RETURN_IF_ERROR(send({bytes_of(request), payload}, until, what));
  return receive(request.number, into, later(until), what);
}

Status Client::Remote::tell(Request request, const std::string& what) {
  request.number = next_number_++;
  return send({bytes_of(request)}, deadline(), what);
}

// ---- calls

base::Result<const TableSpec*> Client::Remote::spec_at(Table table, bool rows) const {
  REGROUP_RETURN_IF_ERROR(check_number(table, tables_.size()));
  REGROUP_RETURN_IF_ERROR(check_kind(tables_[table.number], rows));
  return &tables_[table.number];
}

const TableSpec& Client::Remote::spec_of(Table table) const {
  const std::lock_guard lock(mutex_);
  return tables_.at(table.number);
}

base::Result<Table> Client::Remote::open(const TableSpec& spec) {
  REGROUP_RETURN_IF_ERROR(check_open(spec));
  const std::string what = fmt::format("open table {}", spec.name);
  const TimePoint until = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, what));
  const OpenContent content = content_of(spec);
  REGROUP_ASSIGN_OR_RETURN(const std::uint64_t number,
                           call({.kind = RequestKind::kOpen}, bytes_of(content), {}, until, what));
  // The gateway has opened tables of calls that reached their deadline, too.
  if (number < tables_.size() || number > tables_.size() + next_number_)
    return broken("it has sent a malformed answer");
  tables_.resize(number);
  tables_.push_back(spec);
  return Table{static_cast<std::uint32_t>(number)};
}

Status Client::Remote::check_leaf(const TableSpec& spec) const {
  if (options_.consistency.mode != Mode::kSync) return {};
  return check_sync_push(spec, leaf_.has_value());
}

base::Result<Ticket> Client::Remote::push_request(const TableSpec& spec, Request request,
                                                  std::span<const std::int64_t> ids,
                                                  Input gradients, TimePoint until) {
  request.number = next_number_++;
  request.count = ids.size();
  request.bytes = ids.size_bytes() + gradients.size();
  const Status sent = send({bytes_of(request), std::as_bytes(ids), gradients}, until,
                           fmt::format("push to table {}", spec.name));
  if (sent.ok()) return Ticket{request.number};
  leaf_failed_ = leaf_.has_value();
  return sent;
}

base::Result<Ticket> Client::Remote::push(Table table, std::span<const std::int64_t> ids,
                                          Input gradients, const Scalars& scalars) {
  const TimePoint until = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, "push"));
  REGROUP_ASSIGN_OR_RETURN(const TableSpec* const spec, spec_at(table, true));
  REGROUP_RETURN_IF_ERROR(check_push_rows(*spec, ids.size(), gradients, scalars));
  REGROUP_RETURN_IF_ERROR(check_keys(*spec, ids));
  REGROUP_RETURN_IF_ERROR(check_leaf(*spec));
  const std::size_t row = spec->dim * size_of(spec->compute_dtype());
  const std::size_t most = std::max<std::size_t>(kMostRowBytes / (sizeof(std::int64_t) + row), 1);
  Request request{.kind = RequestKind::kPush, .table = table.number, .lr = scalars.lr};
  base::Result<Ticket> ticket = Ticket{};
  do {
    const std::size_t count = std::min(most, ids.size());
    ticket = push_request(*spec, request, ids.first(count), gradients.first(count * row), until);
    if (!ticket.ok()) return ticket;
    ids = ids.subspan(count);
    gradients = gradients.subspan(count * row);
    request.first = 0;
  } while (!ids.empty());
  return ticket;
}

base::Result<Ticket> Client::Remote::push_dense(Table table, Input gradients,
                                                const Scalars& scalars) {
  const TimePoint until = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, "push"));
  REGROUP_ASSIGN_OR_RETURN(const TableSpec* const spec, spec_at(table, false));
  REGROUP_RETURN_IF_ERROR(check_push_dense(*spec, gradients, scalars));
  REGROUP_RETURN_IF_ERROR(check_leaf(*spec));
  return push_request(*spec,
                      {.kind = RequestKind::kPushDense, .table = table.number, .lr = scalars.lr},
                      {}, gradients, until);
}

Status Client::Remote::wait(Ticket ticket, TimePoint deadline) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(deadline, "wait for a push"));
  if (ticket.number == 0 || ticket.number >= next_number_) {
    return base::invalid_argument(
        fmt::format("push {}: this client has no such push", ticket.number));
  }
  if (broken_.ok() && ticket.number <= settled_) return {};
  const base::Duration left = std::max<base::Duration>(deadline - RealPolicy::now(), {});
  return call({.kind = RequestKind::kWait, .of = ticket.number, .wait = left.count()}, {}, {},
              deadline, "wait for a push")
      .status();
}

Status Client::Remote::flush(TimePoint until) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, "flush"));
  return call({.kind = RequestKind::kFlush}, {}, {}, until, "flush").status();
}

std::uint64_t Client::Remote::clock() const { return clock_.load(std::memory_order_relaxed); }

base::Result<std::uint64_t> Client::Remote::advance() {
  REGROUP_RETURN_IF_ERROR(check_advance(options_.consistency.mode));
  return advance_to(0, deadline());
}

Status Client::Remote::raise_clock(std::uint64_t clock, TimePoint until) {
  return advance_to(clock, until).status();
}

base::Result<std::uint64_t> Client::Remote::advance_to(std::uint64_t least, TimePoint until) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, "end of a turn"));
  REGROUP_ASSIGN_OR_RETURN(
      const std::uint64_t clock,
      call({.kind = RequestKind::kAdvance, .of = least}, {}, {}, until, "end of a turn"));
  clock_.store(clock, std::memory_order_relaxed);
  return clock;
}

// The gateway may have begun a leaf in a call that reached its deadline here. So the request says
// which one ends, and the gateway gives out another one anew.
base::Result<std::optional<Leaf>> Client::Remote::next_leaf() {
  REGROUP_RETURN_IF_ERROR(check_next_leaf(options_.consistency.mode));
  const TimePoint until = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, "next leaf"));
  Request request{.kind = RequestKind::kNextLeaf, .first = leaf_ ? 1U : 0U};
  if (leaf_) request.leaf = leaf_->number, request.step = leaf_->step;
  request.of = leaf_failed_ ? 1 : 0;
  leaf_.reset();
  leaf_failed_ = false;
  NextLeaf next;
  const Output into = std::as_writable_bytes(std::span(&next, 1));
  REGROUP_RETURN_IF_ERROR(call(request, {}, into, until, "next leaf").status());
  clock_.store(next.clock, std::memory_order_relaxed);
  if (next.leaf != 0) leaf_ = Leaf{next.clock, static_cast<std::uint32_t>(next.leaf - 1)};
  return leaf_;
}

// ---- steps of several stores

base::Result<StepState> Client::Remote::step_state(std::uint64_t step,
                                                   std::optional<std::uint64_t> seen,
                                                   TimePoint until) {
  const TimePoint limit = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(limit, "state of a step"));
  const base::Duration most = std::max<base::Duration>(until - RealPolicy::now(), {});
  const Request request{.kind = RequestKind::kStepState,
                        .of = seen.value_or(0),
                        .wait = seen ? most.count() : 0,
                        .first = seen ? 1U : 0U,
                        .step = step};
  StepState state;
  const Output into = std::as_writable_bytes(std::span(&state, 1));
  REGROUP_RETURN_IF_ERROR(call(request, {}, into, limit, "state of a step").status());
  return state;
}

base::Result<std::optional<std::uint32_t>> Client::Remote::claim_leaf(std::uint64_t step,
                                                                      const LeafSet& lacking,
                                                                      bool of_others) {
  const TimePoint until = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, "next leaf"));
  const Request request{
      .kind = RequestKind::kClaimLeaf, .first = of_others ? 1U : 0U, .step = step};
  REGROUP_ASSIGN_OR_RETURN(const std::uint64_t leaf,
                           call(request, bytes_of(lacking), {}, until, "next leaf"));
  if (leaf > kMostLeaves) return broken("it has sent a malformed answer");
  return leaf == 0 ? std::nullopt : std::optional(static_cast<std::uint32_t>(leaf - 1));
}

Status Client::Remote::begin_leaf(const Leaf& leaf) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(deadline(), "begin of a leaf"));
  leaf_.reset();
  REGROUP_RETURN_IF_ERROR(
      tell({.kind = RequestKind::kBeginLeaf, .leaf = leaf.number, .step = leaf.step},
           "begin of a leaf"));
  leaf_ = leaf;
  leaf_failed_ = false;
  return {};
}

Status Client::Remote::end_leaf(TimePoint until) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, "end of a leaf"));
  leaf_.reset();
  if (std::exchange(leaf_failed_, false)) {
    return base::deadline_exceeded(
        "end of a leaf: a push of it is not sent whole: it begins again");
  }
  return call({.kind = RequestKind::kEndLeaf}, {}, {}, until, "end of a leaf").status();
}

Status Client::Remote::propose(std::uint64_t steps) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(deadline(), "end of a step"));
  return tell({.kind = RequestKind::kPropose, .of = steps}, "end of a step");
}

base::Result<std::uint64_t> Client::Remote::ask_lost_stores(TimePoint until) {
  const std::string what = "question which stores are lost";
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(until, what));
  REGROUP_RETURN_IF_ERROR(call({.kind = RequestKind::kLost}, {}, {}, until, what).status());
  return known_lost_stores();
}

// ---- pulls

base::Result<std::uint64_t> Client::Remote::pull_of_step(Table table,
                                                         std::span<const std::int64_t> ids,
                                                         Output rows) {
  const TimePoint until = deadline();
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(deadline(), "pull"));
  REGROUP_ASSIGN_OR_RETURN(const TableSpec* const spec, spec_at(table, true));
  REGROUP_RETURN_IF_ERROR(check_pull_rows(*spec, ids.size(), rows));
  const std::size_t row = spec->value_bytes();
  const std::size_t most =
      std::max<std::size_t>(kMostRowBytes / std::max(row, sizeof(std::int64_t)), 1);
  const std::string what = fmt::format("pull of table {}", spec->name);
  std::uint64_t step = 0;
  for (std::size_t at = 0; at < ids.size();) {
    const auto some = ids.subspan(at, std::min(most, ids.size() - at));
    const Request request{.kind = RequestKind::kPull, .table = table.number, .count = some.size()};
    const Output into = rows.subspan(at * row, some.size() * row);
    REGROUP_ASSIGN_OR_RETURN(const std::uint64_t of,
                             call(request, std::as_bytes(some), into, deadline(), what));
    // A step that ended between two requests: all rows are to be of one.
    const bool differs = at != 0 && of != step;
    if (differs && RealPolicy::now() >= until) return late(what, server());
    step = of;
    at = differs ? 0 : at + some.size();
  }
  return step;
}

base::Result<std::uint64_t> Client::Remote::pull_dense_of_step(Table table, Output values) {
  REGROUP_ASSIGN_OR_RETURN(const Lock lock, turn(deadline(), "pull"));
  REGROUP_ASSIGN_OR_RETURN(const TableSpec* const spec, spec_at(table, false));
  REGROUP_RETURN_IF_ERROR(check_pull_dense(*spec, values));
  return call({.kind = RequestKind::kPullDense, .table = table.number}, {}, values, deadline(),
              fmt::format("pull of table {}", spec->name));
}

}  // namespace regroup::collective::ps
