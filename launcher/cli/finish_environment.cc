// The environment of an app's members.
#include <fmt/format.h>

#include "launcher/cli/finish.h"
#include "launcher/spec/outer_place.h"

namespace regroup::cli {
namespace {

using ChangeKind = EnvironmentChange::Kind;

// All of `from` that begin with `prefix`, or the one of this name.
template <class Do>
void for_matching(const spec::Environment& from, const std::string& pattern, Do act) {
  if (!pattern.ends_with('*')) {
    if (const auto found = from.find(pattern); found != from.end()) act(*found);
    return;
  }
  const std::string prefix = pattern.substr(0, pattern.size() - 1);
  for (auto it = from.lower_bound(prefix); it != from.end() && it->first.starts_with(prefix); ++it)
    act(*it);
}

void join(spec::Environment& out, const EnvironmentChange& change) {
  std::string& value = out[change.name];
  const std::string gap = value.empty() ? "" : change.separator;
  value =
      change.kind == ChangeKind::kAppend ? value + gap + change.value : change.value + gap + value;
}

void apply(const std::vector<EnvironmentChange>& changes, const spec::Environment& base,
           spec::Environment& out) {
  for (const EnvironmentChange& change : changes) {
    switch (change.kind) {
      case ChangeKind::kSet:
      case ChangeKind::kMca:
        out[change.name] = change.value;
        break;
      case ChangeKind::kExport:
        for_matching(
            change.name.ends_with('*') ? spec::without_outer_place(base) : base, change.name,
            [&out](const auto& entry) { out.insert_or_assign(entry.first, entry.second); });
        break;
      case ChangeKind::kUnset: {
        const spec::Environment before = out;
        for_matching(before, change.name, [&out](const auto& entry) { out.erase(entry.first); });
        break;
      }
      case ChangeKind::kAppend:
      case ChangeKind::kPrepend:
        join(out, change);
    }
  }
}

}  // namespace

spec::Environment app_environment(const OptionsBuilder& builder, const AppBuilder& app) {
  const spec::Environment& base = builder.context.environment;
  const ExportedVariables& passed = app.passed ? *app.passed : builder.passed;
  spec::Environment out = passed.all ? spec::without_outer_place(base) : spec::Environment();
  for (const std::string& name : passed.names) {
    if (const auto found = base.find(name); found != base.end()) out.insert(*found);
  }
  apply(builder.changes, base, out);
  apply(app.changes, base, out);
  if (builder.out.ulfm)
    out.emplace("OMPI_MCA_mpi_ft_enable", "1");  // how mpirun tells it to Open MPI
  return out;
}

}  // namespace regroup::cli
