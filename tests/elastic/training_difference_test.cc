// A checkpoint of another training is refused by a sentence that names layers, types, shapes and
// options.
#include "elastic/training_difference.h"

#include <gtest/gtest.h>

#include <vector>

namespace regroup::elastic {
namespace {

using Tensors = std::vector<TensorInfo>;

const Tensors kMlp{{"regroup.state", "uint8", {448}},
                   {"model.0.weight", "float32", {16, 8}},
                   {"", "uint8", {32}},
                   {"model.0.bias", "float32", {16}}};

std::string difference(std::string_view there, const Tensors& theirs, std::string_view here,
                       const Tensors& ours) {
  return difference_of({there, theirs}, {here, ours});
}

TEST(TrainingDifference, NamesShapesAndTypes) {
  EXPECT_EQ(difference("w:40 samples=400 batch=4", {{"w", "float32", {10}}},
                       "w:44 samples=400 batch=4", {{"w", "float32", {11}}}),
            "tensor w is float32 [10] in the checkpoint, float32 [11] in this program");
  EXPECT_EQ(difference("w:40 samples=400 batch=4", {{"w", "float32", {10}}},
                       "w:40 samples=400 batch=4", {{"w", "int32", {10}}}),
            "tensor w is float32 [10] in the checkpoint, int32 [10] in this program");
}

// Names and texts of a checkpoint from elsewhere: they make no lines, and no orders to a terminal.
TEST(TrainingDifference, EscapesWhatOthersChose) {
  const std::string forged =
      "x\nregroup: the job is over: finished\x1b"
      "c";
  EXPECT_EQ(difference("SGD batch=3\x07", {{forged, "float\n32", {10}}}, "SGD batch=4", {}),
            "tensor x\\nregroup: the job is over: finished\\x1bc, float\\n32 [10], is in the "
            "checkpoint only; "
            "batch is 3\\x07 in the checkpoint, 4 in this program");
  EXPECT_EQ(difference(forged, {}, "SGD", {}),
            "the model is \"x\\nregroup: the job is over: finished\\x1bc\" in the checkpoint, "
            "\"SGD\" in this "
            "program");
}

TEST(TrainingDifference, NamesTensorsThatOneHasAlone) {
  Tensors renamed = kMlp;
  renamed[3].name = "model.0.offset";
  EXPECT_EQ(difference("MLP 0123456789abcdef, SGD samples=9 batch=3", kMlp,
                       "MLP fedcba9876543210, SGD samples=9 batch=3", renamed),
            "tensor model.0.bias, float32 [16], is in the checkpoint only; tensor model.0.offset, "
            "float32 "
            "[16], is in this program only");
}

TEST(TrainingDifference, NamesOptionsAndTheOptimizer) {
  EXPECT_EQ(
      difference("MLP 0123456789abcdef, SGD, 9 samples in batches of 3 samples=9 batch=3", kMlp,
                 "MLP 0123456789abcdef, AdamW, 8 samples in batches of 4 samples=8 batch=4", kMlp),
      "batch is 3 in the checkpoint, 4 in this program; samples is 9 in the checkpoint, 8 in this "
      "program; the model is \"SGD\" in the checkpoint, \"AdamW\" in this program");
}

TEST(TrainingDifference, AnotherClassIsNamedBesideItsLayers) {
  Tensors other = kMlp;
  other[1].shape = {16, 9};
  EXPECT_EQ(difference("MLP 0123456789abcdef, SGD samples=9 batch=3", kMlp,
                       "CNN fedcba9876543210, SGD samples=9 batch=3", other),
            "tensor model.0.weight is float32 [16, 8] in the checkpoint, float32 [16, 9] in this "
            "program; "
            "the model is \"MLP\" in the checkpoint, "
            "\"CNN\" in this program");
}

// Before its first step a program has no moments, and the text of its state is shorter.
TEST(TrainingDifference, TensorsThatTheOptimizerMakesLaterAreNone) {
  Tensors trained = kMlp;
  trained[0].shape = {640};
  trained.push_back({"optimizer.state.0.momentum_buffer", "float32", {16, 8}});
  EXPECT_EQ(difference("MLP 0123456789abcdef, SGD samples=9 batch=3", trained,
                       "MLP 0123456789abcdef, SGD samples=10 batch=3", kMlp),
            "samples is 9 in the checkpoint, 10 in this program");
}

TEST(TrainingDifference, SaysWhatCannotBeSeenInTensors) {
  EXPECT_EQ(
      difference("MLP 0123456789abcdef, SGD samples=9 batch=3", kMlp,
                 "MLP fedcba9876543210, SGD samples=9 batch=3", kMlp),
      "the same tensors, but different ones are trained (requires_grad), or different buffers are "
      "excluded from the state");
}

TEST(TrainingDifference, OfManyTensorsTheFirstAreNamed) {
  Tensors there, here;
  for (int i = 0; i < 10; ++i) {
    there.push_back({"layer" + std::to_string(i), "float32", {2}});
    here.push_back({"layer" + std::to_string(i), "float32", {3}});
  }
  const std::string text = difference("m samples=1 batch=1", there, "m samples=1 batch=1", here);
  EXPECT_TRUE(
      text.ends_with("tensor layer5 is float32 [2] in the checkpoint, float32 [3] in this program; "
                     "4 more tensors differ"))
      << text;
}

}  // namespace
}  // namespace regroup::elastic
