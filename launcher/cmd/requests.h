// What a job has asked its allocator for, and what became of it: plain data.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace regroup::cmd {

class Requests {
 public:
  struct Request {
    std::string id;  // of the allocator; "": it has none
    std::uint32_t slots = 0;
    bool operator==(const Request&) const = default;
  };
  void asked(const std::string& id, std::uint32_t slots) { open_.push_back({id, slots}); }
  // Slots that may still come.
  [[nodiscard]] std::uint32_t slots() const;
  [[nodiscard]] bool has(const std::string& id) const;
  // What was asked for as `id` has come. False: it was too much by then. One that was never asked for may
  // come.
  [[nodiscard]] bool arrived(const std::string& id);
  // So many slots have come that name no request: of the oldest ones.
  void grown(std::uint32_t slots);
  // The allocator knows of no others: they have ended without a word.
  void keep(const std::set<std::string>& known);
  // No more than `slots` are wanted: the newest ones that are too much, as a whole, which are open no more.
  [[nodiscard]] std::vector<Request> surplus(std::uint32_t slots);
  // Another request takes the place of all.
  void clear() { open_.clear(); }

 private:
  std::vector<Request> open_;       // the oldest first
  std::set<std::string> unwanted_;  // may come all the same
};

}  // namespace regroup::cmd
