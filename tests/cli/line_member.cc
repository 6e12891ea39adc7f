// A member with memory on a GPU that trains nothing, for black-box tests of device lines. It joins,
// writes 1000 + its number to the first leaf buffer of its own line, and prints "joined as slot S",
// or "joined without a line: WHY". Each time the file XDG_RUNTIME_DIR/look holds another text it
// prints what the first leaf buffer of each line holds: "TEXT: member M sees S=V S=V".
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "collective/cuda/device_line.h"
#include "collective/cuda/driver.h"
#include "elastic/options.h"
#include "elastic/participant.h"

namespace {

using regroup::base::Status;
using regroup::collective::cuda::Driver;
using regroup::collective::cuda::DriverResult;
using regroup::collective::cuda::MappedLine;
using regroup::elastic::Participant;
using regroup::elastic::ReceivedLines;

void must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "line_member: {}\n", status.to_string());
  std::exit(3);
}
template <class T>
T must(regroup::base::Result<T> result) {
  must(result.status());
  return std::move(*result);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Lines {
 public:
  explicit Lines(const Driver& driver) : driver_(driver) {}

  void write(const ReceivedLines::Line& own, std::uint64_t value) {
    const MappedLine line = must(map(own, MappedLine::Access::kReadWrite));
    check(driver_.copy_to_device(line.at(own.line.leaf_offset(0)), &value, sizeof value, nullptr));
    check(driver_.stream_synchronize(nullptr));
  }
  // Each line is mapped once.
  std::uint64_t read(const ReceivedLines::Line& from) {
    auto found = mapped_.find(from.line.line);
    if (found == mapped_.end())
      found = mapped_.emplace(from.line.line, must(map(from, MappedLine::Access::kReadOnly))).first;
    std::uint64_t value = 0;
    check(driver_.copy_to_host(&value, found->second.at(from.line.leaf_offset(0)), sizeof value,
                               nullptr));
    check(driver_.stream_synchronize(nullptr));
    return value;
  }

 private:
  regroup::base::Result<MappedLine> map(const ReceivedLines::Line& line,
                                        MappedLine::Access access) const {
    return MappedLine::map(driver_, line.descriptor.get(), line.line.bytes, 0, access,
                           fmt::format("the device line of slot {}", line.line.slot));
  }
  void check(DriverResult result) const { must(driver_.status(result, "line_member")); }

  const Driver& driver_;
  std::map<regroup::proto::DeviceLineId, MappedLine> mapped_;
};

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Driver driver = must(regroup::collective::cuda::load_driver());
  must(driver.status(driver.init(0), "cuInit"));
  regroup::collective::cuda::Context context = nullptr;
  must(driver.status(driver.primary_context_retain(&context, 0), "cuDevicePrimaryCtxRetain"));
  must(driver.status(driver.context_set(context), "cuCtxSetCurrent"));
  regroup::collective::cuda::DeviceUuid uuid{};
  must(driver.status(driver.device_uuid(&uuid, 0), "cuDeviceGetUuid"));
  const auto environment = must(regroup::elastic::read_environment());
  regroup::proto::Join join{.elements = 1000, .model = "lines", .fingerprint = "equal on all"};
  join.gpu = regroup::collective::cuda::text_of(uuid);
  const auto self = must(Participant::connect(environment, join, {}, std::chrono::seconds(60)));
  const regroup::proto::SlotIndex slot = self->slot_id().slot;
  Lines lines(driver);
  const auto* own = self->device_lines().of(slot);
  if (own == nullptr) {
    fmt::print("joined without a line: {}\n", self->no_device_line());
  } else {
    lines.write(*own, 1000 + environment.member);
    fmt::print("joined as slot {}\n", slot);
  }
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  const std::string path = std::string(folder == nullptr ? "/" : folder) + "/look";
  std::string last;
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
    const std::string text = text_of(path);
    if (text == last) continue;
    last = text;
    std::string seen;
    for (regroup::proto::SlotIndex at = 0; at < self->arena().spec().slots; ++at) {
      if (const auto* line = self->device_lines().of(at))
        seen += fmt::format(" {}={}", at, lines.read(*line));
    }
    fmt::print("{}: member {} sees{}\n", text, environment.member, seen);
  }
}
