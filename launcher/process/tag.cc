// Open MPI names the stream even where there is only a time: "Sat Nov 21 16:56:43
// 2026<stdout>:line".
#include "launcher/process/tag.h"

#include <fmt/format.h>

#include <array>

namespace regroup::process {
namespace {

std::string text_of(const spec::OutputRequest& request, const Place& place,
                    std::string_view stream) {
  switch (request.tag) {
    case spec::OutputRequest::Tag::kNone:
      return request.timestamp ? fmt::format("<{}>:", stream) : "";
    case spec::OutputRequest::Tag::kJobRank:
      return fmt::format("[{},{}]<{}>:", place.space + 1, number_of(place), stream);
    case spec::OutputRequest::Tag::kRank:
      return fmt::format("[{}] ", number_of(place));
  }
  return "";
}

}  // namespace

Tag::Tag(const spec::OutputRequest& request, const Place& place, std::string_view stream)
    : timestamp_(request.timestamp), text_(text_of(request, place, stream)) {}

std::string_view Tag::at(std::time_t now) {
  if (!timestamp_) return text_;
  if (now != time_) {
    std::tm local{};
    std::array<char, 64> date{};
    ::localtime_r(&now, &local);
    const std::size_t size =
        std::strftime(date.data(), date.size(), "%a %b %e %H:%M:%S %Y", &local);
    timed_ = std::string(date.data(), size) + text_;
    time_ = now;
  }
  return timed_;
}

}  // namespace regroup::process
