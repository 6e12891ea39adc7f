// Parses the matrix of `nvidia-smi topo -m`, even from a copy out of a terminal, a mail or a log.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace regroup::topology {

enum class SmiCell : std::uint8_t { kSelf, kNvlink, kPix, kPxb, kPhb, kNode, kSys };

struct SmiRow {
  std::string name;  // "GPU0", "NIC0", "mlx5_0"
  std::size_t line = 0;
  std::vector<SmiCell> cells;
  std::vector<std::uint32_t> nvlinks;  // for each column; 0 unless the cell is kNvlink
  std::vector<int> cpus;               // CPU Affinity, ascending; empty: the row names none
  std::vector<int> numas;              // NUMA Affinity, ascending; empty: the row names none
};

struct SmiMatrix {
  std::vector<SmiRow> rows;                      // row i is column i
  std::map<std::string, std::string> nic_names;  // from the legend: "NIC0" -> "mlx5_0"
  std::vector<std::string> notes;                // a sentence for each unknown word
};

// True if a line of `text` is the header of such a matrix, followed by its first row.
[[nodiscard]] bool looks_like_nvidia_smi(std::string_view text);

// Reads a matrix whose columns are separated by tabs or by blanks. Ignores text around it: a
// prompt, other output, indentation, quotation marks of mail, terminal escape sequences. Identifies
// the columns after those of the devices by their titles. kInvalidArgument, "SOURCE:LINE: ...": the
// matrix is not square, a cell is not a class, or the text has a second matrix.
[[nodiscard]] base::Result<SmiMatrix> read_smi_matrix(std::string_view text,
                                                      const std::string& source);

// For each row, the first row with which it is connected by pairs no worse than `worst`.
[[nodiscard]] std::vector<std::size_t> smi_groups(const SmiMatrix& matrix, SmiCell worst);

struct SmiNumas {
  std::vector<int> of_row;               // the NUMA node of each row
  std::map<int, std::vector<int>> cpus;  // the processors of each NUMA node; empty: unknown
};

// Assigns rows to NUMA nodes. Rows with the same processors are at one node, whatever their NUMA
// column says; a row with the processors of several nodes is at one of them. For a row without
// processors the node follows from its pairs.
[[nodiscard]] SmiNumas smi_numas(const SmiMatrix& matrix);

}  // namespace regroup::topology
