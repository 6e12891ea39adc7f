// sge_pe(5) and submit(1) of Grid Engine 8.1.9, "$pe_hostfile".
#include <fmt/format.h>

#include "base/status.h"
#include "base/text.h"
#include "launcher/alloc/reading.h"

namespace regroup::alloc {
namespace {

using base::invalid_argument;
using base::Status;

// Lines "host slots queue@host binding", one for each queue of a host. The binding is ignored: it
// has sockets and cores, whose operating system numbers only the host itself knows.
Status read_line(std::string_view line, const std::string& where, HostSum& sum) {
  std::string_view host, number;
  std::uint32_t slots = 0;
  if (!base::next_blank_word(line, host)) return {};
  if (!base::next_blank_word(line, number) || !base::whole(number, slots) || slots == 0)
    return invalid_argument(fmt::format("{}: host {}: expected a number of slots after the name",
                                        where, base::printable_word(host)));
  return sum.add(host, slots);
}

}  // namespace

base::Result<Reading> read_grid_engine(const AllocInput& input) {
  Reading reading;
  reading.id = input.value("JOB_ID");
  const std::string source = "PE_HOSTFILE=" + input.value("PE_HOSTFILE");
  REGROUP_ASSIGN_OR_RETURN(const auto text, read_named_file(input, "PE_HOSTFILE"));
  HostSum sum(source);
  std::size_t number = 0;
  for (std::string_view rest = text, line; base::next_part(rest, '\n', line);)
    REGROUP_RETURN_IF_ERROR(read_line(line, fmt::format("{}, line {}", source, ++number), sum));
  if (sum.hosts().empty()) return invalid_argument(source + ": contains no host");
  reading.facts.push_back(fact(input, "PE_HOSTFILE"));
  check_count(input, "NSLOTS", sum.slots(), "PE_HOSTFILE", reading);
  check_count(input, "NHOSTS", sum.hosts().size(), "PE_HOSTFILE", reading);
  sum.mark_here(input.host_name);
  reading.allocation.hosts = std::move(sum.hosts());
  reading.reach.before = {"qrsh", "-inherit"};
  return reading;
}

}  // namespace regroup::alloc
