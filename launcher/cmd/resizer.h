// A job's wishes to the allocator that has granted its hosts: more of them, or fewer.
// docs/design/allocators.md.
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

#include "core/status.h"
#include "launcher/cmd/job_files.h"
#include "launcher/cmd/options.h"
#include "launcher/cmd/requests.h"
#include "launcher/spawn/hook.h"

namespace regroup::launcher {
struct AllocatorRow;
struct AllocInput;
struct Ask;
struct Growth;
}  // namespace regroup::launcher

namespace regroup::cmd {

// "1 slot", "2 slots".
[[nodiscard]] std::string slots_text(std::uint32_t slots);

// One command of the allocator runs at a time. Used by the loop's thread.
class Resizer {
 public:
  // None: nobody can be asked, or a script says which hosts the job has. `way`: how agents get to hosts of
  // the job's own allocation.
  [[nodiscard]] static std::shared_ptr<Resizer> make(boost::asio::io_context& loop, const Options& options,
                                                     const JobFiles& files, launcher::Grant way);
  // Whether what is made there can ask for more.
  [[nodiscard]] static bool can_grow(const Options& options);
  ~Resizer();
  Resizer(const Resizer&) = delete;
  Resizer& operator=(const Resizer&) = delete;

  [[nodiscard]] const char* title() const;  // of the allocator, in sentences
  [[nodiscard]] const launcher::Grant& way() const { return way_; }
  [[nodiscard]] bool grows() const;
  // That host is of the job's own allocation, is not this one, and can be given back.
  [[nodiscard]] bool takes_back(const std::string& host) const;
  // Some of that host's slots can be given back, not all.
  [[nodiscard]] bool takes_part(const std::string& host) const;

  // The allocation has grown by hosts, or by slots of hosts that it has.
  void grow(const std::vector<launcher::HostRequest>& hosts);
  // The allocator has taken that host back, or so many of its slots.
  void drop(const std::string& host);
  void lessen(const std::string& host, std::uint32_t slots);
  // That host is of the job's own allocation.
  [[nodiscard]] bool has(const std::string& host) const;
  [[nodiscard]] bool asked_for(const std::string& request) const { return requests_.has(request); }
  // That request has brought a job that offers its hosts. False: it was cancelled, and these are not wanted.
  [[nodiscard]] bool arrived(const std::string& request) { return requests_.arrived(request); }

  // What the command printed, or why it failed, later.
  using Done = std::function<void(const core::Result<std::string>&)>;
  // `slots` are missing. Asks for those of them that do not come yet, as the allocator says, and cancels what
  // is too much. `has`: the hosts that the job has now, whoever gave them. `done` hears of how many more.
  using Asked = std::function<void(std::uint32_t more, const core::Result<std::string>&)>;
  void ask_for(std::uint32_t slots, std::vector<std::string> has, Asked done);
  // No more than `slots` are missing now: cancels what is too much.
  void cancel_beyond(std::uint32_t slots);
  // Slots that may still come.
  [[nodiscard]] std::uint32_t expected() const { return requests_.slots(); }
  // So many slots of a host that takes_part(), or (0) all of one that takes_back(): nothing of the job is
  // left there.
  void give_back(const std::string& host, std::uint32_t part, Done done);
  // Who is told of what was cancelled.
  void listen(std::function<void(const std::string&)> say) { say_ = std::move(say); }

 private:
  Resizer(boost::asio::io_context& loop, const Options& options, const JobFiles& files, launcher::Grant way,
          const launcher::AllocatorRow& row, std::unique_ptr<const launcher::AllocInput> input);
  struct Wish {
    std::function<std::optional<launcher::Ask>()> ask;  // none: there is nothing to ask any more
    Done done;
  };
  void add(const std::vector<launcher::HostRequest>& hosts);
  void begin(Wish wish);
  void next();
  void run(const launcher::Ask& ask);
  void finish(const core::Result<std::string>& printed);
  void forget_ended();
  [[nodiscard]] std::uint32_t still_missing(std::uint32_t slots);
  void cancel(const Requests::Request& request);
  [[nodiscard]] launcher::Growth growth(std::uint32_t slots) const;
  [[nodiscard]] std::string script() const { return files_.folder + "/resized"; }

  boost::asio::io_context& loop_;
  const launcher::AllocatorRow& row_;
  const std::unique_ptr<const launcher::AllocInput> input_;
  const JobFiles files_;
  const launcher::Grant way_;
  std::vector<launcher::HostRequest> hosts_;  // of the job's own allocation, all of them
  Requests requests_;
  std::deque<Wish> wishes_;  // the first is being asked
  std::function<void(const std::string&)> say_ = [](const std::string&) {};
  std::shared_ptr<launcher::Hook> hook_;
};

}  // namespace regroup::cmd
