// If the controller is lost the agent kills its members: no other process would.
#include "launcher/agent/node_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "launcher/pmi/helper.h"
#include "launcher/process/due.h"
#include "launcher/process/signals.h"

namespace regroup::agent {
namespace {

constexpr base::Duration kUsualPause = std::chrono::seconds(30);  // for a pause of unknown length

std::optional<pmi::HelperOptions> helper_options(const Setup& setup,
                                                 const NodeAgentOptions& options) {
  if (!setup.services || options.folder.empty()) return std::nullopt;
  pmi::HelperOptions helper;
  helper.program = pmi::find_helper();
  helper.job = options.job;
  helper.host = setup.host;
  helper.folder = options.folder;
  helper.environment = options.environment;
  helper.verbose = setup.verbose;
  helper.answer_limit = setup.time_limit(helper.answer_limit);
  return helper;
}

}  // namespace

NodeJob::NodeJob(Agent& agent, AgentLinks links, NodeStreams streams, const Setup& setup,
                 const NodeAgentOptions& options, const MembershipFactory& membership)
    : agent_(agent),
      links_(std::move(links)),
      link_(links_.up.get()),
      environment_(options.environment),
      own_error_(std::move(streams.own_error)),
      local_(agent, helper_options(setup, options), events()),
      watch_(
          agent.loop(), setup.notice, setup.name, options.environment,
          {[this](const preempt::Notice& notice, const std::string& source) {
             const auto within = notice.within && !notice.begun
                                     ? std::chrono::ceil<std::chrono::milliseconds>(*notice.within)
                                     : std::chrono::milliseconds(HostNotice::kNotSaid);
             const bool suspends = notice.kind == preempt::Notice::Kind::kSuspend;
             wanted_back({static_cast<std::uint32_t>(
                              std::min<std::int64_t>(within.count(), HostNotice::kNotSaid)),
                          suspends
                              ? source
                              : fmt::format("{} of {}", preempt::kind_name(notice.kind), source),
                          suspends ? HostNotice::Kind::kSuspended : HostNotice::Kind::kGoes});
           },
           [this](const std::string& text) { link_->send(UserMessage{text}); },
           [this](const std::string& source) {
             link_->send(HostNotice{0, source, HostNotice::Kind::kOver});
           },
           [this](const preempt::Notice& notice, const std::string& source) {
             // Twice the announced time, which is an estimate.
             const auto longest = 2 * notice.lasts.value_or(kUsualPause);
             const auto ms = std::chrono::ceil<std::chrono::milliseconds>(longest).count();
             link_->send_pause({static_cast<std::uint32_t>(ms), source, HostNotice::Kind::kPauses});
           },
           [this](const std::string& source) {
             link_->send_pause({0, source, HostNotice::Kind::kMoves});
           }}),
      life_(agent.loop(), streams.life.release()),
      input_(std::make_shared<StreamTarget>(
          agent.loop(), std::move(streams.pipes[0]),
          [this](std::size_t bytes, bool broken) {
            link_->send(WindowUpdate{0, static_cast<std::uint32_t>(bytes), broken});
          })),
      node_(options.node),
      suspended_by_(setup.suspended_by),
      name_(setup.name),
      stores_(options.stores) {
  if (setup.elastic && !setup.elastic->controller.empty() && link_->below()) {
    reparenting_ = std::make_unique<Reparenting>(
        agent.loop(), options, setup.elastic->controller,
        Reparenting::Events{[this](std::shared_ptr<transport::SecureChannel> way) {
                              link_->reparent(std::move(way));
                            },
                            [this](const base::Status&) { end_all(); }});
    link_->on_reparented([this] { links_.down->moved(); });
  }
  if (setup.elastic) {
    (serves_ranks(setup) ? world_ : membership_) = membership(
        agent, setup, [this](const proto::Message& message) { link_->send(Membership{message}); });
  }
  for (const std::uint8_t stream : {1, 2}) {
    outputs_.at(stream) = std::make_shared<StreamSource>(
        agent.loop(), std::move(streams.pipes.at(stream)),
        [this, stream](std::span<const std::byte> bytes, bool end) {
          link_->send(StreamData{stream, end, {bytes.begin(), bytes.end()}});
        });
  }
}

base::Status NodeJob::start() {
  link_->set_handlers({[this](const Message& message) { on_message(message); },
                       [this](const base::Status&) { on_closed(); }});
  link_->resume();
  outputs_[1]->start();
  outputs_[2]->start();
  watch_life();
  watch_.start(suspended_by_);
  if (world_) return world_->start();
  return membership_ ? membership_->start() : base::Status();
}

NodeEvents NodeJob::events() {
  NodeEvents events;
  events.started = [this](std::uint32_t space, const base::Status& status) {
    link_->send(SpaceStarted{space, status});
  };
  events.mpi = [this](std::uint32_t, const pmi::Message& message) {
    link_->send(Services{message});
  };
  events.said = [this](const std::string& text) { link_->send(UserMessage{text}); };
  return events;
}

void NodeJob::on_message(const Message& message) {
  if (const auto* end = std::get_if<EndAgent>(&message); end != nullptr && end->node == node_)
    return end_all();  // the controller gave this agent up before it connected
  if (!links_.down->take(message)) std::visit([this](const auto& body) { on(body); }, message);
}

void NodeJob::on(const AddApp& add) {
  process::App app = add.app;
  app.environment = environment_there(std::move(app.environment), environment_);
  local_.add_app(add.number, app);
  const base::Status why = local_.missing(add.number);
  if (membership_ && !why.ok()) link_->send(SpaceStarted{0, why});
}

void NodeJob::on(const DropApp& drop) { local_.drop_app(drop.number); }

void NodeJob::on(const StartStore& order) {
  if (store_) return;
  if (!stores_) {
    return link_->send(
        StoreStarted{base::unavailable("this agent runs no parameter server"), {}, {}, 0});
  }
  Store::Events events;
  events.started = [this](const StoreStarted& started) { link_->send(started); };
  events.said = [this](const std::string& text) { link_->send(UserMessage{text}); };
  events.failed = [this](const std::string& why) { link_->send(StoreFailed{why}); };
  events.over = [this] { return !needs_store_; };
  store_number_ = order.store;
  store_ = stores_(agent_, name_, order, std::move(events));
}

void NodeJob::on(const QueryStore& query) {
  const auto reply = [this, number = query.query](const base::Result<std::string>& answer) {
    link_->send(StoreReply{number, answer.status(), answer.ok() ? *answer : std::string()});
  };
  if (!store_) return reply(base::unavailable("no parameter server runs here"));
  if (std::ranges::find(query.lost, store_number_) == query.lost.end())
    return store_->answer(query, reply);
  store_.reset();  // before the reply: from then on clients do without it
  reply(std::string());
  release_store();
}

void NodeJob::on(const StartSpace& start) { local_.start(start.order); }

void NodeJob::on(const Signal& signal) {
  MembershipJob* const members = joining();
  if (signal.all && signal.signal == SIGTERM && members != nullptr)  // the whole job ends
    members->on_notice(base::SystemClock().now() + AgentOptions().term_grace);
  if (signal.all) local_.signal_all(signal.signal);
  if (!signal.all) local_.signal(signal.member, signal.signal);
}

void NodeJob::on(const EndHost&) {
  agent_.terminate(0);
  release_store();
}

void NodeJob::on(const StreamData& data) {
  if (data.stream == 0) input_->write(data.bytes, data.end);
}

void NodeJob::on(const WindowUpdate& update) {
  const auto& output = outputs_.at(update.stream);
  if (!output) return;
  if (update.broken) output->stop();
  output->consumed(update.bytes);
  if (then_) leave_if_sent();
}

void NodeJob::on(const Membership& membership) {
  if (MembershipJob* const members = joining()) members->on_message(membership.message);
}

void NodeJob::on_exit(const process::MemberExit& exit) {
  if (membership_) return membership_->on_exit(exit);
  local_.settle();
  link_->send(Exited{exit});  // before the messages of the World that follow from it
  if (world_) world_->on_exit(exit);
}

// Allocators signal all processes of the host, so members have received the signal, too.
bool NodeJob::on_signal(int signal) {
  wanted_back({HostNotice::kNotSaid, process::signal_name(signal)});
  return true;
}

// Handles a notice of the owner of the host. In an elastic job the controller makes the members
// leave in time; a further notice may leave less time. In a fixed-size job it ends the members.
void NodeJob::wanted_back(const HostNotice& notice) {
  if (store_ && needs_store_) link_->send(StoreFailed{"this host ends: " + notice.why});
  if (!membership_) return agent_.terminate(1);
  const bool told = notice.within_ms != HostNotice::kNotSaid;
  const base::Duration within =
      told ? std::chrono::milliseconds(notice.within_ms) : base::Duration(kNoticeGrace);
  if (notice.kind == HostNotice::Kind::kGoes)
    membership_->on_notice(base::SystemClock().now() + within);
  link_->send(notice);
}

// The connection is closed: the controller has received Done, or the controller or an agent on the
// path is lost.
void NodeJob::on_closed() {
  if (then_) return std::exchange(then_, nullptr)();
  if (may_move()) return reparenting_->start();
  end_all();
}

void NodeJob::end_all() {
  store_.reset();       // first: the controller soon has others do without it
  outputs_[1]->stop();  // there is no reader for the members' output
  outputs_[2]->stop();
  links_.down->close();
  agent_.kill(1);
  release_store();
}

// No member needs the store any more.
void NodeJob::release_store() {
  needs_store_ = false;
  if (const auto then = std::exchange(then_finish_, nullptr)) finish(then);
}

void NodeJob::watch_life() {
  life_.async_wait(life_.wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    if (!process::is_readable(life_.native_handle())) return watch_life();
    std::array<char, 64> bytes;
    if (::read(life_.native_handle(), bytes.data(), bytes.size()) > 0) return watch_life();
    // Standard input belongs to the parent agent and ends with it. An elastic job then reparents,
    // and the refused connection of the controller tells whether the job has ended.
    if (then_ || reparenting_) return;
    link_->close();  // first, so that the controller sees a lost host and not failing members
    end_all();
  });
}

// The agents below are reached only through this one, so it stays until they have exited. Members
// of other hosts may use the store until the controller ends this host.
void NodeJob::finish(const std::function<void()>& then) {
  watch_.stop();
  if (store_ && needs_store_) {
    then_finish_ = then;
    return;
  }
  const auto settled = [this, then] { links_.down->when_empty(then); };
  MembershipJob* const members = joining();
  members != nullptr ? members->finish(settled) : settled();
}

base::Duration NodeJob::still_needs() const {
  const MembershipJob* const members = joining();
  return members != nullptr ? members->still_needs() : base::Duration::zero();
}

void NodeJob::leave(const std::function<void()>& then) {
  if (!link_->open()) return then();
  then_ = then;
  leave_if_sent();
}

void NodeJob::leave_if_sent() {
  if (done_ || !outputs_[1]->idle() || !outputs_[2]->idle()) return;
  done_ = true;
  const MembershipJob* const members = joining();
  link_->send(Done{agent_.processes().output_lost(),
                   members != nullptr ? members->unsaved() : std::string()});
}

}  // namespace regroup::agent
