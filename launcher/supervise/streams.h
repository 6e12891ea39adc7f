// The standard streams of all members: pipes made, input fed, output listened to.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/fd.h"
#include "core/status.h"
#include "launcher/options/request.h"
#include "launcher/supervise/app.h"
#include "launcher/supervise/output.h"
#include "launcher/supervise/output_files.h"
#include "launcher/supervise/pipe.h"
#include "launcher/supervise/sink.h"
#include "launcher/supervise/stdin_feed.h"

namespace regroup::launcher {

// Of one member that is about to start. The member gets in(), out() and err().
struct MemberPipes {
  Pipe feed;  // without a writing end: its input is empty
  Pipe output, error;
  std::vector<Sink*> output_sinks, error_sinks;

  [[nodiscard]] int in() const { return feed.read.get(); }
  [[nodiscard]] int out() const { return output.write.get(); }
  [[nodiscard]] int err() const { return error.write.valid() ? error.write.get() : out(); }
};

// Used by the loop's thread. Says on `err`, once, what cannot be written and why.
class Streams {
 public:
  // `changed` is called when an output was closed, or when a file that was behind has taken all.
  Streams(boost::asio::io_context& loop, OutputRequest output, StdinRequest input, Sink& out, Sink& err,
          std::function<void()> changed);

  // Makes pipes, and the files that output goes to. Our input is for those who start first: of the rank that
  // was asked for, or, if all get it, of all ranks of the first job.
  [[nodiscard]] core::Result<MemberPipes> open(const Place& place);
  // The member has started. Closes its ends of the pipes, so that ours see its end.
  void start(MemberPipes pipes, const Place& place);
  // All writers are dead: forward what is in the pipes, feed nobody any more.
  void finish();
  [[nodiscard]] bool busy() const;
  // Output was lost to a full disk or its like.
  [[nodiscard]] bool lost() const { return lost_; }

 private:
  [[nodiscard]] core::Result<Pipe> make_output() const;
  [[nodiscard]] bool gets_input(const Place& place) const;
  void listen(core::Fd pipe, const Place& place, const char* stream, std::vector<Sink*> sinks);
  void feed(core::Fd pipe, const Place& place);
  void on_broken(const core::Status& error);
  void on_closed();

  boost::asio::io_context& loop_;
  const OutputRequest output_;
  const StdinRequest input_;
  Sink& out_;
  Sink& err_;
  const std::function<void()> changed_;
  OutputFiles files_;
  std::shared_ptr<OutputSpace> space_ = std::make_shared<OutputSpace>();
  std::vector<std::shared_ptr<Output>> outputs_;
  std::shared_ptr<StdinFeed> feed_;
  bool feeding_ = false;  // whoever starts now comes too late for input
  bool lost_ = false;
};

}  // namespace regroup::launcher
