// Two passes: every map is held against its table of fields first, so that what is read afterwards
// is there and of the right kind.
#include "launcher/job/job_file.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <sstream>

#include "base/nearest.h"
#include "base/printable.h"
#include "launcher/job/job_fields.h"

namespace regroup::job {
namespace {

constexpr std::uintmax_t kLargest = 1 << 20;

// "FILE:LINE: ..." for whatever is wrong at `node`.
struct Source {
  std::string file;
  [[nodiscard]] std::string at(const YAML::Mark& mark, const std::string& rest) const {
    return mark.is_null() ? fmt::format("{}: {}", file, rest)
                          : fmt::format("{}:{}: {}", file, mark.line + 1, rest);
  }
  [[nodiscard]] base::Status wrong(const YAML::Node& node, const std::string& field,
                                   const std::string& what) const {
    return base::invalid_argument(at(node.Mark(), field.empty() ? what : field + ": " + what));
  }
};

std::string join(const std::string& field, const std::string& name) {
  return field.empty() ? name : field + "." + name;
}

std::string shown(const YAML::Node& node) {
  if (node.IsNull()) return "nothing";
  if (node.IsMap()) return "a map";
  if (node.IsSequence()) return node.size() == 0 ? "an empty list" : "a list";
  constexpr std::size_t kMostShown = 40;
  const std::string& text = node.Scalar();
  return text.size() <= kMostShown ? fmt::format("\"{}\"", text)
                                   : fmt::format("\"{}...\"", text.substr(0, kMostShown));
}

bool is_number(const YAML::Node& node, double least, double most, bool whole) {
  if (!node.IsScalar()) return false;
  const std::string& text = node.Scalar();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value) &&
         value >= least && value <= most && (!whole || value == std::floor(value));
}

bool is_command(const YAML::Node& node) {
  if (node.IsScalar()) return !node.Scalar().empty();
  return node.IsSequence() && node.size() > 0 &&
         std::all_of(node.begin(), node.end(), [](const auto& word) { return word.IsScalar(); }) &&
         !node.begin()->Scalar().empty();
}

bool is_variables(const YAML::Node& node) {
  return node.IsMap() && std::all_of(node.begin(), node.end(), [](const auto& entry) {
           return entry.first.IsScalar() && entry.second.IsScalar() &&
                  !entry.first.Scalar().empty() &&
                  entry.first.Scalar().find('=') == std::string::npos;
         });
}

bool fits(const Field& field, const YAML::Node& node) {
  switch (field.kind) {
    case FieldKind::kText:
      return node.IsScalar();
    case FieldKind::kWhole:
      return is_number(node, field.least, field.most, true);
    case FieldKind::kWholeOrNever:
      return node.IsNull() || is_number(node, field.least, field.most, true) ||
             is_number(node, -1, -1, true);
    case FieldKind::kNumber:
      return is_number(node, field.least, field.most, false);
    case FieldKind::kCommand:
      return is_command(node);
    case FieldKind::kVariables:
      return is_variables(node);
    case FieldKind::kRoles:
      return node.IsSequence() && node.size() > 0;
    case FieldKind::kPorts:
      return node.IsSequence();
    case FieldKind::kUnheeded:
      break;
  }
  return true;
}

class Checker {
 public:
  Checker(const Source& place, std::vector<std::string>& notes) : place_(place), notes_(notes) {}

