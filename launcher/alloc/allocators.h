// The table of allocators, in the order in which they are tried: one row each in allocators.cc.
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
  std::string reason;  // a sentence, also if ok
};

struct AllocatorRow {
  const char* name;   // the value of --allocator
  const char* title;  // its name in sentences
  Viability (*viable)(const AllocInput& input);
  base::Result<Reading> (*read)(const AllocInput& input);
  const char* growth;  // a sentence: how a job under this allocator grows and shrinks
  base::Result<Grace> (*grace)(const AllocInput& input);
  // The commands by which a job changes its allocation; null: the allocator has none.
  AllocatorRequest (*grow)(const AllocInput& input, const Growth& growth) = nullptr;
  AllocatorRequest (*give_back)(const AllocInput& input, const Host& host,
                                const std::vector<Host>& rest) = nullptr;
  // Cancels a pending request to grow.
  AllocatorRequest (*cancel)(const AllocInput& input, const std::string& request) = nullptr;
  // Null: a job has at most one pending request, and a new one replaces it.
  AllocatorRequest (*requests)(const AllocInput& input) = nullptr;
  bool parts = false;  // give_back can also return some slots of a host, even of the first host
};
[[nodiscard]] const std::vector<AllocatorRow>& allocators();

// The first viable allocator, or the one called `name`; null: there is none.
[[nodiscard]] const AllocatorRow* find_allocator(const AllocInput& input, std::string_view name);

// An allocation and the allocator that granted it.
struct Granted {
  const AllocatorRow* by = nullptr;  // null: no allocator; the allocation is this machine
  Reading reading;
};

// Reads the allocation of the allocator called `name`. "": of the first viable one; "none": this
// machine alone. kInvalidArgument: no allocator has that name. kUnavailable: it is not viable here;
// the message says why. Other errors are its reader's.
[[nodiscard]] base::Result<Granted> find_allocation(const AllocInput& input, std::string_view name);

// The output of `regroup allocation`: which allocator granted which hosts, by which variables, and
// why the other allocators were not used.
[[nodiscard]] std::string allocation_text(const AllocInput& input, const Granted& granted);
// The same as JSON: {"allocator", "job", "number", "slots", "facts", "warnings", "hosts": [{...}]}.
[[nodiscard]] std::string allocation_json(const Granted& granted);

}  // namespace regroup::alloc
