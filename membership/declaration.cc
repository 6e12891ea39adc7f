// Implements docs/design/architecture.md section 3: the fingerprint.
#include "membership/declaration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/printable.h"

namespace regroup::membership {
namespace {

constexpr std::size_t kMostTensors = 6;  // that one message names

base::Status differs(proto::MemberId id, const char* what, const std::string& its,
                     const std::string& ours) {
  return base::invalid_argument(
      fmt::format("member {} is refused: its {} is {}, the job's is {}", id, what, its, ours));
}

// Names the NAME=VALUE words of fingerprint `a` that `b` lacks: ": they differ in build, libc".
std::string difference(const std::string& a, const std::string& b) {
  std::string names;
  std::istringstream words(a);
  const std::string other = " " + b + " ";
  for (std::string word; words >> word;) {
    const std::size_t end = word.find('=');
    if (end == std::string::npos || other.find(" " + word + " ") != std::string::npos) continue;
    names += (names.empty() ? ": they differ in " : ", ") + word.substr(0, end);
  }
  return names;
}

// The part of `model` that is compared.
std::string_view text_of(std::string_view model) { return model.substr(0, model.find(kTensors)); }

struct Tensor {
  std::string_view name, what;
};

std::vector<Tensor> tensors_of(std::string_view model) {
  std::vector<Tensor> out;
  std::size_t at = model.find(kTensors);
  while (at < model.size()) {
    const std::size_t end = std::min(model.find(kTensors, at + 1), model.size());
    const std::string_view line = model.substr(at + 1, end - at - 1);
    const std::size_t tab = std::min(line.find('\t'), line.size());
    out.push_back({line.substr(0, tab), line.substr(std::min(tab + 1, line.size()))});
    at = end;
  }
  if (model.size() >= kMostOfList && !out.empty()) out.pop_back();  // it may be cut
  return out;
}

// "tensor w is float32 [5] in member 1, float32 [4] in member 0; ...", or "". If a list was cut,
// does not report tensors that only one list has.
std::string tensors_that_differ(const proto::Join& join, const proto::Join& first) {
  const std::vector<Tensor> its = tensors_of(join.model), ours = tensors_of(first.model);
  std::map<std::string_view, std::string_view> of_first, of_join;
  for (const Tensor& tensor : ours) of_first.emplace(tensor.name, tensor.what);
  for (const Tensor& tensor : its) of_join.emplace(tensor.name, tensor.what);
  const bool whole = std::max(join.model.size(), first.model.size()) < kMostOfList;
  std::vector<std::string> out;
  const auto only = [&](const Tensor& tensor, proto::MemberId member) {
    if (whole)
      out.push_back(fmt::format("tensor {}, {}, is in member {} only", base::escaped(tensor.name),
                                base::escaped(tensor.what), member));
  };
  for (const Tensor& tensor : its) {
    const auto found = of_first.find(tensor.name);
    if (found == of_first.end())
      only(tensor, join.member);
    else if (found->second != tensor.what)
      out.push_back(fmt::format("tensor {} is {} in member {}, {} in member {}",
                                base::escaped(tensor.name), base::escaped(tensor.what), join.member,
                                base::escaped(found->second), first.member));
  }
  for (const Tensor& tensor : ours) {
    if (!of_join.contains(tensor.name)) only(tensor, first.member);
  }
  if (out.size() > kMostTensors) {
    const std::size_t more = out.size() - kMostTensors;
    out.resize(kMostTensors);
    out.push_back(fmt::format("{} more {}", more, more == 1 ? "tensor differs" : "tensors differ"));
  }
  return fmt::format("{}", fmt::join(out, "; "));
}

bool same_model(const proto::Join& join, const proto::Join& first) {
  return text_of(join.model) == text_of(first.model) && join.elements == first.elements &&
         join.element_bytes == first.element_bytes && join.state_bytes == first.state_bytes;
}

}  // namespace

const char* refusal_kind(const proto::Join& join, const proto::Join& first) {
  return same_model(join, first) ? proto::kRefusedKind : kOtherModelKind;
}

base::Status check_declaration(const proto::Join& join, const proto::Join& first,
                               bool any_fingerprint, std::string* warning) {
  const auto number = [](std::uint64_t n) { return fmt::format("{}", n); };
  if (!same_model(join, first)) {
    const std::string tensors = tensors_that_differ(join, first);
    if (!tensors.empty())
      return base::invalid_argument(
          fmt::format("member {} is refused: its model differs from that of member {}: {}",
                      join.member, first.member, tensors));
  }
  if (text_of(join.model) != text_of(first.model)) {
    return differs(join.member, "model", fmt::format("'{}'", text_of(join.model)),
                   fmt::format("'{}'", text_of(first.model)));
  }
  if (join.elements != first.elements) {
    return differs(join.member, "number of gradient elements", number(join.elements),
                   number(first.elements));
  }
  if (join.element_bytes != first.element_bytes) {
    return differs(join.member, "element size", number(join.element_bytes),
                   number(first.element_bytes));
  }
  if (join.state_bytes != first.state_bytes) {
    return differs(join.member, "state size", number(join.state_bytes), number(first.state_bytes));
  }
  if (join.fingerprint == first.fingerprint) return {};
  base::Status status = differs(
      join.member, "numeric fingerprint", fmt::format("'{}'", join.fingerprint),
      fmt::format("'{}'", first.fingerprint) + difference(join.fingerprint, first.fingerprint));
  if (!any_fingerprint) return status;
  *warning = fmt::format(
      "member {} is admitted (--reproducible=off): results are not reproducible bit by bit: its "
      "fingerprint "
      "is '{}', the job's is '{}'{}",
      join.member, join.fingerprint, first.fingerprint,
      difference(join.fingerprint, first.fingerprint));
  return {};
}

base::Status check_resumed(const proto::Join& join, const std::string& fingerprint,
                           bool any_fingerprint, std::string* warning) {
  if (fingerprint.empty() || join.fingerprint == fingerprint) return {};
  const std::string both =
      fmt::format("its numeric fingerprint is '{}', the checkpoint's is '{}'{}", join.fingerprint,
                  fingerprint, difference(join.fingerprint, fingerprint));
  if (!any_fingerprint)
    return base::invalid_argument(fmt::format(
        "member {} is refused: {}; --reproducible=off resumes the job with results that differ "
        "in the last bits",
        join.member, both));
  *warning = fmt::format(
      "member {} is admitted (--reproducible=off): results are not reproducible bit by bit: {}",
      join.member, both);
  return {};
}

}  // namespace regroup::membership
