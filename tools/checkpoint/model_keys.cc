// Reads what python/regroup/_torch_state.py writes into the tensor regroup.state: in a checkpoint
// of save() the JSON [state, names]; in one of a job the length of the text (8 bytes), then the
// JSON [state, types and shapes, keys of the model's state_dict() or why it has none].
#include "tools/checkpoint/model_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/printable.h"
#include "checkpoint/json_outline.h"

namespace regroup::checkpoint_tool {
namespace {

using base::escaped;
using base::Result;
using base::Status;
using checkpoint::Checkpoint;
using Json = nlohmann::json;

constexpr const char *kState = "regroup.state", *kModel = "model.";
constexpr std::size_t kDeepest = 200;
constexpr const char* kPlaces[] = {"model", "state_dict", "model_state_dict"};

// Builds a Selection from names of tensors in a checkpoint.
class Selector {
 public:
  explicit Selector(const Checkpoint& from) : from_(from) {
    out_.manifest.step = from.manifest().step;
  }

  bool add(const std::string& name, const std::string& key) {
    const auto index = from_.find(name);
    if (index) add(*index, key);
    return index.has_value();
  }
  void add(std::size_t index, const std::string& key) {
    const checkpoint::Tensor& tensor = from_.manifest().tensors[index];
    out_.manifest.tensors.push_back({key, tensor.dtype, tensor.shape, {}});
    out_.tensors.push_back(index);
  }
  // Adds the tensors whose names begin with `prefix`, and removes the prefix.
  void add_all(std::string_view prefix) {
    const auto& tensors = from_.manifest().tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name.starts_with(prefix) && tensors[i].name.size() > prefix.size())
        add(i, tensors[i].name.substr(prefix.size()));
    }
  }
  Result<Selection> take(std::string_view why_none) {
    if (!out_.tensors.empty()) return std::move(out_);
    return base::invalid_argument(
        fmt::format("checkpoint {}: contains no model: {}", from_.path(), why_none));
  }

 private:
  const Checkpoint& from_;
  Selection out_;
};

Status not_as_written(const Checkpoint& from) {
  return base::invalid_argument(fmt::format(
      "checkpoint {}: tensor {} was not written by regroup.torch", from.path(), kState));
}

// A mapping is ["dict" or the like, [[key, value], ...]], a tensor ["tensor", its number].
bool is_mapping(const Json& value) {
  return value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_array() &&
         std::ranges::all_of(
             value[1], [](const Json& item) { return item.is_array() && item.size() == 2; }) &&
         value[0] != "list" && value[0] != "tuple";
}

std::optional<std::size_t> tensor_in(const Json& value) {
  const bool one = value.is_array() && value.size() == 2 && value[0] == "tensor" &&
                   value[1].is_number_unsigned();
  return one ? std::optional(value[1].get<std::size_t>()) : std::nullopt;
}

const Json* find_model(const Json& state) {
  if (!is_mapping(state)) return nullptr;
  for (const char* place : kPlaces) {
    for (const Json& item : state[1]) {
      if (item[0] == place && is_mapping(item[1])) return &item[1];
    }
  }
  const bool tensors = std::ranges::any_of(
      state[1], [](const Json& item) { return tensor_in(item[1]).has_value(); });
  return tensors ? &state : nullptr;
}

// Selects the model in a checkpoint of save().
Result<Selection> select_saved(const Checkpoint& from, const Json& json) {
  Selector out(from);
  const char* const why =
      "the state is not a state_dict(), and has none under \"model\", \"state_dict\" or "
      "\"model_state_dict\"";
  const Json* model = find_model(json[0]);
  if (model == nullptr) return out.take(why);
  for (const Json& item : (*model)[1]) {
    const auto number = tensor_in(item[1]);
    const std::string key = item[0].is_string() ? item[0].get<std::string>() : item[0].dump();
    if (!number || !item[0].is_string())
      return base::invalid_argument(fmt::format(
          "checkpoint {}: {} of the model is not a tensor with a string as its key: export "
          "without --model-only",
          from.path(), escaped(key)));
    const Json& names = json[1];
    if (*number >= names.size() || !names[*number].is_string() ||
        !out.add(names[*number].get<std::string>(), key))
      return not_as_written(from);
  }
  return out.take(why);
}

