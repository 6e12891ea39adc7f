// The fields of a job file as tables: the parser, its messages and
// docs/reference/formats/job.schema.json come from them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace regroup::job {

enum class FieldKind : std::uint8_t {
  kText,
  kWhole,         // a whole number
  kWholeOrNever,  // the same, or -1 or nothing
  kNumber,
  kCommand,    // a text for `sh -c`, or a list of texts
  kVariables,  // names and texts
  kRoles,      // a list of maps with kRoleFields
  kPorts,      // a list of maps with kPortFields
  kUnheeded,   // anything: accepted, since files of OpenPAI have it, with a warning that it has no
               // effect
};

struct Field {
  const char* name;
  FieldKind kind;
  bool required;
  // Of a number.
  double least;
  double most;
  const char* about;
};

[[nodiscard]] std::span<const Field> job_fields();
[[nodiscard]] std::span<const Field> role_fields();
[[nodiscard]] std::span<const Field> port_fields();

// "a whole number from 1 to 65536", "a list of roles".
[[nodiscard]] std::string wanted(const Field& field);

// The text of docs/reference/formats/job.schema.json.
[[nodiscard]] std::string job_schema();

}  // namespace regroup::job
