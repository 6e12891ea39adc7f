// The matrix of `nvidia-smi topo -m` as rows, however its text has travelled.
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
  std::vector<std::uint32_t> nvlinks;  // by column; 0 unless the cell is kNvlink
  std::vector<int> cpus;               // CPU Affinity, ascending; empty: the row names none
  std::vector<int> numas;              // NUMA Affinity, ascending; empty: the row names none
};

struct SmiMatrix {
  std::vector<SmiRow> rows;                      // row i is column i
  std::map<std::string, std::string> nic_names;  // of the legend: "NIC0" is "mlx5_0"
  std::vector<std::string> notes;                // a sentence for each word that was not understood
};

// Whether some line is the header of such a matrix and its first row follows.
[[nodiscard]] bool looks_like_nvidia_smi(std::string_view text);

// Reads a matrix whose columns are separated by tabs or by blanks, with whatever stands before and
// after it: a prompt, other output, indentation, the quotation marks of mail, escapes of a
// terminal. The columns behind the devices are known by their titles. kInvalidArgument,
// "SOURCE:LINE: ...": it is not square, a cell is no class, or the text holds a second matrix.
[[nodiscard]] base::Result<SmiMatrix> read_smi_matrix(std::string_view text,
                                                      const std::string& source);

// By row, the first row that it is joined with by pairs no worse than `worst`.
[[nodiscard]] std::vector<std::size_t> smi_groups(const SmiMatrix& matrix, SmiCell worst);

struct SmiNumas {
  std::vector<int> of_row;               // the number of its node
  std::map<int, std::vector<int>> cpus;  // by number of a node; empty: no row names them
};

// Rows that name the same processors are at one node, whatever their NUMA column says; one that
// names the processors of several nodes is at one of them. What a row does not say follows from its
// pairs.
[[nodiscard]] SmiNumas smi_numas(const SmiMatrix& matrix);

}  // namespace regroup::topology
