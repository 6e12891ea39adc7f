// Carries what regroup-pmi of one host says to those of others, through the head of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/arena.h"
#include "launcher/pmi/exchange.h"
#include "launcher/pmi/messages.h"
#include "launcher/supervise/node.h"

namespace regroup::launcher {

// Used by the loop's thread.
class HostExchange {
 public:
  // What the head knows of the job, and hears of hosts that are not heard any more.
  struct Job {
    std::function<Node*(std::uint32_t host)> node_of;                     // none: there is no such host
    std::function<std::optional<std::uint32_t>(pmi::Seat seat)> host_of;  // none: nobody has that seat
    std::function<bool(std::uint32_t host, std::uint32_t space)>
        lives_in;  // a process of the space does there
    // Once per host: it wants more kept than any job does, and from now on takes no part in what processes of
    // several hosts do together.
    std::function<void(std::uint32_t host, const std::string& why)> unheard;
    // So others wait in vain: for a host that is unheard, or for what is more than a message holds.
    std::function<void(std::uint32_t host, const std::string& why)> stuck;
  };
  struct Limits {
    std::size_t held = 64 << 20;            // bytes of a host's parts of what is not complete
    std::size_t asked = core::kMaxMembers;  // a host's questions that are not answered
    std::size_t gathered = 15 << 20;        // bytes; a message to regroup-pmi holds 16 MiB
  };
  // For the user, behind the cause.
  static constexpr const char* kUnheard =
      ": what its ranks do with those of other hosts is not heard any more";

  explicit HostExchange(Job job);
  HostExchange(Job job, Limits limits);

  // False: it is another host's to say. Of this one, the head's own, nothing is doubted.
  [[nodiscard]] bool may_say(std::uint32_t host, const pmi::Message& message) const;
  // Contribute, Fetch and Fetched that `host` may say; of a host that is not there, nothing.
  void pass(std::uint32_t host, const pmi::Message& message);
  // Nobody will answer for its processes any more.
  void closed(std::uint32_t space);
  // All processes end, and others start: nothing is left of what they did.
  void restart();

 private:
  struct Question {
    std::uint32_t host = 0;  // that is asked
    pmi::Seat of;
  };
  using Questions = std::map<std::uint64_t, Question>;  // by request

  [[nodiscard]] bool may_bring(const pmi::Contribute& part) const;
  void tell(std::uint32_t host, const pmi::Message& message);
  void bring(const pmi::Contribute& part);
  void refuse(const pmi::Contribute& part, const pmi::Exchange::Size& size);
  void fetch(const pmi::Fetch& fetch);
  void answer(const pmi::Fetched& fetched);
  void cut_off(std::uint32_t host, const std::string& why);

  const Job job_;
  const Limits limits_;
  pmi::Exchange parts_;
  std::map<std::uint32_t, Questions> asked_;  // by who asked
  std::set<std::uint32_t> unheard_;
};

}  // namespace regroup::launcher
