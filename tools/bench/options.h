// The command line of `regroup bench`: one table for the parser and for --help.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "tools/bench/operations.h"

namespace regroup::bench {

enum class Memory : std::uint8_t { kArena, kOrdinary };
[[nodiscard]] const char* name_of(Memory memory);

// A library to compare with, measured in the same run.
struct Baseline {
  std::string name;    // openmpi, mpich or gloo
  std::string folder;  // holds its mpirun and mpicc; "": PATH does
};

struct Options {
  bool help = false;
  const OperationSpec* operation = nullptr;
  std::uint64_t min_bytes = 8;
  std::uint64_t max_bytes = 64 << 20;
  std::uint64_t step_bytes = 0;  // the next size is this much larger; 0: step_factor times larger
  std::uint32_t step_factor = 2;
  std::vector<collective::Dtype> dtypes{collective::Dtype::kFloat32};
  std::vector<collective::Op> ops{collective::Op::kSum};
  std::uint32_t root = 0;
  std::vector<Memory> memories{Memory::kArena, Memory::kOrdinary};
  std::optional<std::uint32_t> iterations;  // nullopt: depends on the size
  std::optional<std::uint32_t> warmups;     // nullopt: depends on the size
  std::uint32_t rounds = 10;
  std::vector<Baseline> compare;
  std::string json;
  std::string plot;
  base::Duration timeout = std::chrono::seconds(120);

  // Sizes to measure, ascending.
  [[nodiscard]] std::vector<std::uint64_t> sizes() const;
  // The timed iterations of each round for a size, and the untimed ones before them: as in OSU's
  // benchmarks, more for small messages.
  [[nodiscard]] std::uint32_t iterations_of(std::uint64_t bytes) const;
  [[nodiscard]] std::uint32_t warmups_of(std::uint64_t bytes) const;
};

// The message of kInvalidArgument names the option, what is wrong with it and what it accepts.
[[nodiscard]] base::Result<Options> parse_options(const std::vector<std::string>& args);
[[nodiscard]] std::string help_text();

}  // namespace regroup::bench
