// What clients of `regroup join` and `regroup resize` hear, of a job on whose hosts no agent
// starts.
#include "launcher/job/host_providers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launcher/lease/grant_lines.h"
#include "tests/launcher/job/refused_hosts.h"

namespace regroup::job {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class HostProvidersAlone : public testing::Test {
 protected:
  HostProvidersAlone() {
    char name[] = "/tmp/providers-XXXXXX";
    folder_ = ::mkdtemp(name);
    EXPECT_TRUE(providers_.start(socket()).ok());
  }
  ~HostProvidersAlone() override { std::filesystem::remove_all(folder_); }
  std::string socket() const { return folder_ + "/grants"; }

  base::Fd connect(const std::string& line) {
    base::Fd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket().c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    send(client, line);
    return client;
  }
  static void send(const base::Fd& client, const std::string& line) {
    EXPECT_EQ(::send(client.get(), line.data(), line.size(), 0), static_cast<ssize_t>(line.size()));
  }
  // The next reply to that client.
  lease::LeaseReply reply(const base::Fd& client) {
    std::string line;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < deadline) {
      char byte = 0;
      if (::recv(client.get(), &byte, 1, MSG_DONTWAIT) != 1) {
        loop_.run_one_for(std::chrono::milliseconds(10));
      } else if (byte != '\n') {
        line += byte;
      } else {
        auto reply = lease::parse_reply(line);
        EXPECT_TRUE(reply.ok()) << line;
        return *reply;
      }
    }
    ADD_FAILURE() << "no reply, but: " << line;
    return {};
  }
  static std::string offer(const std::string& host, bool own = false) {
    lease::LeaseOffer offer;
    offer.grant.by = "Slurm job 7";
    offer.grant.hosts = {{.name = host, .slots = 2}};
    offer.grant.before = {"fake"};
    offer.grace = std::chrono::seconds(30);
    offer.own = own;
    offer.token = "token";
    return lease::to_line(offer);
  }
  ElasticHosts::Events host_events() {
    return {
        .ending = [] { return false; },
        .said = [this](const std::string& text) { said_.push_back(text); },
        .changed = [](const proto::NodeUp&) {},
        .lost = [](const proto::NodeLost&) {},
        .not_started = [this](std::size_t host,
                              const std::string& why) { return providers_.not_started(host, why); },
        .left = [this](std::size_t host, HostStage before,
                       const std::string&) { providers_.left(host, before); }};
  }
  HostProviders::Events provider_events() {
    return {.ending = [] { return false; },
            .said = [this](const std::string& text) { said_.push_back(text); },
            .demanded = [this](base::Duration within) { demanded_.push_back(within); }};
  }
  static ElasticHostsOptions one_host() {
    ElasticHostsOptions options;
    options.granted = {{.name = "refused", .slots = 4}};
    return options;
  }

  std::string folder_;
  boost::asio::io_context loop_;
  std::vector<std::string> said_;
  std::vector<base::Duration> demanded_;
  const std::unique_ptr<agent::Hosts> links_ = refused_host(loop_);
  ElasticHosts hosts_{loop_, one_host(), *links_, host_events()};
  HostProviders providers_{
      loop_, hosts_, {.notice_grace = std::chrono::seconds(9)}, provider_events()};
};

TEST_F(HostProvidersAlone, ALeaseEndsWhenItsHostsHaveLeft) {
  const base::Fd client = connect(offer("leased"));
  EXPECT_EQ(reply(client).text, "Slurm job 7 grants 1 host with 2 slots");
  ASSERT_EQ(hosts_.find("leased"), 1U);
  EXPECT_TRUE(hosts_.node_up(1).leased);
  EXPECT_EQ(providers_.grace(1), std::chrono::seconds(30));
  EXPECT_EQ(providers_.grace(0), std::nullopt);

  EXPECT_TRUE(providers_.not_started(1, "no route"));
  EXPECT_TRUE(providers_.not_started(1, "no route"));
  EXPECT_FALSE(providers_.not_started(0, "no route"));
  EXPECT_EQ(reply(client).text, "no route");

  send(client, lease::to_line(lease::LeaseRevoke{std::chrono::seconds(5), "preempted"}));
  const lease::LeaseReply last = reply(client);
  EXPECT_TRUE(last.over && last.ok);
  EXPECT_EQ(last.text, "the hosts are free");
  EXPECT_EQ(hosts_.find("leased"), std::nullopt);
  EXPECT_THAT(demanded_, ElementsAre(std::chrono::seconds(5)));
  EXPECT_THAT(said_, ElementsAre("Slurm job 7 grants 1 host with 2 slots", "no route",
                                 "host leased must be returned within 5 s (preempted)"));
}

TEST_F(HostProvidersAlone, AClientThatIsGoneKeepsItsHostsForTheirGraceIfItMayReconnect) {
  {
    const base::Fd client = connect(offer("leased"));
    (void)reply(client);
  }
  while (demanded_.empty()) loop_.run_one();
  EXPECT_THAT(demanded_, ElementsAre(std::chrono::seconds(30)));
  lease::LeaseReconnect again{"token", {std::chrono::seconds(5), "preempted", {}}};
  const base::Fd client = connect(lease::to_line(again));
  EXPECT_EQ(reply(client).text, "the hosts are free");
  again.token = "other";
  const base::Fd stranger = connect(lease::to_line(again));
  EXPECT_FALSE(reply(stranger).ok);
}

TEST_F(HostProvidersAlone, AnOfferIsRefusedForAHostOfTheJobAndForAnAllocationThatCannotGrow) {
  const base::Fd first = connect(offer("refused"));
  EXPECT_THAT(reply(first).text, testing::HasSubstr("host refused is already part of this job"));
  const base::Fd second = connect(offer("other", true));
  EXPECT_THAT(reply(second).text, testing::HasSubstr("the allocation of this job cannot grow"));
  EXPECT_EQ(links_->size(), 1U);
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(HostProvidersAlone, TheHostsThatAScriptNamesReplaceOthersExceptLeasedOnes) {
  const base::Fd client = connect(offer("leased"));
  (void)reply(client);
  said_.clear();
  const spec::Grant way{.by = "script", .before = {"fake"}};
  providers_.follow({{.name = "refused", .slots = 3}}, way);
  EXPECT_EQ(hosts_.given_slots(0), 3U);
  EXPECT_THAT(said_, IsEmpty());
  providers_.follow({{.name = "new", .slots = 1}}, way);
  EXPECT_THAT(said_, ElementsAre("host refused must be returned within 9 s (no longer listed)",
                                 "host new is listed: starting an agent there"));
  EXPECT_TRUE(hosts_.stays(*hosts_.find("leased")));
  EXPECT_TRUE(hosts_.find("new"));
  EXPECT_FALSE(hosts_.find("refused"));
}

TEST_F(HostProvidersAlone, AResizeIsAnsweredWithoutAnAllocatorToAsk) {
  const base::Fd client = connect(lease::to_line(lease::Resized{2}));
  const lease::LeaseReply answer = reply(client);
  EXPECT_TRUE(answer.over && answer.ok);
  EXPECT_EQ(answer.text, "");
}

TEST_F(HostProvidersAlone, AllLeasesEndWithTheJob) {
  const base::Fd client = connect(offer("leased"));
  (void)reply(client);
  providers_.finish();
  const lease::LeaseReply last = reply(client);
  EXPECT_TRUE(last.over);
  EXPECT_EQ(last.text, "the job is over");
}

}  // namespace
}  // namespace regroup::job
