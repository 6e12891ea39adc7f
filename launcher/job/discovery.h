// Hosts that a user's script names, again and again: Horovod's contract (docs/guide/allocators.md).
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/job/option_rules.h"
#include "launcher/process/hook.h"

namespace regroup::job {

// What the script names now, reached as what the allocator here has granted is, or by ssh. Blocks,
// ten seconds at most (time_limit.h); an error names the script, and what is wrong with its end or
// its lines.
[[nodiscard]] base::Result<spec::Grant> discover_hosts(const spec::Environment& environment,
                                                       const spec::DiscoveryRequest& request,
                                                       const std::string& allocator);

// Runs it once a second, as long as it lives. Used by the loop's thread.
class Discovery {
 public:
  struct Events {
    std::function<void(const std::vector<spec::HostRequest>&)> found;
    // Why it could not be asked: the hosts stay as they are.
    std::function<void(const std::string&)> said;
  };
  Discovery(boost::asio::io_context& loop, const spec::JobSpec& spec, Events events);
  ~Discovery() { stop(); }
  void start() { ask_later(); }
  void stop();

 private:
  void ask_later();
  void ask();
  void on_text(const base::Result<std::string>& text);

  boost::asio::io_context& loop_;
  const spec::DiscoveryRequest request_;
  const spec::Environment environment_;
  const Events events_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<process::Hook> hook_;
  std::string failure_;  // the last one
  bool over_ = false;
};

}  // namespace regroup::job
