// Output of members on that host passes a pipe and an Output here, which keeps their lines whole
// among those of other hosts.
#include "launcher/agent/remote_node.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <csignal>
#include <span>
#include <utility>
#include <variant>

#include "launcher/agent/remote_script.h"
#include "launcher/agent/untrusted_text.h"

namespace regroup::agent {

RemoteNode::RemoteNode(boost::asio::io_context& loop, std::string name, std::string version,
                       Events events)
    : loop_(loop),
      name_(std::move(name)),
      version_(std::move(version)),
      events_(std::move(events)) {}

// A target keeps itself alive while it waits for its pipe.
RemoteNode::~RemoteNode() {
  for (const auto& target : targets_) {
    if (target) target->stop();
  }
}

void RemoteNode::attach(const std::string& address) {
  if (state_ == State::kStarting) address_ = address;
}

void RemoteNode::fail(const base::Status& why) { end(why); }

void RemoteNode::end(const base::Status& why) {
  if (std::exchange(state_, State::kEnded) == State::kEnded) return;
  starting_.clear();
  members_.clear();
  const base::Status gone =
      why.ok() ? base::peer_lost(fmt::format("host {}: its agent has exited", name_)) : why;
  if (inventory_reply_) std::exchange(inventory_reply_, nullptr)(gone);
  if (checkpoint_reply_) std::exchange(checkpoint_reply_, nullptr)({.status = gone});
  end_store(gone);
  if (input_) input_->stop();
  for (auto& target : targets_) {
    if (target) target->write({}, true);
  }
  events_.ended(why);
}

void RemoteNode::send(const Message& message) {
  if (state_ == State::kUp) events_.send(message);
}

void RemoteNode::receive(const Message& message) {
  if (state_ == State::kEnded || address_.empty()) return;
  if (state_ == State::kStarting && !std::holds_alternative<Hello>(message)) {
    return end(base::invalid_argument(
        fmt::format("host {}: the agent's first message must be Hello", name_)));
  }
  std::visit([this](const auto& body) { on(body); }, message);
}

void RemoteNode::on(const Hello& hello) {
  if (state_ != State::kStarting) return;
  if (hello.version != version_) {
    return end(base::invalid_argument(
        fmt::format("host {}: version mismatch: regroup there is {}, here it is {}", name_,
                    printable(hello.version), version_)));
  }
  facts_ = hello;
  state_ = State::kUp;
  events_.up();
}

void RemoteNode::query_inventory(const InventoryRequest& order, Answer then) {
  if (state_ != State::kUp)
    return then(base::unavailable(fmt::format("host {}: its agent is not running", name_)));
  inventory_reply_ = std::move(then);
  send(order);
}

void RemoteNode::on(const InventoryReply& reply) {
  if (!inventory_reply_) return;
  const base::Status& why = reply.status;
  std::exchange(inventory_reply_, nullptr)(
      why.ok()
          ? base::Result<std::string>(reply.host)
          : base::Status(why.code(), fmt::format("host {}: {}", name_, printable(why.message()))));
}

void RemoteNode::query_local_checkpoint(const QueryLocalCheckpoint& order,
                                        LocalCheckpointHandler then) {
  if (state_ != State::kUp)
    return then({.status = {base::Code::kUnavailable,
                            fmt::format("host {}: its agent is not running", name_)}});
  checkpoint_reply_ = std::move(then);
  send(order);
}

void RemoteNode::on(const LocalCheckpointReply& found) {
  if (!checkpoint_reply_) return;
  const LocalCheckpointHandler then =
      found.busy ? checkpoint_reply_ : std::exchange(checkpoint_reply_, nullptr);
  then(found);
}

void RemoteNode::set_up(const Setup& setup) {
  checkpoint_reply_ = nullptr;
  send(setup);
}

void RemoteNode::start_store(const StartStore& order, StoreHandler started,
                             std::function<void(const std::string&)> failed) {
  if (state_ != State::kUp)
    return started(
        {base::unavailable(fmt::format("host {}: its agent is not running", name_)), {}, {}, 0});
  has_store_ = true;
  store_started_ = std::move(started);
  store_failed_ = std::move(failed);
  send(order);
}

void RemoteNode::query_store(QueryStore query, Answer then) {
  if (state_ != State::kUp)
    return then(base::unavailable(fmt::format("host {}: its agent is not running", name_)));
  query.query = ++last_query_;
  store_queries_.emplace(query.query, std::move(then));
  send(query);
}

void RemoteNode::on(const StoreStarted& started) {
  if (!store_started_) return;
  StoreStarted said{{}, printable(started.address), printable(started.socket), started.version};
  if (!started.status.ok())
    said.status = {started.status.code(),
                   fmt::format("host {}: {}", name_, printable(started.status.message()))};
  std::exchange(store_started_, nullptr)(said);
}

void RemoteNode::on(const StoreReply& reply) {
  const auto query = store_queries_.extract(reply.query);
  if (query.empty()) return;
  if (reply.status.ok()) return query.mapped()(reply.text);
  query.mapped()(base::Status(
      reply.status.code(), fmt::format("host {}: {}", name_, printable(reply.status.message()))));
}

void RemoteNode::on(const StoreFailed& failed) {
  if (const auto told = std::exchange(store_failed_, nullptr))
    told(fmt::format("host {}: {}", name_, printable(failed.why)));
}

void RemoteNode::end_store(const base::Status& why) {
  store_failed_ = nullptr;  // `ended` tells of the host
  if (const auto started = std::exchange(store_started_, nullptr)) started({why, {}, {}, 0});
  for (const auto& [number, then] : std::exchange(store_queries_, {})) then(why);
}

void RemoteNode::tell_membership(const proto::Message& message) {
  if (state_ != State::kUp) return;
  if (const auto* start = std::get_if<proto::Start>(&message.body)) {
    members_.emplace(start->member, start->rank);
    if (killed_) return;
  }
  send(Membership{message});
}

void RemoteNode::on(const Membership& membership) {
  const auto* lost = std::get_if<proto::MemberLost>(&membership.message.body);
  if (lost != nullptr && lost->reaped && members_.erase(lost->member) > 0)
    job_.exited({.member = lost->member});
  if (state_ == State::kUp) events_.membership(printable(membership.message));
}

void RemoteNode::serve(std::uint32_t host, NodeEvents events, process::Sink& out,
                       process::Sink& err, const std::shared_ptr<process::OutputSpace>& space) {
  host_ = host;
  job_ = std::move(events);
  if (state_ == State::kEnded) return;
  base::Status status = open_stream(1, out, space);
  if (status.ok()) status = open_stream(2, err, space);
  if (!status.ok()) end({status.code(), fmt::format("host {}: {}", name_, status.message())});
}

base::Status RemoteNode::open_stream(std::uint8_t stream, process::Sink& sink,
                                     const std::shared_ptr<process::OutputSpace>& space) {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    return base::system_error("pipe2", "output of members", errno);
  targets_[stream] = std::make_shared<StreamTarget>(
      loop_, base::Fd(fds[1]), [this, stream](std::size_t bytes, bool broken) {
        send(WindowUpdate{stream, static_cast<std::uint32_t>(bytes), broken});
      });
  process::OutputPath path{{&sink}, process::Tag({}, {}, "")};  // the agent has tagged the lines
  path.closed = [this] { changed_(); };
  outputs_[stream] =
      std::make_shared<process::Output>(loop_, base::Fd(fds[0]), std::move(path), space);
  outputs_[stream]->start();
  return {};
}

// An order to a host that is lost is answered, too: the job waits for the answer.
void RemoteNode::start(SpaceOrder order) {
  if (state_ == State::kEnded && job_.started) {
    boost::asio::post(loop_, [this, space = order.space.space, none = order.members.empty()] {
      job_.started(space,
                   none ? base::Status()
                        : base::unavailable(fmt::format("host {}: its agent has exited", name_)));
    });
    return;
  }
  auto& members = starting_[order.space.space];
  for (const MemberOrder& member : order.members)
    members.emplace(member.place.member, member.place.rank);
  send(StartSpace{std::move(order)});
}

void RemoteNode::signal_all(int signal) {
  killed_ = killed_ || signal == SIGKILL;
  send(Signal{true, 0, signal});
}

void RemoteNode::on(const SpaceStarted& started) {
  const auto ordered = starting_.extract(started.space);
  const auto why = [&] {
    return base::Status(started.status.code(),
                        fmt::format("host {}: {}", name_, printable(started.status.message())));
  };
  if (ordered.empty()) {  // in an elastic job: the program is missing
    if (started.space != 0 || started.status.ok()) return;
    if (job_.started) job_.started(0, why());
    return end(why());
  }
  if (started.status.ok()) {
    members_.insert(ordered.mapped().begin(), ordered.mapped().end());
    if (killed_) signal_all(SIGKILL);  // the SIGKILL came before they were started
    return job_.started(started.space, {});
  }
  job_.started(started.space, why());
}

void RemoteNode::on(const Exited& exited) {
  const auto member = members_.extract(exited.exit.member);
  if (member.empty()) return;
  process::MemberExit exit = exited.exit;
  exit.rank = member.mapped();
  exit.host = name_;
  job_.exited(exit);
}

void RemoteNode::on(const UserMessage& message) {
  if (job_.said) job_.said(fmt::format("host {}: {}", name_, printable(message.text)));
}

void RemoteNode::on(const UsageReport& report) {
  if (job_.used)
    job_.used(name_, report.json,
              [this](proto::MemberId member) { return members_.contains(member); });
}

// kPauses and kMoves concern the parent only.
void RemoteNode::on(const HostNotice& notice) {
  if (notice.kind < HostNotice::Kind::kPauses) events_.noticed(printable(notice));
}

void RemoteNode::on(const Services& services) {
  if (!job_.mpi) return;
  const auto* aborted = std::get_if<pmi::Aborted>(&services.message);
  if (aborted == nullptr) return job_.mpi(host_, services.message);
  job_.mpi(host_, pmi::Aborted{aborted->process, aborted->status, printable(aborted->message)});
}

void RemoteNode::on(const StreamData& data) {
  if (data.stream == 0 || !targets_.at(data.stream)) return;
  StreamTarget& target = *targets_[data.stream];
  if (target.pending() + data.bytes.size() > kWindow)
    return end(
        base::invalid_argument(fmt::format("host {}: its agent exceeds the output window", name_)));
  target.write(data.bytes, data.end);
}

void RemoteNode::on(const WindowUpdate& update) {
  if (!input_ || update.stream != 0) return;
  if (update.broken) input_->stop();
  input_->consumed(update.bytes);
}

base::Fd RemoteNode::open_input() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    send(StreamData{0, true, {}});
    return {};
  }
  input_ = std::make_shared<StreamSource>(loop_, base::Fd(fds[0]),
                                          [this](std::span<const std::byte> bytes, bool end) {
                                            send(StreamData{0, end, {bytes.begin(), bytes.end()}});
                                          });
  input_->start();
  return base::Fd(fds[1]);
}

void RemoteNode::finish() {
  if (std::exchange(finishing_, true)) return;
  // No other code would end an agent that is starting, on a host that comes back for example.
  if (state_ == State::kStarting)
    return end({base::Code::kUnavailable, fmt::format("host {}: the job is over", name_)});
  send(EndHost{});
}

void RemoteNode::on(const Done& done) {
  if (!finishing_ && running() > 0)
    return end({base::Code::kPeerLost,
                fmt::format("host {}: its agent exited before its members", name_)});
  if (!finishing_ && has_store_)
    return end(base::peer_lost(
        fmt::format("host {}: its agent has exited, and with it its store", name_)));
  if (done.output_lost && job_.said)
    job_.said(fmt::format("host {}: output of members was lost", name_));
  if (!done.unsaved.empty() && job_.unsaved)
    job_.unsaved(fmt::format("host {}: {}", name_, printable(done.unsaved)));
  end({});
}

bool RemoteNode::drained() const {
  if (state_ != State::kEnded) return false;
  return std::none_of(outputs_.begin(), outputs_.end(),
                      [](const auto& output) { return output && output->open(); });
}

}  // namespace regroup::agent
