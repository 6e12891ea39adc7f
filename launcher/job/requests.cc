// Requests are few: a job asks once for each `regroup resize`.
#include "launcher/job/requests.h"

#include <algorithm>

namespace regroup::job {

std::uint32_t Requests::slots() const {
  std::uint32_t sum = 0;
  for (const Request& request : open_) sum += request.slots;
  return sum;
}

bool Requests::has(const std::string& id) const {
  return !id.empty() && std::ranges::find(open_, id, &Request::id) != open_.end();
}

bool Requests::arrived(const std::string& id) {
  if (id.empty()) return true;
  std::erase_if(open_, [&](const Request& request) { return request.id == id; });
  return unwanted_.erase(id) == 0;
}

void Requests::grown(std::uint32_t slots) {
  for (Request& request : open_) {
    const std::uint32_t part = std::min(slots, request.slots);
    request.slots -= part;
    slots -= part;
  }
  std::erase_if(open_, [](const Request& request) { return request.slots == 0; });
}

void Requests::keep(const std::set<std::string>& known) {
  std::erase_if(open_, [&](const Request& request) { return !known.contains(request.id); });
}

std::vector<Requests::Request> Requests::surplus(std::uint32_t slots) {
  std::vector<Request> out;
  while (this->slots() > slots) {
    out.push_back(open_.back());
    open_.pop_back();
    if (!out.back().id.empty()) unwanted_.insert(out.back().id);
  }
  return out;
}

}  // namespace regroup::job
