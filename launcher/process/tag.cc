// Open MPI names the stream even where there is only a time: "Sat Nov 21 16:56:43
// 2026<stdout>:line", in Open MPI 5 "[Sat Nov 21 16:56:43 2026]<stdout>: line".
#include "launcher/process/tag.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "launcher/process/line_prefix.h"

namespace regroup::process {
namespace {

std::string name_of_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

// Open MPI 5's or hydra's prefix, in place of a tag. torchrun's is none: only lines that also go to
// a file of its --tee have it.
bool has_prefix(const spec::OutputRequest& request) {
  return !request.log.prefix.empty() && !request.log.any();
}

std::string text_of(const spec::OutputRequest& request, const Place& place, std::string_view stream,
                    pid_t pid) {
  // After a time in brackets; at() writes the first one.
  const std::string after_time = request.timestamp ? "]" : "";
  if (has_prefix(request))
    return after_time +
           fill_in_names(request.log.prefix, {{"job", std::to_string(place.space + 1)},
                                              {"number", std::to_string(number_of(place))},
                                              {"host_number", std::to_string(request.log.host)},
                                              {"host", name_of_host()},
                                              {"pid", std::to_string(pid)},
                                              {"stream", std::string(stream)}});
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

Tag::Tag(const spec::OutputRequest& request, const Place& place, std::string_view stream, pid_t pid)
    : timestamp_(request.timestamp), text_(text_of(request, place, stream, pid)) {}

std::string_view Tag::at(std::time_t now) {
  if (!timestamp_) return text_;
  if (now != time_) {
    std::tm local{};
    std::array<char, 64> date{};
    ::localtime_r(&now, &local);
    const std::size_t size =
        std::strftime(date.data(), date.size(), "%a %b %e %H:%M:%S %Y", &local);
    timed_ = (text_.starts_with(']') ? "[" : "") + std::string(date.data(), size) + text_;
    time_ = now;
  }
  return timed_;
}

}  // namespace regroup::process
