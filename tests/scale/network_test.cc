// The arithmetic of the virtual network.
#include "tests/scale/network.h"

#include <gtest/gtest.h>

namespace regroup::scale {
namespace {

using std::chrono::microseconds;

Bytes of(std::size_t size) { return std::make_shared<const std::vector<std::byte>>(size); }

TEST(Network, AMessageTakesItsLatencyItsBytesAndItsHandlers) {
  std::optional<base::TimePoint> came;
  Network* running = nullptr;
  Network network(2, microseconds(10),
                  [&](ProcessId, ProcessId, const Bytes&) { came = running->now(); });
  running = &network;
  const base::TimePoint begin = network.now();
  network.schedule(0, begin, [&] { network.send(1, of(3000)); });
  while (network.step()) {
  }
  EXPECT_EQ(*came - begin, microseconds(10 + 50 + 3));
  EXPECT_EQ(network.now() - begin, microseconds(10 + 50 + 3 + 10));
  EXPECT_EQ(network.traffic(1).depth, 1U);
}

// 1 and 2 send to 0 at once: their bytes come one after the other, and it does one thing at a time.
TEST(Network, ALineAndAProcessAreForOneAtATime) {
  std::vector<base::Duration> heard;
  Network* running = nullptr;
  base::TimePoint begin{};
  Network network(3, microseconds(100), [&](ProcessId, ProcessId, const Bytes&) {
    heard.push_back(running->now() - begin);
  });
  running = &network;
  begin = network.now();
  for (const ProcessId from : {1U, 2U})
    network.schedule(from, begin, [&] { network.send(0, of(20'000)); });
  while (network.step()) {
  }
  EXPECT_EQ(heard, (std::vector<base::Duration>{microseconds(170), microseconds(270)}));
  EXPECT_EQ(network.traffic(0).messages_in, 2U);
  EXPECT_EQ(network.traffic(0).busy, microseconds(200));
}

TEST(Network, WhoIsDownHearsNothing) {
  int heard = 0;
  Network network(2, microseconds(1), [&](ProcessId, ProcessId, const Bytes&) { ++heard; });
  network.schedule(0, network.now(), [&] {
    network.send(1, of(1));
    network.take_down(1);
  });
  while (network.step()) {
  }
  EXPECT_EQ(heard, 0);
}

TEST(Network, AHandlerTakesWhatItTakesHereButWhatIsNotCounted) {
  Network network(1, std::nullopt, [](ProcessId, ProcessId, const Bytes&) {});
  volatile std::uint64_t sink = 0;
  const auto work = [&] {
    for (int i = 0; i < 3'000'000; ++i) sink = sink + 1;
  };
  network.schedule(0, network.now(), work);
  (void)network.step();
  const base::Duration counted = network.traffic(0).busy;
  network.reset();
  network.schedule(0, network.now(), [&] { network.uncounted(work); });
  (void)network.step();
  EXPECT_GT(counted, 10 * network.traffic(0).busy);
  network.schedule(0, network.now(), [&] { network.waited(std::chrono::seconds(5)); });
  (void)network.step();
  EXPECT_GE(network.traffic(0).busy, std::chrono::seconds(5));
}

}  // namespace
}  // namespace regroup::scale
