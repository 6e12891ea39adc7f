// Small data in cache lines each of which says for itself that it is there: who waits for them fetches them
// once, where a flag beside the data costs one trip for the flag and another for the data.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collective/operation.h"

namespace regroup::collective {

// Written by one member, read by others.
struct alignas(64) DataLine {
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> instance;
  std::byte payload[48];  // valid once both say so
};

// Of what: the instance of a communicator (never 0), and a word that is used once in it (nor is that).
struct LineMark {
  std::uint64_t instance;
  std::uint64_t word;
};

[[nodiscard]] constexpr std::size_t lines_of(std::size_t bytes) {
  return (bytes + sizeof(DataLine::payload) - 1) / sizeof(DataLine::payload);
}

// Writes lines_of(data.size()) lines, which nobody reads for an earlier mark any more. The next look at other
// members' memory may come before they are seen.
void write_lines(DataLine* lines, LineMark mark, Input data);

// True if all of them are there; else `data` is changed or not.
[[nodiscard]] bool read_lines(const DataLine* lines, LineMark mark, Output data);

}  // namespace regroup::collective
