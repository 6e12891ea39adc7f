// The stores of a job's parameter server, of which each of the job's first hosts has one, as the
// launcher's agent sees them. docs/design/ps_hosts.md.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/agent/store.h"
#include "launcher/job/store_replicas.h"
#include "launcher/job/store_status.h"

namespace regroup::job {

// A store on another host, by its agent.
struct OtherStore {
  std::string host;
  std::function<void(const agent::StartStore& order,
                     std::function<void(const agent::StoreStarted&)> started,
                     std::function<void(const std::string& why)> failed)>
      start;
  std::function<void(agent::QueryStore query, std::function<void(base::Result<std::string>)> then)>
      query;
};

// Used by the loop's thread.
class OtherStores {
 public:
  struct Events {
    std::function<void(const base::Status&)> started;  // once: all serve, or why one does not
    // A store cannot serve any more.
    std::function<void(std::size_t store, const std::string& why)> failed;
  };
  // An agent that hears nothing ends its store up to 2 s after the controller counts it as lost:
  // agent::kParentSilence.
  static constexpr std::chrono::seconds kUnheard{3};
  // `own`: the host of the launcher's own store, the first one. `replicas`: copies of each range.
  // `unheard`: how long a lost agent that cannot be asked may take to end its store by itself.
  OtherStores(boost::asio::io_context& loop, std::string own, std::vector<OtherStore> others,
              Events events, std::size_t replicas = 1, base::Duration unheard = kUnheard);
  ~OtherStores();
  OtherStores(const OtherStores&) = delete;
  OtherStores& operator=(const OtherStores&) = delete;

  // Orders all to start; of the order only its address differs, `addresses` by store. Events tell
  // of the end, within `limit`.
  void start(agent::StartStore order, const std::vector<std::string>& addresses,
             base::Duration limit);
  [[nodiscard]] bool started() const { return waits_for_ == 0; }
  // After `started`, by number from 1 on.
  [[nodiscard]] const std::vector<StorePlace>& places() const { return places_; }
  [[nodiscard]] std::size_t size() const { return others_.size(); }
  // Of store `store`, 0 being the launcher's own.
  [[nodiscard]] const std::string& host(std::size_t store) const {
    return store == 0 ? own_ : others_.at(store - 1).host;
  }

  // Store `store`, which is not the first one, is lost: ends it, or waits until its agent must have
  // ended it, and then tells the other stores, so that clients go on without it. `own` tells the
  // launcher's own store.
  using TellOwn = std::function<void(const std::vector<std::uint32_t>& lost)>;
  void lose(std::size_t store, const TellOwn& own);
  [[nodiscard]] const StoreReplicas& replicas() const { return replicas_; }

  // `own`: the status of the launcher's own store. `answer` is called within kQueryLimit.
  static constexpr std::chrono::seconds kQueryLimit{2};
  static constexpr std::chrono::seconds kResizeLimit{20};
  void status(std::string own, const std::function<void(const std::string&)>& answer);
  // As OtherParts::save and OtherParts::version; `version` answers within kQueryLimit, `save` once
  // the last one has ended, or its agent is lost.
  void save(const std::function<std::string(std::size_t store)>& description,
            std::function<void(const base::Result<std::uint64_t>&)> then);
  void version(std::function<void(std::optional<std::uint64_t>)> then);
  // After `started`: the sum of the versions of their tables then.
  [[nodiscard]] std::uint64_t version_at_start() const { return version_at_start_; }
  // Sets the number of servers of the job, after the launcher's own store has its share.
  void resize(std::uint32_t servers,
              const std::function<void(const base::Result<std::string>&)>& answer);

 private:
  using Replies = std::vector<StoreStatus>;
  // No limit: for as long as the agents live.
  void ask(const std::function<agent::QueryStore(std::size_t store)>& query,
           std::optional<base::Duration> limit, std::function<void(Replies)> then);
  void on_ended(std::size_t store, const TellOwn& own);
  void on_started(std::size_t index, const agent::StoreStarted& started);
  void end_start(const base::Status& why);

  boost::asio::io_context& loop_;
  const std::string own_;
  const std::vector<OtherStore> others_;
  const Events events_;
  const base::Duration unheard_;
  StoreReplicas replicas_;
  std::vector<std::uint32_t> ended_;  // lost ones that answer nobody any more
  std::vector<StorePlace> places_;
  std::size_t waits_for_ = 0;  // stores that have not started
  std::uint64_t version_at_start_ = 0;
  const std::shared_ptr<bool> lives_ = std::make_shared<bool>(true);  // for late replies
};

}  // namespace regroup::job
