// Maps programs one after the other, each into the slots that earlier ones have left.
#include "launcher/placement/host_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/printable.h"

namespace regroup::placement {
namespace {

class Mapper {
 public:
  explicit Mapper(const HostMapRequest& request)
      : request_(request), used_(request.hosts.size()), of_app_(request.hosts.size()) {}

  base::Result<std::vector<std::uint32_t>> run() {
    for (std::size_t app = 0; app < request_.counts.size(); ++app) {
      std::fill(of_app_.begin(), of_app_.end(), 0U);
      most_of_app_ = app < request_.per_host.size() ? request_.per_host[app] : 0;
      choose_hosts(app);
      const std::uint32_t count = request_.counts[app];
      REGROUP_RETURN_IF_ERROR(request_.cyclic ? go_on(count) : map(count));
    }
    return std::move(host_of_);
  }

 private:
  // Marks the hosts on which this program may run, and orders them.
  void choose_hosts(std::size_t app) {
    const auto count = static_cast<std::uint32_t>(request_.hosts.size());
    const bool limited = app < request_.only_hosts.size() && !request_.only_hosts[app].empty();
    allowed_.assign(count, !limited);
    order_.clear();
    for (std::uint32_t host = 0; !limited && host < count; ++host) order_.push_back(host);
    if (!limited) return;
    for (const std::string& name : request_.only_hosts[app]) {
      const auto found = std::ranges::find(request_.hosts, name, &spec::HostRequest::name);
      if (found == request_.hosts.end()) continue;
      order_.push_back(static_cast<std::uint32_t>(found - request_.hosts.begin()));
      allowed_[order_.back()] = true;
    }
  }

  // What one program says counts for all.
  [[nodiscard]] std::uint32_t block_of(std::uint32_t host) const {
    if (!allowed_[host]) return 0;
    const auto given =
        std::ranges::find_if(request_.per_host, [](std::uint32_t each) { return each != 0; });
    return given != request_.per_host.end() ? *given : request_.hosts[host].slots;
  }

  base::Status go_on(std::uint32_t count) {
    std::uint32_t passed = 0;  // hosts in a row that take no member
    for (std::uint32_t left = count; left > 0;) {
      const std::uint32_t block = block_of(host_);
      const std::uint32_t taken = std::min(left, block - std::min(block, in_block_));
      host_of_.insert(host_of_.end(), taken, host_);
      left -= taken;
      in_block_ += taken;
      passed = taken > 0 ? 0 : passed + 1;
      if (passed > request_.hosts.size()) return too_many(count);
      if (in_block_ < block) break;
      host_ = (host_ + 1) % static_cast<std::uint32_t>(request_.hosts.size());
      in_block_ = 0;
    }
    return {};
  }

  using Limit = std::uint32_t (Mapper::*)(std::uint32_t host) const;

  base::Status map(std::uint32_t count) {
    const bool round =
        request_.map.kind == spec::MapBy::Kind::kUnit && request_.map.unit == spec::Unit::kNode;
    std::vector<std::uint32_t> added(used_.size());  // members of this program, by host
    std::uint32_t left = count;
    if (round) {
      left = deal(left, added, &Mapper::within_slots);
      if (request_.oversubscribe) left = deal(left, added, &Mapper::within_most);
    } else {
      left = fill(left, added);
      if (request_.oversubscribe) left = deal(left, added, &Mapper::within_most);
    }
    if (left > 0) return too_many(count);
    if (ranks_go_round(round)) return go_round(added);
    for (const std::uint32_t host : in_use_) host_of_.insert(host_of_.end(), added[host], host);
    return {};
  }

  // Whether consecutive ranks are on different hosts; `round`: the members were mapped so.
  [[nodiscard]] bool ranks_go_round(bool round) const {
    using Kind = spec::RankBy::Kind;
    const spec::RankBy& rank = request_.rank;
    const bool by_node = rank.kind == Kind::kUnit && rank.unit == spec::Unit::kNode;
    if (rank.kind == Kind::kNode || by_node) return true;
    return round && rank.kind != Kind::kSlot && rank.kind != Kind::kFill;
  }

  // Room for members of this program on a host.
  [[nodiscard]] std::uint32_t within_slots(std::uint32_t host) const {
    const std::uint32_t free = capacity_of(host, request_.hosts[host].slots);
    if (request_.most_of_list == 0) return free;
    const std::uint32_t members = request_.list_per_program ? of_app_[host] : used_[host];
    return std::min(free, request_.most_of_list - std::min(members, request_.most_of_list));
  }
  [[nodiscard]] std::uint32_t within_most(std::uint32_t host) const {
    const std::uint32_t most = request_.hosts[host].max_slots;
    return capacity_of(host, most == 0 ? ~std::uint32_t{0} : most);
  }
  [[nodiscard]] std::uint32_t capacity_of(std::uint32_t host, std::uint32_t slots) const {
    if (!allowed_[host]) return 0;
    std::uint32_t free = slots > used_[host] ? slots - used_[host] : 0;
    const auto leave = [&](std::uint32_t most) {
      free = std::min(free, most > of_app_[host] ? most - of_app_[host] : 0);
    };
    if (most_of_app_ != 0) leave(most_of_app_);
    if (!request_.most.empty()) leave(request_.most[host]);
    if (request_.most_bound.empty()) return free;
    const std::uint32_t most = request_.most_bound[host];
    return std::min(free, most > used_[host] ? most - used_[host] : 0);
  }

