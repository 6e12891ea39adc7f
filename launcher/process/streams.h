// The standard streams of all members: makes the pipes, feeds input and forwards output.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/process/app.h"
#include "launcher/process/output.h"
#include "launcher/process/output_files.h"
#include "launcher/process/pipe.h"
#include "launcher/process/sink.h"
#include "launcher/process/stdin_feed.h"
#include "launcher/spec/request.h"

namespace regroup::process {

// The pipes of one member that is about to start. The member gets in(), out() and err().
struct MemberPipes {
  Pipe feed;  // no writing end: empty input
  Pipe output;
  Pipe error;
  std::vector<Sink*> output_sinks;
  std::vector<Sink*> error_sinks;

  [[nodiscard]] int in() const { return feed.read.get(); }
  [[nodiscard]] int out() const { return output.write.get(); }
  [[nodiscard]] int err() const { return error.write.valid() ? error.write.get() : out(); }
};

// Used by the loop's thread. Prints on `err`, once, what cannot be written and why.
class Streams {
 public:
  // `changed` is called when an output was closed, or when a congested file has drained.
  Streams(boost::asio::io_context& loop, spec::OutputRequest output, spec::StdinRequest input,
          Sink& out, Sink& err, std::function<void()> changed);

  // Makes the pipes and output files of a member. Standard input goes to the members that start
  // first: the requested rank or, if all read it, all ranks of the first job.
  [[nodiscard]] base::Result<MemberPipes> open(const Place& place);
  // The member has started as process `pid`. Closes its ends of the pipes, so that EOF is seen at
  // its end.
  void start(MemberPipes pipes, const Place& place, pid_t pid);
  // All members are dead: forwards what is in the pipes and ends the input.
  void finish();
  [[nodiscard]] bool busy() const;
  // Output was lost, on a full disk for example.
  [[nodiscard]] bool lost() const { return lost_; }

 private:
  [[nodiscard]] base::Result<Pipe> make_output() const;
  [[nodiscard]] bool gets_input(const Place& place) const;
  void listen(base::Fd pipe, const Place& place, const char* stream, Tag tag,
              std::vector<Sink*> sinks);
  void feed(base::Fd pipe, const Place& place);
  void on_broken(const base::Status& error);
  void on_closed();

  boost::asio::io_context& loop_;
  const spec::OutputRequest output_;
  const spec::StdinRequest input_;
  Sink& out_;
  Sink& err_;
  const std::function<void()> changed_;
  OutputFiles files_;
  std::shared_ptr<OutputSpace> space_ = std::make_shared<OutputSpace>();
  std::vector<std::shared_ptr<Output>> outputs_;
  std::shared_ptr<StdinFeed> feed_;
  bool feeding_ = false;  // members that start from now on get no input
  bool lost_ = false;
};

}  // namespace regroup::process
