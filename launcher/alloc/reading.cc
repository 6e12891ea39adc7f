// The functions that the readers of all allocators share.
#include "launcher/alloc/reading.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "launcher/spec/host_list.h"
#include "launcher/spec/hosts.h"

namespace regroup::alloc {
namespace {

using base::invalid_argument;
using base::Status;

constexpr std::uint64_t kMostSlots = 1 << 20;  // of a host

std::string_view short_name(std::string_view name) { return name.substr(0, name.find('.')); }

}  // namespace

const std::string& AllocInput::value(const std::string& name) const {
  static const std::string kNone;
  const auto found = environment.find(name);
  return found == environment.end() ? kNone : found->second;
}

Status HostSum::add(std::string_view name, std::uint64_t slots) {
  Host* known = find(name);
  if (known == nullptr) return append(name, slots);
  if (slots > kMostSlots || known->slots + slots > kMostSlots)
    return invalid_argument(
        fmt::format("{}: host {} has more than {} slots", source_, known->name, kMostSlots));
  known->slots += static_cast<std::uint32_t>(slots);
  slots_ += slots;
  return {};
}

Status HostSum::add_once(std::string_view name, std::uint64_t slots) {
  if (find(name) != nullptr)
    return invalid_argument(
        fmt::format("{}: host {} is listed twice", source_, base::printable_word(name)));
  return append(name, slots);
}

Status HostSum::append(std::string_view name, std::uint64_t slots) {
  if (!spec::is_host_name(name))
    return invalid_argument(
        fmt::format("{}: '{}' is not a host name", source_, base::printable_word(name)));
  if (hosts_.size() == spec::kMostHosts)
    return invalid_argument(fmt::format("{}: more than {} hosts", source_, spec::kMostHosts));
  if (slots > kMostSlots)
    return invalid_argument(
        fmt::format("{}: host {} has more than {} slots", source_, name, kMostSlots));
  index_.emplace(name, hosts_.size());
  Host& host = hosts_.emplace_back();
  host.name = name;
  host.slots = static_cast<std::uint32_t>(slots);
  slots_ += slots;
  return {};
}

Host* HostSum::find(std::string_view name) {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &hosts_[found->second];
}

void HostSum::mark_here(std::string_view name) {
  if (name.empty()) return;
  if (Host* host = find(name)) {
    host->here = true;
    return;
  }
  const auto like = std::ranges::find_if(hosts_, [&](const Host& host) {
    const bool one_is_short =
        (host.name.find('.') == std::string::npos) != (name.find('.') == std::string::npos);
    return one_is_short && short_name(host.name) == short_name(name);
  });
  if (like != hosts_.end()) like->here = true;
}

std::string fact(const AllocInput& input, const std::string& name) {
  return fmt::format("{}={}", name, base::printable_word(input.value(name)));
}

base::Result<std::string> read_named_file(const AllocInput& input, const std::string& name) {
  const std::string& path = input.value(name);
  if (!input.read_file)
    return invalid_argument(fmt::format("{}={}: files cannot be read here", name, path));
  auto text = input.read_file(path);
  if (text.ok()) return text;
  return Status(text.code(), fmt::format("{}: {}", name, text.status().message()));
}

void check_count(const AllocInput& input, const std::string& name, std::uint64_t found,
                 const std::string& believed, Reading& reading) {
  if (!input.has(name)) return;
  std::uint64_t said = 0;
  if (base::whole(input.value(name), said) && said == found) return;
  reading.warnings.push_back(
      fmt::format("{}, but {} gives {}: using {}", fact(input, name), believed, found, believed));
}

}  // namespace regroup::alloc
