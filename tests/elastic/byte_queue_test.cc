// ByteQueue keeps the order of the bytes and its bound, and a producer that hangs writes nothing
// late.
#include "elastic/byte_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace regroup::elastic {
namespace {

using namespace std::chrono_literals;
using base::Code;

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 31 + i / 251);
  return out;
}

TEST(ByteQueue, KeepsTheOrderOfBytesInAnyParts) {
  const std::vector<std::byte> all = pattern(100'000);
  ByteQueue bytes;
  std::thread producer([&] {
    std::vector<std::byte> part;
    for (std::size_t at = 0, size = 1; at < all.size(); at += size, size = size * 7 % 4099 + 1) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
      part.assign(begin, begin + static_cast<std::ptrdiff_t>(std::min(size, all.size() - at)));
      ASSERT_TRUE(bytes.push(part));
    }
    bytes.close({});
  });
  std::vector<std::byte> got(all.size());
  for (std::size_t at = 0, size = 3; at < got.size(); at += size, size = size * 5 % 2999 + 1) {
    const auto into = std::span(got).subspan(at, std::min(size, got.size() - at));
    ASSERT_TRUE(bytes.pop(into, 10s).ok());
  }
  producer.join();
  EXPECT_EQ(got, all);
  EXPECT_EQ(bytes.pop(std::span(got).first(1), 10s).code(), Code::kDataLoss);
}

TEST(ByteQueue, ProducerWaitsForTheConsumer) {
  ByteQueue bytes;
  std::atomic<std::size_t> given{0};
  std::thread producer([&] {
    for (std::vector<std::byte> part(10); bytes.push(part); part.resize(10)) ++given;
  });
  while (given < ByteQueue::kMaxBuffers) std::this_thread::yield();
  std::this_thread::sleep_for(20ms);  // time in which the producer would push more if it could
  EXPECT_EQ(given, ByteQueue::kMaxBuffers);
  bytes.cancel();
  producer.join();
}

TEST(ByteQueue, AProducerThatHangsIsAbandonedAndTouchesNothingLater) {
  const auto bytes = std::make_shared<ByteQueue>();
  std::promise<void> answer;
  std::future<bool> taken = std::async(std::launch::async, [bytes, hangs = answer.get_future()] {
    std::vector<std::byte> part(10, std::byte{7});
    if (!bytes->push(part)) return true;
    hangs.wait();
    part.assign(90, std::byte{9});
    return bytes->push(part);
  });
  std::vector<std::byte> got(100);
  EXPECT_EQ(bytes->pop(got, 50ms).code(), Code::kDeadlineExceeded);
  bytes->cancel();
  answer.set_value();
  EXPECT_FALSE(taken.get());
  EXPECT_EQ(std::ranges::count(got, std::byte{7}), 10);
  EXPECT_EQ(std::ranges::count(got, std::byte{9}), 0);
}

TEST(ByteQueue, ErrorComesAfterWhatWasBeforeIt) {
  ByteQueue bytes;
  std::vector<std::byte> part(10, std::byte{7});
  ASSERT_TRUE(bytes.push(part));
  bytes.close({Code::kDataLoss, "a flipped bit"});
  std::vector<std::byte> got(10);
  EXPECT_TRUE(bytes.pop(got, 10s).ok());
  EXPECT_EQ(bytes.pop(got, 10s).message(), "a flipped bit");
}

}  // namespace
}  // namespace regroup::elastic
