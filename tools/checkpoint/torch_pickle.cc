// Pickle protocol 2, limited to what torch's restricted reader accepts. Each tensor is
// torch._utils._rebuild_tensor_v3(untyped storage, 0, shape, strides, False, OrderedDict(), dtype).
#include "tools/checkpoint/torch_pickle.h"

#include <algorithm>
#include <cstdint>

namespace regroup::checkpoint_tool {
namespace {

template <class T>
void put(std::string* out, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    out->push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> 8 * i & 0xff));
}

void put_text(std::string* out, const std::string& text) {
  *out += 'X';
  put(out, static_cast<std::uint32_t>(text.size()));
  *out += text;
}

// Writes any unsigned number as a LONG1 of nine bytes.
void put_number(std::string* out, std::uint64_t value) {
  *out += "\x8a\x09";
  put(out, value);
  *out += '\0';
}

void put_global(std::string* out, const std::string& module, const std::string& name) {
  *out += "c" + module + "\n" + name + "\n";
}

void put_numbers(std::string* out, const checkpoint::Shape& numbers) {
  *out += '(';
  for (const std::uint64_t number : numbers) put_number(out, number);
  *out += 't';
}

checkpoint::Shape strides_of(const checkpoint::Shape& shape) {
  checkpoint::Shape out(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;)
    out[i - 1] = out[i] * std::max<std::uint64_t>(shape[i], 1);
  return out;
}

void put_tensor(std::string* out, const checkpoint::Tensor& tensor, std::size_t index) {
  put_global(out, "torch._utils", "_rebuild_tensor_v3");
  *out += "((";
  put_text(out, "storage");
  put_global(out, "torch.storage", "UntypedStorage");
  put_text(out, std::to_string(index));
  put_text(out, "cpu");
  put_number(out, checkpoint::bytes_of(tensor));
  *out += "tQ";
  put_number(out, 0);
  put_numbers(out, tensor.shape);
  put_numbers(out, strides_of(tensor.shape));
  *out += '\x89';
  put_global(out, "collections", "OrderedDict");
  *out += ")R";
  put_global(out, "torch", tensor.dtype);
  *out += "tR";
}

}  // namespace

std::string torch_pickle(const checkpoint::Manifest& manifest) {
  std::string out = "\x80\x02";
  put_global(&out, "collections", "OrderedDict");
  out += ")R(";
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    put_text(&out, manifest.tensors[i].name);
    put_tensor(&out, manifest.tensors[i], i);
  }
  return out + "u.";
}

}  // namespace regroup::checkpoint_tool
