// Any messages in a lane of a parameter server, as each process of the host can write them: a
// server answers them or reads this lane no more, serves other clients as before, and leaves a
// store that its successor takes over. The input is a sequence of messages: raw bytes, or heads,
// tables and pushes that are mostly well-formed.
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "collective/ps/handover.h"
#include "collective/ps/server.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using namespace regroup::collective::ps;
using fuzz::Choices;
using fuzz::require;

namespace {

constexpr std::uint32_t kFuzzed = 0, kGood = 1;  // lanes

struct Host {
  Host() {
    for (const std::uint32_t lane : {kFuzzed, kGood}) shard.lanes.lane(lane).client = lane + 5;
    attach();
  }
  void attach() {
    server.reset();
    auto attached = ShardServer::attach(std::span(&shard, 1), 0, shmem::RealPolicy::now());
    require(attached.ok());
    server = std::move(*attached);
  }
  [[nodiscard]] Lane& lane(std::uint32_t number) const { return shard.lanes.lane(number); }
  // A message of these bytes, of which the first ones fit into the ring, is there from now on.
  void write(std::uint32_t number, std::span<const std::byte> message, std::uint64_t claimed) {
    const std::uint64_t written = lane(number).written;
    const std::size_t room = std::min<std::size_t>(message.size(), shard.lanes.to_end(written));
    std::memcpy(shard.lanes.at(number, written), message.data(), room);
    lane(number).written = written + claimed;
  }
  void poll() const { require(server->poll().ok()); }

