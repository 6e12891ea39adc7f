// FrameReader of proto/wire.h: streams cut anywhere, and frames that are none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "proto/wire.h"
#include "tests/proto/wire_samples.h"

namespace regroup::proto {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::size_t kFramePrefix = sizeof(std::uint32_t);

TEST(FrameReader, CutsAStreamThatComesInAnyChunks) {
  Bytes stream;
  for (const WireSample& sample : wire_samples()) {
    const Bytes frame = encode(sample.message);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  std::mt19937_64 random(3);
  for (const std::size_t most : {1UL, 2UL, 3UL, 7UL, 64UL, 1000UL, stream.size()}) {
    FrameReader reader;
    std::size_t seen = 0;
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t n = std::min(stream.size() - at, most <= 3 ? most : 1 + random() % most);
      reader.append(std::span(stream).subspan(at, n));
      at += n;
      for (;;) {
        auto message = reader.next();
        ASSERT_TRUE(message.ok()) << message.status().to_string();
        if (!message->has_value()) break;
        ASSERT_EQ(**message, wire_samples()[seen].message);
        ++seen;
      }
    }
    EXPECT_EQ(seen, wire_samples().size());
  }
}

Bytes frame_of(std::uint32_t length, std::size_t payload) {
  Bytes frame(kFramePrefix + payload);
  std::memcpy(frame.data(), &length, kFramePrefix);
  return frame;
}

TEST(FrameReader, AnOversizeFrameIsRefusedBeforeItIsThere) {
  FrameReader reader;
  reader.append(frame_of(kMaxFrameBytes + 1, 0));
  EXPECT_EQ(reader.next().code(), base::Code::kDataLoss);
  FrameReader largest;
  largest.append(frame_of(kMaxFrameBytes, 0));
  EXPECT_TRUE(largest.next().ok());  // more is to come
}

TEST(FrameReader, ABadFrameIsFinal) {
  for (const Bytes& bad : {frame_of(0, 0), frame_of(3, 3), frame_of(100, 100)}) {
    FrameReader reader;
    reader.append(encode({1, Ready{}}));
    reader.append(bad);
    reader.append(encode({1, Ready{}}));
    EXPECT_TRUE(reader.next().ok());
    const base::Status first = reader.next().status();
    EXPECT_EQ(first.code(), base::Code::kDataLoss);
    EXPECT_EQ(reader.next().status().message(), first.message());
    reader.append(encode({1, Ready{}}));
    EXPECT_EQ(reader.next().status().message(), first.message());
  }
}

}  // namespace
}  // namespace regroup::proto
