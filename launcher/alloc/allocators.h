// The allocators that there are, in the order in which they are looked for: one row each in
// allocators.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/alloc/reading.h"
#include "launcher/alloc/resize.h"

namespace regroup::alloc {

struct Viability {
  bool ok = false;
  std::string reason;  // a sentence, either way
};

struct AllocatorRow {
  const char* name;   // of --allocator
  const char* title;  // in sentences
  Viability (*viable)(const AllocInput& input);
  base::Result<Reading> (*read)(const AllocInput& input);
  const char* growth;  // how such a job grows and shrinks, a sentence
  base::Result<Grace> (*grace)(const AllocInput& input);
  // The commands by which a job asks for it; none: there are none.
  AllocatorRequest (*grow)(const AllocInput& input, const Growth& growth) = nullptr;
  AllocatorRequest (*give_back)(const AllocInput& input, const Host& host,
                                const std::vector<Host>& rest) = nullptr;
  AllocatorRequest (*cancel)(const AllocInput& input,
                             const std::string& request) = nullptr;  // of one that grows
  // None: a job has one request at a time, and a further one takes its place.
  AllocatorRequest (*requests)(const AllocInput& input) = nullptr;
  bool parts = false;  // give_back takes some slots of a host, too, also of the first one
};
[[nodiscard]] const std::vector<AllocatorRow>& allocators();

// The first that is viable, or the one named; none: there is none.
[[nodiscard]] const AllocatorRow* find_allocator(const AllocInput& input, std::string_view name);

// An allocation, and where it comes from.
struct Granted {
  // None: no allocator has granted anything, this machine is all there is.
  const AllocatorRow* by = nullptr;
  Reading reading;
};

// The first that is viable, or the one named: "none" is this machine alone, "" the first.
// kInvalidArgument: there is none of that name; kUnavailable: it is not viable here, and why; or
// its reader's error.
[[nodiscard]] base::Result<Granted> find_allocation(const AllocInput& input, std::string_view name);

// The output of `regroup allocation`: which allocator granted which hosts, by which variables, and
// why the other allocators were not used.
[[nodiscard]] std::string allocation_text(const AllocInput& input, const Granted& granted);
// The same for programs: {"allocator", "job", "number", "slots", "facts", "warnings", "hosts":
// [{...}]}.
[[nodiscard]] std::string allocation_json(const Granted& granted);

}  // namespace regroup::alloc
