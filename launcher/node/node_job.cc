// When the head is gone, so are the members: nobody else will end them.
#include "launcher/node/node_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <utility>
#include <variant>

#include "launcher/pmi/helper.h"

namespace regroup::node {
namespace {

std::optional<pmi::HelperOptions> helper_options(const Setup& setup, const NodeAgentOptions& options) {
  if (!setup.services || options.folder.empty()) return std::nullopt;
  pmi::HelperOptions helper;
  helper.program = pmi::find_helper();
  helper.job = options.job;
  helper.host = setup.host;
  helper.folder = options.folder;
  helper.environment = options.environment;
  helper.verbose = setup.verbose;
  return helper;
}

}  // namespace

NodeJob::NodeJob(launcher::Agent& agent, Ways ways, NodeStreams streams, const Setup& setup,
                 const NodeAgentOptions& options, const MembershipFactory& membership)
    : agent_(agent),
      ways_(std::move(ways)),
      link_(ways_.up.get()),
      environment_(options.environment),
      own_error_(std::move(streams.own_error)),
      local_(agent, helper_options(setup, options), events()),
      life_(agent.loop(), streams.life.release()),
      input_(std::make_shared<StreamTarget>(
          agent.loop(), std::move(streams.pipes[0]), [this](std::size_t bytes, bool broken) {
            link_->send(Taken{0, static_cast<std::uint32_t>(bytes), broken});
          })) {
  if (setup.elastic) {
    membership_ =
        membership(agent, setup, [this](const core::Message& message) { link_->send(Membership{message}); });
  }
  for (const std::uint8_t stream : {1, 2}) {
    outputs_.at(stream) =
        std::make_shared<StreamSource>(agent.loop(), std::move(streams.pipes.at(stream)),
                                       [this, stream](std::span<const std::byte> bytes, bool end) {
                                         link_->send(Data{stream, end, {bytes.begin(), bytes.end()}});
                                       });
  }
}

core::Status NodeJob::start() {
  link_->set_handlers({[this](const Message& message) { on_message(message); },
                       [this](const core::Status&) { on_closed(); }});
  link_->resume();
  outputs_[1]->start();
  outputs_[2]->start();
  watch_life();
  return membership_ ? membership_->start() : core::Status();
}

launcher::NodeEvents NodeJob::events() {
  launcher::NodeEvents events;
  events.started = [this](std::uint32_t space, const core::Status& status) {
    link_->send(SpaceStarted{space, status});
  };
  events.mpi = [this](const pmi::Message& message) { link_->send(Services{message}); };
  events.said = [this](const std::string& text) { link_->send(Said{text}); };
  return events;
}

void NodeJob::on_message(const Message& message) {
  if (!ways_.down->take(message)) std::visit([this](const auto& body) { on(body); }, message);
}

void NodeJob::on(const AddApp& add) {
  launcher::App app = add.app;
  app.environment = environment_there(std::move(app.environment), environment_);
  local_.add_app(add.number, app);
  const core::Status why = local_.missing(add.number);
  if (membership_ && !why.ok()) link_->send(SpaceStarted{0, why});
}

void NodeJob::on(const DropApp& drop) { local_.drop_app(drop.number); }

void NodeJob::on(const StartSpace& start) { local_.start(start.order); }

void NodeJob::on(const Signal& signal) {
  if (signal.all) agent_.crew().signal_all(signal.signal);
  if (!signal.all) local_.signal(signal.member, signal.signal);
}

void NodeJob::on(const EndHost&) { agent_.terminate(0); }

void NodeJob::on(const Data& data) {
  if (data.stream == 0) input_->write(data.bytes, data.end);
}

void NodeJob::on(const Taken& taken) {
  const auto& output = outputs_.at(taken.stream);
  if (!output) return;
  if (taken.broken) output->stop();
  output->taken(taken.bytes);
  if (then_) leave_if_sent();
}

void NodeJob::on(const Membership& membership) {
  if (membership_) membership_->on_message(membership.message);
}

void NodeJob::on_exit(const launcher::MemberExit& exit) {
  if (membership_) return membership_->on_exit(exit);
  local_.settle();
  link_->send(Exited{exit});
}

// The head has taken our last message, or is gone.
void NodeJob::on_closed() {
  if (then_) return std::exchange(then_, nullptr)();
  outputs_[1]->stop();  // nobody will take what members write
  outputs_[2]->stop();
  ways_.down->close();
  agent_.kill(1);
}

void NodeJob::watch_life() {
  life_.async_wait(life_.wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    std::array<char, 64> bytes;
    if (::read(life_.native_handle(), bytes.data(), bytes.size()) > 0) return watch_life();
    if (then_) return;
    ways_.down->close();
    agent_.kill(1);
  });
}

// The head reaches those below only through us.
void NodeJob::finish(const std::function<void()>& then) { ways_.down->when_empty(then); }

void NodeJob::leave(const std::function<void()>& then) {
  if (!link_->open()) return then();
  then_ = then;
  leave_if_sent();
}

void NodeJob::leave_if_sent() {
  if (done_ || !outputs_[1]->idle() || !outputs_[2]->idle()) return;
  done_ = true;
  link_->send(Done{agent_.crew().output_lost()});
}

}  // namespace regroup::node
