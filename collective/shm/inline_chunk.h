// Small data in cache lines that carry their own validity tag, as in NCCL's LL128 protocol. The
// reader fetches each line once; with a separate flag it would fetch the flag's line too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "regroup/operation.h"

namespace regroup::collective::shm {

// One cache line, which one member writes and others read.
struct alignas(64) InlineChunk {
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> instance;
  std::byte payload[48];  // valid once both words match the tag
};

// Identifies the data of an inline chunk: the instance of a communicator, and a word that is unique
// within that instance. Neither is 0.
struct ChunkTag {
  std::uint64_t instance;
  std::uint64_t word;
};

[[nodiscard]] constexpr std::size_t inline_chunks_for(std::size_t bytes) {
  return (bytes + sizeof(InlineChunk::payload) - 1) / sizeof(InlineChunk::payload);
}

// Writes inline_chunks_for(data.size()) chunks; no member may still read their earlier contents.
// Does not fence: a later load from a peer's memory may be performed first.
void write_inline_chunks(InlineChunk* chunks, ChunkTag tag, Input data);

// Reads the chunks with tag `tag` into `data`. False, with `data` undefined, if one is missing.
[[nodiscard]] bool read_inline_chunks(const InlineChunk* chunks, ChunkTag tag, Output data);

}  // namespace regroup::collective::shm
