// Runs state transfers between agents over real connections: sources, a target with a real member
// as learner, and malicious sources that know the secret and send what a test chooses.
// docs/design/catch_up.md.
#pragma once

#include <gmock/gmock.h>

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "membership/catchup/transfer_service.h"
#include "proto/transfer_step.h"
#include "tests/elastic/members.h"
#include "tests/launcher/transport/net_test.h"

namespace regroup::catchup {

using Payload = std::vector<std::byte>;
using Payloads = std::vector<Payload>;

inline constexpr proto::NodeId kGives = 0, kTakes = 1, kReads = 2;
inline constexpr proto::TransferStep kMark{3, 7};
inline constexpr proto::Step kNewest = 9;
inline constexpr std::size_t kResult = shmem::kSnapshotChunk + 600;
// Payloads of a result: its length and two chunks.
inline constexpr std::size_t kOfResults = 3 * (kNewest - kMark.step);

// Makes the agent of a node with one member.
[[nodiscard]] membership::AgentCore make_core(proto::NodeId node, std::size_t state);
[[nodiscard]] Payload true_state(std::size_t state);
[[nodiscard]] Payload true_result(proto::Step step);

// An honest source, whose member has passed kMark and committed the steps up to kNewest.
class TestSource {
 public:
  TestSource(boost::asio::io_context& loop, std::shared_ptr<const transport::TlsContext> context,
             proto::NodeId node, std::size_t state);

  [[nodiscard]] const shmem::Arena& arena() const { return core_.arena(); }
  [[nodiscard]] const std::string& endpoints() const { return exchange_.endpoints(); }
  [[nodiscard]] bool gives() const { return core_.transfer_source().active(); }
  void poll() { exchange_.poll(); }

 private:
  void at(proto::Phase phase, proto::Step step);
  void write_state(std::size_t state);
  void commit(proto::Step step);

  membership::AgentCore core_;
  TransferService exchange_;
};

// A malicious source: knows the secret, and sends the payloads of the test to any reader.
class FalseSource {
 public:
  FalseSource(boost::asio::io_context& loop, std::shared_ptr<const transport::TlsContext> context);
  ~FalseSource();
  FalseSource(const FalseSource&) = delete;
  FalseSource& operator=(const FalseSource&) = delete;
  [[nodiscard]] std::string endpoints() const;

  Payloads says;
  bool hangs_up = false;

 private:
  transport::SecureListener listener_;
  std::shared_ptr<transport::SecureChannel> channel_;
};

// The result of a state transfer: kLearned, kRefused by the agent, kFound to be false by the
// member, or kWaits for more. kWrong is a fault: the member has accepted what no honest source has.
enum class End { kLearned, kRefused, kFound, kWaits, kWrong };

class TransferFixture : public testing::Test {
 protected:
  explicit TransferFixture(std::size_t state);
  // Lets the sources' agents continue their state transfers.
  virtual void poll_sources() = 0;

  End learn_from(const std::vector<proto::SourceAgent>& sources);
  // Returns what `source` sends of its part; the first source sends the results after it.
  Payloads recorded(const TestSource& source, proto::NodeId node, std::uint32_t part,
                    std::uint32_t parts, std::size_t payloads);
  std::shared_ptr<transport::SecureChannel> call(const std::string& endpoints,
                                                 proto::NodeId source);

  const std::size_t state_;
  boost::asio::io_context loop_{1};
  std::shared_ptr<const transport::JobSecret> secret_ = transport::new_secret();
  std::string why_;  // why the target gave up

 private:
  void perform(const membership::AgentEffects& effects);
  void clean();
  bool all_there();
  End look();

  membership::AgentCore core_;
  TransferService exchange_{loop_, transport::node(secret_, kTakes)};
  std::optional<elastic::testing::Agent> members_;
  std::unique_ptr<elastic::Participant> learner_;
};

}  // namespace regroup::catchup
