// Small HTTP/1.1 requests to a metadata service.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace regroup::preempt {

struct HttpAddress {
  // "169.254.169.254", "80", "/latest/meta-data"
  std::string host;
  std::string port;
  std::string target;
};
// Parses "http://HOST[:PORT][/TARGET]". kInvalidArgument names the fault; https is not supported.
[[nodiscard]] base::Result<HttpAddress> parse_http_address(std::string_view url);

struct HttpQuestion {
  std::string method = "GET";
  HttpAddress address;
  std::vector<std::pair<std::string, std::string>> headers;
};
struct HttpAnswer {
  unsigned status = 0;
  std::string body;  // at most 64 KiB; a larger one is an error
};
// Sends the request. Calls `done` once, from the loop, within `limit`; its error names the address
// and the cause.
void ask_http(boost::asio::io_context& loop, const HttpQuestion& question, base::Duration limit,
              std::function<void(base::Result<HttpAnswer>)> done);

}  // namespace regroup::preempt
