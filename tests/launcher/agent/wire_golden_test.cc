// The seed files of fuzz_node: a file that the decoder refuses would leave the code after it
// untested.
#include <gtest/gtest.h>

#include <set>

#include "tests/base/golden_files.h"
#include "tests/launcher/agent/wire_samples.h"

namespace regroup::agent {
namespace {

constexpr const char* kFolder = "node";

TEST(NodeGolden, DISABLED_WriteGoldenFiles) {
  for (const auto& [name, message] : samples()) base::write_golden(kFolder, name, encode(message));
  for (const auto& [name, message] : transfer_samples())
    base::write_golden(kFolder, name, encode(message));
}

TEST(NodeGolden, EveryFileIsItsSample) {
  for (const auto& [name, message] : samples()) {
    const auto read = decode(base::read_golden(kFolder, name));
    ASSERT_TRUE(read.ok()) << name << ": " << read.status().to_string();
    EXPECT_EQ(encode(*read), encode(message)) << name;
  }
  for (const auto& [name, message] : transfer_samples()) {
    const auto read = catchup::decode_transfer(base::read_golden(kFolder, name));
    ASSERT_TRUE(read.ok()) << name << ": " << read.status().to_string();
    EXPECT_EQ(encode(*read), encode(message)) << name;
  }
}

TEST(NodeGolden, SamplesHoldEveryMessage) {
  std::set<std::size_t> bodies;
  std::set<std::size_t> services;
  std::set<std::size_t> transfers;
  for (const auto& [name, message] : samples()) {
    bodies.insert(message.index());
    if (const auto* of = std::get_if<Services>(&message)) services.insert(of->message.index());
  }
  for (const auto& [name, message] : transfer_samples()) transfers.insert(message.index());
  EXPECT_EQ(bodies.size(), std::variant_size_v<Message>);
  EXPECT_EQ(services.size(), std::variant_size_v<pmi::Message>);
  EXPECT_EQ(transfers.size(), std::variant_size_v<catchup::TransferMessage>);
}

}  // namespace
}  // namespace regroup::agent
