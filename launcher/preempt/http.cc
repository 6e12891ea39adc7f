// One connection per request, since requests are seconds apart.
#include "launcher/preempt/http.h"

#include <fmt/format.h>

#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <memory>

namespace regroup::preempt {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::asio::ip::tcp;

constexpr std::size_t kMostBody = 64 << 10;

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(boost::asio::io_context& loop, const HttpQuestion& question,
           std::function<void(base::Result<HttpAnswer>)> done)
      : address_(question.address),
        resolver_(loop),
        stream_(loop),
        limit_(loop),
        done_(std::move(done)) {
    request_.version(11);
    request_.method_string(question.method);
    request_.target(address_.target);
    request_.set(http::field::host, address_.host);
    request_.set(http::field::connection, "close");
    for (const auto& [name, value] : question.headers) request_.set(name, value);
    parser_.body_limit(kMostBody);
  }

  void start(base::Duration limit) {
    limit_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit));
    limit_.async_wait([self = shared_from_this(), limit](const boost::system::error_code& error) {
      if (!error)
        self->fail(
            base::Code::kDeadlineExceeded,
            fmt::format("no answer within {:g} s", std::chrono::duration<double>(limit).count()));
    });
    resolver_.async_resolve(address_.host, address_.port,
                            [self = shared_from_this()](const beast::error_code& error,
                                                        const tcp::resolver::results_type& found) {
                              if (self->good(error)) self->connect(found);
                            });
  }

 private:
  void connect(const tcp::resolver::results_type& found) {
    stream_.async_connect(found,
                          [self = shared_from_this()](const beast::error_code& error, const auto&) {
                            if (self->good(error)) self->write();
                          });
  }
  void write() {
    http::async_write(stream_, request_,
                      [self = shared_from_this()](const beast::error_code& error, std::size_t) {
                        if (self->good(error)) self->read();
                      });
  }
  void read() {
    http::async_read(
        stream_, buffer_, parser_,
        [self = shared_from_this()](const beast::error_code& error, std::size_t) {
          if (!self->good(error)) return;
          if (self->parser_.get().body().size() > kMostBody)
            return self->fail(base::Code::kDataLoss, "answer larger than 64 KiB");
          self->end(HttpAnswer{self->parser_.get().result_int(), self->parser_.get().body()});
        });
  }

  bool good(const beast::error_code& error) {
    if (error) fail(base::Code::kUnavailable, error.message());
    return !error && done_;
  }
  void fail(base::Code code, const std::string& why) {
    end(base::Status(code, fmt::format("http://{}:{}{}: {}", address_.host, address_.port,
                                       address_.target, why)));
  }
  void end(base::Result<HttpAnswer> answer) {
    if (!done_) return;
    limit_.cancel();
    resolver_.cancel();
    stream_.close();
    std::exchange(done_, nullptr)(std::move(answer));
  }

  const HttpAddress address_;
  tcp::resolver resolver_;
  beast::tcp_stream stream_;
  boost::asio::steady_timer limit_;
  http::request<http::empty_body> request_;
  http::response_parser<http::string_body> parser_;
  beast::flat_buffer buffer_;
  std::function<void(base::Result<HttpAnswer>)> done_;
};

}  // namespace

base::Result<HttpAddress> parse_http_address(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme))
    return base::invalid_argument(fmt::format("{}: expected http://...", url));
  url.remove_prefix(kScheme.size());
  const std::size_t slash = url.find('/');
  const std::string_view place = url.substr(0, slash);
  const std::size_t colon = place.rfind(':');
  HttpAddress out{std::string(place.substr(0, colon)), "80",
                  slash == std::string_view::npos ? "/" : std::string(url.substr(slash))};
  if (colon != std::string_view::npos) out.port = place.substr(colon + 1);
  const bool digits = !out.port.empty() && out.port.size() <= 5 &&
                      out.port.find_first_not_of("0123456789") == std::string::npos;
  const bool clean = out.target.find_first_of(" \t\r\n") == std::string::npos;
  if (out.host.empty() || !digits || !clean)
    return base::invalid_argument(
        fmt::format("http://{}: expected http://HOST[:PORT][/PATH]", url));
  return out;
}

void ask_http(boost::asio::io_context& loop, const HttpQuestion& question, base::Duration limit,
              std::function<void(base::Result<HttpAnswer>)> done) {
  std::make_shared<Exchange>(loop, question, std::move(done))->start(limit);
}

}  // namespace regroup::preempt
