// The agent connects first, since Setup decides how members' streams are made. Then it runs an
// Agent as on the controller's host, whose standard streams are pipes to the controller.
#include "launcher/agent/node_agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/control_message.h"
#include "launcher/agent/node_job.h"
#include "launcher/agent/tree.h"
#include "launcher/process/environment.h"
#include "launcher/process/open_files.h"
#include "launcher/spec/job_variables.h"
#include "launcher/transport/secure_channel.h"
#include "launcher/transport/tcp.h"

namespace regroup::agent {
namespace {

// Shorter than the limit of the process that started this agent (children.cc), so that the reason
// is reported. A SYN is retransmitted after 1 s and 3 s.
constexpr std::chrono::milliseconds kFirstDialLimit{3500};
constexpr std::chrono::minutes kSetupLimit{2};  // Setup is sent when all agents are up
constexpr std::chrono::minutes kLocalCheckpointLimit{
    40};  // or copy a checkpoint: longer than the controller waits for it

// Connects to the parent and handles messages until Setup arrives.
class SetupHandshake {
 public:
  SetupHandshake(boost::asio::io_context& loop, const NodeAgentOptions& options)
      : loop_(loop), options_(options) {}

  [[nodiscard]] base::Result<Setup> run(const Hello& hello) {
    auto context = transport::TlsContext::make(options_.job, options_.node, options_.secret);
    if (!context.ok()) return context.status();
    REGROUP_ASSIGN_OR_RETURN(auto endpoints, transport::parse_endpoints(options_.endpoints));
    transport::dial(loop_, endpoints, kFirstDialLimit,
                    [this, context = *context, &hello](base::Result<base::Fd> socket) {
                      status_ = socket.ok() ? connect(context, std::move(*socket), hello)
                                            : no_way_back(socket.status());
                    });
    deadline_ = std::chrono::steady_clock::now() + kSetupLimit;
    while (!setup_ && status_.ok() && loop_.run_one_until(deadline_) > 0) {
    }
    stop_query();
    if (!status_.ok()) return status_;
    if (!setup_) return base::deadline_exceeded("no Setup received from the controller of the job");
    return *setup_;
  }
  [[nodiscard]] AgentLinks take_links() { return std::move(links_); }

 private:
  base::Status connect(const std::shared_ptr<const transport::TlsContext>& context, base::Fd socket,
                       const Hello& hello) {
    REGROUP_ASSIGN_OR_RETURN(auto channel,
                             transport::SecureChannel::client(loop_, context, std::move(socket),
                                                              options_.parent, Link::limits()));
    channel->start({.message = {}, .closed = [](const base::Status&) {}});
    links_.up = std::make_unique<Uplink>(
        loop_, channel, options_.node, options_.parent != kController,
        Link::Handlers{[this](const Message& message) { take(message); },
                       [this](const base::Status& why) { status_ = why; }});
    links_.down = std::make_unique<Relay>(loop_, options_, *links_.up);
    links_.up->send(hello);
    return {};
  }

  static base::Status no_way_back(const base::Status& why) {
    return {why.code(), fmt::format("it could not connect back: {} (a firewall?)", why.message())};
  }

  // Messages after Setup are for the NodeJob.
  void take(const Message& message) {
    if (links_.down->take(message)) return;
    if (const auto* request = std::get_if<InventoryRequest>(&message)) {
      InventoryReply answer{{base::Code::kUnavailable, "this agent does not support an inventory"},
                            {}};
      if (options_.inventory) options_.inventory(*request, answer);
      return links_.up->send(answer);
    }
    if (const auto* order = std::get_if<QueryLocalCheckpoint>(&message))
      return query_local_checkpoint(*order);
    const auto* setup = std::get_if<Setup>(&message);
    if (setup == nullptr) {
      status_ = base::invalid_argument("unexpected message before Setup");
    } else {
      setup_ = *setup;
    }
    links_.up->pause();
  }

  void query_local_checkpoint(const QueryLocalCheckpoint& order) {
    stop_query();
    deadline_ = std::chrono::steady_clock::now() + kLocalCheckpointLimit;
    if (!options_.local_checkpoints) return links_.up->send(LocalCheckpointReply{});
    stop_query_ = options_.local_checkpoints(
        loop_, order, [this](const LocalCheckpointReply& found) { links_.up->send(found); });
  }
  // Cancels a running query: the controller has decided meanwhile.
  void stop_query() {
    if (const auto stop = std::exchange(stop_query_, nullptr)) stop();
  }

