// Words of mapping, ranking and binding. As in PRRTE they may be shortened while they stay unique
// and are written in any case; sockets are packages.
#include "launcher/spec/mapping.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/values.h"

namespace regroup::spec {

using base::invalid_argument;
using base::Status;

namespace {

constexpr std::size_t kLongestCpuList = 4096;

constexpr std::pair<std::string_view, Unit> kUnits[] = {
    {"hwthread", Unit::kHwThread}, {"core", Unit::kCore},       {"l1cache", Unit::kL1Cache},
    {"l2cache", Unit::kL2Cache},   {"l3cache", Unit::kL3Cache}, {"numa", Unit::kNuma},
    {"package", Unit::kPackage},   {"socket", Unit::kPackage},  {"node", Unit::kNode},
    {"numanode", Unit::kNuma},     {"machine", Unit::kNode},    {"board", Unit::kNode},
    {"l1dcache", Unit::kL1Cache},  {"pu", Unit::kHwThread}};

// Whether `text` is `word` or begins it with at least `least` letters.
bool is(std::string_view text, std::string_view word, std::size_t least) {
  return text.size() >= least && word.starts_with(text);
}

std::optional<Unit> find_unit(std::string_view text) {
  for (const auto& [name, unit] : kUnits) {
    if (name == text) return unit;
  }
  for (const auto& [name, unit] : kUnits) {
    if (is(text, name, 2)) return unit;
  }
  return {};
}

Status unknown(std::string_view word, std::string_view kind, std::string_view expected) {
  return invalid_argument(fmt::format("'{}' is not a valid {}; expected {}", word, kind, expected));
}

constexpr std::string_view kObjects =
    "hwthread, core, l1cache, l2cache, l3cache, numa, package (socket), node";

// "pe=4" -> "4"; nothing if the word has no value.
std::optional<std::string> value_of(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return {};
  return std::string(word.substr(equals + 1));
}

Status positive(std::string_view what, std::string_view text, std::uint32_t& out) {
  if (base::read_number(text, out) && out > 0) return {};
  return invalid_argument(fmt::format("{} '{}': expected a whole number >= 1", what, text));
}

Status map_qualifier(const std::string& given, MapBy& out) {
  const std::string whole = base::lower(given);
  const std::string word = whole.substr(0, whole.find('='));
  if (word == "pe") return positive("PE", value_of(given).value_or(""), out.cpus);
  if (word == "file") return out.file = value_of(given).value_or(""), Status();
  if (is(word, "span", 2)) return out.span = true, Status();
  if (is(word, "oversubscribe", 2)) return out.oversubscribe = true, Status();
  if (is(word, "nooversubscribe", 3)) return out.oversubscribe = false, Status();
  if (is(word, "nolocal", 3)) return out.no_local = true, Status();
  if (is(word, "hwtcpus", 2)) return out.hwthread_cpus = true, Status();
  if (is(word, "corecpus", 2)) return out.hwthread_cpus = false, Status();
  if (is(word, "ordered", 2)) return out.ordered = true, Status();
  if (is(word, "inherit", 3) || is(word, "noinherit", 3)) return {};
  return unknown(
      given, "mapping qualifier",
      "PE=N, SPAN, OVERSUBSCRIBE, NOOVERSUBSCRIBE, NOLOCAL, HWTCPUS, CORECPUS, FILE=PATH, ORDERED");
}

Status map_qualifiers(const std::vector<std::string>& words, std::size_t from, MapBy& out) {
  for (std::size_t i = from; i < words.size(); ++i) {
    for (const std::string& word : base::split(words[i], ",")) {
      if (word.empty()) continue;
      if (Status status = map_qualifier(word, out); !status.ok()) return status;
    }
  }
  return {};
}

// ppr:N:OBJECT[:QUALIFIERS]
Status map_per_unit(const std::vector<std::string>& words, MapBy& out) {
  if (words.size() < 3)
    return invalid_argument("ppr: expected a number and an object, for example ppr:2:package");
  if (Status status = positive("ppr", words[1], out.per_unit); !status.ok()) return status;
  const std::vector<std::string> object = base::split(words[2], ",");
  const auto unit = find_unit(base::lower(object[0]));
  if (!unit) return unknown(object[0], "object", kObjects);
  out.kind = MapBy::Kind::kPerUnit;
  out.unit = *unit;
  if (Status status = map_qualifiers(object, 1, out); !status.ok()) return status;
  return map_qualifiers(words, 3, out);
}

// A policy that is a single word; nothing if it is none.
std::optional<MapBy::Kind> map_policy(std::string_view word) {
  using Kind = MapBy::Kind;
  static constexpr std::pair<std::string_view, Kind> kPolicies[] = {{"slot", Kind::kSlot},
                                                                    {"seq", Kind::kSequence},
                                                                    {"rankfile", Kind::kRankFile},
                                                                    {"dist", Kind::kDistance}};
  for (const auto& [name, kind] : kPolicies) {
    if (is(word, name, name == "rankfile" ? 4 : 2)) return kind;
  }
  return {};
}

Status map_directive(const std::vector<std::string>& words, MapBy& out) {
  const std::string whole = base::lower(words[0]);
  const std::string word = whole.substr(0, whole.find_first_of("=,"));
  if (is(word, "ppr", 2)) return map_per_unit(words, out);
  if (word == "pe-list") {
    out.kind = MapBy::Kind::kCpuList;
    if (Status status = parse_cpu_list(value_of(whole).value_or(""), out.cpu_list); !status.ok())
      return status;
    return map_qualifiers(words, 1, out);
  }
  if (word == "device") {
    out.kind = MapBy::Kind::kDistance;
    out.device = value_of(words[0]).value_or("");
    if (out.device.empty())
      return invalid_argument(
          "device: expected a name, for example device=mlx5_0, device=gpu3 or device=nic");
    return map_qualifiers(words, 1, out);
  }
  if (const auto policy = map_policy(word)) {
    out.kind = *policy;
    if (*policy == MapBy::Kind::kDistance && words.size() > 1) {
      out.device = base::split(words[1], ",")[0];
      return map_qualifiers(base::split(words[1], ","), 1, out);
    }
    return map_qualifiers(words, 1, out);
  }
  const auto unit = find_unit(word);
  if (!unit) {
    return unknown(words[0], "mapping",
                   fmt::format("slot, {}, seq, rankfile, pe-list=..., ppr:N:OBJECT", kObjects));
  }
  out.kind = MapBy::Kind::kUnit;
  out.unit = *unit;
  std::uint32_t count = 0;  // hydra's core:2
  const bool counted = words.size() > 1 && base::read_number(words[1], count);
  if (counted) out.cpus = count;
  if (Status status = map_qualifiers(base::split(whole, ","), 1, out); !status.ok()) return status;
  return map_qualifiers(words, counted ? 2 : 1, out);
}

Status bind_qualifier(const std::string& given, BindTo& out) {
  const std::string word = base::lower(given);
  if (is(word, "overload-allowed", 2)) return out.overload_allowed = true, Status();
  if (is(word, "no-overload", 2)) return out.overload_allowed = false, Status();
  if (is(word, "if-supported", 2)) return out.if_supported = true, Status();
  if (word == "report" || is(word, "ordered", 2)) return {};
  return unknown(given, "binding qualifier", "OVERLOAD-ALLOWED, NO-OVERLOAD, IF-SUPPORTED");
}

// user:0+1,2,3-4: member 0 on 0 and 1, member 1 on 2, ...
Status bind_user(std::string_view text, BindTo& out) {
  out.kind = BindTo::Kind::kCpuList;
  out.cpu_lists.clear();
  for (const std::string& one : base::split(text, ",")) {
    std::vector<std::uint32_t>& list = out.cpu_lists.emplace_back();
    for (const std::string& part : base::split(one, "+")) {
      if (Status status = parse_cpu_list(part, list); !status.ok()) return status;
    }
    if (out.cpu_lists.size() > kLongestCpuList)
      return invalid_argument("the processor list is too long");
  }
  return {};
}

}  // namespace

std::string_view unit_name(Unit unit) {
  for (const auto& [name, known] : kUnits) {
    if (known == unit) return name;
  }
  return "?";
}

Status parse_cpu_list(std::string_view text, std::vector<std::uint32_t>& out) {
  for (const std::string& part : base::split(text, ",")) {
    const std::size_t dash = part.find('-');
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    const bool read = dash == std::string::npos
                          ? base::read_number(part, first) && base::read_number(part, last)
                          : base::read_number(part.substr(0, dash), first) &&
                                base::read_number(part.substr(dash + 1), last);
    if (!read || last < first) {
      return invalid_argument(
          fmt::format("'{}': expected a processor list, for example 0,2-5", text));
    }
    if (out.size() + (last - first) >= kLongestCpuList) {
      return invalid_argument(
          fmt::format("'{}': names more than {} processors", part, kLongestCpuList));
    }
    for (std::uint32_t cpu = first; cpu <= last; ++cpu) out.push_back(cpu);
  }
  return {};
}

Status parse_map_by(std::string_view text, MapBy& out) {
  const std::vector<std::string> words = base::split(text, ":");
  MapBy mapped = out;  // a policy replaces the one before it, a qualifier adds to those before it
  if (words[0].empty()) {
    if (words.size() == 1) return invalid_argument("expected a mapping");
    if (Status status = map_qualifiers(words, 1, mapped); !status.ok()) return status;
  } else {
    mapped.cpu_list.clear();
    if (Status status = map_directive(words, mapped); !status.ok()) return status;
  }
  out = std::move(mapped);
  return {};
}

Status parse_packing(std::string_view text, Packing& out) {
  constexpr std::pair<std::string_view, Packing> kWords[] = {{"best", Packing::kBest},
                                                             {"pack", Packing::kPack},
                                                             {"spread", Packing::kSpread},
                                                             {"any", Packing::kAny}};
  for (const auto& [word, meaning] : kWords) {
    if (text == word) return out = meaning, Status();
  }
  return invalid_argument("expected best, pack, spread or any");
}

Status parse_rank_by(std::string_view text, RankBy& out) {
  const std::vector<std::string> words = base::split(text, ":,");
  const std::string word = base::lower(words[0]);
  RankBy ranked;
  using Kind = RankBy::Kind;
  if (is(word, "slot", 2)) {
    ranked.kind = Kind::kSlot;
  } else if (word == "node") {
    ranked.kind = Kind::kNode;
  } else if (is(word, "fill", 2)) {
    ranked.kind = Kind::kFill;
  } else if (is(word, "span", 2)) {
    ranked.kind = Kind::kSpan;
  } else if (const auto unit = find_unit(word)) {
    ranked.kind = Kind::kUnit;
    ranked.unit = *unit;
  } else {
    return unknown(words[0], "ranking", fmt::format("slot, fill, span, {}", kObjects));
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string qualifier = base::lower(words[i]);
    if (qualifier != "span" && qualifier != "fill") {
      return unknown(words[i], "ranking qualifier", "SPAN, FILL");
    }
    (qualifier == "span" ? ranked.span : ranked.fill) = true;
  }
  out = ranked;
  return {};
}

Status parse_bind_to(std::string_view text, BindTo& out) {
  const std::vector<std::string> words = base::split(text, ":");
  const std::string word = base::lower(words[0]);
  BindTo bound = out;
  std::size_t next = 1;
  if (word == "user" || word == "cpu-list" || word == "cpulist") {
    const std::size_t colon = text.find(':');
    if (word == "user" && colon == std::string_view::npos) {
      return invalid_argument("user: expected a processor list, for example user:0+1,2");
    }
    if (word != "user")
      return bound.kind = BindTo::Kind::kCpuList, out = std::move(bound), Status();
    if (Status status = bind_user(text.substr(colon + 1), bound); !status.ok()) return status;
    return out = std::move(bound), Status();
  }
  if (word == "none") {
    bound.kind = BindTo::Kind::kNone;
  } else if (const auto unit = word == "rr" ? Unit::kHwThread : find_unit(word)) {
    bound.kind = BindTo::Kind::kUnit;
    bound.unit = *unit;
    bound.count = 1;
    if (words.size() > 1 && base::read_number(words[1], bound.count) && bound.count > 0) next = 2;
  } else if (!word.empty() || words.size() == 1) {
    return unknown(words[0], "binding", fmt::format("none, {}, user:LIST", kObjects));
  }
  for (std::size_t i = next; i < words.size(); ++i) {
    for (const std::string& qualifier : base::split(words[i], ",")) {
      if (Status status = bind_qualifier(qualifier, bound); !status.ok()) return status;
    }
  }
  out = std::move(bound);
  return {};
}

}  // namespace regroup::spec
