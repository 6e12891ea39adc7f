// Small data in cache lines each of which says for itself that it is there: who waits for them fetches them
// once, where a flag beside the data costs one trip for the flag and another for the data.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collective/operation.h"

namespace regroup::collective {

// Written by one member, read by others.
struct alignas(64) InlineChunk {
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> instance;
  std::byte payload[48];  // valid once both say so
};

// Of what: the instance of a communicator (never 0), and a word that is used once in it (nor is that).
struct ChunkTag {
  std::uint64_t instance;
  std::uint64_t word;
};

[[nodiscard]] constexpr std::size_t inline_chunks_for(std::size_t bytes) {
  return (bytes + sizeof(InlineChunk::payload) - 1) / sizeof(InlineChunk::payload);
}

// Writes inline_chunks_for(data.size()) lines, which nobody reads for an earlier mark any more. The next look
// at other members' memory may come before they are seen.
void write_inline_chunks(InlineChunk* chunks, ChunkTag tag, Input data);

// True if all of them are there; else `data` is changed or not.
[[nodiscard]] bool read_inline_chunks(const InlineChunk* chunks, ChunkTag tag, Output data);

}  // namespace regroup::collective
