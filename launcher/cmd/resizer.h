// A job's wishes to the allocator that has granted its hosts: more of them, or fewer.
// docs/design/allocators.md.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "launcher/cmd/job_files.h"
#include "launcher/cmd/options.h"
#include "launcher/spawn/hook.h"

namespace regroup::launcher {
struct AllocatorRow;
struct AllocInput;
struct Ask;
struct Growth;
}  // namespace regroup::launcher

namespace regroup::cmd {

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

  // The allocation has grown by hosts, or by slots of hosts that it has.
  void add(const std::vector<launcher::HostRequest>& hosts);
  // The allocator has taken that host back.
  void drop(const std::string& host);

  // What the command printed, or why it failed, later.
  using Done = std::function<void(const core::Result<std::string>&)>;
  // `has`: the hosts that the job has now, whoever gave them.
  void ask_for(std::uint32_t slots, std::vector<std::string> has, Done done);
  // All slots of a host that takes_back(), on which nothing of the job is left.
  void give_back(const std::string& host, Done done);

 private:
  Resizer(boost::asio::io_context& loop, const Options& options, const JobFiles& files, launcher::Grant way,
          const launcher::AllocatorRow& row, std::unique_ptr<const launcher::AllocInput> input);
  struct Wish {
    std::function<launcher::Ask()> ask;
    Done done;
  };
  void begin(Wish wish);
  void next();
  void run(const launcher::Ask& ask);
  void finish(const core::Result<std::string>& printed);
  [[nodiscard]] launcher::Growth growth(std::uint32_t slots) const;
  [[nodiscard]] std::string script() const { return files_.folder + "/resized"; }

  boost::asio::io_context& loop_;
  const launcher::AllocatorRow& row_;
  const std::unique_ptr<const launcher::AllocInput> input_;
  const JobFiles files_;
  const launcher::Grant way_;
  std::vector<launcher::HostRequest> hosts_;  // of the job's own allocation, all of them
  std::deque<Wish> wishes_;                   // the first is being asked
  std::shared_ptr<launcher::Hook> hook_;
};

}  // namespace regroup::cmd
