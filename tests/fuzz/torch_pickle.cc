// Tensors that the input makes up, as the pickle of a .pt file: a reader of protocol 2 finds them
// again, with the shapes, strides and sizes that a contiguous tensor has. Files of torch.save() are
// read by torch alone; tests/python replays tests/fuzz/corpus/torch_load through that.
#include "tools/checkpoint/torch_pickle.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/dtype.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using regroup::fuzz::require;

namespace {

constexpr const char* kTypes[] = {"float32", "bfloat16", "float8_e4m3fn",
                                  "int64",   "bool",     "complex128"};

// The opcodes that torch_pickle() uses, each of which must be the next one.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  void literal(std::string_view wanted) { require(take(wanted.size()) == wanted); }
  std::uint64_t number() {
    literal("\x8a\x09");
    const std::uint64_t value = little_endian(8);
    literal(std::string_view("\0", 1));  // the sign
    return value;
  }
  std::string_view text() {
    literal("X");
    return take(little_endian(4));
  }
  checkpoint::Shape numbers() {
    checkpoint::Shape out;
    literal("(");
    while (bytes_.starts_with('\x8a')) out.push_back(number());
    literal("t");
    return out;
  }
  [[nodiscard]] bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view take(std::size_t size) {
    require(size <= bytes_.size());
    const std::string_view out = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return out;
  }
  std::uint64_t little_endian(std::size_t size) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; const char byte : take(size))
      value |= std::uint64_t{static_cast<unsigned char>(byte)} << 8 * i++;
    return value;
  }
  std::string_view bytes_;
};

void require_contiguous(const checkpoint::Shape& shape, const checkpoint::Shape& strides) {
  require(strides.size() == shape.size());
  std::uint64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    require(strides[i] == stride);
    stride *= std::max<std::uint64_t>(shape[i], 1);
  }
}

void require_tensor(Reader& in, const checkpoint::Tensor& tensor, std::size_t index) {
  require(in.text() == tensor.name);
  in.literal("ctorch._utils\n_rebuild_tensor_v3\n((");
  require(in.text() == "storage");
  in.literal("ctorch.storage\nUntypedStorage\n");
  require(in.text() == std::to_string(index) && in.text() == "cpu");
  require(in.number() == checkpoint::bytes_of(tensor));
  in.literal("tQ");
  require(in.number() == 0 && in.numbers() == tensor.shape);
  require_contiguous(tensor.shape, in.numbers());
  in.literal(
      "\x89"
      "ccollections\nOrderedDict\n)Rctorch\n" +
      tensor.dtype + "\ntR");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices choices({data, size});
  checkpoint::Manifest manifest;
  while (!choices.empty() && manifest.tensors.size() < 100) {
    const auto name = choices.some();
    checkpoint::Tensor tensor{{name.begin(), name.end()}, kTypes[choices.below(6)], {}, {}};
    for (std::uint32_t n = choices.below(6); n > 0; --n)
      tensor.shape.push_back(choices.below(8) == 0 ? choices.number() : choices.below(256));
    if (checkpoint::volume_of(tensor.shape)) manifest.tensors.push_back(std::move(tensor));
  }
  const std::string pickle = checkpoint_tool::torch_pickle(manifest);
  Reader in(pickle);
  in.literal(
      "\x80\x02"
      "ccollections\nOrderedDict\n)R(");
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i)
    require_tensor(in, manifest.tensors[i], i);
  in.literal("u.");
  require(in.at_end());
  return 0;
}
