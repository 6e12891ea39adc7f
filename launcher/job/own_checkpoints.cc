// The answers of agents only say where to look: the controller reads the checkpoint itself.
#include "launcher/job/own_checkpoints.h"
#include "launcher/job/start.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/writer/checkpoint_texts.h"
#include "checkpoint/writer/persist_task.h"
#include "launcher/agent/remote_script.h"
#include "launcher/job/start.h"

namespace regroup::job {
namespace {

using agent::LocalCheckpointReply;
using agent::QueryLocalCheckpoint;
using base::Result;
using proto::Step;

constexpr std::chrono::seconds kAnswerLimit(10);  // of a host's own directory
// Between two progress reports of a process that reads there.
constexpr std::chrono::seconds kReaderLimit(30);
constexpr std::chrono::seconds kCopyLimit(60);     // for fsync of a file of the copy
constexpr std::chrono::seconds kVisibleLimit(90);  // until the copy is visible on this host
constexpr std::chrono::seconds kAgentMargin(10);   // for an agent to report a silent process itself
// In all; agents wait ten minutes longer (node_agent.cc).
constexpr std::chrono::minutes kLongest(30);
constexpr std::chrono::milliseconds kAskAgain(100);

std::vector<std::string> words_of(const QueryLocalCheckpoint& order) {
  const writer::CheckpointPlan& plan = order.plan;
  if (order.copy > 0)
    return {"copy",
            plan.directory,
            plan.shared,
            plan.job,
            std::to_string(plan.keep_last),
            std::to_string(plan.keep_every),
            std::to_string(order.copy)};
  if (!plan.resume) return {"newer", plan.directory, "0"};
  return {"newer", plan.directory, std::to_string(plan.resume->step),
          std::to_string(plan.resume->seed), std::to_string(plan.resume->shards)};
}

LocalCheckpointReply found_by(const QueryLocalCheckpoint& order, const Result<std::string>& text,
                              const std::string& said) {
  LocalCheckpointReply found{.status = text.status(), .step = order.copy, .said = said};
  if (!text.ok() || order.copy > 0) return found;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), found.step);
  if (error != std::errc() || end != text->data() + text->size())
    found.status =
        base::internal_error(fmt::format("unexpected output of regroup-persist: {:?}", *text));
  return found;
}

class Search {
 public:
  Search(boost::asio::io_context& loop, agent::Hosts& hosts, const std::function<bool()>& over,
         const std::function<void(const std::string&)>& say, writer::CheckpointPlan* plan)
      : loop_(loop), hosts_(hosts), over_(over), say_(say), plan_(*plan) {}

  void run() {
    for (const auto& [step, index] : candidates()) {
      if (over_()) return;
      const std::string& name = hosts_.name(index);
      say_(fmt::format("host {}: its checkpoint of step {} in {} is the newest and is copied to {}",
                       name, step, plan_.directory, plan_.shared));
      const LocalCheckpointReply copied = ask({index}, step, kCopyLimit + kAgentMargin).at(index);
      auto resume = copied.status.ok() ? read(step) : Result<writer::Resume>(copied.status);
      // It may still write there.
      const bool may_go_on = copied.status.code() == base::Code::kDeadlineExceeded;
      if (resume.ok()) {
        plan_.seed = resume->seed, plan_.shards = resume->shards;
        plan_.resume = std::move(*resume);
        return;
      }
      if (!over_())
        say_(fmt::format("host {}: the job does not resume from its checkpoint of step {}: {}",
                         name, step, agent::printable(resume.status().message())));
      if (may_go_on) return;
    }
  }

 private:
  using Answers = std::map<std::size_t, LocalCheckpointReply>;  // by host
  struct Open {
    std::optional<LocalCheckpointReply> said;
    base::TimePoint heard;
  };

  // Newest first; of equal steps that of the host named first.
  std::vector<std::pair<Step, std::size_t>> candidates() {
    std::vector<std::size_t> up;
    for (std::size_t index = 0; index < hosts_.size(); ++index) {
      if (hosts_.is_up(index)) up.push_back(index);
    }
    std::vector<std::pair<Step, std::size_t>> out;
    for (const auto& [index, found] : ask(up, 0, kReaderLimit + kAgentMargin)) {
      const std::string& name = hosts_.name(index);
      if (!found.said.empty()) say_(fmt::format("host {}: {}", name, agent::printable(found.said)));
      if (!found.status.ok())
        say_(fmt::format("host {}: its checkpoints in {} are ignored: {}", name, plan_.directory,
                         agent::printable(found.status.message())));
      else if (found.step > (plan_.resume ? plan_.resume->step : 0) &&
               found.step <= proto::kMaxStep)
        out.emplace_back(found.step, index);
    }
    std::ranges::stable_sort(out, std::greater(), [](const auto& one) { return one.first; });
    return out;
  }

