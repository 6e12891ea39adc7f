// The PMI-1 server of one space, as a state machine: commands in, effects out. No sockets.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/pmi/messages.h"
#include "tools/pmi/pmi1_wire.h"

namespace regroup::pmi {

using KeyValues = std::map<std::string, std::string>;

// Effects that the caller must execute, in order.
struct Answer {
  std::uint32_t rank = 0;
  std::string text;  // whole lines
};
struct Begun {
  std::uint32_t rank = 0;
};
struct Ended {
  std::uint32_t rank = 0;
};
struct AbortAll {
  std::uint32_t rank = 0;
  std::int32_t status = 0;
  std::string message;
};
struct EnterBarrier {  // all processes of this host are in the barrier; barrier_done() answers
  std::string values;  // that they have put since the last barrier
};
// Another host keeps the names of the job: named() answers.
struct AskNames {
  std::uint32_t rank = 0;
  NameOperation operation = NameOperation::kPmi1Lookup;
  std::string service;
  std::string port;  // to publish
};
struct StartMore {  // spawned() answers
  std::uint32_t rank = 0;
  std::vector<SpawnApp> apps;
  KeyValues values;  // initial content of the new processes' key-value space
};
using Effect = std::variant<Answer, Begun, Ended, AbortAll, EnterBarrier, AskNames, StartMore>;
using Effects = std::vector<Effect>;

// The names that MPI_Publish_name has published, by service.
struct PublishedName {
  std::string port;
  std::uint32_t space = 0;  // of the process that has published it
};
using PublishedNames = std::map<std::string, PublishedName>;

// Acts on the names of a job for a process of `space`. Returns the port of a look-up, "" after the
// other operations; nothing if there is no such name or, to publish it, if there is one, or too
// many.
[[nodiscard]] std::optional<std::string> act_on_names(PublishedNames& names, const AskNames& ask,
                                                      std::uint32_t space);

struct GroupOptions {
  std::string kvs_name;
  std::vector<std::uint32_t> app_sizes;
  std::uint32_t universe = 0;            // MPI_UNIVERSE_SIZE
  std::string mapping;                   // which rank runs on which host: Layout::mapping()
  KeyValues values;                      // initial content of the key-value space
  std::vector<std::uint32_t> here = {};  // the ranks of this host; empty: all
  bool names_elsewhere = false;          // another host keeps the published names
  std::uint32_t space = 0;
};

class Pmi1Group {
 public:
  // `names` holds the names published by MPI_Publish_name in all spaces, unless another host keeps
  // them, and must outlive this object. Leaves out initial values that put() would have refused.
  Pmi1Group(GroupOptions options, PublishedNames& names);

  // Answers an unknown command, or one that breaks the protocol, with an error.
  [[nodiscard]] Effects on_command(std::uint32_t rank, const Pmi1Command& command);
  // The processes that `rank` asked for have been started, or not because of `error`.
  [[nodiscard]] Effects spawned(std::uint32_t rank, const std::string& error);
  // The answer to AskNames, of act_on_names() on the host that keeps the names.
  [[nodiscard]] static Effects named(const AskNames& ask, const std::optional<std::string>& port);
  // `values` are those of all hosts, one after the other. Ignores values that put() would have
  // refused.
  [[nodiscard]] Effects barrier_done(std::string_view values);
  [[nodiscard]] std::uint32_t size() const { return size_; }

 private:
  using Handler = Effects (Pmi1Group::*)(std::uint32_t, const Pmi1Command&);
  static const std::map<std::string, Handler>& handlers();

  Effects init(std::uint32_t rank, const Pmi1Command& command);
  Effects maxes(std::uint32_t rank, const Pmi1Command& command);
  Effects appnum(std::uint32_t rank, const Pmi1Command& command);
  Effects universe(std::uint32_t rank, const Pmi1Command& command);
  Effects my_kvs(std::uint32_t rank, const Pmi1Command& command);
  Effects create_kvs(std::uint32_t rank, const Pmi1Command& command);
  Effects destroy_kvs(std::uint32_t rank, const Pmi1Command& command);
  Effects put(std::uint32_t rank, const Pmi1Command& command);
  Effects get(std::uint32_t rank, const Pmi1Command& command);
  Effects get_by_index(std::uint32_t rank, const Pmi1Command& command);
  Effects barrier(std::uint32_t rank, const Pmi1Command& command);
  void learn(const std::string& space, const std::string& key, const std::string& value);
  [[nodiscard]] bool alone() const { return options_.here.size() == size_; }
  [[nodiscard]] Effects leave_barrier();
  Effects on_names(AskNames ask);
  Effects publish(std::uint32_t rank, const Pmi1Command& command);
  Effects unpublish(std::uint32_t rank, const Pmi1Command& command);
  Effects lookup(std::uint32_t rank, const Pmi1Command& command);
  Effects spawn(std::uint32_t rank, const Pmi1Command& command);
  Effects finalize(std::uint32_t rank, const Pmi1Command& command);
  Effects abort(std::uint32_t rank, const Pmi1Command& command);

  GroupOptions options_;
  PublishedNames& names_;
  std::uint32_t size_ = 0;
  std::map<std::string, KeyValues> spaces_;  // by name: this space's own, and those created
  std::set<std::uint32_t> in_barrier_;
  // Values put since the last barrier: name, key and value, each followed by a zero byte.
  std::string fresh_;
  std::map<std::uint32_t, StartMore> spawns_;  // incomplete: a client sends one app in each block
};

}  // namespace regroup::pmi
