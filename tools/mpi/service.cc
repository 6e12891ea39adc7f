// Starts MPI as a rank of a job of one process per host: regroup-pmi serves this process as it
// serves the ranks of an MPI program, and messages between hosts travel as notes through the
// leaders (the members with the lowest rank of each host), which are connected anyway.
#include "tools/mpi/service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstdlib>
#include <utility>
#include <variant>

#include "base/status.h"
#include "base/unix_address.h"
#include "launcher/pmi/wire.h"
#include "launcher/process/environment.h"
#include "launcher/process/time_limit.h"

namespace regroup::mpi {
namespace {

using boost::asio::posix::stream_descriptor;
using collective::mpi::Frame;
using collective::mpi::FrameHeader;
using collective::mpi::FrameKind;
using collective::mpi::FrameReader;
using collective::mpi::make_frame;

constexpr std::chrono::seconds kLonelyLimit(10);  // without a member
// Longer than the members of another host wait for an answer of theirs, who then say which it is.
constexpr std::chrono::seconds kStallLimit(30);
constexpr std::size_t kMostMembers = 4096;

bool is_of_outer_launcher(const spec::Environment::value_type& variable) {
  return variable.first.starts_with("PMIX_") || variable.first.starts_with("PMI_") ||
         variable.first.starts_with("OMPI_COMM_WORLD_");
}

}  // namespace

Service::Service(boost::asio::io_context& loop, base::Fd listener, ServiceOptions options)
    : loop_(loop),
      listener_(loop, listener.release()),
      lonely_(loop),
      options_(std::move(options)),
      messages_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) {}

int Service::hosts() const { return *std::ranges::max_element(options_.host_of) + 1; }

void Service::say(const std::string& text) const {
  const std::string line = fmt::format("regroup-mpi: {}\n", text);
  static_cast<void>(!::write(messages_.get(), line.data(), line.size()));
}

void Service::start() {
  lonely_.expires_after(kLonelyLimit);
  lonely_.async_wait([this](const boost::system::error_code& error) {
    if (!error && members_.empty()) loop_.stop();
  });
  accept();
  pmi::HelperOptions helper;
  helper.program = pmi::find_helper();
  helper.job = options_.job;
  helper.folder = options_.folder;
  helper.environment = options_.environment;
  std::erase_if(helper.environment, is_of_outer_launcher);
  helper.host = static_cast<std::uint32_t>(options_.host);
  process::App app;
  app.path = options_.library;
  app.environment = helper.environment;
  pmi_ = std::make_unique<pmi::Mpi>(loop_, helper, app, pmi_events());
  pmi::OpenSpace space;
  space.slots = static_cast<std::uint32_t>(hosts());
  space.oversubscribed = true;  // members compute on its cores
  space.app_sizes = {space.slots};
  for (std::uint32_t host = 0; host < space.slots; ++host) {
    space.hosts.push_back(fmt::format("host{}", host));
    space.host_of.push_back(host);
  }
  space.host = helper.host;
  pmi_->open(space,
             [this](std::vector<process::Extras> extras) { on_extras(std::move(extras.at(0))); });
}

pmi::MpiEvents Service::pmi_events() {
  pmi::MpiEvents events;
  events.connected = [](const pmi::Connected&) {};
  events.finalized = [](const pmi::Finalized&) {};
  events.aborted = [this](const pmi::Aborted& aborted) { fail(aborted.message); };
  events.spawn = [](const pmi::Spawn&) {};
  events.exchange = [this](const pmi::Message& message) { route(message); };
  events.said = [this](const std::string& text) { say(text); };
  return events;
}

