// For CUDA and HIP an unknown entry ends the list. Here it is an error, since it is probably a
// mistake; only "-1" and Slurm's "NoDevFiles" end the list.
#include "launcher/placement/visible_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "base/values.h"

namespace regroup::placement {
namespace {

using Gpus = std::vector<std::uint32_t>;  // in the order of their numbers

bool ends_the_list(std::string_view word) { return word.starts_with('-') || word == "NoDevFiles"; }

// ROCr takes either case; NVIDIA's are lower.
bool begins_uuid(const std::string& uuid, std::string_view word) {
  return word.size() <= uuid.size() &&
         std::equal(word.begin(), word.end(), uuid.begin(), [](char a, char b) {
           return std::tolower(static_cast<unsigned char>(a)) ==
                  std::tolower(static_cast<unsigned char>(b));
         });
}

bool is_uuid(std::string_view word) { return word.starts_with("GPU-") || word.starts_with("MIG-"); }

struct Variable {
  std::string_view name;
  std::string value;
  std::string within;  // numbers count within the GPUs that this other variable leaves; "": none
};

Gpus matches(const topology::Machine& machine, const Gpus& from, const Variable& variable,
             std::string_view word) {
  Gpus out;
  for (std::uint32_t i = 0; i < from.size(); ++i) {
    const topology::Gpu& gpu = machine.gpus[from[i]];
    const std::string number =
        std::to_string(variable.within.empty() ? gpu.number : static_cast<int>(i));
    if (word == number || (is_uuid(word) && begins_uuid(gpu.uuid, word))) out.push_back(from[i]);
  }
  return out;
}

base::Status no_gpu(const topology::Machine& machine, const Gpus& from, const Variable& variable,
                    std::string_view word) {
  const std::string given = fmt::format("{}={}: {}", variable.name, variable.value, word);
  const bool named = std::any_of(
      from.begin(), from.end(), [&](std::uint32_t gpu) { return !machine.gpus[gpu].uuid.empty(); });
  if (is_uuid(word) && !named && !from.empty())
    return base::invalid_argument(
        fmt::format("{}: the UUIDs of this machine's GPUs are unknown; use its number", given));
  if (variable.within.empty())
    return base::invalid_argument(fmt::format("{} is not a GPU of this machine", given));
  return base::invalid_argument(
      fmt::format("{}: expected one of the {} GPU(s) that {} leaves, counted from 0", given,
                  from.size(), variable.within));
}

base::Result<Gpus> left_by(const topology::Machine& machine, const Gpus& from,
                           const Variable& variable) {
  Gpus out;
  for (const std::string& piece : base::split(variable.value, ",")) {
    const std::string_view word = base::trim(piece);
    if (word.empty()) continue;
    if (ends_the_list(word)) break;
    const Gpus found = matches(machine, from, variable, word);
    if (found.empty()) return no_gpu(machine, from, variable, word);
    if (is_uuid(word) && found.size() > 1)
      return base::invalid_argument(fmt::format("{}={}: {} is a prefix of several GPUs' UUIDs",
                                                variable.name, variable.value, word));
    if (std::find(out.begin(), out.end(), found.front()) == out.end()) out.push_back(found.front());
  }
  return out;
}

const std::string* find(const spec::Environment& own, std::string_view name) {
  const auto found = own.find(std::string(name));
  return found == own.end() ? nullptr : &found->second;
}

base::Result<Gpus> visible_of_amd(const topology::Machine& machine, const spec::Environment& own,
                                  Gpus all) {
  std::string within;
  if (const std::string* rocr = find(own, "ROCR_VISIBLE_DEVICES")) {
    auto left = left_by(machine, all, {"ROCR_VISIBLE_DEVICES", *rocr, ""});
    if (!left.ok()) return left;
    all = std::move(*left);
    within = "ROCR_VISIBLE_DEVICES=" + *rocr;
  }
  for (const std::string_view name :
       {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}) {
    const std::string* value = find(own, name);
    if (value != nullptr && !value->empty()) return left_by(machine, all, {name, *value, within});
  }
  return all;
}

}  // namespace

base::Result<GpuSet> visible_gpus(const topology::Machine& machine, const spec::Environment& own) {
  Gpus all;
  for (std::uint32_t i = 0; i < machine.gpus.size() && i < kMostGpus; ++i) all.push_back(i);
  const bool amd = !machine.gpus.empty() && machine.gpus.front().arch.starts_with("gfx");
  const std::string* cuda = find(own, "CUDA_VISIBLE_DEVICES");
  REGROUP_ASSIGN_OR_RETURN(const auto left,
                           amd ? visible_of_amd(machine, own, std::move(all))
                           : cuda != nullptr
                               ? left_by(machine, all, {"CUDA_VISIBLE_DEVICES", *cuda, ""})
                               : base::Result<Gpus>(std::move(all)));
  GpuSet out = 0;
  for (const std::uint32_t gpu : left) out |= bit_of(gpu);
  return out;
}

}  // namespace regroup::placement
