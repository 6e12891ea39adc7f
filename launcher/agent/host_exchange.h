// Forwards PMI messages between the regroup-pmi processes of different hosts, through the
// controller of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "launcher/agent/node.h"
#include "launcher/pmi/exchange.h"
#include "launcher/pmi/messages.h"
#include "proto/world.h"

namespace regroup::agent {

// Used by the loop's thread.
class HostExchange {
 public:
  // Queries on the job, and callbacks.
  struct Job {
    std::function<Node*(std::uint32_t host)> node_of;  // nullptr: there is no such host
    // Empty: there is no such process.
    std::function<std::optional<std::uint32_t>(pmi::ProcId process)> host_of;
    // True if a process of the space runs on the host.
    std::function<bool(std::uint32_t host, std::uint32_t space)> lives_in;
    // Called once per host that exceeds a limit: it takes part in no further PMI operation with
    // other hosts.
    std::function<void(std::uint32_t host, const std::string& why)> cut_off;
    // An operation of other hosts cannot complete: it includes a host that was cut off, or is too
    // large for a message.
    std::function<void(std::uint32_t host, const std::string& why)> stuck;
  };
  struct Limits {
    std::size_t held = 64 << 20;  // bytes that a host has contributed to incomplete fences
    std::size_t asked = proto::kMaxMembers;  // unanswered requests of a host
    std::size_t gathered = 15 << 20;         // bytes; a message to regroup-pmi holds 16 MiB
  };
  // The end of the message for the user, after the cause.
  static constexpr const char* kCutOff =
      ": it takes no further part in PMI operations with other hosts";

  explicit HostExchange(Job job);
  HostExchange(Job job, Limits limits);

  // False: another host must send this message. Messages of host 0, the controller's own, are
  // trusted.
  [[nodiscard]] bool may_say(std::uint32_t host, const pmi::Message& message) const;
  // Handles Contribute, Fetch, Fetched and NameCall that `host` may send; ignores messages for
  // hosts that do not exist.
  void pass(std::uint32_t host, const pmi::Message& message);
  // The processes of the space have ended: requests about them fail.
  void closed(std::uint32_t space);
  // All processes are replaced: forgets all operations.
  void restart();

 private:
  struct Question {
    std::uint32_t host = 0;  // the host that must reply
    pmi::ProcId of;
  };
  using Questions = std::map<std::uint64_t, Question>;  // by request

  [[nodiscard]] bool may_bring(const pmi::Contribute& part) const;
  void tell(std::uint32_t host, const pmi::Message& message);
  void bring(const pmi::Contribute& part);
  void refuse(const pmi::Contribute& part, const pmi::Exchange::Size& size);
  void fetch(const pmi::Fetch& fetch);
  void call(const pmi::NameCall& call);
  void ask(std::uint32_t asking, std::uint64_t request, Question question,
           const pmi::Message& message);
  void deny(std::uint32_t asking, std::uint64_t request, std::int32_t status);
  void answer(const pmi::Fetched& fetched);
  void cut_off(std::uint32_t host, const std::string& why);

  const Job job_;
  const Limits limits_;
  pmi::Exchange parts_;
  std::map<std::uint32_t, Questions> asked_;  // by the requesting host
  std::set<std::uint32_t> cut_off_;
};

}  // namespace regroup::agent
