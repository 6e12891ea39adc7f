// First the tensors, then the words of the text: a reader wants the layer, not its digest.
#include "elastic/training_difference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/printable.h"

namespace regroup::elastic {
namespace {

constexpr std::size_t kMostTensors = 6;
constexpr std::size_t kDigest = 16;  // hexadecimal digits
constexpr std::string_view kOurs = "regroup.";

using Strings = std::vector<std::string>;

std::string shown(const TensorInfo& tensor) {
  return fmt::format("{} [{}]", base::escaped(tensor.dtype), fmt::join(tensor.shape, ", "));
}

std::string_view group_of(std::string_view name) {
  return name.substr(0, name.find_first_of(".["));
}

bool compared(const TensorInfo& tensor) {
  return !tensor.name.empty() && !tensor.name.starts_with(kOurs);
}

Strings tensors_that_differ(std::span<const TensorInfo> there, std::span<const TensorInfo> here) {
  std::map<std::string_view, const TensorInfo*> own;
  std::set<std::string_view> groups, seen;
  for (const TensorInfo& tensor : here) {
    if (!compared(tensor)) continue;
    own.emplace(tensor.name, &tensor);
    groups.insert(group_of(tensor.name));
  }
  Strings out;
  for (const TensorInfo& tensor : there) {
    if (!compared(tensor)) continue;
    seen.insert(tensor.name);
    const auto found = own.find(tensor.name);
    const bool alone = group_of(tensor.name) == tensor.name;
    if (found == own.end()) {
      if (alone || groups.contains(group_of(tensor.name)))
        out.push_back(fmt::format("tensor {}, {}, is in the checkpoint only",
                                  base::escaped(tensor.name), shown(tensor)));
    } else if (shown(*found->second) != shown(tensor)) {
      out.push_back(fmt::format("tensor {} is {} in the checkpoint, {} in this program",
                                base::escaped(tensor.name), shown(tensor), shown(*found->second)));
    }
  }
  for (const TensorInfo& tensor : here) {
    if (compared(tensor) && !seen.contains(tensor.name))
      out.push_back(fmt::format("tensor {}, {}, is in this program only",
                                base::escaped(tensor.name), shown(tensor)));
  }
  return out;
}

// The words at the end of a text that are NAME=VALUE; the text is left without them.
std::map<std::string, std::string> cut_options(std::string* text) {
  std::map<std::string, std::string> out;
  for (;;) {
    const std::size_t blank = text->rfind(' '), begin = blank == text->npos ? 0 : blank + 1;
    const std::size_t equals = text->find('=', begin);
    if (equals == text->npos || equals == begin) return out;
    out[text->substr(begin, equals - begin)] = text->substr(equals + 1);
    text->resize(blank == text->npos ? 0 : blank);
  }
}

std::string without_digests(std::string text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  for (std::size_t at = 0; at < text.size();) {
    const auto end =
        std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), is_digit);
    const std::size_t length = static_cast<std::size_t>(end - text.begin()) - at;
    const bool word =
        (at == 0 || text[at - 1] == ' ') && (end == text.end() || *end == ',' || *end == ' ');
    if (length != kDigest || !word) {
      at += length + 1;
      continue;
    }
    const std::size_t from = at == 0 ? 0 : at - 1;
    text.erase(from, length + (at - from));
    at = from;
  }
  return text;
}

// "MLP, SGD, 90 samples" by its parts.
Strings parts_of(const std::string& text) {
  Strings out(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, ", ") == 0)
      out.emplace_back(), ++i;
    else
      out.back() += text[i];
  }
  return out;
}

Strings words_that_differ(const std::string& there, const std::string& here) {
  Strings theirs = parts_of(there), ours = parts_of(here), out;
  const auto drop = [](Strings* from, Strings other) {
    std::erase_if(*from, [&](const std::string& part) {
      return std::ranges::find(other, part) != other.end();
    });
  };
  // Written by regroup.torch; the options contain it, too.
  const auto of_data = [](const std::string& part) {
    return part.find(" samples in batches of ") != part.npos;
  };
  std::erase_if(theirs, of_data), std::erase_if(ours, of_data);
  const Strings all = theirs;
  drop(&theirs, ours);
  drop(&ours, all);
  if (theirs.empty() && ours.empty()) return out;
  out.push_back(fmt::format("the model is \"{}\" in the checkpoint, \"{}\" in this program",
                            base::escaped(fmt::format("{}", fmt::join(theirs, ", "))),
                            base::escaped(fmt::format("{}", fmt::join(ours, ", ")))));
  return out;
}

}  // namespace

std::string difference_of(const Training& there, const Training& here) {
  std::string theirs(there.model), ours(here.model);
  auto their_options = cut_options(&theirs), our_options = cut_options(&ours);
  Strings out = tensors_that_differ(there.tensors, here.tensors);
  if (out.size() > kMostTensors) {
    const std::size_t more = out.size() - kMostTensors;
    out.resize(kMostTensors);
    out.push_back(fmt::format("{} more {}", more, more == 1 ? "tensor differs" : "tensors differ"));
  }
  const bool tensors = !out.empty();
  for (const auto& [name, value] : their_options) {
    if (!our_options.contains(name))
      out.push_back(
          fmt::format("{} is {} in the checkpoint", base::escaped(name), base::escaped(value)));
    else if (our_options[name] != value)
      out.push_back(fmt::format("{} is {} in the checkpoint, {} in this program",
                                base::escaped(name), base::escaped(value),
                                base::escaped(our_options[name])));
  }
  const bool digests = theirs != without_digests(theirs) || ours != without_digests(ours);
  for (std::string& words : words_that_differ(without_digests(theirs), without_digests(ours))) {
    if (!tensors || digests) out.push_back(std::move(words));
  }
  if (out.empty())
    out.emplace_back(
        "the same tensors, but different ones are trained (requires_grad), or different buffers "
        "are excluded "
        "from the state");
  return fmt::format("{}", fmt::join(out, "; "));
}

}  // namespace regroup::elastic
