// Covers every message of wire.fbs that has a vector of tables or strings; the other messages have
// none.
#include "launcher/agent/wire_bounds.h"

#include "base/json_input.h"
#include "proto/flat_budget.h"

namespace regroup::agent {
namespace {

constexpr std::size_t kMostJson = 8 << 20;

using proto::FlatBudget;
using Variables = flatbuffers::Vector<flatbuffers::Offset<fb::Variable>>;

bool take(FlatBudget& budget, const Variables* variables) {
  return budget.tables(variables, [&](const fb::Variable& one) {
    return budget.values(one.name()) && budget.values(one.value());
  });
}

bool take(FlatBudget& budget, const fb::Elastic* elastic) {
  return elastic == nullptr || budget.tables(elastic->slots(), [&](const fb::SlotResources& slot) {
    return budget.values(slot.cores()) && take(budget, slot.environment());
  });
}

bool take(FlatBudget& budget, const fb::AddApp& add) {
  return budget.strings(add.argv()) && take(budget, add.environment());
}

bool take(FlatBudget& budget, const fb::StartSpace& start) {
  return budget.tables(start.members(), [&](const fb::Member& member) {
    return budget.values(member.cores()) && take(budget, member.environment());
  });
}

bool take(FlatBudget& budget, const fb::StartAgents& start) {
  return budget.strings(start.ssh()) &&
         budget.tables(start.children(), [&](const fb::Child& child) {
           return budget.values(child.name()) && budget.values(child.user());
         });
}

bool take(FlatBudget& budget, const fb::Relayed& relayed) {
  return budget.values(relayed.nodes()) && budget.values(relayed.message()) &&
         budget.values(relayed.numbers());
}

bool take(FlatBudget& budget, const fb::Gathered& gathered) {
  return budget.tables(gathered.messages(),
                       [&](const fb::Relayed& one) { return take(budget, one); });
}

}  // namespace

bool unpacks_within(const fb::Message& message, std::size_t bytes) {
  FlatBudget budget(bytes);
  if (const auto* m = message.body_as_Setup())
    return budget.strings(m->suspended_by()) && take(budget, m->elastic());
  if (const auto* m = message.body_as_AddApp()) return take(budget, *m);
  if (const auto* m = message.body_as_StartSpace()) return take(budget, *m);
  if (const auto* m = message.body_as_StartAgents()) return take(budget, *m);
  if (const auto* m = message.body_as_Relayed()) return take(budget, *m);
  if (const auto* m = message.body_as_Gathered()) return take(budget, *m);
  return true;
}

bool bounded_json(std::string_view json) {
  return json.size() <= kMostJson && base::bounded_json_depth(json);
}

}  // namespace regroup::agent
