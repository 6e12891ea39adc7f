// PMI-1 over sockets: a connection per process, a Pmi1Group per space.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/pmi/messages.h"
#include "tools/pmi/pmi1_group.h"

namespace regroup::pmi {

// Called on the loop's thread. The process that caused an event continues when the function
// returns.
struct Pmi1Events {
  std::function<void(ProcId)> connected;
  std::function<void(ProcId)> finalized;
  std::function<void(ProcId, std::int32_t status, std::string message)> aborted;
  // See PmixEvents::gather.
  std::function<void(std::uint32_t space, const std::string& what, std::vector<std::uint32_t> hosts,
                     std::vector<std::byte> data, std::function<void(std::vector<std::byte>)> then)>
      gather;
  // Asks the host that keeps the names of the job; `then` gets what act_on_names() returned there.
  std::function<void(ProcId, const AskNames& ask,
                     std::function<void(const std::optional<std::string>& port)> then)>
      ask_names;
  // spawned() answers.
  std::function<void(ProcId parent, std::vector<SpawnApp>, KeyValues values)> spawn;
};

class Pmi1Service {
 public:
  Pmi1Service(boost::asio::io_context& loop, std::string job, Pmi1Events events);
  ~Pmi1Service();

  // `values` are the initial content of the space's key-value space.
  void open_space(const OpenSpace& space, KeyValues values);
  // The descriptor that the process inherits, and its variables.
  struct Client {
    base::Fd fd;
    std::vector<std::string> environment;
  };
  [[nodiscard]] base::Result<Client> connect(ProcId process, bool spawned);
  // For a process of `space` on another host, on the host that keeps the names.
  [[nodiscard]] std::optional<std::string> act_on_names(const AskNames& ask, std::uint32_t space) {
    return pmi::act_on_names(names_, ask, space);
  }
  void spawned(ProcId parent, const std::string& error);
  void close_space(std::uint32_t space);

 private:
  struct Connection;
  struct Local {
    // Among the processes of the same host.
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
  };

  void wait(const std::shared_ptr<Connection>& connection);
  [[nodiscard]] bool receive(Connection& connection);
  void write(const std::shared_ptr<Connection>& connection);
  void act(std::uint32_t space, const Effects& effects);
  void act(std::uint32_t space, const Answer& answer);
  void act(std::uint32_t space, const Begun& begun) { events_.connected({space, begun.rank}); }
  void act(std::uint32_t space, const Ended& ended) { events_.finalized({space, ended.rank}); }
  void act(std::uint32_t space, const AbortAll& abort) {
    events_.aborted({space, abort.rank}, abort.status, abort.message);
  }
  void act(std::uint32_t space, const EnterBarrier& barrier);
  void act(std::uint32_t space, const AskNames& ask) {
    events_.ask_names({space, ask.rank}, ask,
                      [this, space, ask](const std::optional<std::string>& port) {
                        act(space, Pmi1Group::named(ask, port));
                      });
  }
  void act(std::uint32_t space, const StartMore& more) {
    events_.spawn({space, more.rank}, more.apps, more.values);
  }

  boost::asio::io_context& loop_;
  std::string job_;
  Pmi1Events events_;
  PublishedNames names_;
  std::map<std::uint32_t, Pmi1Group> groups_;  // by space
  std::map<ProcId, Local> local_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> hosts_;  // by space
  std::map<ProcId, std::shared_ptr<Connection>> connections_;
};

}  // namespace regroup::pmi