  boost::asio::io_context& loop_;
  const NodeAgentOptions& options_;
  std::chrono::steady_clock::time_point deadline_;
  std::function<void()> stop_query_;
  AgentLinks links_;
  std::optional<Setup> setup_;
  base::Status status_;
};

// Members use descriptors 0, 1 and 2 of this process, as on the controller's host. They become
// pipes, whose other ends are returned.
base::Result<NodeStreams> take_streams() {
  NodeStreams streams;
  streams.life = base::Fd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  streams.own_error = base::Fd(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!streams.life.valid() || !streams.own_error.valid())
    return base::system_error("fcntl", "standard streams", errno);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    std::array<int, 2> fds{};
    if (::pipe2(fds.data(), O_CLOEXEC) != 0)
      return base::system_error("pipe2", "standard streams", errno);
    base::Fd read(fds[0]);
    base::Fd write(fds[1]);
    base::Fd& theirs = stream == STDIN_FILENO ? read : write;
    base::Fd& ours = stream == STDIN_FILENO ? write : read;
    if (::dup2(theirs.get(), stream) < 0)
      return base::system_error("dup2", "standard streams", errno);
    ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
    streams.pipes.at(static_cast<std::size_t>(stream)) = std::move(ours);
  }
  return streams;
}

AgentOptions agent_options(const NodeAgentOptions& options, const Setup& setup,
                           process::HeldPort port) {
  AgentOptions agent;
  agent.processes.job = options.job;
  agent.processes.record = options.record;
  agent.processes.claims = process::claim_scope(options.environment, options.job, setup.claims);
  agent.processes.master = setup.master;
  agent.processes.output = setup.output;
  agent.processes.stdin_to = setup.stdin_to;
  agent.processes.stdin_to.own = true;  // take_streams()
  agent.processes.verbose = setup.verbose;
  agent.processes.quiet = setup.quiet;
  (serves_ranks(setup) ? agent.processes.world_socket : agent.processes.agent_socket) =
      setup.elastic ? options.agent_socket : "";
  agent.processes.memory = setup.memory;
  agent.processes.priority = process::current_priority();
  agent.processes.open_files = process::raise_open_files();
  agent.port = std::move(port);
  agent.teardown_limit = setup.time_limit(agent.teardown_limit);
  return agent;
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Prints `why` and reports the exit status, so that the guardian prints nothing more.
int fail(boost::asio::io_context& loop, base::Fd guardian, const base::Status& why) {
  const int fd = guardian.get();
  ControlSocket socket(
      loop, std::move(guardian), [](ControlMessage, std::int32_t, base::Fd) {}, [] {});
  fmt::print(stderr, "{}\n", base::escaped_lines(why.message()));
  socket.send(ControlMessage::kDone, 1);
  discard_control_messages(fd);
  return 1;
}

}  // namespace

bool serves_ranks(const Setup& setup) { return setup.elastic && setup.services; }

spec::Environment environment_there(spec::Environment sent, spec::Environment own) {
  constexpr std::array<const char*, 10> kOfHost{"HOME",  "HOSTNAME",  "LOGNAME", "MAIL",
                                                "SHELL", "TEMP",      "TMP",     "TMPDIR",
                                                "USER",  "XAUTHORITY"};
  constexpr std::array<const char*, 3> kOfLogin{"DBUS_", "SSH_", "XDG_"};
  std::erase_if(sent, [&](const auto& entry) {
    const std::string& name = entry.first;
    return std::ranges::any_of(kOfHost, [&](const char* one) { return name == one; }) ||
           std::ranges::any_of(kOfLogin, [&](const char* one) { return name.starts_with(one); });
  });
  spec::share_job_variables(sent, own);
  sent.merge(own);
  return sent;
}

int run_node_agent(NodeAgentOptions options, base::Fd guardian,
                   const MembershipFactory& membership) {
  boost::asio::io_context loop(1);
  auto port = process::hold_port();
  if (!port.ok()) return fail(loop, std::move(guardian), port.status());
  const Hello hello{options.build, host_name(), options.slots, port->port};
  SetupHandshake handshake(loop, options);
  const auto setup = handshake.run(hello);
  if (!setup.ok()) return fail(loop, std::move(guardian), setup.status());
  auto streams = take_streams();
  if (!streams.ok()) return fail(loop, std::move(guardian), streams.status());
  AgentLinks links = handshake.take_links();
  AgentOptions agent = agent_options(options, *setup, std::move(*port));
  if (setup->usage) {
    agent.usage.read_gpu = options.read_gpu;
    agent.usage.tell = [up = links.up.get()](const std::string& json) {
      if (up->open()) up->send(UsageReport{json});
    };
  }
  return Agent(loop, std::move(agent), std::move(guardian),
               [&](Agent& self) {
                 return std::make_unique<NodeJob>(self, std::move(links), std::move(*streams),
                                                  *setup, options, membership);
               })
      .run();
}

}  // namespace regroup::agent
