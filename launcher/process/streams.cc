// Each member has pipes of its own, since only then can its lines be kept whole; pseudo-terminals
// if the launcher's output is one.
#include "launcher/process/streams.h"
#include "base/printable.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace regroup::process {
namespace {

constexpr int kPipesTotal = 32 << 20;  // total bytes of enlarged pipes of all members
constexpr int kSmallPipe = 64 << 10;   // the default of the system
// An incomplete line is shown at a terminal after this time.
constexpr std::chrono::milliseconds kPromptAfter{200};

int large_pipe(const Place& place) {
  return std::clamp(kPipesTotal / static_cast<int>(std::max(place.world_size, 1U)), kSmallPipe,
                    kLargePipe);
}

}  // namespace

Streams::Streams(boost::asio::io_context& loop, spec::OutputRequest output,
                 spec::StdinRequest input, Sink& out, Sink& err, std::function<void()> changed)
    : loop_(loop),
      output_(std::move(output)),
      input_(input),
      out_(out),
      err_(err),
      changed_(std::move(changed)),
      files_(loop, output_, [this](const base::Status& error) { on_broken(error); }) {
  out_.on_error([this](const base::Status& error) { on_broken(error); });
}

base::Result<MemberPipes> Streams::open(const Place& place) {
  MemberPipes pipes;
  REGROUP_ASSIGN_OR_RETURN(pipes.feed, gets_input(place) ? make_pipe(false) : empty_input());
  REGROUP_ASSIGN_OR_RETURN(pipes.output, make_output());
  REGROUP_ASSIGN_OR_RETURN(pipes.output_sinks, files_.sinks(place, "stdout", out_));
  if (output_.merge_stderr) return pipes;

  REGROUP_ASSIGN_OR_RETURN(pipes.error, make_pipe(true));
  REGROUP_ASSIGN_OR_RETURN(pipes.error_sinks, files_.sinks(place, "stderr", err_));
  return pipes;
}

// Falls back to a pipe if no pseudo-terminal is left.
base::Result<Pipe> Streams::make_output() const {
  if (output_.terminals && out_.terminal()) {
    if (auto terminal = make_terminal(STDOUT_FILENO); terminal.ok()) return terminal;
  }
  return make_pipe(true);
}

bool Streams::gets_input(const Place& place) const {
  if (feeding_) return false;
  if (input_.to == spec::StdinRequest::To::kAll) return true;
  return input_.to == spec::StdinRequest::To::kRank && place.rank == input_.rank;
}

void Streams::start(MemberPipes pipes, const Place& place, pid_t pid) {
  if (pipes.feed.write.valid()) feed(std::move(pipes.feed.write), place);
  std::erase_if(outputs_, [](const auto& output) { return !output->open(); });
  const auto tag = [&](const char* stream) { return Tag(output_, place, stream, pid); };
  listen(std::move(pipes.output.read), place, "stdout", tag("stdout"),
         std::move(pipes.output_sinks));
  if (pipes.error.read.valid()) {
    listen(std::move(pipes.error.read), place, "stderr", tag("stderr"),
           std::move(pipes.error_sinks));
  }
}

void Streams::feed(base::Fd pipe, const Place& place) {
  if (!feed_) feed_ = std::make_shared<StdinFeed>(loop_, STDIN_FILENO, input_.own);
  feed_->add(std::move(pipe));
  feeding_ = input_.to == spec::StdinRequest::To::kRank ||
             feed_->members() == place.local_size.value_or(place.world_size);
  if (feeding_) feed_->start();
}

void Streams::listen(base::Fd pipe, const Place& place, const char* stream, Tag tag,
                     std::vector<Sink*> sinks) {
  OutputPath path{std::move(sinks), std::move(tag), {}, output_.raw, large_pipe(place)};
  const Sink* const own = std::string_view(stream) == "stdout" ? &out_ : &err_;
  if (!path.sinks.empty() && path.sinks[0] == own)
    path.own_prefix = files_.own_prefix(place, stream);
  if (path.sinks.size() == 1 && path.sinks[0]->terminal() && path.tag.empty())
    path.prompt_after = kPromptAfter;
  path.closed = [this] { on_closed(); };
  if (place.world_size == 1 && path.tag.empty() && path.own_prefix.empty()) {
    path.alone = [this, sinks = path.sinks] {
      const auto shares = [&](const auto& output) {
        return output->open() && std::ranges::any_of(sinks, [&](const Sink* sink) {
                 return output->writes_to(sink);
               });
      };
      return std::ranges::count_if(outputs_, shares) == 1;
    };
  }
  path.torn = [this, rank = place.rank](const base::Status& why) {
    err_.write(fmt::format("regroup: a long line of rank {} is cut: {}\n", rank,
                           base::escaped_lines(why.message())));
  };
  outputs_.push_back(std::make_shared<Output>(loop_, std::move(pipe), std::move(path), space_));
  outputs_.back()->start();
}

void Streams::finish() {
  if (feed_) feed_->stop();
  for (const auto& output : std::vector(outputs_)) output->finish();
}

bool Streams::busy() const {
  return files_.congested() || std::any_of(outputs_.begin(), outputs_.end(),
                                           [](const auto& output) { return output->open(); });
}

void Streams::on_closed() {
  if (files_.congested()) files_.when_free([this] { on_closed(); });
  changed_();
}

void Streams::on_broken(const base::Status& error) {
  if (error.code() == base::Code::kPeerLost) return;  // the reader closed it
  lost_ = true;
  err_.write("regroup: " + base::escaped_lines(error.message()) + ": further output is lost\n");
}

}  // namespace regroup::process
