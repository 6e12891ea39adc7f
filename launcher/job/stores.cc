// Replies of other hosts are counted, not matched by time: a reply that comes late finds its
// question closed.
#include "launcher/job/stores.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "base/values.h"
#include "launcher/job/parameter_server.h"

namespace regroup::job {

OtherStores::OtherStores(boost::asio::io_context& loop, std::string own,
                         std::vector<OtherStore> others, Events events, std::size_t replicas,
                         base::Duration unheard)
    : loop_(loop),
      own_(std::move(own)),
      others_(std::move(others)),
      events_(std::move(events)),
      unheard_(unheard),
      replicas_(others_.size() + 1, replicas),
      places_(others_.size()),
      waits_for_(others_.size()) {}

OtherStores::~OtherStores() { *lives_ = false; }

void OtherStores::start(agent::StartStore order, const std::vector<std::string>& addresses,
                        base::Duration limit) {
  order.stores = static_cast<std::uint32_t>(others_.size()) + 1;
  const auto timer = std::make_shared<boost::asio::steady_timer>(loop_);
  timer->expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit));
  timer->async_wait([this, lives = lives_, timer, limit](const boost::system::error_code& error) {
    if (error || !*lives || waits_for_ == 0) return;
    const auto late = std::ranges::find(places_, "", &StorePlace::address) - places_.begin();
    end_start(base::deadline_exceeded(
        fmt::format("host {}: its part of the parameter server has not started within {:g} s",
                    others_[static_cast<std::size_t>(late)].host,
                    std::chrono::duration<double>(limit).count())));
  });
  for (std::size_t i = 0; i < others_.size(); ++i) {
    order.store = static_cast<std::uint32_t>(i) + 1;
    order.address = addresses.at(i + 1);
    others_[i].start(
        order,
        [this, lives = lives_, timer, i](const agent::StoreStarted& started) {
          if (!*lives) return;
          on_started(i, started);
          if (waits_for_ == 0) timer->cancel();
        },
        [this, lives = lives_, i](const std::string& why) {
          if (*lives) events_.failed(i + 1, why);
        });
  }
}

void OtherStores::on_started(std::size_t index, const agent::StoreStarted& started) {
  if (waits_for_ == 0 || !places_[index].address.empty()) return;
  if (!started.status.ok()) return end_start(started.status);
  places_[index] = {started.address, started.socket};
  version_at_start_ += started.version;
  if (started.address.empty() || started.address.find(';') != std::string::npos)
    return end_start(base::data_loss(
        fmt::format("host {}: malformed address of its store", others_[index].host)));
  if (--waits_for_ == 0) events_.started({});
}

void OtherStores::end_start(const base::Status& why) {
  waits_for_ = 0;
  events_.started(why);
}

void OtherStores::lose(std::size_t store, const TellOwn& own) {
  replicas_.lose(store);
  // The lost store first: it must answer nobody once a push is acknowledged without it.
  const auto said = [this, lives = lives_, store, own](const base::Result<std::string>& reply) {
    if (!*lives) return;
    if (reply.ok()) return on_ended(store, own);
    const auto timer = std::make_shared<boost::asio::steady_timer>(loop_, unheard_);
    timer->async_wait([this, lives, timer, store, own](const boost::system::error_code& error) {
      if (!error && *lives) on_ended(store, own);
    });
  };
  others_.at(store - 1).query({.lost = {static_cast<std::uint32_t>(store)}}, said);
}

// Others that are lost may still answer, so that they are not named yet.
void OtherStores::on_ended(std::size_t store, const TellOwn& own) {
  ended_.push_back(static_cast<std::uint32_t>(store));
  const std::vector<std::uint32_t>& lost = ended_;
  own(lost);
  for (std::size_t i = 0; i < others_.size(); ++i) {
    if (replicas_.is_lost(i + 1)) continue;
    // One that cannot be told would hold up clients, so it is lost, too.
    others_[i].query({.lost = lost}, [this, lives = lives_, i](base::Result<std::string> said) {
      if (*lives && !said.ok() && !replicas_.is_lost(i + 1))
        events_.failed(i + 1, said.status().message());
    });
  }
}

