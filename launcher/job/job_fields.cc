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
    {"taskRoles", kRoles, true, 0, 0,
     "The roles of the cluster; ranks go through them in this order"},
    {"dataDir", kText, false, 0, 0, "PAI_DATA_DIR"},
    {"outputDir", kText, false, 0, 0, "PAI_OUTPUT_DIR"},
    {"retryCount", kWhole, false, 0, kMost, "Restarts of each member, and of the whole job"},
    {"jobEnvs", kVariables, false, 0, 0, "Environment variables of every member"},
    {"image", kUnheeded, false, 0, 0, "Ignored: there are no containers"},
    {"authFile", kUnheeded, false, 0, 0, "Ignored: there are no containers"},
    {"codeDir", kUnheeded, false, 0, 0, "Ignored: programs run where they are"},
    {"virtualCluster", kUnheeded, false, 0, 0, "Ignored: there is one cluster"},
    {"gpuType", kUnheeded, false, 0, 0, "Ignored: the machine's GPUs are used"},
    {"extras", kUnheeded, false, 0, 0, "Ignored"},
};

constexpr Field kRoleFields[] = {
    {"name", kText, true, 0, 0, "chief, worker, ps, evaluator or a name of your own"},
    {"taskNumber", kWhole, false, 1, kMost, "Members of this role; 1 if absent"},
    {"cpuNumber", kNumber, false, 0, kMost, "Cores of each member; 0 or absent: no limit"},
    {"memoryMB", kWhole, false, 0, kMostMemory,
     "Memory of each member in MiB; 0 or absent: no limit"},
    {"gpuNumber", kWhole, false, 0, kMost, "GPUs of each member"},
    {"command", kCommand, true, 0, 0, "A text that sh -c runs, or a program and its arguments"},
    {"portList", kPorts, false, 0, 0, "Ports of each member besides the one in TF_CONFIG"},
    {"minFailedTaskCount", kWholeOrNever, false, 1, kMost,
     "So many members that failed for good end the job; 1 if absent, -1: never"},
    {"minSucceededTaskCount", kWholeOrNever, false, 1, kMost,
     "So many members that ended well end the job well; never if absent or -1"},
    {"shmMB", kUnheeded, false, 0, 0, "Ignored: there are no containers"},
};

constexpr Field kPortFields[] = {
    {"label", kText, true, 0, 0, "The last part of PAI_PORT_LIST_ROLE_INDEX_LABEL"},
    {"portNumber", kWhole, false, 1, kMost, "Ports of each member; 1 if absent"},
    {"beginAt", kWhole, false, 0, 65535,
     "Member i has the portNumber ports from beginAt + i * portNumber on; 0 or absent: any"},
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
