// Frames between members and carriers, whole and in pieces, and what is no frame.
#include "collective/mpi/frame.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>

#include "base/fd.h"

namespace regroup::collective::mpi {
namespace {

struct Sockets {
  base::Fd one, other;
};

Sockets make_sockets() {
  int pair[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  return {base::Fd(pair[0]), base::Fd(pair[1])};
}

std::vector<std::byte> numbers(std::size_t count) {
  std::vector<std::byte> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(i * 7);
  return out;
}

TEST(Frame, ArrivesWholeHoweverItIsCut) {
  const auto bytes = numbers(100);
  const SharedFrame sent = make_frame({.kind = FrameKind::kData, .from = 3, .to = 1, .number = 9},
                                      std::span(bytes).first(30), std::span(bytes).subspan(30));
  for (std::size_t cut = 1; cut < sent->size(); ++cut) {
    const Sockets sockets = make_sockets();
    FrameReader reader;
    Frame frame;
    EXPECT_EQ(reader.next(sockets.other.get(), &frame), FrameReader::Read::kLater);
    ASSERT_EQ(::send(sockets.one.get(), sent->data(), cut, 0), static_cast<ssize_t>(cut));
    EXPECT_EQ(reader.next(sockets.other.get(), &frame), FrameReader::Read::kLater);
    const auto left = static_cast<ssize_t>(sent->size() - cut);
    ASSERT_EQ(::send(sockets.one.get(), sent->data() + cut, sent->size() - cut, 0), left);
    ASSERT_EQ(reader.next(sockets.other.get(), &frame), FrameReader::Read::kFrame);
    EXPECT_EQ(frame.header.kind, FrameKind::kData);
    EXPECT_EQ(frame.header.from, 3);
    EXPECT_EQ(frame.header.to, 1);
    EXPECT_EQ(frame.header.number, 9U);
    ASSERT_EQ(frame.header.bytes, bytes.size());
    EXPECT_EQ(std::memcmp(frame.bytes.get(), bytes.data(), bytes.size()), 0);
  }
}

TEST(Frame, AWriterFillsTheSocketAndGoesOnLater) {
  const Sockets sockets = make_sockets();
  const auto bytes = numbers(std::size_t{3} << 20);
  FrameWriter writer;
  for (std::uint64_t i = 0; i < 3; ++i)
    writer.put(make_frame({.kind = FrameKind::kData, .number = i}, bytes));
  ASSERT_TRUE(writer.flush(sockets.one.get()).ok());
  EXPECT_FALSE(writer.empty());
  FrameReader reader;
  for (std::uint64_t next = 0; next < 3;) {
    Frame frame;
    const auto read = reader.next(sockets.other.get(), &frame);
    ASSERT_NE(read, FrameReader::Read::kEnd);
    if (read == FrameReader::Read::kLater) {
      ASSERT_TRUE(writer.flush(sockets.one.get()).ok());
      continue;
    }
    EXPECT_EQ(frame.header.number, next++);
    EXPECT_EQ(std::memcmp(frame.bytes.get(), bytes.data(), bytes.size()), 0);
  }
  EXPECT_TRUE(writer.empty());
}

TEST(Frame, WhatIsNoFrameEndsTheReading) {
  FrameHeader unknown{.kind = static_cast<FrameKind>(99)};
  FrameHeader huge{.kind = FrameKind::kData, .bytes = kMostFrameBytes + 1};
  for (const FrameHeader& header : {unknown, huge}) {
    const Sockets sockets = make_sockets();
    ASSERT_EQ(::send(sockets.one.get(), &header, sizeof header, 0),
              static_cast<ssize_t>(sizeof header));
    FrameReader reader;
    Frame frame;
    EXPECT_EQ(reader.next(sockets.other.get(), &frame), FrameReader::Read::kEnd);
    EXPECT_FALSE(header_of(std::as_bytes(std::span(&header, 1))).ok());
  }
  EXPECT_FALSE(header_of({}).ok());
}

TEST(Frame, AClosedSocketIsTheEnd) {
  Sockets sockets = make_sockets();
  sockets.one.reset();
  FrameReader reader;
  Frame frame;
  EXPECT_EQ(reader.next(sockets.other.get(), &frame), FrameReader::Read::kEnd);
  FrameWriter writer;
  writer.put(make_frame({.kind = FrameKind::kReady}));
  EXPECT_EQ(writer.flush(sockets.other.get()).code(), base::Code::kPeerLost);
}

}  // namespace
}  // namespace regroup::collective::mpi
