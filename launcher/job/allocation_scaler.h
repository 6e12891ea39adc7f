// Grows and shrinks the allocation of a job: runs the commands of the allocator that granted its
// hosts. docs/design/allocators.md.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "launcher/job/job_files.h"
#include "launcher/job/option_rules.h"
#include "launcher/job/requests.h"
#include "launcher/process/hook.h"

namespace regroup::alloc {
struct AllocatorRow;
struct AllocInput;
struct AllocatorRequest;
struct Growth;
}  // namespace regroup::alloc

namespace regroup::job {

// "1 slot", "2 slots".
[[nodiscard]] std::string slots_text(std::uint32_t slots);

// Runs one command of the allocator at a time, in the order of the calls. For the loop's thread;
// nothing blocks.
class AllocationScaler {
 public:
  // Null: the allocator cannot be asked, or a discovery script names the hosts of the job. `way`:
  // how agents reach hosts of the job's own allocation.
  [[nodiscard]] static std::shared_ptr<AllocationScaler> make(boost::asio::io_context& loop,
                                                              const spec::JobSpec& spec,
                                                              const JobFiles& files,
                                                              spec::Grant way);
  // Whether make() would return an object whose grows() is true.
  [[nodiscard]] static bool can_grow(const spec::JobSpec& spec);
  ~AllocationScaler();
  AllocationScaler(const AllocationScaler&) = delete;
  AllocationScaler& operator=(const AllocationScaler&) = delete;

  [[nodiscard]] const char* title() const;  // name of the allocator for messages
  [[nodiscard]] const spec::Grant& way() const { return way_; }
  [[nodiscard]] bool grows() const;
  // `host` belongs to the job's own allocation, is not this host, and can be released.
  [[nodiscard]] bool takes_back(const std::string& host) const;
  // A part of the slots of `host` can be released.
  [[nodiscard]] bool takes_part(const std::string& host) const;

  // Records that the allocator added hosts, or slots on hosts of the allocation.
  void grow(const std::vector<spec::HostRequest>& hosts);
  // Records that the allocator revoked `host`, or `slots` of its slots.
  void drop(const std::string& host);
  void lessen(const std::string& host, std::uint32_t slots);
  // `host` belongs to the job's own allocation.
  [[nodiscard]] bool has(const std::string& host) const;
  [[nodiscard]] bool asked_for(const std::string& request) const { return requests_.has(request); }
  // The job that `request` started now offers its hosts. False: the request was cancelled, its
  // hosts are not wanted.
  [[nodiscard]] bool arrived(const std::string& request) { return requests_.arrived(request); }

  // Called later with the output of the command, or with the reason for its failure.
  using Done = std::function<void(const base::Result<std::string>&)>;
  // Requests as many slots as are needed for `slots` pending ones in all, and cancels surplus
  // requests. `has`: all hosts that the job has now. `done` gets the number of slots that were
  // requested in addition.
  using AnswerHandler = std::function<void(std::uint32_t more, const base::Result<std::string>&)>;
  void ask_for(std::uint32_t slots, std::vector<std::string> has, AnswerHandler done);
  // Cancels pending requests beyond `slots` slots.
  void cancel_beyond(std::uint32_t slots);
  // Slots of pending requests.
  [[nodiscard]] std::uint32_t expected() const { return requests_.slots(); }
  // Releases `part` slots of a host for which takes_part() is true, or (0) a whole host for which
  // takes_back() is true. No process of the job may run there any more.
  void give_back(const std::string& host, std::uint32_t part, Done done);
  // `say` gets one sentence for each request that was cancelled.
  void listen(std::function<void(const std::string&)> say) { say_ = std::move(say); }

 private:
  AllocationScaler(boost::asio::io_context& loop, const spec::JobSpec& spec, const JobFiles& files,
                   spec::Grant way, const alloc::AllocatorRow& row,
                   std::unique_ptr<const alloc::AllocInput> input);
  struct PendingRequest {
    // Nothing: the request is not needed any more.
    std::function<std::optional<alloc::AllocatorRequest>()> make;
    Done done;
  };
  void add(const std::vector<spec::HostRequest>& hosts);
  void begin(PendingRequest request);
  void next();
  void run(const alloc::AllocatorRequest& request);
  void finish(const base::Result<std::string>& printed);
  void forget_ended();
  [[nodiscard]] std::uint32_t still_missing(std::uint32_t slots);
  void cancel(const Requests::Request& request);
  [[nodiscard]] alloc::Growth growth(std::uint32_t slots) const;
  [[nodiscard]] std::string script() const { return files_.folder + "/resized"; }

  boost::asio::io_context& loop_;
  const alloc::AllocatorRow& row_;
  const std::unique_ptr<const alloc::AllocInput> input_;
  const JobFiles files_;
  const spec::Grant way_;
  std::vector<spec::HostRequest> hosts_;  // of the job's own allocation, all of them
  Requests requests_;
  std::deque<PendingRequest> pending_;  // the first one runs
  std::function<void(const std::string&)> say_ = [](const std::string&) {};
  std::shared_ptr<process::Hook> hook_;
};

}  // namespace regroup::job
