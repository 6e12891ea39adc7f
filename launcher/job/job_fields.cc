// Names and meanings follow OpenPAI's first job protocol.
#include "launcher/job/job_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace regroup::job {
namespace {

using OrderedJson = nlohmann::ordered_json;
using enum FieldKind;

constexpr double kMost = 65536;
constexpr double kMostMemory = 1 << 30;  // MiB

constexpr Field kJobFields[] = {
    {"jobName", kText, true, 0, 0, "PAI_JOB_NAME"},
    {"taskRoles", kRoles, true, 0, 0, "Roles of the cluster, in the order of their ranks"},
    {"dataDir", kText, false, 0, 0, "PAI_DATA_DIR"},
    {"outputDir", kText, false, 0, 0, "PAI_OUTPUT_DIR"},
    {"retryCount", kWhole, false, 0, kMost,
     "Maximum restarts of each member, and of the whole job"},
    {"jobEnvs", kVariables, false, 0, 0, "Environment variables of every member"},
    {"image", kUnheeded, false, 0, 0, "Ignored: members run without containers"},
    {"authFile", kUnheeded, false, 0, 0, "Ignored: members run without containers"},
    {"codeDir", kUnheeded, false, 0, 0, "Ignored: programs are not copied"},
    {"virtualCluster", kUnheeded, false, 0, 0, "Ignored: the allocator chooses the cluster"},
    {"gpuType", kUnheeded, false, 0, 0, "Ignored: the allocator chooses the GPUs"},
    {"extras", kUnheeded, false, 0, 0, "Ignored"},
};

constexpr Field kRoleFields[] = {
    {"name", kText, true, 0, 0, "chief, worker, ps, evaluator or any other name"},
    {"taskNumber", kWhole, false, 1, kMost, "Number of members of this role (default: 1)"},
    {"cpuNumber", kNumber, false, 0, kMost,
     "Number of cores of each member (default: 0, no limit)"},
    {"memoryMB", kWhole, false, 0, kMostMemory,
     "Memory limit of each member in MiB (default: 0, no limit)"},
    {"gpuNumber", kWhole, false, 0, kMost, "Number of GPUs of each member"},
    {"command", kCommand, true, 0, 0,
     "Shell command (a string), or a program and its arguments (a list)"},
    {"portList", kPorts, false, 0, 0, "Ports of each member in addition to the one in TF_CONFIG"},
    {"minFailedTaskCount", kWholeOrNever, false, 1, kMost,
     "Number of members that failed finally at which the job fails (default: 1; -1: never)"},
    {"minSucceededTaskCount", kWholeOrNever, false, 1, kMost,
     "Number of members that succeeded at which the job succeeds (default: -1, never)"},
    {"shmMB", kUnheeded, false, 0, 0, "Ignored: members run without containers"},
};

constexpr Field kPortFields[] = {
    {"label", kText, true, 0, 0, "LABEL in the variable PAI_PORT_LIST_ROLE_INDEX_LABEL"},
    {"portNumber", kWhole, false, 1, kMost, "Number of ports of each member (default: 1)"},
    {"beginAt", kWhole, false, 0, 65535,
     "First port: member i has portNumber ports from beginAt + i * portNumber (default: 0, any "
     "free ports)"},
};

OrderedJson schema_of(const Field& field);

OrderedJson object_schema(std::span<const Field> fields) {
  OrderedJson properties = OrderedJson::object();
  OrderedJson required = OrderedJson::array();
  for (const Field& field : fields) {
    properties[field.name] = schema_of(field);
    if (field.required) required.push_back(field.name);
  }
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"additionalProperties", false}};
}

OrderedJson list_schema(std::span<const Field> fields) {
  return {{"type", "array"}, {"items", object_schema(fields)}};
}

OrderedJson number_schema(const Field& field, const char* type) {
  OrderedJson whole{{"type", type},
                    {"minimum", static_cast<std::int64_t>(field.least)},
                    {"maximum", static_cast<std::int64_t>(field.most)}};
  if (field.kind != kWholeOrNever) return whole;
  return {{"anyOf", OrderedJson::array({whole, {{"const", -1}}, {{"type", "null"}}})}};
}

OrderedJson kind_schema(const Field& field) {
  OrderedJson text{{"type", "string"}};
  switch (field.kind) {
    case kText:
      return text;
    case kWhole:
    case kWholeOrNever:
      return number_schema(field, "integer");
    case kNumber:
      return number_schema(field, "number");
    case kCommand:
      return {{"anyOf",
               OrderedJson::array({text, {{"type", "array"}, {"items", text}, {"minItems", 1}}})}};
    case kVariables:
      return {{"type", "object"},
              {"additionalProperties",
               {{"type", OrderedJson::array({"string", "number", "boolean"})}}}};
    case kRoles: {
      OrderedJson roles = list_schema(kRoleFields);
      roles["minItems"] = 1;
      return roles;
    }
    case kPorts:
      return list_schema(kPortFields);
    case kUnheeded:
      break;
  }
  return OrderedJson::object();
}

OrderedJson schema_of(const Field& field) {
  OrderedJson out{{"description", field.about}};
  out.update(kind_schema(field));
  return out;
}

}  // namespace

std::span<const Field> job_fields() { return kJobFields; }
std::span<const Field> role_fields() { return kRoleFields; }
std::span<const Field> port_fields() { return kPortFields; }

std::string wanted(const Field& field) {
  const auto between = [&](const char* what) {
    return fmt::format("{} from {:.0f} to {:.0f}", what, field.least, field.most);
  };
  switch (field.kind) {
    case kText:
      return "a string";
    case kWhole:
      return between("a whole number");
    case kWholeOrNever:
      return between("a whole number") + ", or -1 for never";
    case kNumber:
      return between("a number");
    case kCommand:
      return "a string for sh -c, or a list of a program and its arguments";
    case kVariables:
      return "a map of variable names to scalar values";
    case kRoles:
      return "a list of one role or more";
    case kPorts:
      return "a list of ports";
    case kUnheeded:
      break;
  }
  return "anything";
}

std::string job_schema() {
  OrderedJson out{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                  {"title", "A job of roles: regroup --job FILE.yaml"}};
  out.update(object_schema(kJobFields));
  return out.dump(2) + "\n";
}

}  // namespace regroup::job