// Selects the model in a checkpoint of a job. Each of `keys` is [key, X]; X is the tensor's number
// (the model's tensors come first), or its name in the checkpoint, or null if the checkpoint lacks
// the tensor.
Result<Selection> select_of_job(const Checkpoint& from, const Json& state, const Json& keys) {
  const Json* model = find_model(state);
  if (model == nullptr) return not_as_written(from);
  Selector out(from);
  for (const Json& item : keys) {
    const bool named = item.is_array() && item.size() == 2 && item[0].is_string();
    if (named && item[1].is_string() &&
        out.add(item[1].get<std::string>(), item[0].get<std::string>()))
      continue;
    if (named && (item[1].is_null() || item[1].is_string()))
      return base::invalid_argument(fmt::format(
          "checkpoint {}: {} in the state_dict() of the model is neither a parameter nor a "
          "buffer, which a job saves: export without --model-only",
          from.path(), escaped(item[0].get<std::string>())));
    const bool pair =
        item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_number_unsigned();
    const std::size_t number = pair ? item[1].get<std::size_t>() : 0;
    if (!pair || number >= (*model)[1].size() || !(*model)[1][number][0].is_string() ||
        !out.add(kModel + (*model)[1][number][0].get<std::string>(), item[0].get<std::string>()))
      return not_as_written(from);
  }
  return out.take("the state_dict() is empty");
}

// Python writes NaN, Infinity and -Infinity, which are not JSON. They become 0: no key depends on
// them.
std::string without_constants(std::string_view text) {
  std::string out(text);
  bool in_string = false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (in_string && out[i] == '\\')
      ++i;
    else if (out[i] == '"')
      in_string = !in_string;
    if (in_string || i >= out.size()) continue;
    for (const std::string_view constant : {"NaN", "Infinity", "-Infinity"}) {
      if (out.compare(i, constant.size(), constant) != 0) continue;
      out.replace(i, constant.size(), constant.size(), ' ');
      out[i] = '0';
    }
  }
  return out;
}

}  // namespace

Selection all_of(const Checkpoint& from) {
  Selection out;
  out.manifest.step = from.manifest().step;
  for (const checkpoint::Tensor& tensor : from.manifest().tensors) {
    out.tensors.push_back(out.tensors.size());
    out.manifest.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
  }
  return out;
}

Result<Selection> model_of(const Checkpoint& from) {
  Selector named(from);
  named.add_all(kModel);
  const auto state = from.find(kState);
  if (!state) {
    auto out = named.take("");
    if (out.ok()) return out;
    Selector rest(from);
    const auto& tensors = from.manifest().tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::string& name = tensors[i].name;
      if (!name.starts_with("regroup.") && !name.starts_with("optimizer.") &&
          !name.starts_with("optimizer/"))
        rest.add(i, name);
    }
    return rest.take("all tensors belong to the optimizer or to regroup");
  }
  std::string text(checkpoint::bytes_of(from.manifest().tensors[*state]), '\0');
  REGROUP_RETURN_IF_ERROR(from.read(*state, std::as_writable_bytes(std::span(text))));
  const bool saved = text.starts_with('[');
  std::uint64_t length = 0;
  if (!saved && text.size() >= sizeof length) std::memcpy(&length, text.data(), sizeof length);
  if (!saved && (text.size() < sizeof length || length > text.size() - sizeof length))
    return not_as_written(from);
  const std::string_view body =
      saved ? std::string_view(text) : std::string_view(text).substr(8, length);
  const bool deep = checkpoint::outline_of_json(body).depth > kDeepest;
  const Json json = Json::parse(deep ? std::string() : without_constants(body), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_array() || json.size() < 2 || !json[1].is_array()) return not_as_written(from);
  if (saved) return select_saved(from, json);
  if (json.size() > 2 && json[2].is_string())
    return base::invalid_argument(fmt::format("checkpoint {}: {}: export without --model-only",
                                              from.path(), escaped(json[2].get<std::string>())));
  // Older jobs did not write the keys.
  return json.size() > 2 && json[2].is_array() ? select_of_job(from, json[0], json[2])
                                               : named.take("no tensor has a name model.KEY");
}

}  // namespace regroup::checkpoint_tool