  OwnedServerMemory memory = make_server_memory({.job_seed = 7,
                                                 .segments = 2,
                                                 .segment_bytes = 1 << 20,
                                                 .ring_bytes = 64 << 10,
                                                 .lanes = 2,
                                                 .lane_bytes = 64 << 10})
                                 .value();
  MappedShard shard = MappedShard::open(memory.get().shards[0], StoreMemory::Mode::kWrite).value();
  std::unique_ptr<ShardServer> server;
};

std::vector<std::byte> with_head(const MessageHeader& header) {
  std::vector<std::byte> out(std::min<std::uint64_t>(header.bytes, 64 << 10));
  if (out.size() < sizeof header) out.resize(sizeof header);
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}
void put(std::vector<std::byte>& message, std::size_t at, std::span<const std::uint8_t> bytes) {
  if (at < message.size())
    std::memcpy(message.data() + at, bytes.data(), std::min(bytes.size(), message.size() - at));
}

std::vector<std::byte> open_message(const TableSpec& spec) {
  const OpenContent content = content_of(spec);
  std::vector<std::byte> out = with_head(
      {.bytes = (kContentAt + sizeof content + 63) / 64 * 64, .kind = MessageKind::kOpen});
  std::memcpy(out.data() + kContentAt, &content, sizeof content);
  return out;
}
TableSpec spec_of(Choices& choices) {
  TableSpec out{.name = std::string(choices.below(3), 'a')};
  out.kind = static_cast<TableKind>(choices.below(4));
  out.rows = choices.below(4) == 0 ? choices.number() : choices.below(64);
  out.dim = choices.below(4) == 0 ? static_cast<std::uint32_t>(choices.number()) : choices.below(8);
  out.dtype = static_cast<collective::Dtype>(choices.below(9));
  out.init.kind = static_cast<InitialKind>(choices.below(6));
  out.init.first = choices.below(3);
  out.optimizer.kind = static_cast<OptimizerKind>(choices.below(11));
  return out;
}
// Parts of ranges 1 to 32, with positions and gradients of the input.
std::vector<std::byte> push_message(Choices& choices, std::uint64_t number) {
  std::vector<PushPart> parts(1 + choices.below(3));
  for (PushPart& part : parts) {
    part = {.range = 1 + choices.below(32), .reserved = 0, .keys = choices.below(4)};
    part.gradient_bytes = choices.below(4) == 0 ? choices.number() : choices.below(16) * 4;
  }
  MessageHeader header{.bytes = 0,
                       .kind = MessageKind::kPush,
                       .parts = static_cast<std::uint32_t>(parts.size()),
                       .number = choices.below(8) == 0 ? choices.number() : number,
                       .lr = choices.below(4) * 0.5,
                       .leaves = choices.below(3),
                       .step = choices.below(2),
                       .leaf = choices.below(2)};
  header.bytes = std::min<std::uint64_t>(bytes_of_push(parts), 16 << 10);
  std::vector<std::byte> out = with_head(header);
  std::memcpy(out.data() + kContentAt, parts.data(), parts.size() * sizeof(PushPart));
  put(out, kContentAt + parts.size() * sizeof(PushPart), choices.some());
  return out;
}

void write_one(Host& host, Choices& choices, std::uint64_t number) {
  switch (choices.below(5)) {
    case 0: {  // any bytes, and any number of them
      const auto bytes = std::as_bytes(choices.some());
      return host.write(kFuzzed, bytes, choices.below(2) == 0 ? choices.number() : bytes.size());
    }
    case 1: {  // a head of any size
      const MessageHeader header{.bytes = choices.below(64) * std::uint64_t{64},
                                 .kind = static_cast<MessageKind>(choices.below(6)),
                                 .parts = choices.below(256),
                                 .number = choices.below(2) == 0 ? number : choices.below(3),
                                 .leaves = choices.below(3),
                                 .step = choices.below(2),
                                 .leaf = choices.below(3)};
      std::vector<std::byte> message = with_head(header);
      put(message, kContentAt, choices.some());
      return host.write(kFuzzed, message, header.bytes);
    }
    case 2: {
      const std::vector<std::byte> message = open_message(spec_of(choices));
      return host.write(kFuzzed, message, message.size());
    }
    case 3: {  // the rest of the ring
      const std::uint64_t rest = host.shard.lanes.to_end(host.lane(kFuzzed).written);
      return host.write(kFuzzed, with_head({.bytes = rest, .kind = MessageKind::kPad}), rest);
    }
    default: {
      const std::vector<std::byte> message = push_message(choices, number);
      return host.write(kFuzzed, message, message.size());
    }
  }
}

// The answer to a message of the good client.
base::Code answer_to(Host& host, const std::vector<std::byte>& message) {
  const std::uint64_t place = host.lane(kGood).written;
  host.write(kGood, message, message.size());
  host.poll();
  require(host.lane(kGood).damaged == 0 && host.lane(kGood).read == host.lane(kGood).written);
  MessageHeader header;
  std::memcpy(&header, host.shard.lanes.at(kGood, place), sizeof header);
  return static_cast<base::Code>(header.answer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Host host;
  Choices choices(std::span(data, size));
  for (std::uint64_t number = 1; !choices.empty() && number <= 64; ++number) {
    write_one(host, choices, number);
    host.poll();
    const Lane& lane = host.lane(kFuzzed);
    require(lane.damaged != 0 || lane.read == lane.written);
    if (lane.damaged != 0) require(lane.why[0] != 0 && lane.why.back() == 0);
  }
  // A good client's table, and its push, which only a full store refuses.
  const auto well = [](base::Code code) {
    return code == base::Code::kOk || code == base::Code::kResourceExhausted;
  };
  const base::Code opened = answer_to(host, open_message({.name = "good", .rows = 1}));
  require(well(opened));
  std::vector<PushPart> parts{{.range = 0, .reserved = 0, .keys = 0, .gradient_bytes = 4}};
  const auto ranges = ranges_in(host.shard.store).value();
  for (const RangeHeader* const range : ranges) {
    if (range->name.data() == std::string("good")) parts[0].range = range->id;
  }
  if (opened == base::Code::kOk) {
    std::vector<std::byte> push = with_head(
        {.bytes = bytes_of_push(parts), .kind = MessageKind::kPush, .parts = 1, .number = 1});
    std::memcpy(push.data() + kContentAt, parts.data(), sizeof(PushPart));
    require(well(answer_to(host, push)));
  }
  // Both lanes are free once their clients, which hold no mutex, count as ended.
  host.attach();
  host.poll();
  host.server->free_lanes();
  require(host.lane(kFuzzed).client == 0 && host.lane(kGood).client == 0);
  return 0;
}
