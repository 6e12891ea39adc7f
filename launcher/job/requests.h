// The requests of a job to its allocator and their state: plain data.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace regroup::job {

class Requests {
 public:
  struct Request {
    std::string id;  // of the allocator; "": it has none
    std::uint32_t slots = 0;
    bool operator==(const Request&) const = default;
  };
  void asked(const std::string& id, std::uint32_t slots) { open_.push_back({id, slots}); }
  // Slots of open requests.
  [[nodiscard]] std::uint32_t slots() const;
  [[nodiscard]] bool has(const std::string& id) const;
  // Closes request `id`, whose slots have arrived. False: it was cancelled before. True for an
  // unknown id: a user may offer hosts without a request.
  [[nodiscard]] bool arrived(const std::string& id);
  // Slots without a request id have arrived: they count for the oldest requests.
  void grown(std::uint32_t slots);
  // Drops requests that are not among `known`: the allocator has ended them.
  void keep(const std::set<std::string>& known);
  // Closes and returns the newest requests beyond `slots` slots; a request is never split.
  [[nodiscard]] std::vector<Request> surplus(std::uint32_t slots);
  // A new request replaces all others.
  void clear() { open_.clear(); }

 private:
  std::vector<Request> open_;       // the oldest first
  std::set<std::string> unwanted_;  // cancelled, but may still arrive
};

}  // namespace regroup::job
