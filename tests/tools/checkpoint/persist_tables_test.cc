// Tables as tensors: the specs in JSON, the boxes of ranges, and the way back.
#include "tools/persist/tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "checkpoint/box.h"

namespace regroup::persist {
namespace {

using namespace collective::ps;

TableSpec users() {
  return {.name = "users",
          .kind = TableKind::kHash,
          .dim = 2,
          .init = {InitialKind::kUniform, -0.1, std::nextafter(0.1, 1)},
          .optimizer = {.kind = OptimizerKind::kRowAdagrad, .epsilon = 1e-300}};
}
TableSpec top() {
  return {.name = "top", .rows = 3 << 20, .optimizer = {.kind = OptimizerKind::kAdam}};
}

TEST(TableSpecs, KeepEveryBit) {
  const std::vector<TableSpec> specs{
      users(),
      top(),
      {.name = "a/b.c",
       .kind = TableKind::kDirect,
       .rows = 1ULL << 40,
       .dim = 7,
       .dtype = Dtype::kBfloat16,
       .init = {InitialKind::kNormal, 1, 2},
       .optimizer = {.kind = OptimizerKind::kFtrl, .l1 = 0.1, .l2 = 0.2, .beta = 0.3}},
      {.name = "n",
       .kind = TableKind::kHash,
       .dtype = Dtype::kInt64,
       .init = {InitialKind::kConstant, -5, 0}}};
  const auto read = specs_of(to_json(specs));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, specs);
  EXPECT_EQ(specs_of(to_json({}))->size(), 0U);
}

TEST(TableSpecs, AreRefusedWhenTheyAreNone) {
  const std::string good = to_json(std::vector{users()});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return specs_of(text).code();
  };
  EXPECT_EQ(with("users", "users"), base::Code::kOk);
  for (const char* const text : {"", "{", "[1]", "[{}]", "{\"a\":1}", "[[]]"})
    EXPECT_EQ(specs_of(text).code(), base::Code::kDataLoss) << text;
  EXPECT_EQ(with("\"hash\"", "\"heap\""), base::Code::kDataLoss);
  EXPECT_EQ(with("\"row_adagrad\"", "\"rmsprop\""), base::Code::kDataLoss);
  EXPECT_EQ(with("\"dim\":2", "\"dim\":\"2\""), base::Code::kDataLoss);
  EXPECT_EQ(with("\"dim\":2", "\"dim\":0"), base::Code::kInvalidArgument);
  EXPECT_EQ(with("\"rows\":0", "\"rows\":9"), base::Code::kInvalidArgument);
}

RangeCopy rows_of(PositionRange range, std::vector<std::uint64_t> positions) {
  RangeCopy out{.spec = users(), .range = range};
  out.updates.resize(positions.size(), 3);
  out.values.resize(positions.size() * 8);
  out.state.resize(positions.size() * 4);
  out.positions = std::move(positions);
  return out;
}

TEST(TablesImage, PiecesCoverEachTensorInTheOrderOfPositions) {
  std::vector<RangeCopy> copies;
  copies.push_back(rows_of({1ULL << 63, ~0ULL}, {1ULL << 63, ~0ULL}));
  for (const PositionRange& range : ranges_of(top(), 2))
    copies.push_back(initial_copy(top(), range, 7));
  copies.push_back(rows_of({0, 99}, {}));
  copies.push_back(rows_of({100, (1ULL << 63) - 1}, {100, 101, 5000}));
  const TablesImage image = image_of(std::move(copies));
  std::map<std::string, std::vector<checkpoint::Box>> boxes;
  std::map<std::string, checkpoint::Shape> shapes;
  std::vector<std::int64_t> ids;
  for (const checkpoint::CheckpointPiece& piece : image.pieces) {
    boxes[piece.name].push_back(piece.box);
    shapes[piece.name] = piece.shape;
    if (piece.name != "users/ids") continue;
    const auto* const first = reinterpret_cast<const std::int64_t*>(piece.bytes.data());
    ids.insert(ids.end(), first, first + piece.bytes.size() / 8);
  }
  for (const auto& [name, of_tensor] : boxes)
    EXPECT_EQ(checkpoint::tiling_error(shapes[name], of_tensor), std::nullopt) << name;
  EXPECT_EQ(shapes["users/values"], (checkpoint::Shape{5, 2}));
  EXPECT_EQ(shapes["users/state"], (checkpoint::Shape{5, 1}));
  EXPECT_EQ(shapes["top/state"], (checkpoint::Shape{2, 3 << 20}));
  EXPECT_EQ(shapes["top/updates"], checkpoint::Shape{3});
  std::vector<std::uint64_t> positions;
  for (const std::int64_t id : ids) positions.push_back(position_of(TableKind::kHash, id));
  EXPECT_EQ(positions, (std::vector<std::uint64_t>{100, 101, 5000, 1ULL << 63, ~0ULL}));
}

