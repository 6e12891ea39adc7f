// Parses and combines the hosts of -H and host files, in the grammars of Open MPI, PRRTE and hydra.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace regroup::spec {

struct HostRequest {
  std::string name;
  std::uint32_t slots = 0;      // 0: not given; as many as the host has cores
  std::uint32_t max_slots = 0;  // limit even when oversubscribing; 0: none
  bool here = false;            // it is this machine
  bool no_slots = false;        // slots=0 was given: runs members only with --oversubscribe
  std::string user = {};        // login name; "": not given
  std::string address = {};     // its name for the allocator's start command; "": `name`
  // The resources that an allocator has granted; empty: all, or unknown.
  std::vector<int> cores = {};         // operating system numbers
  std::vector<std::string> gpus = {};  // numbers or UUIDs
  bool operator==(const HostRequest&) const = default;
};

// The hosts that an allocator has granted, and the command that starts agents on them: `before`,
// the host's address, `after`, then a shell command. Without `before`: ssh.
struct Grant {
  std::string by;  // "Slurm job 7"; "": no allocator
  std::vector<HostRequest> hosts;
  std::vector<std::string> before;
  std::vector<std::string> after;
  std::vector<std::string> warnings;  // sentences
  std::string job;                    // the allocator's id of this job; "": none
  // Every host runs this command, and the copy of `launched_by` launches the job; "": this one
  // does. The command `print_phases` prints the phases of its pods, one a line.
  std::string launched_by = {};
  std::vector<std::string> print_phases = {};
  // Prints "pod/ADDRESS-RANDOM" for each host whose pod runs; empty: all hosts are there.
  std::vector<std::string> print_running = {};
};

// Names of the same host: host_key() of each name -> host_key() of the host's first name.
using HostAliases = std::map<std::string, std::string>;

// What is known of hosts' names. `own`: those of this host, first the one by which jobs call it.
struct HostNames {
  std::vector<std::string> own;
  HostAliases aliases;
};

// A name of letters, digits, '-', '_' and single dots that begins with a letter, a digit or '_', or
// an address.
[[nodiscard]] bool is_host_name(std::string_view text);
// Equal for two spellings of one name: in small letters, without a dot at the end; of an address
// its one form.
[[nodiscard]] std::string host_key(std::string_view name);

// One of this host's own names and addresses, the short form of one of the two names, or a name
// that any host has for itself.
[[nodiscard]] bool is_this_host(const std::vector<std::string>& host_names,
                                const std::string& name);
// Merges the entries of each host into one under a single name (for this host host_names[0]),
// adding up their slots. Names are equal if they differ only in case, in the part after the first
// dot, or by `aliases`.
[[nodiscard]] std::vector<HostRequest> by_one_name(const std::vector<std::string>& host_names,
                                                   const std::vector<HostRequest>& hosts,
                                                   const HostAliases& aliases = {});
// Sets `here` on this host's entry, unless an entry has it. Merges several entries of this host
// into the first, with the slots of all.
void mark_here(const std::vector<std::string>& host_names, std::vector<HostRequest>& hosts);
// A warning about names in `hosts` that mean this host but differ after the first dot; "": none.
[[nodiscard]] std::string unlike_names(const std::vector<std::string>& host_names,
                                       const std::vector<HostRequest>& hosts);
// A note about hosts of `wanted` (-H) that `listed` (a host file) does not list, because of a
// mistyped name or because the file excludes them; "": none, or a list is empty.
[[nodiscard]] std::string unlisted_hosts(const std::vector<HostRequest>& listed,
                                         const std::vector<HostRequest>& wanted,
                                         const HostAliases& aliases = {});
// Replaces each of `names` by the name that its host has in `hosts`, if it is there.
void spell_as(const std::vector<HostRequest>& hosts, const std::vector<std::string>& host_names,
              const HostAliases& aliases, const std::vector<std::string*>& names);
// Resolves mpirun's relative hosts in `base`, the allocation or host file: "+n2" is its third host,
// "+e" every host that no other entry of `hosts` names, "+e:2" two of these. kInvalidArgument:
// there is no such host.
[[nodiscard]] base::Result<std::vector<HostRequest>> resolve_relative(
    const std::vector<HostRequest>& hosts, const std::vector<HostRequest>& base,
    const std::vector<std::string>& host_names, const HostAliases& aliases);

// Parses "a,b:4,a": each mention adds one slot, or N with ":N". "b:*" means all slots of b,
// "user@b" gives the login name. Appends the name of each mention to `mentions`, unless null.
// kInvalidArgument names the word.
[[nodiscard]] base::Result<std::vector<HostRequest>> parse_host_list(
    std::string_view text, std::vector<std::string>* mentions = nullptr);
// Adds one mention to `hosts`: slots add up, unless one mention has all; the first login name
// counts.
void add_mention(std::vector<HostRequest>& hosts, const HostRequest& host);

// Parses a host file, one host per line: "h", "h slots=2 max_slots=4 user=me", "h:4", "user@h";
// "^h" excludes h; # begins a comment. A host in several lines without slots has one slot per line.
// Appends the name of each line to `mentions`, unless null. kInvalidArgument names file, line and
// field.
[[nodiscard]] base::Result<std::vector<HostRequest>> parse_host_file(
    std::string_view text, std::string_view file, std::vector<std::string>* mentions = nullptr);

// The hosts of `listed` (a host file) that `wanted` (-H) names, with the slots of `wanted` if these
// are more than a mention; a host that is not listed as `wanted` has it. If one list is empty,
// returns the other.
[[nodiscard]] base::Result<std::vector<HostRequest>> filter_hosts(
    const std::vector<HostRequest>& listed, const std::vector<HostRequest>& wanted,
    const HostAliases& aliases = {});

// Removes hosts without slots or, with `oversubscribe`, gives each of them one. kInvalidArgument:
// no host is left.
[[nodiscard]] base::Status drop_without_slots(std::vector<HostRequest>& hosts, bool oversubscribe);

// The hosts of `grant` that `wanted` names (by any of their names), with the slots of `wanted` if
// given; all hosts if `wanted` is empty. kInvalidArgument: a wanted host is not granted or, without
// `oversubscribe`, has too few slots.
[[nodiscard]] base::Result<std::vector<HostRequest>> within_grant(
    const Grant& grant, const std::vector<HostRequest>& wanted, bool oversubscribe,
    const HostAliases& aliases = {});

}  // namespace regroup::spec
