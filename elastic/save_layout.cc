// Tensors first and in order, then bytes, then the lengths of all pieces; large ones at whole
// pages.
#include "elastic/save_layout.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "shmem/save_mark.h"

namespace regroup::elastic {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kSmallAlignment = 64;

}  // namespace

std::vector<TensorInfo> infos_of(State& state, const Pieces& pieces) {
  std::vector<TensorInfo> out = state.tensors();
  for (std::size_t i = out.size(); i < pieces.size(); ++i)
    out.push_back({fmt::format("state.{}", i), kBytes, {pieces[i].size()}});
  return out;
}

std::uint64_t SaveLayout::next(std::size_t bytes) const {
  const std::size_t alignment = bytes >= kShareAlignment ? kShareAlignment : kSmallAlignment;
  return (used + alignment - 1) / alignment * alignment;
}

SaveLayout lay_out(const Pieces& pieces, const std::vector<TensorInfo>& infos) {
  SaveLayout out;
  out.used = sizeof(shmem::SaveHeader);
  out.at.resize(pieces.size());
  const auto put = [&](std::size_t bytes) {
    const std::uint64_t at = out.next(bytes);
    out.used = at + bytes;
    return at;
  };
  for (const bool bytes : {false, true}) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!infos[i].name.empty() && (infos[i].dtype == kBytes) == bytes)
        out.at[i] = put(pieces[i].size());
    }
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(pieces[i].size());
    out.lengths.push_back(infos[i].name.empty() ? -bytes : bytes);
  }
  out.lengths_at = put(out.lengths.size() * sizeof(std::int64_t));
  return out;
}

std::string describe(const SaveLayout& layout, const std::vector<TensorInfo>& infos,
                     std::uint64_t base, const Described& what) {
  Json tensors = Json::array();
  const auto add = [&](const TensorInfo& info, std::uint64_t at) {
    tensors.push_back(
        {{"name", info.name}, {"dtype", info.dtype}, {"shape", info.shape}, {"offset", base + at}});
  };
  for (std::size_t i = 0; i < layout.at.size(); ++i) {
    if (!infos[i].name.empty()) add(infos[i], layout.at[i]);
  }
  add({kPiecesName, "int64", {layout.lengths.size()}}, layout.lengths_at);
  const Json description = {{"step", what.step},
                            {"model", what.model},
                            {"fingerprint", what.fingerprint},
                            {"tensors", std::move(tensors)}};
  return description.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ShareRange share_range(const SaveLayout& layout, std::size_t mine, std::size_t all) {
  const auto edge = [&](std::size_t share) {
    const std::uint64_t at = layout.used * share / all;
    return share == all ? layout.used : at / kShareAlignment * kShareAlignment;
  };
  return {edge(mine), edge(mine + 1)};
}

}  // namespace regroup::elastic
