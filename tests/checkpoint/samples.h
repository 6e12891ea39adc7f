// A small manifest that is as it must be.
#pragma once

#include "checkpoint/manifest.h"

namespace regroup::checkpoint {

// Two writers: a matrix of 4 x 3 floats in two pieces of rows, a scalar, a tensor of no elements.
inline Manifest sample_manifest() {
  Manifest m;
  m.step = 1234;
  m.job = "5e2f";
  m.seed = 0xffffffffffffffffU;
  m.shards = 8;
  m.model = "w:48;\"quoted\"";
  m.fingerprint = "isa=avx2 threads=1";
  m.files = {{"shard-0000-of-0002.h5", 1000, {{0, 100, {1}}, {124, 876, {2}}}},
             {"shard-0001-of-0002.h5", 324, {{0, 100, {3}}, {128, 196, {4}}}}};
  m.tensors = {{"layer.weight",
                "float32",
                {4, 3},
                {{0, "layer.weight", {{0, 0}, {2, 3}}, {100, 24, {5}}},
                 {1, "layer.weight", {{2, 0}, {2, 3}}, {100, 24, {6}}}}},
               {"steps", "int32", {}, {{1, "~packed.int32", {{}, {}}, {124, 4, {7}}}}},
               {"nothing", "bfloat16", {0, 5}, {{0, "nothing", {{0, 0}, {0, 5}}, {0, 0, {}}}}}};
  return m;
}

}  // namespace regroup::checkpoint