  Answers ask(const std::vector<std::size_t>& whom, Step copy, base::Duration silence) {
    const auto open = std::make_shared<std::map<std::size_t, Open>>();
    const base::SystemClock clock;
    const base::TimePoint began = clock.now();
    for (const std::size_t index : whom) {
      (*open)[index].heard = began;
      hosts_.remote(index).query_local_checkpoint({plan_, copy},
                                                  [open, index](const LocalCheckpointReply& found) {
                                                    Open& one = open->at(index);
                                                    one.heard = base::SystemClock().now();
                                                    if (!found.busy && !one.said) one.said = found;
                                                  });
    }
    const auto waits = [&] {
      return std::ranges::any_of(*open, [](const auto& one) { return !one.second.said; });
    };
    while (waits() && !over_()) {
      loop_.run_one_for(kAskAgain);
      const base::TimePoint now = clock.now();
      for (auto& [index, one] : *open) {
        if (!one.said && (now - one.heard > silence || now >= end_))
          one.said = LocalCheckpointReply{
              .status = base::deadline_exceeded("its agent did not answer in time")};
      }
    }
    Answers out;
    for (const auto& [index, one] : *open)
      out[index] = one.said.value_or(
          LocalCheckpointReply{.status = {base::Code::kUnavailable, "the job ends"}});
    return out;
  }

  // Reads the copy on this host: the agent's answer is not trusted, and a shared file system may
  // show it late.
  Result<writer::Resume> read(Step step) {
    std::optional<Result<std::string>> text;
    writer::PersistTask task(
        loop_, {"await", plan_.shared, std::to_string(step)},
        {plan_.shared, kVisibleLimit, kReaderLimit},
        {{}, [&text](const Result<std::string>& out, const std::string&) { text = out; }});
    while (!text && !over_() && base::SystemClock().now() < end_) loop_.run_one_for(kAskAgain);
    if (!text && !over_()) return base::deadline_exceeded("reading it took too long");
    if (!text) return base::unavailable("the job ends");
    if (!text->ok()) return text->status();
    REGROUP_ASSIGN_OR_RETURN(auto resume, writer::resume_of(**text, plan_.shared));
    if (!resume || resume->step != step)
      return base::internal_error(
          fmt::format("{}: not the checkpoint of step {}", plan_.shared, step));
    return std::move(*resume);
  }

  const base::TimePoint end_ = base::SystemClock().now() + kLongest;
  boost::asio::io_context& loop_;
  agent::Hosts& hosts_;
  const std::function<bool()>& over_;
  const std::function<void(const std::string&)>& say_;
  writer::CheckpointPlan& plan_;
};

}  // namespace

agent::LocalCheckpointQuery local_checkpoint_query() {
  return
      [](boost::asio::io_context& loop, const QueryLocalCheckpoint& order,
         const std::function<void(const LocalCheckpointReply&)>& answer) -> std::function<void()> {
        const bool copies = order.copy > 0;
        writer::PersistTask::Wait wait{order.plan.directory, kAnswerLimit, kReaderLimit};
        if (copies)
          wait = {order.plan.directory + " and " + order.plan.shared, kCopyLimit, kCopyLimit};
        auto task = std::make_shared<std::unique_ptr<writer::PersistTask>>(
            std::make_unique<writer::PersistTask>(
                loop, words_of(order), wait,
                writer::PersistTask::Events{
                    [answer] { answer({.busy = true}); },
                    [answer, order](const Result<std::string>& text, const std::string& said) {
                      answer(found_by(order, text, said));
                    }}));
        return [task] { task->reset(); };
      };
}

void take_newest_of_hosts(boost::asio::io_context& loop, agent::Hosts& hosts,
                          const std::function<bool()>& over,
                          const std::function<void(const std::string&)>& say,
                          writer::CheckpointPlan* plan) {
  if (!plan->shared.empty()) Search(loop, hosts, over, say, plan).run();
}

base::Status start_from_newest_of_hosts(boost::asio::io_context& loop, agent::Hosts& hosts,
                                        const spec::JobSpec& spec, BringUp& coming,
                                        WorldStart* start) {
  const spec::CheckpointPlan& plan = start->checkpoints;
  take_newest_of_hosts(
      loop, hosts, [&coming] { return coming.look(); },
      [](const std::string& text) { fail(text, 0); }, &start->checkpoints);
  if (plan.shared.empty() || !plan.resume || coming.over()) return {};
  REGROUP_RETURN_IF_ERROR(check_resumed_options(spec, *plan.resume));
  start->seed = plan.seed, start->shards = plan.shards;
  return {};
}

}  // namespace regroup::job
