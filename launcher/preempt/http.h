// Small questions to a metadata address over HTTP/1.1.
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
  std::string host, port, target;  // "169.254.169.254", "80", "/latest/meta-data"
};
// "http://HOST[:PORT][/TARGET]". kInvalidArgument names what it is not: https is not spoken.
[[nodiscard]] base::Result<HttpAddress> parse_http_address(std::string_view url);

struct HttpQuestion {
  std::string method = "GET";
  HttpAddress address;
  std::vector<std::pair<std::string, std::string>> headers;
};
struct HttpAnswer {
  unsigned status = 0;
  std::string body;  // 64 KiB at most: what is larger is an error
};
// `done` is called once, from the loop, within `limit`; its error names the address and what went
// wrong.
void ask_http(boost::asio::io_context& loop, const HttpQuestion& question, base::Duration limit,
              std::function<void(base::Result<HttpAnswer>)> done);

}  // namespace regroup::preempt
