// Names of hosts: what this host, /etc/hosts and a name server know of them.
#pragma once

#include <string>
#include <vector>

#include "launcher/spec/hosts.h"

namespace regroup::job {

// What a name server says of one name. Nothing: it does not know it.
struct NameAnswer {
  std::string name;  // the host's own, to which aliases lead; "": none
  std::vector<std::string> addresses;
};

// The name by which jobs call this host.
[[nodiscard]] std::string host_name();
// host_name(), then the addresses of this host, and their names in /etc/hosts.
[[nodiscard]] std::vector<std::string> host_names();
// host_names(), and all that /etc/hosts and, for those of `named` that are not in it, a name server
// say. Asks at most kMostAsked names, all at the same time, and takes the answers that come within
// a second. Blocks until then. For a process of one thread.
[[nodiscard]] spec::HostNames look_up_hosts(const std::vector<std::string>& named);

// Of more names a name server is asked nothing: machines have written such a list.
inline constexpr std::size_t kMostAsked = 512;

// Those of `named` of which `known` says nothing; each once, no addresses.
[[nodiscard]] std::vector<std::string> unknown_names(const std::vector<std::string>& named,
                                                     const spec::HostNames& known);
// Adds to `known` what `answers[i]` says of `asked[i]`. A name with one of this host's addresses is
// this host's. An alias (CNAME) and the name that it leads to are one host. Two names with one
// address are not: a wildcard record gives all names the same.
void add_answers(const std::vector<std::string>& asked, const std::vector<NameAnswer>& answers,
                 spec::HostNames& known);

}  // namespace regroup::job
