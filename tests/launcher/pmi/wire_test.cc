// Every message between agent and regroup-pmi survives the wire, and damage is an error.
#include "launcher/pmi/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <span>
#include <string>

#include "launcher/pmi/link.h"
#include "launcher/pmi/wire_generated.h"
#include "tests/base/often.h"
#include "tests/launcher/pmi/wire_samples.h"

namespace regroup::pmi {
namespace {

using base::often;

TEST(PmiWire, EveryMessageSurvives) {
  for (const Message& message : samples()) {
    const auto bytes = encode(message);
    const auto back = decode(bytes);
    ASSERT_TRUE(back.ok()) << message.index();
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back), bytes);
  }
}

TEST(PmiWire, DamageIsTold) {
  for (const Message& message : samples()) {
    auto bytes = encode(message);
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
      static_cast<void>(decode(std::span(bytes).first(cut)));  // returns; the sanitizers watch
    }
    bytes[0] = std::byte{0xff};  // the root lies outside
    EXPECT_EQ(decode(bytes).code(), base::Code::kDataLoss);
  }
}

TEST(PmiWire, WhatIsSaidManyTimesOverIsRefused) {
  using Builder = flatbuffers::FlatBufferBuilder;
  const auto refused = [](fb::Body type, const auto& body) {
    Builder b;
    const auto text = b.CreateString(std::string(10'000, 'x'));
    b.Finish(fb::CreateMessage(b, kWireVersion, type, body(b, text).Union()),
             fb::MessageIdentifier());
    const auto message = decode(std::as_bytes(std::span(b.GetBufferPointer(), b.GetSize())));
    EXPECT_EQ(message.code(), base::Code::kDataLoss) << fb::EnumNameBody(type);
    EXPECT_LT(b.GetSize(), 30'000U);
  };
  refused(fb::Body::OpenSpace, [](Builder& b, auto text) {
    return fb::CreateOpenSpace(b, 0, 0, false, 0, 0, 0, 0, b.CreateVector(often(text)));
  });
  refused(fb::Body::OpenSpace, [](Builder& b, auto text) {
    return fb::CreateOpenSpace(b, 0, 0, false, 0, 0,
                               b.CreateVector(often(fb::CreateBinding(b, text))));
  });
  refused(fb::Body::RankReady, [](Builder& b, auto text) {
    return fb::CreateRankReady(b, 0, 0, b.CreateVector(often(text)));
  });
  refused(fb::Body::Spawn, [](Builder& b, auto text) {
    const auto app = fb::CreateSpawnApp(b, text, b.CreateVector(often(text)));
    return fb::CreateSpawn(b, 1, 0, 0, b.CreateVector(std::vector{app}));
  });
  refused(fb::Body::Spawn, [](Builder& b, auto text) {
    return fb::CreateSpawn(b, 1, 0, 0, b.CreateVector(often(fb::CreateSpawnApp(b, text))));
  });
}

// A descriptor comes with its message; a large message comes whole, a huge one is refused; the end
// is reported once.
TEST(PmiLink, CarriesMessagesAndDescriptors) {
  boost::asio::io_context loop;
  auto sockets = link_sockets();
  ASSERT_TRUE(sockets.ok());
  std::vector<std::pair<Message, bool>> got;
  int lost = 0;
  Link receiver(
      loop, std::move(sockets->first),
      [&](const Message& message, base::Fd fd) { got.emplace_back(message, fd.valid()); },
      [&](const base::Status&) { ++lost; });
  {
    Link sender(
        loop, std::move(sockets->second), [](const Message&, base::Fd) {},
        [](const base::Status&) {});
    EXPECT_TRUE(sender.send(Connected{{0, 1}}, base::Fd(::dup(0))));
    for (int i = 0; i < 2000; ++i)
      EXPECT_TRUE(sender.send(Finalized{{0, 1}}));  // more than a socket holds
    EXPECT_TRUE(sender.send(Services{true, std::string(1 << 20, 'x')}, base::Fd(::dup(0))));
    EXPECT_FALSE(sender.send(Services{true, std::string(20 << 20, 'x')}));
    while (got.size() < 2002) loop.run_one();
  }
  EXPECT_TRUE(got[0].second);
  EXPECT_FALSE(got[1].second);
  const auto* large = std::get_if<Services>(&got.back().first);
  EXPECT_TRUE(large != nullptr && large->note.size() == 1 << 20 && got.back().second);
  receiver.poll();
  receiver.poll();
  EXPECT_EQ(lost, 1);
}

}  // namespace
}  // namespace regroup::pmi