  base::Status check(const YAML::Node& map, const std::string& path,
                     std::span<const Field> fields) {
    if (!map.IsMap()) return place_.wrong(map, path, "expected a map of fields, got " + shown(map));
    std::set<std::string> seen;
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) {
        return place_.wrong(entry.first, path, "expected a field name, got " + shown(entry.first));
      }
      const std::string& name = entry.first.Scalar();
      if (!seen.insert(name).second)
        return place_.wrong(entry.first, join(path, name), "given twice");
      REGROUP_RETURN_IF_ERROR(check_field(entry.first, entry.second, path, fields));
    }
    for (const Field& field : fields) {
      if (field.required && !seen.contains(field.name)) {
        return place_.wrong(map, join(path, field.name), "missing; expected " + wanted(field));
      }
    }
    return {};
  }

 private:
  base::Status check_field(const YAML::Node& key, const YAML::Node& value, const std::string& path,
                           std::span<const Field> fields) {
    const std::string name = join(path, key.Scalar());
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const Field& each) { return key.Scalar() == each.name; });
    if (field == fields.end()) return place_.wrong(key, name, unknown(key.Scalar(), fields));
    if (!fits(*field, value)) {
      return place_.wrong(value.IsNull() ? key : value, name,
                          "expected " + wanted(*field) + ", got " + shown(value));
    }
    if (field->kind == FieldKind::kRoles) return check_list(value, name, role_fields());
    if (field->kind == FieldKind::kPorts) return check_list(value, name, port_fields());
    if (field->kind == FieldKind::kUnheeded) {
      notes_.push_back(place_.at(key.Mark(), fmt::format("{}: {}", name, field->about)));
    }
    return {};
  }

  base::Status check_list(const YAML::Node& list, const std::string& path,
                          std::span<const Field> fields) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      REGROUP_RETURN_IF_ERROR(check(list[i], fmt::format("{}[{}]", path, i), fields));
    }
    return {};
  }

  static std::string unknown(const std::string& name, std::span<const Field> fields) {
    std::vector<std::string> names;
    for (const Field& field : fields) names.emplace_back(field.name);
    const std::string near = base::nearest(name, names);
    return "unknown field" + (near.empty() ? "" : fmt::format("; did you mean {}?", near));
  }

  const Source& place_;
  std::vector<std::string>& notes_;
};

std::string text_of(const YAML::Node& map, const char* name) {
  const YAML::Node node = map[name];
  return node.IsDefined() ? node.Scalar() : "";
}

double number_of(const YAML::Node& map, const char* name, double otherwise) {
  const YAML::Node node = map[name];
  if (!node.IsDefined() || node.IsNull()) return otherwise;
  double value = otherwise;
  std::from_chars(node.Scalar().data(), node.Scalar().data() + node.Scalar().size(), value);
  return value;
}

std::uint32_t whole_of(const YAML::Node& map, const char* name, std::uint32_t otherwise) {
  const double value = number_of(map, name, otherwise);
  return value < 0 ? 0 : static_cast<std::uint32_t>(value);  // -1: never
}

std::vector<std::string> command_of(const YAML::Node& command) {
  if (command.IsScalar()) return {"sh", "-c", command.Scalar()};
  std::vector<std::string> out;
  for (const auto& word : command) out.push_back(word.Scalar());
  return out;
}

// The role that a name is given to twice, or of the list itself.
YAML::Node wrong_of(const YAML::Node& roles) {
  std::set<std::string> names;
  for (const auto& role : roles) {
    if (!names.insert(text_of(role, "name")).second) return role["name"];
  }
  return roles;
}

Role role_of(const YAML::Node& node) {
  Role role;
  role.name = text_of(node, "name");
  role.count = whole_of(node, "taskNumber", 1);
  role.gpus = whole_of(node, "gpuNumber", 0);
  const YAML::Node never = node["minFailedTaskCount"];
  role.min_failed =
      never.IsDefined() && never.IsNull() ? 0 : whole_of(node, "minFailedTaskCount", 1);
  role.min_succeeded = whole_of(node, "minSucceededTaskCount", 0);
  for (const auto& port : node["portList"]) {
    role.ports.push_back({text_of(port, "label"), whole_of(port, "portNumber", 1),
                          static_cast<std::uint16_t>(whole_of(port, "beginAt", 0))});
  }
  return role;
}

spec::AppRequest app_of(const YAML::Node& node, const Role& role,
                        const spec::Environment& environment) {
  spec::AppRequest app;
  app.role = role.name;
  app.count = role.count;
  app.command = command_of(node["command"]);
  app.environment = environment;
  app.limits.cpus = number_of(node, "cpuNumber", 0);
  app.limits.memory_bytes = static_cast<std::uint64_t>(number_of(node, "memoryMB", 0)) << 20U;
  return app;
}