void OtherStores::ask(const std::function<agent::QueryStore(std::size_t)>& query,
                      std::optional<base::Duration> limit, std::function<void(Replies)> then) {
  struct Asked {
    std::vector<std::optional<base::Result<std::string>>> said;
    std::size_t open;
    std::function<void(Replies)> then;
    boost::asio::steady_timer timer;
  };
  const auto asked = std::make_shared<Asked>(
      Asked{std::vector<std::optional<base::Result<std::string>>>(others_.size()), others_.size(),
            std::move(then), boost::asio::steady_timer(loop_)});
  const auto end = [this, limit, lives = lives_, asked] {
    const auto told = std::exchange(asked->then, nullptr);
    if (!told || !*lives) return;
    asked->timer.cancel();
    Replies out;
    for (std::size_t i = 0; i < others_.size(); ++i) {
      const std::string& host = others_[i].host;
      out.push_back({host,
                     asked->said[i] ? std::move(*asked->said[i])
                                    : base::Result<std::string>(base::deadline_exceeded(fmt::format(
                                          "host {}: no answer within {:g} s", host,
                                          std::chrono::duration<double>(*limit).count()))),
                     replicas_.is_lost(i + 1)});
    }
    told(std::move(out));
  };
  if (limit) {
    asked->timer.expires_after(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(*limit));
    asked->timer.async_wait([end](const boost::system::error_code& error) {
      if (!error) end();
    });
  }
  for (std::size_t i = 0; i < others_.size(); ++i) {
    const auto said = [asked, end, i](base::Result<std::string> text) {
      asked->said[i] = std::move(text);
      if (--asked->open == 0) end();
    };
    if (replicas_.is_lost(i + 1))
      said(base::peer_lost(fmt::format("host {}: its copies of tables are lost", host(i + 1))));
    else
      others_[i].query(query(i + 1), said);
  }
}

void OtherStores::status(std::string own, const std::function<void(const std::string&)>& answer) {
  ask([](std::size_t) { return agent::QueryStore(); }, kQueryLimit,
      [this, own = std::move(own), answer](Replies replies) {
        replies.insert(replies.begin(), StoreStatus{own_, own});
        answer(merged_status(replies, replicas_));
      });
}

void OtherStores::save(const std::function<std::string(std::size_t)>& description,
                       std::function<void(const base::Result<std::uint64_t>&)> then) {
  ask([&](std::size_t store) { return agent::QueryStore{.save = description(store)}; }, {},
      [then = std::move(then)](const Replies& replies) {
        std::uint64_t sum = 0;
        for (const auto& [host, said, lost] : replies) {
          std::uint64_t version = 0;
          if (!said.ok()) return then(said.status());
          if (!base::read_number(std::string_view(*said), version))
            return then(
                base::data_loss(fmt::format("host {}: malformed answer of its store", host)));
          sum += version;
        }
        then(sum);
      });
}

void OtherStores::version(std::function<void(std::optional<std::uint64_t>)> then) {
  ask([](std::size_t) { return agent::QueryStore(); }, kQueryLimit,
      [then = std::move(then)](const Replies& replies) {
        std::uint64_t sum = 0;
        for (const auto& [host, said, lost] : replies) {
          const auto version = said.ok() ? version_of(*said) : std::nullopt;
          if (!version) return then({});
          sum += *version;
        }
        then(sum);
      });
}

void OtherStores::resize(std::uint32_t servers,
                         const std::function<void(const base::Result<std::string>&)>& answer) {
  ask([servers](std::size_t) { return agent::QueryStore{.servers = servers}; }, kResizeLimit,
      [this, servers, answer](const Replies& replies) {
        std::uint32_t all = servers_of_store(servers, static_cast<std::uint32_t>(size() + 1), 0);
        for (std::size_t i = 0; i < replies.size(); ++i) {
          const StoreStatus& reply = replies[i];
          if (reply.lost) continue;
          all += servers_of_store(servers, static_cast<std::uint32_t>(size() + 1),
                                  static_cast<std::uint32_t>(i + 1));
          if (!reply.json.ok())
            return answer(base::Status(
                reply.json.status().code(),
                fmt::format("resize ps={}: {}", servers, reply.json.status().message())));
        }
        answer(fmt::format("parameter server: {} on {}", base::counted(all, "server"),
                           base::counted(size() + 1 - replicas_.lost().size(), "host")));
      });
}

}  // namespace regroup::job
