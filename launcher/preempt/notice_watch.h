// Asks again and again whether this host is about to be taken away.
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
    // The end of this host, as a source says it: once, and again when it comes sooner; `source` is
    // the option and its value. After one that suspends the host another may come.
    std::function<void(const Notice& notice, const std::string& source)> noticed;
    // A source that cannot be asked, or says what is no notice or is none for this host yet: once
    // for each different sentence. It is asked on.
    std::function<void(const std::string& sentence)> said;
    // A source that had suspended the host says so no more, nor does another. Empty: a suspension
    // is like any other notice.
    std::function<void(const std::string& source)> over = {};
    // The host is about to stand still for a moment, or does; and a source says so no more. May be
    // empty.
    std::function<void(const Notice& notice, const std::string& source)> paused = {};
    std::function<void(const std::string& source)> moves = {};
  };
  static constexpr std::chrono::minutes kAhead{16};  // a cloud's plan further away is none yet
  static constexpr std::chrono::seconds kLongPause{
      60};  // longer ones are suspensions, where those end
  static constexpr std::chrono::seconds kPauseLead{10};  // before a pause
  // `host`: its name in the job. `environment`: of the command.
  NoticeWatch(boost::asio::io_context& loop, spec::NoticeRequest sources, std::string host,
              spec::Environment environment, Events events);
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
  std::vector<std::string> machine_names_;  // of this host, as its cloud calls it; empty: not known
  std::string why_nameless_;                // why they could not be asked
};

}  // namespace regroup::preempt
