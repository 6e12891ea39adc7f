// The lists of hosts that commands name are made when they run, since the command before it may
// have changed them.
#include "launcher/job/allocation_scaler.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <utility>

#include "base/fd.h"
#include "base/printable.h"
#include "launcher/agent/remote_script.h"
#include "launcher/alloc/allocators.h"
#include "launcher/job/grant.h"

namespace regroup::job {
namespace {

constexpr std::chrono::seconds kScalerLimit{30};

// The one variable of Slurm's that its commands need.
constexpr const char* kSlurmConf = "SLURM_CONF";

spec::Environment without(const spec::Environment& environment, const std::string& prefix) {
  spec::Environment out;
  for (const auto& [name, value] : environment) {
    if (prefix.empty() || !name.starts_with(prefix) || name == kSlurmConf) out[name] = value;
  }
  return out;
}

base::Status write_script(const std::string& path, const std::string& text) {
  const base::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700));
  if (!file.valid()) return base::system_error("open", path, errno);
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return base::system_error("write", path, errno);
  return {};
}

const alloc::AllocatorRow* row_for(const spec::JobSpec& spec, const alloc::AllocInput& input) {
  if (spec.grant.by.empty() || !spec.discovery.script.empty()) return nullptr;
  return alloc::find_allocator(input, spec.allocator);
}

}  // namespace

std::string slots_text(std::uint32_t slots) { return base::counted(slots, "slot"); }

// Where members may exceed the slots, there are never too few of these.
bool AllocationScaler::can_grow(const spec::JobSpec& spec) {
  const alloc::AllocatorRow* row = row_for(spec, allocation_input(spec.environment));
  return row != nullptr && row->grow != nullptr && !spec.oversubscribe;
}

std::shared_ptr<AllocationScaler> AllocationScaler::make(boost::asio::io_context& loop,
                                                         const spec::JobSpec& spec,
                                                         const JobFiles& files, spec::Grant way) {
  auto input = std::make_unique<const alloc::AllocInput>(allocation_input(spec.environment));
  const alloc::AllocatorRow* row = row_for(spec, *input);
  if (row == nullptr || (row->grow == nullptr && row->give_back == nullptr)) return nullptr;
  return std::shared_ptr<AllocationScaler>(
      new AllocationScaler(loop, spec, files, std::move(way), *row, std::move(input)));
}

AllocationScaler::AllocationScaler(boost::asio::io_context& loop, const spec::JobSpec& spec,
                                   const JobFiles& files, spec::Grant way,
                                   const alloc::AllocatorRow& row,
                                   std::unique_ptr<const alloc::AllocInput> input)
    : loop_(loop), row_(row), input_(std::move(input)), files_(files), way_(std::move(way)) {
  add(spec.grant.hosts);
}

const char* AllocationScaler::title() const { return row_.title; }

bool AllocationScaler::grows() const { return row_.grow != nullptr; }

AllocationScaler::~AllocationScaler() {
  if (hook_) hook_->abandon();
}

void AllocationScaler::add(const std::vector<spec::HostRequest>& hosts) {
  for (const spec::HostRequest& host : hosts) {
    const auto known = std::ranges::find(hosts_, host.name, &spec::HostRequest::name);
    if (known == hosts_.end()) {
      hosts_.push_back(host);
    } else {
      known->slots += host.slots;
    }
  }
}

void AllocationScaler::grow(const std::vector<spec::HostRequest>& hosts) {
  add(hosts);
  std::uint32_t slots = 0;
  for (const spec::HostRequest& host : hosts) slots += host.slots;
  requests_.grown(slots);
}

void AllocationScaler::drop(const std::string& host) {
  std::erase_if(hosts_, [&](const spec::HostRequest& each) { return each.name == host; });
}

void AllocationScaler::lessen(const std::string& host, std::uint32_t slots) {
  const auto known = std::ranges::find(hosts_, host, &spec::HostRequest::name);
  if (known != hosts_.end()) known->slots -= std::min(known->slots, slots);
}

bool AllocationScaler::has(const std::string& host) const {
  return std::ranges::find(hosts_, host, &spec::HostRequest::name) != hosts_.end();
}

bool AllocationScaler::takes_back(const std::string& host) const {
  const auto known = std::ranges::find(hosts_, host, &spec::HostRequest::name);
  return row_.give_back != nullptr && known != hosts_.end() && !known->here;
}

bool AllocationScaler::takes_part(const std::string& host) const { return row_.parts && has(host); }

