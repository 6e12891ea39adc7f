// Which processors members get, and how many members may share them.
#include <fmt/format.h>

#include "base/values.h"
#include "launcher/cli/spec.h"

namespace regroup::cli {
namespace {

using base::Status;
using D = OptionsBuilder;
using G = const ParsedArgument;

Status refused(const ParsedArgument& argument, const Status& status) {
  return status.ok() ? status : base::bad_value(argument.name, argument.value(), status.message());
}

Status map_by(OptionsBuilder& builder, const ParsedArgument& argument) {
  return refused(argument, spec::parse_map_by(argument.value(), builder.out.mapping.map));
}

Status map_as(OptionsBuilder& builder, const ParsedArgument& argument, const std::string& text) {
  return refused(argument, spec::parse_map_by(text, builder.out.mapping.map));
}

// --bynode and its relatives map and rank.
Status map_and_rank(OptionsBuilder& builder, const std::string& word) {
  if (Status status = spec::parse_map_by(word, builder.out.mapping.map); !status.ok())
    return status;
  return spec::parse_rank_by(word, builder.out.mapping.rank);
}

Status bind_as(OptionsBuilder& builder, const std::string& word) {
  return spec::parse_bind_to(word, builder.out.mapping.bind);
}

// torchrun binds a process near its GPU: to the NUMA node, the package, the cores of a last-level
// cache, or to cores that no other process gets.
Status set_numa_binding(OptionsBuilder& builder, const ParsedArgument& argument) {
  constexpr std::pair<std::string_view, std::string_view> kModes[] = {
      {"node", "numa"}, {"socket", "package"}, {"core-complex", "l3cache"}};
  for (const auto& [mode, unit] : kModes) {
    if (argument.value() == mode)
      return bind_as(builder, fmt::format("{}:overload-allowed:if-supported", unit));
  }
  if (argument.value() == "exclusive")
    return builder.ignored.push_back(argument.name + " exclusive"), Status();
  return base::bad_value(argument.name, argument.value(),
                         "expected node, socket, core-complex or exclusive");
}

Status set_cpu_set(OptionsBuilder& builder, const ParsedArgument& argument) {
  builder.out.mapping.cpu_set.clear();
  return refused(argument, spec::parse_cpu_list(argument.value(), builder.out.mapping.cpu_set));
}

Status set_memory(OptionsBuilder& builder, const ParsedArgument& argument) {
  constexpr std::pair<std::string_view, spec::MemoryPolicy> kPolicies[] = {
      {"none", spec::MemoryPolicy::kKernel},   {"firsttouch", spec::MemoryPolicy::kKernel},
      {"local", spec::MemoryPolicy::kLocal},   {"bind", spec::MemoryPolicy::kBind},
      {"prefer", spec::MemoryPolicy::kPrefer}, {"interleave", spec::MemoryPolicy::kInterleave}};
  for (const auto& [name, policy] : kPolicies) {
    if (base::lower(argument.value()) == name) return builder.out.mapping.memory = policy, Status();
  }
  return base::bad_value(argument.name, argument.value(),
                         "expected none, firsttouch, local, bind, prefer or interleave");
}

// N:OBJECT, several of them with commas; one is taken.
Status set_ppr(OptionsBuilder& builder, const ParsedArgument& argument) {
  if (argument.value().find(',') != std::string::npos) {
    return base::bad_value(argument.name, argument.value(),
                           "expected one object, for example 2:package");
  }
  return map_as(builder, argument, "ppr:" + argument.value());
}

// --display map,allocation,bind,topo
Status set_display(OptionsBuilder& builder, const ParsedArgument& argument) {
  spec::Display& display = builder.out.display;
  for (const std::string& whole : base::split(argument.value(), ",")) {
    const std::string word = base::lower(whole.substr(0, whole.find_first_of(":=")));
    const auto is = [&word](std::string_view name) {
      return !word.empty() && name.starts_with(word);
    };
    if (is("map") || is("map-devel")) {
      display.map = true;
    } else if (is("allocation")) {
      display.allocation = true;
    } else if (is("bindings")) {
      display.bindings = true;
    } else if (is("topology")) {
      display.topology = true;
    } else if (!is("cpus") && !is("parsable") && !is("parseable")) {
      return base::bad_value(argument.name, argument.value(),
                             fmt::format("'{}': expected map, allocation, topo or bind", whole));
    }
  }
  return {};
}

}  // namespace

std::vector<Spec> placement_options() {
  constexpr auto kJob = Scope::kJob;
  constexpr auto kYes = Common::kYes;
  return {
      {{"oversubscribe"},
       "",
       "allow more members than slots",
       [](D& d, G&) { return d.out.mapping.map.oversubscribe = true, Status(); },
       kJob,
       kYes},
      {{"nooversubscribe", "no-oversubscribe"},
       "",
       "refuse more members than slots (default, except with --compat=mpich)",
       [](D& d, G&) { return d.out.mapping.map.oversubscribe = false, Status(); }},
      {{"map-by"},
       "OBJECT[:QUALIFIERS]",
       "distribute members over objects; slot, hwthread, core, l1cache to l3cache, numa, package "
       "or socket, "
       "node, ppr:N:OBJECT, pe-list=CPUS, seq, rankfile; qualifiers: PE=N, span, oversubscribe, "
       "nolocal, "
       "hwtcpus",
       map_by,
       kJob,
       kYes},
      {{"placement"},
       "best|pack|spread|any",
       "assign each rank a GPU with its nearest NIC and cores; best: highest collective bandwidth; "
       "pack: "
       "fewest hosts; spread: most hosts; any: least fragmentation",
       [](D& d, G& g) {
         return refused(g, spec::parse_packing(g.value(), d.out.mapping.packing.emplace()));
       }},
      {{"topology"},
       "FILE",
       "read the host's GPUs and NICs from FILE instead of detecting them; each host reads its own "
       "FILE",
       [](D& d, G& g) { return d.out.mapping.machine = g.value(), Status(); }},
      {{"fabric"},
       "FILE",
       "read the network between hosts from FILE; Slurm's topology.conf, Kubernetes nodes or YAML",
       [](D& d, G& g) { return d.out.mapping.fabric = g.value(), Status(); }},
      {{"gpus-per-rank"},
       "N",
       "number of GPUs of each rank, chosen by --placement (default: 1)",
       [](D& d, G& g) { return base::parse_count(g.name, g.value(), 1, d.out.mapping.gpus); }},
      {{"gpu-label"},
       "NAME",
       "use only GPUs with this label or product name",
       [](D& d, G& g) { return d.out.mapping.gpu_label = g.value(), Status(); }},
      {{"rank-by"},
       "OBJECT",
       "number the ranks by slot, node, fill, span or an object of --map-by",
       [](D& d, G& g) { return refused(g, spec::parse_rank_by(g.value(), d.out.mapping.rank)); }},
      {{"bind-to"},
       "OBJECT[:QUALIFIERS]",
       "bind each member to an object; none, hwthread, core, an object of --map-by or user:CPUS; "
       "qualifiers: "
       "overload-allowed, if-supported",
       [](D& d, G& g) { return refused(g, spec::parse_bind_to(g.value(), d.out.mapping.bind)); },
       kJob,
       kYes},
      {{"numa-binding"},
       "node|socket|core-complex|exclusive",
       "bind each member to its NUMA node, package or last-level cache; exclusive is ignored "
       "(torchrun)",
       set_numa_binding},
      {{"mem-bind"},
       "none|local|bind|prefer|interleave",
       "policy for memory from the NUMA nodes of a member's cores; none, firsttouch: as the system "
       "decides "
       "(default: none)",
       set_memory},
      {{"binding"},
       "OBJECT",
       "same as --bind-to (hydra)",
       [](D& d, G& g) { return refused(g, spec::parse_bind_to(g.value(), d.out.mapping.bind)); }},
      {{"npersocket"},
       "N",
       "number of members on each package",
       [](D& d, G& g) { return map_as(d, g, "ppr:" + g.value() + ":package"); }},
      {{"ppr"}, "N:OBJECT", "number of members on each object, for example 2:package", set_ppr},
      {{"cpus-per-proc", "cpus-per-rank", "cpus-per-task"},
       "N",
       "number of cores of each member",
       [](D& d, G& g) { return map_as(d, g, ":pe=" + g.value()); }},
      {{"use-hwthread-cpus"},
       "",
       "count each hardware thread, instead of each core, as a slot",
       [](D& d, G&) { return d.out.mapping.map.hwthread_cpus = true, Status(); }},
      {{"cpu-set", "cpu-list"},
       "CPUS",
       "use only the listed processors, for example 0,2-5",
       set_cpu_set},
      {{"rankfile", "rf"},
       "FILE",
       "read the host and processors of each rank from FILE, one per line; rank 0=localhost "
       "slot=0-1",
       [](D& d, G& g) {
         d.out.mapping.map.kind = spec::MapBy::Kind::kRankFile;
         return d.out.mapping.map.file = g.value(), Status();
       }},
      {{"bynode"},
       "",
       "same as --map-by node --rank-by node",
       [](D& d, G&) { return map_and_rank(d, "node"); }},
      {{"byslot"},
       "",
       "same as --map-by slot --rank-by slot",
       [](D& d, G&) { return map_and_rank(d, "slot"); }},
      {{"bycore"},
       "",
       "same as --map-by core --rank-by core",
       [](D& d, G&) { return map_and_rank(d, "core"); }},
      {{"bind-to-core"}, "", "same as --bind-to core", [](D& d, G&) { return bind_as(d, "core"); }},
      {{"bind-to-socket"},
       "",
       "same as --bind-to package",
       [](D& d, G&) { return bind_as(d, "package"); }},
      {{"bind-to-none"}, "", "same as --bind-to none", [](D& d, G&) { return bind_as(d, "none"); }},
      {{"report-bindings"},
       "",
       "print the processors of each member on standard error",
       [](D& d, G&) { return d.out.display.bindings = true, Status(); }},
      {{"display"}, "LIST", "print before the start; map, allocation, topo, bind", set_display},
      {{"display-map", "display-devel-map", "display-diffable-map"},
       "",
       "print the host and processors of each member before the start",
       [](D& d, G&) { return d.out.display.map = true, Status(); }},
      {{"display-allocation", "display-devel-allocation"},
       "",
       "print the hosts and their slots before the start",
       [](D& d, G&) { return d.out.display.allocation = true, Status(); }},
      {{"display-topo"},
       "",
       "print the host's processors before the start",
       [](D& d, G&) { return d.out.display.topology = true, Status(); }},
      {{"do-not-launch"},
       "",
       "print what the display options request, and start nothing",
       [](D& d, G&) { return d.out.do_not_launch = true, Status(); }},
  };
}

}  // namespace regroup::cli
