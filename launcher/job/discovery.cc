// docs.horovod.org, "Elastic Horovod", --host-discovery-script: a first failure ends the job, later
// ones do not.
#include "launcher/job/discovery.h"

#include <fmt/format.h>

#include <utility>

#include "launcher/alloc/reading.h"
#include "launcher/job/grant.h"
#include "launcher/job/host_names.h"
#include "launcher/process/time_limit.h"

namespace regroup::job {
namespace {

constexpr std::chrono::seconds kScriptLimit{10};  // as a rule: time_limit()
constexpr std::chrono::seconds kEvery{1};

std::string name_of(const spec::DiscoveryRequest& request) {
  return "--host-discovery-script " + request.script;
}

std::vector<std::string> words_of(const spec::DiscoveryRequest& request) {
  return {"/bin/sh", "-c", request.script};
}

base::Result<std::vector<spec::HostRequest>> hosts_in(const base::Result<std::string>& text,
                                                      const spec::DiscoveryRequest& request) {
  if (!text.ok())
    return base::Status(text.code(), name_of(request) + ": " + text.status().message());
  REGROUP_ASSIGN_OR_RETURN(auto hosts,
                           alloc::read_discovered(*text, name_of(request), request.slots));
  std::vector<spec::HostRequest> out;
  for (alloc::Host& host : hosts) {
    spec::HostRequest& request = out.emplace_back();
    request.name = std::move(host.name);
    request.slots = host.slots;
  }
  return spec::by_one_name(host_names(), out);
}

}  // namespace

base::Result<spec::Grant> discover_hosts(const spec::Environment& environment,
                                         const spec::DiscoveryRequest& request,
                                         const std::string& allocator) {
  REGROUP_ASSIGN_OR_RETURN(auto grant, grant_of(environment, allocator));
  REGROUP_ASSIGN_OR_RETURN(auto hosts,
                           hosts_in(command_output(words_of(request), environment,
                                                   process::time_limit(environment, kScriptLimit)),
                                    request));
  if (hosts.empty())
    return base::unavailable(name_of(request) +
                             ": expected at least one host at the start, got none");
  grant.by = name_of(request);
  grant.hosts = std::move(hosts);
  return grant;
}

Discovery::Discovery(boost::asio::io_context& loop, const spec::JobSpec& spec, Events events)
    : loop_(loop),
      request_(spec.discovery),
      environment_(spec.environment),
      events_(std::move(events)),
      timer_(loop) {}

void Discovery::stop() {
  over_ = true;
  timer_.cancel();
  if (hook_) std::exchange(hook_, nullptr)->abandon();
}

void Discovery::ask_later() {
  if (over_) return;
  timer_.expires_after(kEvery);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !over_) ask();
  });
}

void Discovery::ask() {
  hook_ = process::Hook::start(loop_, words_of(request_), environment_,
                               process::time_limit(environment_, kScriptLimit),
                               [this](const base::Result<std::string>& text) { on_text(text); });
}

void Discovery::on_text(const base::Result<std::string>& text) {
  hook_.reset();
  const auto hosts = hosts_in(text, request_);
  const std::string failure = hosts.ok() ? "" : hosts.status().message();
  const bool news = std::exchange(failure_, failure) != failure;
  if (hosts.ok()) {
    events_.found(*hosts);
  } else if (news) {
    events_.said(failure + "; the hosts stay unchanged until its next run");
  }
  ask_later();
}

}  // namespace regroup::job
