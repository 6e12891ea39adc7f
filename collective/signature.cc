// Packs and describes signatures.
#include "collective/signature.h"

#include <fmt/format.h>

namespace regroup::collective {

CollectiveSignature signature_of(const Operation& o, int size) {
  return {static_cast<std::uint64_t>(o.kind) | static_cast<std::uint64_t>(o.dtype) << 8 |
              static_cast<std::uint64_t>(o.op) << 16 | static_cast<std::uint64_t>(o.root) << 32,
          o.block(size)};
}

static_assert(kTreeReduce == static_cast<std::uint64_t>(Kind::kReceive) + 1);

CollectiveSignature tree_reduce_signature(Dtype dtype, std::uint32_t leaf_count,
                                          std::size_t bytes) {
  return {kTreeReduce | static_cast<std::uint64_t>(dtype) << 8 |
              static_cast<std::uint64_t>(leaf_count) << 32,
          bytes};
}

bool is_valid_signature(CollectiveSignature signature) {
  constexpr auto kMaxDtype = static_cast<std::uint64_t>(Dtype::kUint8);
  constexpr auto kMaxOp = static_cast<std::uint64_t>(Op::kBor);
  return (signature.what & 0xff) <= kTreeReduce && (signature.what >> 8 & 0xff) <= kMaxDtype &&
         (signature.what >> 16 & 0xff) <= kMaxOp;
}

const char* name_of(CollectiveSignature signature) {
  const std::uint64_t kind = signature.what & 0xff;
  return kind == kTreeReduce ? "tree_reduce" : name_of(static_cast<Kind>(kind));
}

std::string describe(CollectiveSignature signature) {
  const auto kind = static_cast<Kind>(signature.what & 0xff);
  const char* dtype = name_of(static_cast<Dtype>(signature.what >> 8 & 0xff));
  const auto root = signature.what >> 32;
  if (kind == Kind::kBarrier) return name_of(kind);
  std::string text = fmt::format("{} of {} bytes", name_of(signature), signature.bytes);
  if ((signature.what & 0xff) == kTreeReduce)
    return text + fmt::format(" ({}, {} leaves)", dtype, root);
  if (kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter) {
    text += fmt::format(" ({}, {})", dtype, name_of(static_cast<Op>(signature.what >> 16 & 0xff)));
  }
  const bool rooted = kind == Kind::kReduce || kind == Kind::kGather || kind == Kind::kScatter ||
                      kind == Kind::kBroadcast;
  return rooted ? text + fmt::format(" with root {}", root) : text;
}

}  // namespace regroup::collective