spec::Environment environment_of(const YAML::Node& job, spec::Environment base) {
  for (const auto& entry : job["jobEnvs"]) base[entry.first.Scalar()] = entry.second.Scalar();
  if (job["dataDir"].IsDefined()) base["PAI_DATA_DIR"] = text_of(job, "dataDir");
  if (job["outputDir"].IsDefined()) base["PAI_OUTPUT_DIR"] = text_of(job, "outputDir");
  return base;
}

base::Status check_gpus(const Source& place, const YAML::Node& roles,
                        const std::vector<Role>& parsed, std::uint32_t gpus) {
  std::uint64_t wanted = 0;
  for (std::size_t i = 0; i < parsed.size(); ++i) {
    wanted += std::uint64_t{parsed[i].gpus} * parsed[i].count;
    if (wanted <= gpus) continue;
    const std::string have = gpus == 0 ? "no GPU" : fmt::format("{} in all", gpus);
    return place.wrong(
        roles[i]["gpuNumber"], fmt::format("taskRoles[{}].gpuNumber", i),
        fmt::format("{} for each of {} of {}, but this machine has {}", parsed[i].gpus,
                    base::counted(parsed[i].count, "member"), parsed[i].name, have));
  }
  return {};
}

struct Ignore final : YAML::EventHandler {
  using Mark = const YAML::Mark&;
  void OnDocumentStart(Mark) override {}
  void OnDocumentEnd() override {}
  void OnNull(Mark, YAML::anchor_t) override {}
  void OnAlias(Mark, YAML::anchor_t) override {}
  void OnScalar(Mark, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(Mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(Mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// "none", "several", or nullptr for one. YAML::LoadAll() never returns from "{},", and YAML::Load()
// heeds the first document only.
const char* number_of_documents(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Ignore ignore;
  if (!parser.HandleNextDocument(ignore)) return "none";
  return parser.HandleNextDocument(ignore) ? "several" : nullptr;
}

base::Result<JobFile> parse_document(const YAML::Node& job, const Source& place,
                                     const spec::Environment& base, std::uint32_t gpus) {
  JobFile out;
  REGROUP_RETURN_IF_ERROR(Checker(place, out.notes).check(job, "", job_fields()));
  out.name = text_of(job, "jobName");
  if (job["retryCount"].IsDefined()) out.retry_count = whole_of(job, "retryCount", 0);
  const spec::Environment environment = environment_of(job, base);
  const YAML::Node roles = job["taskRoles"];
  for (const auto& node : roles) {
    out.roles.push_back(role_of(node));
    out.apps.push_back(app_of(node, out.roles.back(), environment));
  }
  if (base::Status status = check_roles(out.roles); !status.ok()) {
    return place.wrong(wrong_of(roles), "taskRoles", status.message());
  }
  REGROUP_RETURN_IF_ERROR(check_gpus(place, roles, out.roles, gpus));
  return out;
}

}  // namespace

base::Result<JobFile> parse_job(const std::string& text, const std::string& file,
                                const spec::Environment& base, std::uint32_t gpus) {
  const Source place{file};
  try {
    if (const char* number = number_of_documents(text); number != nullptr) {
      return base::invalid_argument(fmt::format("{}: expected one document, got {}", file, number));
    }
    return parse_document(YAML::Load(text), place, base, gpus);
  } catch (const YAML::Exception& error) {
    return base::invalid_argument(place.at(error.mark, "not YAML: " + error.msg));
  }
}

base::Result<JobFile> read_job(const std::string& path, const spec::Environment& base,
                               std::uint32_t gpus) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return base::not_found(fmt::format("option --job {}: {}", path, error.message()));
  if (size > kLargest) return base::invalid_argument(fmt::format("{}: is larger than 1 MiB", path));
  std::ifstream in(path, std::ios::binary);
  std::string text(size, '\0');
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (!in) return base::not_found(fmt::format("option --job {}: cannot be read", path));
  return parse_job(text, path, base, gpus);
}

std::uint32_t count_gpus() {
  std::error_code error;
  const auto folder = std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error);
  if (error) return 0;
  return static_cast<std::uint32_t>(std::distance(begin(folder), end(folder)));
}

}  // namespace regroup::job
