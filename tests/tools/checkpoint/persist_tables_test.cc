// Tables as tensors: the specs in JSON, the boxes of ranges, and the way back.
#include "tools/persist/tables.h"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>

#include "checkpoint/box.h"
#include "checkpoint/directory.h"
#include "checkpoint/hdf5/factory.h"
#include "checkpoint/manifest.h"
#include "tools/persist/join.h"

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

// As a writer notes where its pieces are in its file.
checkpoint::Manifest part_of(const TablesImage& image, const std::string& file) {
  checkpoint::Manifest out{.step = 7, .content = checkpoint::Content::kTables};
  out.files = {{.name = file}};
  for (const checkpoint::CheckpointPiece& piece : image.pieces) {
    if (piece.name == kSpecsName) continue;
    auto tensor = std::ranges::find(out.tensors, piece.name, &checkpoint::Tensor::name);
    if (tensor == out.tensors.end())
      tensor = out.tensors.insert(tensor, {piece.name, piece.dtype, piece.shape, {}});
    const std::uint64_t bytes = piece.bytes.size();
    tensor->pieces.push_back(
        {0,
         "d",
         piece.box,
         {out.files[0].bytes, bytes, std::vector<std::uint32_t>(checkpoint::blocks_of(bytes))}});
    out.files[0].bytes += bytes;
  }
  return out;
}

const checkpoint::Tensor& tensor_of(const checkpoint::Manifest& manifest, const std::string& name) {
  return *std::ranges::find(manifest.tensors, name, &checkpoint::Tensor::name);
}

TEST(TablesJoin, MakesTensorsOfAllStoresAndLeavesOutWhatOneDoesNotHave) {
  TableSpec tags{.name = "tags", .kind = TableKind::kHash};
  TableSpec early{.name = "early", .rows = 10};
  std::vector<RangeCopy> copies[2];
  copies[0].push_back(rows_of({0, 99}, {5, 7}));
  copies[1].push_back(rows_of({100, 199}, {150}));
  copies[0].push_back(rows_of({200, ~0ULL}, {300}));
  copies[0].push_back({.spec = tags, .range = {0, 9}});
  copies[1].push_back({.spec = tags, .range = {10, ~0ULL}});
  const std::vector<PositionRange> slices = ranges_of(top(), 1);
  for (std::size_t i = 0; i < slices.size(); ++i)
    copies[i % 2].push_back(initial_copy(top(), slices[i], 7));
  copies[1].push_back(initial_copy(early, {0, 9}, 7));
  std::vector<TablesImage> images;
  for (auto& of_store : copies) images.push_back(image_of(std::move(of_store)));
  images[1].changes = true;
  const std::vector<std::string> texts{ranges_text(images[0]), ranges_text(images[1])};
  const auto join = TablesJoin::of(texts);
  ASSERT_TRUE(join.ok()) << join.status().to_string();
  std::vector<std::string> names;
  for (const TableSpec& spec : join->specs()) names.push_back(spec.name);
  EXPECT_EQ(names, (std::vector<std::string>{"tags", "top", "users"}));
  EXPECT_TRUE(join->left_out());
  std::vector<checkpoint::Manifest> parts{part_of(images[0], "a"), part_of(images[1], "b")};
  ASSERT_TRUE(join->settle(parts, 6).ok());
  const auto whole = checkpoint::merge(std::move(parts));  // checks that each byte counts once
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  EXPECT_EQ(whole->content, checkpoint::Content::kTableChanges) << "as one part has only these";
  EXPECT_EQ(whole->base, 6U);
  EXPECT_EQ(tensor_of(*whole, "users/ids").shape, checkpoint::Shape{4});
  std::map<std::uint64_t, std::uint32_t> files;  // by first row
  for (const checkpoint::Piece& piece : tensor_of(*whole, "users/ids").pieces)
    files[piece.box.start[0]] = piece.file;
  EXPECT_EQ(files, (std::map<std::uint64_t, std::uint32_t>{{0, 0}, {2, 1}, {3, 0}}));
  EXPECT_EQ(tensor_of(*whole, "top/updates").shape, checkpoint::Shape{3});
  EXPECT_EQ(tensor_of(*whole, "tags/values").shape, (checkpoint::Shape{0, 1}));
  EXPECT_EQ(tensor_of(*whole, "tags/values").pieces.size(), 1U);
  EXPECT_TRUE(std::ranges::none_of(whole->tensors, [](const checkpoint::Tensor& tensor) {
    return tensor.name.starts_with("early");
  }));
}

