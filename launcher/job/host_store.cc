// The thread that reserves the memory may outlive the store: it finds out under a lock.
#include "launcher/job/host_store.h"

#include <boost/asio/post.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "launcher/agent/agent.h"
#include "launcher/job/parameter_server.h"

namespace regroup::job {
namespace {

class HostStore final : public agent::Store {
 public:
  HostStore(boost::asio::io_context& loop, ParameterServerOptions options, Events events)
      : loop_(loop),
        options_(std::move(options)),
        events_(std::move(events)),
        reserving_(std::make_shared<Reserving>()) {
    reserving_->store = this;
    try {
      std::thread([options = options_, reserving = reserving_] {
        reserve(options, reserving);
      }).detach();
    } catch (const std::system_error& error) {
      events_.started(
          {base::unavailable(std::string("cannot start a thread: ") + error.what()), {}, {}, 0});
    }
  }
  ~HostStore() override {
    const std::lock_guard lock(reserving_->mutex);
    reserving_->store = nullptr;
  }
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  void answer(const agent::QueryStore& query, Answer then) override {
    if (!servers_ || !started_) return then(base::unavailable("its store still starts"));
    if (!query.save.empty()) return servers_->save_part(query.save, std::move(then));
    if (!query.lost.empty()) {
      servers_->lose_stores(query.lost);
      return then(std::string());
    }
    if (query.servers != 0) return then(servers_->resize(query.servers));
    then(servers_->status_json());
  }

 private:
  using Memory = base::Result<collective::ps::OwnedServerMemory>;
  struct Reserving {
    std::mutex mutex;
    HostStore* store = nullptr;  // null: it is no more. Only the loop's thread sets it
  };

  // On the thread.
  static void reserve(const ParameterServerOptions& options,
                      const std::shared_ptr<Reserving>& reserving) {
    const auto memory = std::make_shared<Memory>(ParameterServer::reserve(options));
    const std::lock_guard lock(reserving->mutex);
    if (reserving->store == nullptr) return;
    boost::asio::post(reserving->store->loop_, [reserving, memory] {
      if (reserving->store != nullptr) reserving->store->start(std::move(*memory));
    });
  }

  void start(Memory memory) {
    if (events_.over()) return;
    if (!memory.ok()) return tell_started(memory.status());
    ParameterServer::Events events;
    events.said = events_.said;
    events.failed = events_.failed;
    events.over = events_.over;
    events.loaded = [this](const base::Status& status) { tell_started(status); };
    auto servers = ParameterServer::start(loop_, options_, std::move(events), std::move(*memory));
    if (!servers.ok()) return tell_started(servers.status());
    servers_ = std::move(*servers);
    if (!servers_->checkpoints()) tell_started({});  // else once its tables are loaded
  }

  void tell_started(const base::Status& why) {
    started_ = why.ok();
    if (!why.ok()) return events_.started({why, {}, {}, 0});
    events_.started(
        {{}, servers_->gateway_address(), options_.memory_socket, servers_->tables_version()});
  }

  boost::asio::io_context& loop_;
  const ParameterServerOptions options_;
  const Events events_;
  const std::shared_ptr<Reserving> reserving_;
  std::unique_ptr<ParameterServer> servers_;  // null: it has not started
  bool started_ = false;                      // it serves
};

// Of a store that writes parts of checkpoints, when it is asked to.
std::optional<TableCheckpointOptions> checkpoints_of(const agent::StartStore& order,
                                                     const std::string& program) {
  if (order.directory.empty()) return std::nullopt;
  TableCheckpointOptions out;
  out.plan.directory = order.directory;
  out.plan.job = order.owner;
  if (!order.resume.empty()) out.plan.resume = spec::Resume{.path = order.resume};
  out.program = program;
  return out;
}

}  // namespace

agent::StoreFactory host_stores(HostStoreOptions options) {
  return [options = std::move(options)](
             agent::Agent& agent, const std::string& host, const agent::StartStore& order,
             agent::Store::Events events) -> std::unique_ptr<agent::Store> {
    return std::make_unique<HostStore>(
        agent.loop(),
        ParameterServerOptions{.program = options.program,
                               .environment = options.environment,
                               .memory_socket = options.memory_socket,
                               .status_socket = {},
                               .resize_socket = {},
                               .host_name = host,
                               .host_address = order.address,
                               .seed = order.seed,
                               .bytes = order.bytes,
                               .store = order.store,
                               .stores = order.stores,
                               .servers = order.servers,
                               .most_servers = order.most_servers,
                               .hang_timeout = order.hang_timeout,
                               .checkpoints = checkpoints_of(order, options.persist)},
        std::move(events));
  };
}

}  // namespace regroup::job
