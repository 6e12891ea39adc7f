// getifaddrs and non-blocking connect.
#include "launcher/transport/tcp.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <deque>
#include <memory>
#include <sstream>
#include <utility>

namespace regroup::transport {
namespace {

namespace asio = boost::asio;

base::Result<Endpoint> parse_endpoint(std::string_view text) {
  const base::Status bad = base::invalid_argument(fmt::format("'{}': expected ADDRESS:PORT", text));
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port == 0) return bad;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  boost::system::error_code wrong;
  const auto address = asio::ip::make_address(std::string(host), wrong);
  if (wrong) return bad;
  return Endpoint(address, port);
}

std::string to_string(const Endpoint& endpoint) {
  std::ostringstream out;
  out << endpoint;
  return out.str();
}

base::Status set_option(int socket, int level, int option, int value, const char* name) {
  if (::setsockopt(socket, level, option, &value, sizeof value) == 0) return {};
  return base::system_error(fmt::format("setsockopt({})", name), peer_of(socket), errno);
}

base::Result<base::Fd> listen_on(const Endpoint& endpoint) {
  base::Fd socket(
      ::socket(endpoint.data()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return base::system_error("socket", to_string(endpoint), errno);
  if (endpoint.address().is_v6()) {
    REGROUP_RETURN_IF_ERROR(set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0, "IPV6_V6ONLY"));
  }
  REGROUP_RETURN_IF_ERROR(set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"));
  if (::bind(socket.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0) {
    return base::system_error("bind", to_string(endpoint), errno);
  }
  if (::listen(socket.get(), SOMAXCONN) != 0)
    return base::system_error("listen", to_string(endpoint), errno);
  return socket;
}

// Head start of an address before the next one, if there are few.
constexpr std::chrono::milliseconds kHeadStart{250};

// Tries addresses concurrently, so that an address that does not answer costs the others no time,
// and a lost packet is retransmitted. Kept alive by its pending operations.
class Dialer : public std::enable_shared_from_this<Dialer> {
 public:
  Dialer(asio::io_context& loop, std::vector<Endpoint> endpoints,
         std::function<void(base::Result<base::Fd>)> done)
      : endpoints_(std::move(endpoints)),
        failures_(endpoints_.size()),
        done_(std::move(done)),
        turn_(loop),
        end_(loop) {}

  void start(base::Duration limit) {
    if (endpoints_.empty()) return finish();
    const auto half = std::chrono::duration_cast<std::chrono::milliseconds>(limit) /
                      2;  // left for the last address
    head_start_ = std::min(kHeadStart, half / static_cast<int>(endpoints_.size()));
    end_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit));
    end_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->stop();  // cancels each async_connect
    });
    next();
  }

 private:
  // On another host a loopback address leads to another process, so it is tried last.
  void next() {
    if (at_ == endpoints_.size() || (others_ > 0 && endpoints_[at_].address().is_loopback()))
      return;
    const std::size_t at = at_++;
    ++pending_;
    if (!endpoints_[at].address().is_loopback()) ++others_;
    sockets_.emplace_back(end_.get_executor());
    sockets_.back().async_connect(
        endpoints_[at], [self = shared_from_this(), at](const boost::system::error_code& error) {
          self->ended(at, error);
        });
    turn_.expires_after(head_start_);
    turn_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->next();
    });
  }

  void ended(std::size_t at, const boost::system::error_code& error) {
    if (!done_) return;  // another address was faster
    if (!error) {
      const auto done = std::exchange(done_, nullptr);
      base::Fd socket(sockets_[at].release());
      stop();
      return done(std::move(socket));
    }
    --pending_;
    if (!endpoints_[at].address().is_loopback()) --others_;
    failures_[at] =
        fmt::format("{}: {}", to_string(endpoints_[at]),
                    error == asio::error::operation_aborted ? "no answer" : error.message());
    refused_ = refused_ && error == asio::error::connection_refused;
    next();
    if (pending_ == 0) finish();
  }

  void stop() {
    at_ = endpoints_.size();
    turn_.cancel();
    end_.cancel();
    boost::system::error_code ignored;
    for (auto& socket : sockets_) socket.close(ignored);
  }

  void finish() {
    stop();
    std::erase(failures_, "");  // addresses that were not tried
    std::exchange(done_, nullptr)(base::Status(
        refused_ && !failures_.empty() ? base::Code::kPeerLost : base::Code::kUnavailable,
        failures_.empty() ? "connect: no address was given"
                          : fmt::format("connect: {}", fmt::join(failures_, "; "))));
  }

  const std::vector<Endpoint> endpoints_;
  std::vector<std::string> failures_;
  std::function<void(base::Result<base::Fd>)> done_;  // empty: it has been called
  std::deque<asio::ip::tcp::socket> sockets_;
  asio::steady_timer turn_, end_;
  std::chrono::milliseconds head_start_{};
  std::size_t at_ = 0;                    // index of the next address
  std::size_t pending_ = 0, others_ = 0;  // others_: non-loopback attempts
  bool refused_ = true;
};

}  // namespace

base::Result<std::vector<Endpoint>> parse_endpoints(std::string_view text) {
  std::vector<Endpoint> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    REGROUP_ASSIGN_OR_RETURN(auto endpoint, parse_endpoint(text.substr(begin, comma - begin)));
    out.push_back(endpoint);
    begin = comma + 1;
  }
  return out;
}

std::string to_string(const std::vector<Endpoint>& endpoints) {
  std::string out;
  for (const Endpoint& endpoint : endpoints) out += (out.empty() ? "" : ",") + to_string(endpoint);
  return out;
}

base::Result<std::vector<Endpoint>> own_endpoints(std::uint16_t port) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return base::system_error("getifaddrs", "this host", errno);
  std::vector<Endpoint> out;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Endpoint endpoint;
    const std::size_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::copy_n(reinterpret_cast<const std::byte*>(i->ifa_addr), size,
                reinterpret_cast<std::byte*>(endpoint.data()));
    endpoint.resize(size);
    endpoint.port(port);
    // A link-local address is useless without an interface of the other host.
    const bool local = endpoint.address().is_v6() && endpoint.address().to_v6().is_link_local();
    if (!local) out.push_back(endpoint);
  }
  ::freeifaddrs(list);
  std::stable_partition(out.begin(), out.end(),
                        [](const Endpoint& e) { return !e.address().is_loopback(); });
  return out;
}

void dial(asio::io_context& loop, std::vector<Endpoint> endpoints, base::Duration limit,
          std::function<void(base::Result<base::Fd>)> done) {
  auto dialer = std::make_shared<Dialer>(loop, std::move(endpoints), std::move(done));
  asio::post(loop, [dialer, limit] { dialer->start(limit); });
}

base::Result<base::Fd> listen_tcp(std::uint16_t port) {
  auto socket = listen_on(Endpoint(asio::ip::tcp::v6(), port));
  if (socket.ok()) return socket;
  return listen_on(Endpoint(asio::ip::tcp::v4(), port));
}

base::Result<std::uint16_t> port_of(const base::Fd& socket) {
  Endpoint endpoint;
  auto size = static_cast<socklen_t>(endpoint.capacity());
  if (::getsockname(socket.get(), endpoint.data(), &size) != 0) {
    return base::system_error("getsockname", fmt::format("socket {}", socket.get()), errno);
  }
  return endpoint.port();
}

}  // namespace regroup::transport