// Small pieces of a type share a dataset of their file, also with those of a table that is left
// out.
TEST(TablesJoin, TheViewHasTheValuesOfSmallPiecesBesideThoseOfATableThatIsLeftOut) {
  std::string directory = (std::filesystem::temp_directory_path() / "tables-join-XXXXXX").string();
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  constexpr std::size_t kRows = 40;  // of each store: 320 bytes of values
  std::vector<TablesImage> images;
  images.reserve(2);  // a copy's pieces would be those of the original
  for (std::uint64_t store = 0; store < 2; ++store) {
    std::vector<std::uint64_t> positions(kRows);
    std::iota(positions.begin(), positions.end(), store * 100);
    std::vector<float> values(2 * kRows);
    std::iota(values.begin(), values.end(), static_cast<float>(2 * kRows * store));
    const PositionRange range = store == 0 ? PositionRange{0, 99} : PositionRange{100, ~0ULL};
    std::vector<RangeCopy> copies;
    copies.push_back(rows_of(range, std::move(positions)));
    std::memcpy(copies[0].values.data(), values.data(), values.size() * sizeof(float));
    if (store == 1)
      copies.push_back(initial_copy({.name = "early", .rows = 10}, PositionRange{0, 9}, 7));
    images.push_back(image_of(std::move(copies)));
  }
  const auto join = TablesJoin::of(std::vector{ranges_text(images[0]), ranges_text(images[1])});
  ASSERT_TRUE(join.ok()) << join.status().to_string();
  ASSERT_TRUE(join->left_out());
  checkpoint::CheckpointPart part{.uuid = "u", .writers = 3};
  part.about.step = 7;
  part.about.content = checkpoint::Content::kTables;
  checkpoint::hdf5::WriteOptions options;
  options.commits = false;
  options.settle = [&](std::vector<checkpoint::Manifest>& parts) { return join->settle(parts); };
  const auto store = checkpoint::hdf5::make_store(directory, options);
  for (TablesImage& image : images) {
    std::erase_if(image.pieces, [](const auto& piece) { return piece.name == kSpecsName; });
    part.pieces = image.pieces;
    ASSERT_EQ(store->write(part).to_string(), base::Status().to_string());
    ++part.writer;
  }
  const std::string specs = to_json(join->specs());
  part.pieces = {{kSpecsName,
                  "uint8",
                  {specs.size()},
                  checkpoint::whole({specs.size()}),
                  std::as_bytes(std::span(specs))}};
  ASSERT_EQ(store->write(part).to_string(), base::Status().to_string());
  ASSERT_EQ(store->commit(part).to_string(), base::Status().to_string());
  const std::string view = checkpoint::path_of_step(directory, 7) + "/model.h5";
  const hid_t file = H5Fopen(view.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  const hid_t dataset = H5Dopen2(file, "users@2Fvalues", H5P_DEFAULT);
  ASSERT_GE(dataset, 0);
  std::vector<float> read(4 * kRows, -1), expected(4 * kRows);
  std::iota(expected.begin(), expected.end(), 0.0F);
  EXPECT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, read.data()), 0);
  EXPECT_EQ(read, expected);
  H5Dclose(dataset);
  H5Fclose(file);
  std::filesystem::remove_all(directory);
}

TEST(TablesJoin, RefusesPartsThatDoNotFit) {
  std::vector<RangeCopy> copies;
  copies.push_back(rows_of({0, ~0ULL}, {5, 7}));
  const TablesImage image = image_of(std::move(copies));
  TableSpec other = users();
  other.dim = 3;
  const std::vector<std::string> differ{
      ranges_text(image),
      "{\"changes\":false,\"ranges\":{},\"step\":0,\"tables\":" + to_json({{other}}) + "}"};
  const auto two = TablesJoin::of(differ);
  EXPECT_EQ(two.status().message(), "table users: two hosts have other specs");
  for (const char* const text : {"", "{}", "[]", R"({"tables":[],"ranges":{}})",
                                 R"({"tables":[],"ranges":1,"step":0,"changes":false})"})
    EXPECT_EQ(TablesJoin::of(std::vector<std::string>{text}).code(), base::Code::kDataLoss) << text;
  TablesImage later = image_of({});
  later.step = {7};
  EXPECT_EQ(TablesJoin::of(std::vector{ranges_text(later), ranges_text(later)})->step(), 7U);
  const auto steps = TablesJoin::of(std::vector{ranges_text(later), ranges_text(image)});
  EXPECT_EQ(steps.status().message(),
            "steps of mode sync: store 0 has 7, store 1 0; the next attempt may have the same");
  const auto join = TablesJoin::of(std::vector{ranges_text(image)});
  ASSERT_TRUE(join.ok());
  std::vector<checkpoint::Manifest> parts{part_of(image, "a")};
  ++parts[0].tensors[0].pieces[0].box.count[0];
  EXPECT_EQ(join->settle(parts).code(), base::Code::kDataLoss);
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

// Each range would be in the checkpoint as often as there are replicas.
TEST(CopyTables, RefusesTablesWithReplicas) {
  const auto memory = make_server_memory({.segments = 2,
                                          .segment_bytes = 2 << 20,
                                          .ring_bytes = 256 << 10,
                                          .lanes = 8,
                                          .lane_bytes = 64 << 10});
  std::vector<MappedShard> shards;
  auto mapped = MappedShard::open(memory->get().shards[0], StoreMemory::Mode::kWrite);
  shards.push_back(std::move(*mapped));
  TableSpec spec = users();
  spec.part = {.number = 0, .of = 2, .shards = 2, .replicas = 2};
  {
    auto server =
        ShardServer::attach(shards, 0, base::SystemClock().now() + std::chrono::seconds(60));
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    const base::Status opened = (*server)->open_table(spec);
    ASSERT_TRUE(opened.ok()) << opened.to_string();
  }
  EXPECT_EQ(copy_tables(shards, [] {}).status().message(),
            "table users: it has 2 replicas in several stores, and tables with replicas cannot be "
            "saved yet; expected 1 replica in a job that writes checkpoints");
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
