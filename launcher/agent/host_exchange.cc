// Contributions to an incomplete fence wait in the pmi::Exchange. They are bounded per host, so
// that a malicious host can exhaust only its own budget; no valid job comes near these limits.
#include "launcher/agent/host_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "launcher/pmi/mpi.h"

namespace regroup::agent {
namespace {

constexpr const char* kAwaited =
    "other hosts wait for it in a PMI operation, from which it was excluded";

}  // namespace

HostExchange::HostExchange(Job job) : HostExchange(std::move(job), Limits()) {}
HostExchange::HostExchange(Job job, Limits limits) : job_(std::move(job)), limits_(limits) {}

void HostExchange::tell(std::uint32_t host, const pmi::Message& message) {
  if (Node* node = job_.node_of(host)) node->tell(message);
}

bool HostExchange::may_say(std::uint32_t host, const pmi::Message& message) const {
  if (host == 0) return true;
  const auto of = [&](pmi::ProcId process) { return job_.host_of(process) == host; };
  const auto of_any = [&](const std::vector<std::uint32_t>& spaces) {
    return std::ranges::any_of(spaces,
                               [&](std::uint32_t space) { return job_.lives_in(host, space); });
  };
  if (const auto* connected = std::get_if<pmi::Connected>(&message)) return of(connected->process);
  if (const auto* finalized = std::get_if<pmi::Finalized>(&message)) return of(finalized->process);
  if (const auto* aborted = std::get_if<pmi::Aborted>(&message)) return of(aborted->process);
  if (const auto* spawn = std::get_if<pmi::Spawn>(&message)) return of(spawn->parent);
  if (const auto* connection = std::get_if<pmi::GroupsConnected>(&message))
    return of_any(connection->spaces);
  if (const auto* disconnection = std::get_if<pmi::GroupsDisconnected>(&message))
    return of_any(disconnection->spaces);
  if (const auto* part = std::get_if<pmi::Contribute>(&message))
    return part->host == host && may_bring(*part);
  if (const auto* fetch = std::get_if<pmi::Fetch>(&message)) return fetch->host == host;
  if (const auto* call = std::get_if<pmi::NameCall>(&message))
    return call->host == host && of(call->from);
  if (const auto* fetched = std::get_if<pmi::Fetched>(&message)) {
    const auto asking = asked_.find(fetched->host);
    if (asking == asked_.end()) return false;
    const auto question = asking->second.find(fetched->request);
    return question != asking->second.end() && question->second.host == host;
  }
  return true;
}

// The participants must be hosts of the job, each once, with the sender among them: else the fence
// could never complete.
bool HostExchange::may_bring(const pmi::Contribute& part) const {
  std::set<std::uint32_t> hosts;
  for (const std::uint32_t host : part.hosts) {
    if (job_.node_of(host) == nullptr || !hosts.insert(host).second) return false;
  }
  return hosts.contains(part.host);
}

void HostExchange::pass(std::uint32_t host, const pmi::Message& message) {
  if (!may_say(host, message)) return;
  if (const auto* part = std::get_if<pmi::Contribute>(&message)) bring(*part);
  if (const auto* asked = std::get_if<pmi::Fetch>(&message)) fetch(*asked);
  if (const auto* named = std::get_if<pmi::NameCall>(&message)) call(*named);
  if (const auto* fetched = std::get_if<pmi::Fetched>(&message)) answer(*fetched);
}

void HostExchange::bring(const pmi::Contribute& part) {
  if (cut_off_.contains(part.host)) return;
  for (const std::uint32_t host : part.hosts) {
    if (cut_off_.contains(host)) return job_.stuck(host, kAwaited);
  }
  const auto size = parts_.size_with(part);
  if (size.bytes > limits_.gathered) return refuse(part, size);
  if (const auto gathered = parts_.add(part)) {
    for (const std::uint32_t each : part.hosts) tell(each, *gathered);
  }
  if (parts_.held(part.host) > limits_.held)
    cut_off(part.host,
            fmt::format("it has contributed {} bytes to incomplete PMI fences (limit {})",
                        parts_.held(part.host), limits_.held));
}

// Hosts that have contributed before wait for a result that does not fit into a message to
// regroup-pmi.
void HostExchange::refuse(const pmi::Contribute& part, const pmi::Exchange::Size& size) {
  const std::string why =
      fmt::format("it has contributed {} of {} bytes to a PMI operation of {} hosts (limit {})",
                  size.largest, size.bytes, part.hosts.size(), limits_.gathered);
  size.bytes == part.data.size() ? cut_off(part.host, why) : job_.stuck(size.host, why);
}

void HostExchange::deny(std::uint32_t asking, std::uint64_t request, std::int32_t status) {
  tell(asking, pmi::Fetched{request, asking, status, {}});
}

void HostExchange::fetch(const pmi::Fetch& fetch) {
  const auto host = job_.host_of(fetch.of);
  if (!host) return deny(fetch.host, fetch.request, pmi::kPmixNotFound);
  ask(fetch.host, fetch.request, {*host, fetch.of}, fetch);
}

void HostExchange::call(const pmi::NameCall& call) {
  ask(call.host, call.request, {0, call.from}, call);
}

void HostExchange::ask(std::uint32_t asking, std::uint64_t request, Question question,
                       const pmi::Message& message) {
  if (cut_off_.contains(asking)) return deny(asking, request, pmi::kPmixOutOfResource);
  Questions& questions = asked_[asking];
  if (!questions.emplace(request, question).second) return;  // duplicate request
  if (questions.size() <= limits_.asked) return tell(question.host, message);
  cut_off(asking, fmt::format("it has {} unanswered PMI requests to other hosts (limit {})",
                              questions.size(), limits_.asked));
}

void HostExchange::answer(const pmi::Fetched& fetched) {
  const auto asking = asked_.find(fetched.host);
  if (asking == asked_.end() || asking->second.erase(fetched.request) == 0) return;
  tell(fetched.host, fetched);
}

void HostExchange::cut_off(std::uint32_t host, const std::string& why) {
  cut_off_.insert(host);
  for (const auto& [request, question] : std::exchange(asked_[host], {}))
    deny(host, request, pmi::kPmixOutOfResource);
  parts_.forget(host);
  job_.cut_off(host, why);
  if (parts_.awaited(host)) job_.stuck(host, kAwaited);
}

void HostExchange::closed(std::uint32_t space) {
  for (auto& [host, questions] : asked_) {
    for (auto each = questions.begin(); each != questions.end();) {
      const bool gone = each->second.of.space == space;
      if (gone) deny(host, each->first, pmi::kPmixNotFound);
      each = gone ? questions.erase(each) : std::next(each);
    }
  }
}

void HostExchange::restart() {
  parts_ = {};
  asked_.clear();
}

}  // namespace regroup::agent
