// The thread that reserves the memory may outlive the store: it finds out under a lock.
#include "launcher/job/host_store.h"

#include <boost/asio/post.hpp>
#include <memory>
#include <mutex>
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
          {base::unavailable(std::string("cannot start a thread: ") + error.what()), {}, {}});
    }
  }
  ~HostStore() override {
    const std::lock_guard lock(reserving_->mutex);
    reserving_->store = nullptr;
  }
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  void answer(const agent::QueryStore& query, Answer then) override {
    if (!servers_) return then(base::unavailable("its store still starts"));
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
    base::Status why = memory.status();
    if (why.ok()) {
      ParameterServer::Events events;
      events.said = events_.said;
      events.failed = events_.failed;
      events.over = events_.over;
      auto servers = ParameterServer::start(loop_, options_, std::move(events), std::move(*memory));
      why = servers.status();
      if (why.ok()) servers_ = std::move(*servers);
    }
    events_.started(
        {why, servers_ ? servers_->gateway_address() : std::string(), options_.memory_socket});
  }

  boost::asio::io_context& loop_;
  const ParameterServerOptions options_;
  const Events events_;
  const std::shared_ptr<Reserving> reserving_;
  std::unique_ptr<ParameterServer> servers_;  // null: it has not started
};

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
                               .checkpoints = {}},
        std::move(events));
  };
}

}  // namespace regroup::job
