// Polls sources of preemption notices for this host.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/preempt/notice.h"
#include "launcher/spec/request.h"

namespace regroup::preempt {

// Used by the loop's thread. Keeps the loop busy until stop().
class NoticeWatch {
 public:
  struct Events {
    // A source announces the end of this host; called again if the end is moved forward. `source`
    // is the option and its value. After a suspension another notice may follow.
    std::function<void(const Notice& notice, const std::string& source)> noticed;
    // A source cannot be read, or its text is not a notice, or not yet one for this host; called
    // once for each different sentence. The source is still polled.
    std::function<void(const std::string& sentence)> said;
    // No source announces a suspension of the host any more; `source` had. If empty, a suspension
    // is treated like any other notice.
    std::function<void(const std::string& source)> over = {};
    // `paused`: the host is about to be frozen for a moment, or is. `moves`: the source does not
    // announce that any more. May be empty.
    std::function<void(const Notice& notice, const std::string& source)> paused = {};
    std::function<void(const std::string& source)> moves = {};
  };
  // Ignores plans of a cloud that are further away.
  static constexpr std::chrono::minutes kAhead{16};
  // Treats longer pauses as suspensions, if Events::over is set.
  static constexpr std::chrono::seconds kLongPause{60};
  static constexpr std::chrono::seconds kPauseLead{10};  // reports a pause this long before it
  // `host`: its name in the job. `environment`: for the command.
  NoticeWatch(boost::asio::io_context& loop, spec::NoticeRequest sources, std::string host,
              spec::Environment environment, Events events);
  ~NoticeWatch();
  // `suspended_by`: the sources that had suspended the host before.
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
  void ask_names(Source& source, std::vector<Notice> notices);
  void on_text(Source& source, const std::string& text);
  void decide(Source& source, const std::vector<Notice>& notices);
  [[nodiscard]] bool is_ours(Source& source, const Notice& notice);
  void on_end(Source& source, const std::optional<Notice>& end);
  void on_pause(Source& source, const std::optional<Notice>& pause);
  void remark(Source& source, const std::string& about, const std::string& sentence);
  void failed(Source& source, const std::string& why);
  [[nodiscard]] bool any_suspended() const;

  boost::asio::io_context& loop_;
  const spec::NoticeRequest request_;
  const std::string host_;
  const spec::Environment environment_;
  const Events events_;
  std::vector<std::shared_ptr<Source>> sources_;
  std::vector<std::string> machine_names_;  // the cloud's names of this host; empty: unknown
  std::string why_nameless_;                // why they could not be read
};

}  // namespace regroup::preempt