  void take(std::uint32_t host, std::uint32_t count, std::vector<std::uint32_t>& added) {
    if (count > 0 && used_[host] == 0) in_use_.push_back(host);
    added[host] += count;
    used_[host] += count;
    of_app_[host] += count;
  }

  // Fills host after host. Returns the number of members without a place.
  std::uint32_t fill(std::uint32_t left, std::vector<std::uint32_t>& added) {
    for (const std::uint32_t host : order_) {
      const std::uint32_t count = std::min(left, within_slots(host));
      take(host, count, added);
      left -= count;
    }
    return left;
  }

  // Puts one member on each host with capacity left, repeatedly. Returns the number of members
  // without a place.
  std::uint32_t deal(std::uint32_t left, std::vector<std::uint32_t>& added, Limit limit) {
    for (bool placed = true; left > 0 && placed;) {
      placed = false;
      for (const std::uint32_t host : order_) {
        if (left == 0 || (this->*limit)(host) == 0) continue;
        take(host, 1, added);
        --left;
        placed = true;
      }
    }
    return left;
  }

  // Orders the members so that consecutive ranks are on different hosts.
  base::Status go_round(std::vector<std::uint32_t>& added) {
    for (bool placed = true; placed;) {
      placed = false;
      for (const std::uint32_t host : in_use_) {
        if (added[host] == 0) continue;
        --added[host];
        host_of_.push_back(host);
        placed = true;
      }
    }
    return {};
  }

  [[nodiscard]] base::Status too_many(std::uint32_t count) const {
    std::uint64_t slots = 0;
    std::size_t hosts = 0;
    for (std::size_t i = 0; i < request_.hosts.size(); ++i) {
      if (allowed_[i]) slots += request_.hosts[i].slots;
      if (allowed_[i]) ++hosts;
    }
    std::string each = most_of_app_ == 0 ? "" : fmt::format(", at most {} on each", most_of_app_);
    if (request_.most_of_list != 0 && !request_.oversubscribe)
      each += fmt::format(", at most {} on each for the list of processors", request_.most_of_list);
    std::string message = fmt::format(
        "{} requested{}; {} available on {}{}", base::counted(count, "member"), each,
        base::counted(slots, "slot"), base::counted(hosts, "host"),
        request_.oversubscribe ? " (max_slots of the host file)" : "; --oversubscribe allows more");
    const bool only_slots = each.empty() && request_.most.empty() && request_.most_bound.empty();
    return only_slots ? base::unavailable(std::move(message))
                      : base::resource_exhausted(std::move(message));
  }

  const HostMapRequest& request_;
  std::vector<std::uint32_t> host_of_;
  std::vector<std::uint32_t> used_, of_app_;  // members on each host: of all programs, of this one
  std::vector<bool> allowed_;                 // of each host, for this program
  std::vector<std::uint32_t> order_;          // of the hosts to fill, for this program
  std::vector<std::uint32_t> in_use_;         // hosts in the order of their first members
  std::uint32_t most_of_app_ = 0;
  std::uint32_t host_ = 0, in_block_ = 0;  // if cyclic: the next host, and its members in this turn
};

base::Result<std::vector<std::uint32_t>> in_sequence(const HostMapRequest& request) {
  std::vector<std::uint32_t> host_of;
  const std::size_t size =
      std::accumulate(request.counts.begin(), request.counts.end(), std::size_t{0});
  for (const std::string& name : request.sequence) {
    const auto host =
        std::find_if(request.hosts.begin(), request.hosts.end(),
                     [&](const spec::HostRequest& each) { return each.name == name; });
    if (host == request.hosts.end())
      return base::invalid_argument(
          fmt::format("--map-by seq: host {} is not a host of the job", name));
    if (host_of.size() < size)
      host_of.push_back(static_cast<std::uint32_t>(host - request.hosts.begin()));
  }
  if (host_of.size() == size) return host_of;
  return base::invalid_argument(
      fmt::format("--map-by seq: expected one host per member; got {} and {}",
                  base::counted(size, "member"), base::counted(host_of.size(), "host")));
}

}  // namespace

base::Result<std::vector<std::uint32_t>> map_to_hosts(const HostMapRequest& request) {
  if (request.map.kind == spec::MapBy::Kind::kSequence) return in_sequence(request);
  return Mapper(request).run();
}

}  // namespace regroup::placement
