// Parses the variables of the fake.
#include "tests/fakes/cuda/settings.h"

#include "base/values.h"

namespace regroup::fakes::cuda {
namespace {

using base::Result;
using base::Status;

Status parse_uuid(std::string_view text, DeviceUuid& out) {
  if (text.size() == 2 * sizeof out.bytes) {
    std::size_t parsed = 0;
    for (; parsed < sizeof out.bytes; ++parsed) {
      const char* digits = text.data() + 2 * parsed;
      if (std::from_chars(digits, digits + 2, out.bytes[parsed], 16).ptr != digits + 2) break;
    }
    if (parsed == sizeof out.bytes) return {};
  }
  return base::bad_value("uuid", text, "expected 32 hexadecimal digits");
}

Status parse_setting(std::string_view name, std::string_view value, Settings& out) {
  if (name == "devices") {
    REGROUP_RETURN_IF_ERROR(base::parse_count(name, value, 0, out.devices));
    if (out.devices > kMostDevices) return base::bad_value(name, value, "expected at most 16");
    return {};
  }
  if (name == "memory") return base::parse_bytes(name, value, out.memory);
  if (name == "uuid") return parse_uuid(value, out.uuid);
  if (name == "driver") return base::parse_count(name, value, 1, out.driver);
  if (name == "peers") return base::parse_word(name, value, "1", "0", out.peers);
  if (name == "descriptors") return base::parse_word(name, value, "1", "0", out.descriptors);
  if (name == "import") return base::parse_word(name, value, "1", "0", out.import);
  if (name == "mig") return base::parse_word(name, value, "1", "0", out.mig);
  if (name == "wrong_product") return base::parse_word(name, value, "1", "0", out.wrong_product);
  if (name == "wrong_once") return base::parse_word(name, value, "1", "0", out.wrong_once);
  if (name == "name" || name == "state") {
    (name == "name" ? out.name : out.state) = value;
    return {};
  }
  return base::bad_value(name, value, "no such setting");
}

constexpr struct {
  std::string_view name;
  FaultKind kind;
} kKinds[] = {{"illegal", FaultKind::kIllegal}, {"assert", FaultKind::kAssert},
              {"ecc", FaultKind::kEcc},         {"lost", FaultKind::kLost},
              {"hang", FaultKind::kHang},       {"oom", FaultKind::kOutOfMemory}};

Result<Fault> parse_fault(std::string_view text) {
  constexpr std::string_view kAt = "at=", kSlow = "slow=";
  Fault fault;
  const std::size_t blank = text.find(' ');
  const std::string_view kind = blank == text.npos ? "" : base::trim(text.substr(blank));
  bool good = text.starts_with(kAt) && blank != text.npos &&
              base::read_number(text.substr(kAt.size(), blank - kAt.size()), fault.at);
  for (const auto& known : kKinds)
    if (kind == known.name) fault.kind = known.kind;
  if (kind.starts_with(kSlow) && base::read_number(kind.substr(kSlow.size()), fault.factor))
    fault.kind = FaultKind::kSlow;
  good = good && fault.at > 0 && fault.factor > 0 && fault.kind != FaultKind::kNone;
  if (!good) return base::bad_value("fault", text, "expected at=N and a kind of fault");
  return fault;
}

}  // namespace

Result<Settings> parse_settings(std::string_view settings, std::string_view faults) {
  Settings out;
  for (const std::string& part : base::split(settings, ";")) {
    const std::string_view setting = base::trim(part);
    if (setting.empty()) continue;
    const std::size_t sign = setting.find('=');
    if (sign == setting.npos) return base::bad_value("setting", setting, "expected NAME=VALUE");
    REGROUP_RETURN_IF_ERROR(parse_setting(setting.substr(0, sign), setting.substr(sign + 1), out));
  }
  for (const std::string& part : base::split(faults, ";")) {
    const std::string_view text = base::trim(part);
    if (text.empty()) continue;
    REGROUP_ASSIGN_OR_RETURN(const Fault fault, parse_fault(text));
    out.faults.push_back(fault);
  }
  return out;
}

}  // namespace regroup::fakes::cuda