// At the end of a job no server is started any more.
TEST(CopyTables, AppliesTheLogOfAServerThatDiedInAPush) {
  const auto memory = make_server_memory({.job_seed = 7,
                                          .shards = 2,
                                          .segments = 4,
                                          .segment_bytes = 2 << 20,
                                          .ring_bytes = 256 << 10,
                                          .lanes = 8,
                                          .lane_bytes = 64 << 10});
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  std::vector<MappedShard> shards;
  for (const ShardMemory& shard : memory->get().shards) {
    auto mapped = MappedShard::open(shard, StoreMemory::Mode::kWrite);
    ASSERT_TRUE(mapped.ok()) << mapped.status().to_string();
    shards.push_back(std::move(*mapped));
  }
  std::vector<std::uint64_t> pushed;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    const base::TimePoint soon = base::SystemClock().now() + std::chrono::seconds(10);
    auto server = ShardServer::attach(shards, shard, soon);
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    ASSERT_TRUE((*server)->open_table(users()).ok());
    (*server)->store().each([&](Range& range) {
      const std::vector<std::uint64_t> positions{range.header().positions.first};
      const std::vector<float> gradients{1, 2};
      const auto appended = range.append({.client = 3,
                                          .number = 1,
                                          .epoch = range.epoch(),
                                          .positions = positions,
                                          .gradients = std::as_bytes(std::span(gradients)),
                                          .scalars = {.lr = 0.5}});
      ASSERT_TRUE(appended.ok()) << appended.status().to_string();
      pushed.push_back(positions[0]);
    });
  }
  for (const MappedShard& shard : shards) WriteTurn(shard.store);  // without settle()
  int signs = 0;
  const auto image = copy_tables(shards, [&] { ++signs; });
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  EXPECT_EQ(signs, static_cast<int>(image->copies.size()));
  std::vector<std::uint64_t> copied;
  for (const RangeCopy& copy : image->copies) {
    EXPECT_EQ(copy.lsn, 1U);
    copied.insert(copied.end(), copy.positions.begin(), copy.positions.end());
  }
  std::ranges::sort(pushed);
  EXPECT_EQ(copied, pushed);
}

TEST(CopyTables, HasTheNumberOfSteps) {
  const auto memory = make_server_memory({.segments = 2,
                                          .segment_bytes = 2 << 20,
                                          .ring_bytes = 256 << 10,
                                          .lanes = 8,
                                          .lane_bytes = 64 << 10});
  std::vector<MappedShard> shards;
  auto mapped = MappedShard::open(memory->get().shards[0], StoreMemory::Mode::kWrite);
  shards.push_back(std::move(*mapped));
  const auto before = copy_tables(shards, [] {});
  EXPECT_EQ(before->pieces.size(), 1U) << "of other modes there is no step";
  restore_step(shards, 41);
  const auto image = copy_tables(shards, [] {});
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  ASSERT_EQ(image->pieces.size(), 2U);
  EXPECT_EQ(image->pieces[1].name, kStepName);
  std::uint64_t step = 0;
  std::memcpy(&step, image->pieces[1].bytes.data(), sizeof step);
  EXPECT_EQ(step, 41U);
}

TEST(TablesImage, ATableWithoutRowsHasItsTensors) {
  std::vector<RangeCopy> copies;
  copies.push_back(rows_of({0, 99}, {}));
  copies.push_back(rows_of({100, ~0ULL}, {}));
  const TablesImage image = image_of(std::move(copies));
  ASSERT_EQ(image.pieces.size(), 5U) << "ids, values, state, updates, specs";
  EXPECT_EQ(image.pieces[0].shape, checkpoint::Shape{0});
  EXPECT_TRUE(image_of({}).pieces[0].name == kSpecsName);
}

}  // namespace
}  // namespace regroup::persist
