// Converts the parts that several messages share to FlatBuffers and back. Private to wire.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/agent/wire_generated.h"
#include "launcher/process/environment.h"
#include "launcher/process/gpu_claims.h"

namespace regroup::agent {

using base::Code;
using base::Status;
using Bytes = std::vector<std::uint8_t>;

inline Bytes to_bytes(std::span<const std::byte> bytes) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {begin, begin + bytes.size()};
}
inline std::vector<std::byte> from_bytes(const Bytes& bytes) {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return {begin, begin + bytes.size()};
}

inline std::vector<std::unique_ptr<fb::VariableT>> variables(const spec::Environment& environment) {
  std::vector<std::unique_ptr<fb::VariableT>> out;
  for (const auto& [name, value] : environment) {
    out.push_back(std::make_unique<fb::VariableT>());
    out.back()->name = name, out.back()->value = value;
  }
  return out;
}
inline spec::Environment plain_environment(
    const std::vector<std::unique_ptr<fb::VariableT>>& variables) {
  spec::Environment out;
  for (const auto& variable : variables) out[variable->name] = variable->value;
  return out;
}
inline std::unique_ptr<fb::ClaimsT> claims(const process::ClaimScope& scope) {
  auto t = std::make_unique<fb::ClaimsT>();
  t->name = scope.name, t->outer = scope.outer;
  return t;
}
inline process::ClaimScope plain_claims(const std::unique_ptr<fb::ClaimsT>& t) {
  return t ? process::ClaimScope{t->name, "", t->outer} : process::ClaimScope();
}
template <class Table>
void set_status(const Status& status, Table& t) {
  t.code = static_cast<std::uint8_t>(status.code()), t.error = status.message();
}
template <class Table>
Status plain_status(const Table& t, const char* what, Status* out) {
  if (t.code > static_cast<std::uint8_t>(Code::kInternal)) return base::data_loss(what);
  const auto code = static_cast<Code>(t.code);
  *out = code == Code::kOk ? Status() : Status(code, t.error);
  return {};
}

}  // namespace regroup::agent
