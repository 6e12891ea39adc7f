// Hosts as -H and host files name them, in the grammars of Open MPI, PRRTE and hydra.
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
  std::uint32_t slots = 0;  // 0: not said; as many as the host has cores
  // 0: not said; slots that may not be exceeded even when oversubscribing.
  std::uint32_t max_slots = 0;
  bool here = false;         // it is this machine
  bool no_slots = false;     // slots=0 was said: it takes members under --oversubscribe only
  std::string user = {};     // to log in there as; "": not said
  std::string address = {};  // what an allocator's own command calls it; "": its name
  // Of what it has, those that an allocator has granted, where it says so: numbers of the operating
  // system, and numbers or UUIDs.
  std::vector<int> cores = {};
  std::vector<std::string> gpus = {};
  bool operator==(const HostRequest&) const = default;
};

// What an allocator has granted, and how agents get there: a command line of `before`, the host's
// address and `after`, behind which a shell's may stand. Without `before`: by ssh.
struct Grant {
  std::string by;  // "Slurm job 7"; "": nobody has granted anything
  std::vector<HostRequest> hosts;
  std::vector<std::string> before, after;
  std::vector<std::string> warnings;  // sentences
  std::string job;  // the allocator's number of the job that runs here; "": it has none
};

// Names that stand for the same host: each key (host_key) leads to that of the host's first name.
using HostAliases = std::map<std::string, std::string>;

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
// All names of this host, the first of which is `host_names`' first, become one, and so do those of
// another: in any case, with and without what follows the first dot, by `aliases`. Slots add up.
[[nodiscard]] std::vector<HostRequest> by_one_name(const std::vector<std::string>& host_names,
                                                   const std::vector<HostRequest>& hosts,
                                                   const HostAliases& aliases = {});
// Sets `here` where none has it yet; of several names of this host the first stays, with the slots
// of all.
void mark_here(const std::vector<std::string>& host_names, std::vector<HostRequest>& hosts);
// A sentence about names of `hosts` that mean this host and differ after the first dot; "": there
// are none.
[[nodiscard]] std::string unlike_names(const std::vector<std::string>& host_names,
                                       const std::vector<HostRequest>& hosts);
// Each of `names` becomes the name by which `hosts` has its host, if it has it.
void spell_as(const std::vector<HostRequest>& hosts, const std::vector<std::string>& host_names,
              const HostAliases& aliases, const std::vector<std::string*>& names);
// Relative hosts of mpirun become those of `base`, the allocation or the host file: "+n2" is its
// third, "+e" each that no other of `hosts` names, "+e:2" two of these. kInvalidArgument: there is
// none.
[[nodiscard]] base::Result<std::vector<HostRequest>> resolve_relative(
    const std::vector<HostRequest>& hosts, const std::vector<HostRequest>& base,
    const std::vector<std::string>& host_names, const HostAliases& aliases);

// "a,b:4,a": each mention is one slot, :N is N; mentions add up. "b:*" are all it has, "user@b"
// says as whom it is reached. Each mention's name is added to `mentions`, if any. kInvalidArgument
// names the word.
[[nodiscard]] base::Result<std::vector<HostRequest>> parse_host_list(
    std::string_view text, std::vector<std::string>* mentions = nullptr);
// Adds one such mention to those before it: slots add up, unless one has all; the first user that
// is named counts.
void add_mention(std::vector<HostRequest>& hosts, const HostRequest& host);

// One host a line: "h", "h slots=2 max_slots=4 user=me", "h:4", "user@h"; "^h" excludes h; # begins
// a comment. A host without slots in two lines or more has one for each line. Each line's name is
// added to `mentions`, if any. kInvalidArgument names file, line and field.
[[nodiscard]] base::Result<std::vector<HostRequest>> parse_host_file(
    std::string_view text, std::string_view file, std::vector<std::string>* mentions = nullptr);

// Those of `listed` (a host file) that `wanted` (-H) names, with the slots of `wanted` where it
// says any beyond a mention; all of the other if one is empty. kInvalidArgument: a wanted host is
// not listed.
[[nodiscard]] base::Result<std::vector<HostRequest>> filter_hosts(
    const std::vector<HostRequest>& listed, const std::vector<HostRequest>& wanted,
    const HostAliases& aliases = {});

// Leaves out hosts without slots or, if `oversubscribe`, gives each of them one. kInvalidArgument:
// none is left.
[[nodiscard]] base::Status drop_without_slots(std::vector<HostRequest>& hosts, bool oversubscribe);

// Those of `grant` that `wanted` names, with its slots where it says any; all if it names none. A
// host is known by any of its names. kInvalidArgument: one is not granted, or, unless
// `oversubscribe`, has fewer slots than are wanted.
[[nodiscard]] base::Result<std::vector<HostRequest>> within_grant(
    const Grant& grant, const std::vector<HostRequest>& wanted, bool oversubscribe,
    const HostAliases& aliases = {});

}  // namespace regroup::spec
