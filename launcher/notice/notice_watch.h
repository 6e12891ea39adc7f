// Asks again and again whether this host is about to be taken away.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "launcher/notice/notice.h"
#include "launcher/options/request.h"

namespace regroup::launcher {

// Used by the loop's thread. Keeps the loop busy until stop().
class NoticeWatch {
 public:
  struct Events {
    // The first notice for this host from each source; `source` is the option and its value. After one that
    // suspends the host another may come.
    std::function<void(const Notice& notice, const std::string& source)> noticed;
    // A source that cannot be asked, or says what is no notice: once for each different sentence. It is asked
    // on.
    std::function<void(const std::string& sentence)> said;
    // A source that had suspended the host says so no more, nor does another. Empty: a suspension is like any
    // other notice.
    std::function<void(const std::string& source)> over = {};
  };
  // `host`: its name in the job. `environment`: of the command.
  NoticeWatch(boost::asio::io_context& loop, NoticeRequest sources, std::string host, Environment environment,
              Events events);
  ~NoticeWatch();
  // `suspended_by`: the sources that are known to have suspended the host.
  void start(const std::vector<std::string>& suspended_by = {});
  void stop();

 private:
  struct Source;
  void ask_later(Source& source);
  void ask(Source& source);
  void ask_file(Source& source);
  void ask_command(Source& source);
  void ask_address(Source& source, const std::string& token);
  void ask_token(Source& source);
  void on_text(Source& source, const std::string& text);
  void failed(Source& source, const std::string& why);
  [[nodiscard]] bool any_suspended() const;

  boost::asio::io_context& loop_;
  const NoticeRequest request_;
  const std::string host_;
  const Environment environment_;
  const Events events_;
  std::vector<std::shared_ptr<Source>> sources_;
};

}  // namespace regroup::launcher
