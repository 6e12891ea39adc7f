// Writes and reads inline chunks. A word of an earlier instance may equal a word of this instance.
// Hence the writer clears the word before it changes the instance, and the reader checks the
// instance first.
#include "collective/shm/inline_chunk.h"

#include <algorithm>
#include <cstring>

#include "collective/reduce/publish.h"

namespace regroup::collective::shm {

void write_inline_chunks(InlineChunk* chunks, ChunkTag tag, Input data) {
  for (std::size_t at = 0; at < data.size(); at += sizeof(InlineChunk::payload), ++chunks) {
    if (chunks->instance.load(std::memory_order_relaxed) != tag.instance) {
      chunks->word.store(0, std::memory_order_relaxed);
      chunks->instance.store(tag.instance, std::memory_order_release);
    }
    reduce::copy_small(chunks->payload, data.data() + at,
                       std::min(sizeof(InlineChunk::payload), data.size() - at));
    chunks->word.store(tag.word, std::memory_order_release);
  }
}

// memcpy(), not copy_small(): if the last line holds 16 bytes, copy_small() takes the time of
// another cache line transfer (measured for 64 bytes on an Intel processor: 0.42 us instead of
// 0.22).
bool read_inline_chunks(const InlineChunk* chunks, ChunkTag tag, Output data) {
  for (std::size_t at = 0; at < data.size(); at += sizeof(InlineChunk::payload), ++chunks) {
    if (chunks->instance.load(std::memory_order_acquire) != tag.instance) return false;
    if (chunks->word.load(std::memory_order_acquire) != tag.word) return false;
    std::memcpy(data.data() + at, chunks->payload,
                std::min(sizeof(InlineChunk::payload), data.size() - at));
  }
  return true;
}

}  // namespace regroup::collective::shm