alloc::Growth AllocationScaler::growth(std::uint32_t slots) const {
  alloc::Growth out;
  out.slots = slots;
  const auto head = std::ranges::find_if(hosts_, &spec::HostRequest::here);
  if (head != hosts_.end()) out.head = head->name;
  out.program = agent::quote(process::own_program());
  out.socket = agent::quote(files_.grants_socket());
  out.script = script();
  return out;
}

// Drops requests that have ended without a join or that were cancelled elsewhere: they add no
// hosts.
void AllocationScaler::forget_ended() {
  begin({[this]() -> std::optional<alloc::AllocatorRequest> {
           if (row_.requests == nullptr || requests_.slots() == 0) return std::nullopt;
           return row_.requests(*input_);
         },
         [this](const base::Result<std::string>& printed) {
           if (!printed.ok() || row_.requests == nullptr) return;
           std::istringstream lines(*printed);
           requests_.keep(
               {std::istream_iterator<std::string>(lines), std::istream_iterator<std::string>()});
         }});
}

void AllocationScaler::ask_for(std::uint32_t slots, std::vector<std::string> has,
                               AnswerHandler done) {
  forget_ended();
  const auto more = std::make_shared<std::uint32_t>(0);
  begin({[this, slots, more, has = std::move(has)]() -> std::optional<alloc::AllocatorRequest> {
           *more = still_missing(slots);
           if (*more == 0) return std::nullopt;
           alloc::Growth wanted = growth(*more);
           wanted.has = has;
           return row_.grow(*input_, wanted);
         },
         [this, more, done = std::move(done)](const base::Result<std::string>& printed) {
           if (printed.ok() && *more > 0) {
             const std::string id =
                 row_.requests == nullptr ? "" : printed->substr(0, printed->find_first_of(";\n"));
             requests_.asked(id, *more);
           }
           done(*more, printed);
         }});
}

// Where there is one request at a time, it is for all that is missing.
std::uint32_t AllocationScaler::still_missing(std::uint32_t slots) {
  cancel_beyond(slots);
  if (row_.requests != nullptr) return slots - requests_.slots();
  if (slots > 0) requests_.clear();
  return slots;
}

void AllocationScaler::cancel_beyond(std::uint32_t slots) {
  if (row_.cancel == nullptr || (row_.requests == nullptr && slots > 0)) return;
  for (const Requests::Request& request : requests_.surplus(slots)) cancel(request);
}

void AllocationScaler::cancel(const Requests::Request& request) {
  begin({[this, request] { return row_.cancel(*input_, request.id); },
         [this, request](const base::Result<std::string>& printed) {
           say_(fmt::format("{}: {} the request for {}{}", title(),
                            printed.ok() ? "cancelled" : "could not cancel",
                            slots_text(request.slots),
                            printed.ok() ? "" : ": " + printed.status().message()));
         }});
}

void AllocationScaler::give_back(const std::string& host, std::uint32_t part, Done done) {
  begin({[this, host, part] {
           alloc::Host gone;
           std::vector<alloc::Host> rest;
           for (const spec::HostRequest& each : hosts_)
             (each.name == host ? gone : rest.emplace_back()) = {each.name, each.slots, {}};
           if (part > 0) gone.slots = part;
           return row_.give_back(*input_, gone, rest);
         },
         [this, host, part, done = std::move(done)](const base::Result<std::string>& printed) {
           if (printed.ok()) part > 0 ? lessen(host, part) : drop(host);
           done(printed);
         }});
}

void AllocationScaler::begin(PendingRequest request) {
  pending_.push_back(std::move(request));
  if (pending_.size() == 1) next();
}

void AllocationScaler::next() {
  if (pending_.empty()) return;
  if (const auto request = pending_.front().make()) return run(*request);
  boost::asio::post(loop_, [this] { finish(std::string()); });
}

void AllocationScaler::run(const alloc::AllocatorRequest& request) {
  const auto end = [this, name = request.words.at(0)](const base::Result<std::string>& printed) {
    if (printed.ok()) return finish(printed);
    finish(base::Status(printed.status().code(),
                        fmt::format("{}: {}", name, printed.status().message())));
  };
  const base::Status written =
      request.script.empty() ? base::Status() : write_script(script(), request.script);
  if (!written.ok()) return boost::asio::post(loop_, [end, written] { end(written); });
  hook_ = process::Hook::start(loop_, request.words, without(input_->environment, request.without),
                               kScalerLimit, end);
}

void AllocationScaler::finish(const base::Result<std::string>& printed) {
  hook_.reset();
  pending_.front().done(printed);  // which may add another one at the end
  pending_.pop_front();
  next();
}

}  // namespace regroup::job
