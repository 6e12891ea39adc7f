// Fills a leaf of the canonical tree from gradients that lie anywhere: each value times a weight,
// rounded once, and zeros where there is no gradient. On a GPU or, compiled by g++, on a CPU. One
// launch fills a leaf; every block fills a part of it from begin to end, so that it looks for its
// first gradient once.
#pragma once

#include <cstdint>

#include "collective/cuda/arithmetic.h"
#include "collective/cuda/tree_kernel.h"

namespace regroup::collective::cuda {

// Elements offset .. offset + count of the leaf come from `source`, aligned to an element; null:
// zeros.
struct HarvestPiece {
  const void* source;
  std::uint64_t offset;
  std::uint64_t count;
};

// The parameters of a launch. The pieces are in order of offsets and do not overlap each other;
// elements of the leaf that are in no piece become zeros. The table lies where the kernel runs.
struct HarvestArguments {
  const HarvestPiece* pieces;
  std::uint64_t piece_count;
  void* leaf;           // aligned to 16 bytes
  std::uint64_t count;  // elements of the leaf
  double weight;        // rounded to the type first
};

template <class Element, int kLoads>
struct Harvest {
  using Value = typename Element::Sum;
  static constexpr int kWide = 16 / Element::kBytes;  // elements of the widest load
  static constexpr int kElements = kWide * kLoads;    // of a thread at a time

  static REGROUP_DEVICE void run(const HarvestArguments& a, Place place) {
    const std::uint64_t chunks = (a.count + kWide - 1) / kWide;
    const std::uint64_t each = (chunks + place.blocks - 1) / place.blocks * kWide;
    std::uint64_t at = place.block * each;
    const std::uint64_t end = at + each < a.count ? at + each : a.count;
    for (std::uint64_t i = first_after(a, at); at < end; ++i) {
      const HarvestPiece none{nullptr, a.count, 0};
      const HarvestPiece piece = i < a.piece_count ? a.pieces[i] : none;
      const std::uint64_t begins = piece.offset < end ? piece.offset : end;
      if (at < begins) fill(a, place, at, begins);
      if (at < begins) at = begins;
      const std::uint64_t last = piece.offset + piece.count;
      const std::uint64_t ends = last < end ? last : end;
      if (at >= ends) continue;
      const char* source = static_cast<const char*>(piece.source);
      if (source == nullptr) {
        fill(a, place, at, ends);
      } else {
        scale(a, place, at, ends, source + (at - piece.offset) * Element::kBytes);
      }
      at = ends;
    }
  }

 private:
  // The first piece that ends after element `at`.
  static REGROUP_DEVICE std::uint64_t first_after(const HarvestArguments& a, std::uint64_t at) {
    std::uint64_t low = 0, high = a.piece_count;
    while (low < high) {
      const std::uint64_t middle = (low + high) / 2;
      if (a.pieces[middle].offset + a.pieces[middle].count > at) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  static REGROUP_DEVICE char* element(const HarvestArguments& a, std::uint64_t i) {
    return static_cast<char*>(a.leaf) + i * Element::kBytes;
  }

  // begin, or the first element after it whose place in the leaf is aligned to 16 bytes.
  static REGROUP_DEVICE std::uint64_t aligned(std::uint64_t begin) {
    return (begin + kWide - 1) / kWide * kWide;
  }

  static REGROUP_DEVICE void fill(const HarvestArguments& a, Place place, std::uint64_t begin,
                                  std::uint64_t end) {
    const Chunk<Element::kBytes> zero{};
    const Chunk<16> zeros{};
    const std::uint64_t wide = aligned(begin) < end ? aligned(begin) : end;
    const std::uint64_t rest = wide + (end - wide) / kWide * kWide;
    for (std::uint64_t i = begin + place.thread; i < wide; i += place.threads)
      store<Element::kBytes>(element(a, i), zero);
    for (std::uint64_t i = wide + std::uint64_t{place.thread} * kWide; i < rest;
         i += std::uint64_t{place.threads} * kWide)
      store<16>(element(a, i), zeros);
    for (std::uint64_t i = rest + place.thread; i < end; i += place.threads)
      store<Element::kBytes>(element(a, i), zero);
  }

  // `source` is the value of element `begin`.
  static REGROUP_DEVICE void scale(const HarvestArguments& a, Place place, std::uint64_t begin,
                                   std::uint64_t end, const char* source) {
    const std::uint64_t edge = aligned(begin) < end ? aligned(begin) : end;
    const char* at_edge = source + (edge - begin) * Element::kBytes;
    const bool together = reinterpret_cast<std::uintptr_t>(at_edge) % 16 == 0;
    const std::uint64_t rest = together ? edge + (end - edge) / kWide * kWide : edge;
    run_of<Element::kBytes>(a, place, begin, edge, source);
    run_of<16>(a, place, edge, rest, at_edge);
    run_of<Element::kBytes>(a, place, rest, end, source + (rest - begin) * Element::kBytes);
  }

  // By loads and stores of kBytes, kLoads at a time.
  template <int kBytes>
  static REGROUP_DEVICE void run_of(const HarvestArguments& a, Place place, std::uint64_t begin,
                                    std::uint64_t end, const char* source) {
    constexpr int kEach = kBytes / Element::kBytes;
    const Value weight = static_cast<Value>(a.weight);
    const std::uint64_t stride = std::uint64_t{place.threads} * kEach;
    for (std::uint64_t from = begin + std::uint64_t{place.thread} * kEach; from < end;
         from += stride * kLoads) {
      Chunk<kBytes> chunks[kLoads];
      REGROUP_UNROLL
      for (int l = 0; l < kLoads; ++l) {
        const std::uint64_t i = from + stride * l;
        if (i < end) chunks[l] = load<kBytes>(source + (i - begin) * Element::kBytes);
      }
      REGROUP_UNROLL
      for (int l = 0; l < kLoads; ++l) {
        const std::uint64_t i = from + stride * l;
        if (i >= end) continue;
        Chunk<kBytes> out;
        REGROUP_UNROLL
        for (int e = 0; e < kEach; ++e)
          Element::put(out.words, e, multiply(Element::get(chunks[l].words, e), weight));
        store<kBytes>(element(a, i), out);
      }
    }
  }
};

}  // namespace regroup::collective::cuda