// MPI reads the environment of this process.
void Service::on_extras(process::Extras extras) {
  for (const auto& variable : options_.environment) {
    if (is_of_outer_launcher(variable)) ::unsetenv(variable.first.c_str());
  }
  process::App app;
  app.environment = options_.environment;
  pmi::add_hints(extras, app, true);
  for (const auto& [name, value] : extras.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (extras.inherited.valid()) ::dup2(extras.inherited.get(), process::kInheritedFd);
  const auto post = [this](auto call) { boost::asio::post(loop_, std::move(call)); };
  exchange_ = std::make_unique<Exchange>(
      options_.library, hosts(), process::time_limit(options_.environment, kStallLimit),
      ExchangeEvents{
          .ready =
              [this, post](const std::string& version) {
                post([this, version] { on_ready(version); });
              },
          .frame =
              [this, post](std::vector<std::byte> frame) {
                post([this, frame = std::move(frame)] { on_frame(frame); });
              },
          .failed = [this, post](const std::string& why) { post([this, why] { fail(why); }); },
          .name_of =
              [host_of = options_.host_of](int host) {
                return fmt::format("the host of rank {}",
                                   std::ranges::find(host_of, host) - host_of.begin());
              }});
}

// What MPI prints from now on is about the end of other carriers, which the members handle. The
// output is the member's: its reader waits for the end of it.
void Service::on_ready(const std::string& version) {
  ready_ = true;
  const base::Fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  ::dup2(null.get(), STDOUT_FILENO);
  ::dup2(null.get(), STDERR_FILENO);
  if (options_.host == 0)
    say(fmt::format("{} connects {} hosts in generation {}", version, hosts(),
                    options_.generation));
  messages_.reset();
  for (const auto& [rank, member] : members_)
    write(member, make_frame({.kind = FrameKind::kReady}));
}

// The members tell the coordinator.
void Service::fail(const std::string& why) {
  if (members_.empty())
    say(fmt::format("generation {}: {}; messages go over ucx", options_.generation, why));
  end(why);
}

void Service::end(const std::string& why) {
  failed_ = true;
  tell_end(why);
}

// `why` empty: a member has asked for it, or gone.
void Service::tell_end(const std::string& why) {
  for (const auto& [rank, member] : members_)
    write(member, make_frame({.kind = FrameKind::kFail}, std::as_bytes(std::span(why))));
  loop_.stop();
}

void Service::route(const pmi::Message& message) {
  if (const auto* part = std::get_if<pmi::Contribute>(&message)) {
    if (options_.host != 0) return pass(0, message);
    const auto gathered = parts_.add(*part);
    for (const std::uint32_t host : part->hosts) {
      if (gathered) pass(host, *gathered);
    }
  } else if (const auto* fetch = std::get_if<pmi::Fetch>(&message)) {
    pass(fetch->of.rank, message);
  } else if (const auto* fetched = std::get_if<pmi::Fetched>(&message)) {
    pass(fetched->host, message);
  } else if (std::holds_alternative<pmi::NameCall>(message)) {
    pass(0, message);
  }
}

void Service::pass(std::uint32_t host, const pmi::Message& message) {
  if (host == static_cast<std::uint32_t>(options_.host)) return pmi_->tell(message);
  const auto frame = make_frame(
      {.kind = FrameKind::kNote, .from = options_.host, .to = static_cast<std::int32_t>(host)},
      pmi::encode(message));
  const auto leader = std::ranges::find(options_.host_of, options_.host);
  tell(static_cast<int>(leader - options_.host_of.begin()), frame);
}

void Service::accept() {
  listener_.async_wait(
      stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
        if (error) return;
        base::Fd socket(
            ::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (socket.valid() && base::is_of_this_user(socket.get()) && members_.size() < kMostMembers)
          read(std::make_shared<Member>(loop_, socket.release()));
        accept();
      });
}

void Service::read(const MemberPointer& member) {
  member->socket.async_wait(
      stream_descriptor::wait_read, [this, member](const boost::system::error_code& error) {
        for (;;) {
          Frame frame;
          const auto read_result = member->reader.next(member->socket.native_handle(), &frame);
          if (error || read_result == FrameReader::Read::kEnd) return lose(member);
          if (read_result == FrameReader::Read::kLater) return read(member);
          if (!take(member, std::move(frame))) return lose(member);
        }
      });
}

// False: the frame is none that a member sends.
bool Service::take(const MemberPointer& member, Frame frame) {
  const FrameHeader& header = frame.header;
  const auto is_rank = [this](std::int32_t rank) {
    return rank >= 0 && static_cast<std::size_t>(rank) < options_.host_of.size();
  };
  if (!member->rank) {
    const bool valid = header.kind == FrameKind::kHello && is_rank(header.from) &&
                       options_.host_of[static_cast<std::size_t>(header.from)] == options_.host;
    if (valid) hello(member, header.from);
    return valid;
  }
  const std::span<const std::byte> bytes(frame.bytes.get(), header.bytes);
  if (header.kind == FrameKind::kNote) {
    auto message = pmi::decode(bytes);
    if (!message.ok()) return false;
    const bool for_host_0 = std::holds_alternative<pmi::Contribute>(*message);
    for_host_0 ? route(*message) : pmi_->tell(*message);
    return true;
  }
  if (header.kind == FrameKind::kFail) return end(""), true;
  if (header.kind == FrameKind::kBye) return member->bye = true;
  if (header.kind == FrameKind::kProbe && exchange_) {
    probe_hosts();
    exchange_->visit([this, member] {
      boost::asio::post(loop_,
                        [this, member] { write(member, make_frame({.kind = FrameKind::kProbe})); });
    });
    return true;
  }
  const bool valid = (header.kind == FrameKind::kData || header.kind == FrameKind::kAck) &&
                     header.from == *member->rank && is_rank(header.to) && ready_;
  if (!valid) return false;
  const int host = options_.host_of[static_cast<std::size_t>(header.to)];
  if (host == options_.host) return false;
  exchange_->send(host, make_frame(header, bytes));
  return true;
}

// What a member waits for may be in a carrier process of another host that stands still, while the
// members there do not wait: a message that does not arrive shows it.
void Service::probe_hosts() {
  for (int host = 0; ready_ && host < hosts(); ++host) {
    if (host != options_.host) exchange_->send(host, make_frame({.kind = FrameKind::kProbe}));
  }
}

void Service::hello(const MemberPointer& member, int rank) {
  member->rank = rank;
  members_[rank] = member;
  write(member,
        make_frame({.kind = FrameKind::kHello, .number = static_cast<std::uint64_t>(::getpid())}));
  if (ready_) write(member, make_frame({.kind = FrameKind::kReady}));
  for (const SharedFrame& frame : std::exchange(early_[rank], {})) write(member, frame);
}

void Service::lose(const MemberPointer& member) {
  member->socket.close();
  if (!member->rank) return;
  const auto known = members_.find(*member->rank);
  if (known != members_.end() && known->second == member) members_.erase(known);
  // One that ends without kBye has failed, or sends by UCX from now on.
  if (members_.empty() || !member->bye) tell_end("");
}

void Service::write(const MemberPointer& member, SharedFrame frame) {
  member->writer.put(std::move(frame));
  if (!member->writing) flush(member);
}

// If the member is gone, read() notices.
void Service::flush(const MemberPointer& member) {
  if (!member->socket.is_open() || !member->writer.flush(member->socket.native_handle()).ok())
    return;
  member->writing = !member->writer.empty();
  if (!member->writing) return;
  member->socket.async_wait(stream_descriptor::wait_write,
                            [this, member](const boost::system::error_code& error) {
                              member->writing = false;
                              if (!error) flush(member);
                            });
}

void Service::tell(int rank, SharedFrame frame) {
  const auto member = members_.find(rank);
  if (member != members_.end()) return write(member->second, std::move(frame));
  early_[rank].push_back(std::move(frame));
}

void Service::on_frame(const std::vector<std::byte>& frame) {
  const auto header = collective::mpi::header_of(frame);
  if (!header.ok()) return fail(header.status().message());
  if (header->kind == FrameKind::kProbe) return;  // it has arrived: that is all
  tell(header->to, make_frame(*header, std::span(frame).subspan(sizeof(FrameHeader))));
}

void Service::finish() {
  members_.clear();
  if (exchange_ && exchange_->connected() && !failed_) exchange_->finish();
  pmi_.reset();
}

}  // namespace regroup::mpi
