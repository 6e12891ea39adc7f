// Uses only words and their positions on the line, which survive a copy out of a terminal, a mail
// or a log.
#include "launcher/topology/smi_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

struct Word {
  std::string_view text;
  std::size_t column = 0;  // with tab stops at multiples of eight
};

enum class Title : std::uint8_t { kCpus, kNumas, kGpuNuma };

struct Column {
  Title title = Title::kCpus;
  std::size_t at = 0;
};

std::vector<Word> words_of(std::string_view line) {
  while (!line.empty() && (line.front() == '>' || line.front() == ' '))
    line.remove_prefix(1);  // a mail's quotation mark
  std::vector<Word> out;
  std::size_t column = 0, start = 0, start_column = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= line.size(); ++i) {
    const bool blank = i == line.size() || line[i] == ' ' || line[i] == '\t' || line[i] == '\r';
    if (blank && inside) out.push_back({line.substr(start, i - start), start_column});
    if (!blank && !inside) start = i, start_column = column;
    inside = !blank;
    if (i < line.size()) column = line[i] == '\t' ? column / 8 * 8 + 8 : column + 1;
  }
  return out;
}

bool is_device(std::string_view name) {
  if (name.starts_with("mlx")) return true;  // a NIC's name in older drivers
  return (name.starts_with("GPU") || name.starts_with("NIC")) &&
         whole_number(name.substr(3), 0, 65535).has_value();
}

struct Class {
  SmiCell cell = SmiCell::kSelf;
  std::uint32_t nvlinks = 0;
};

std::optional<Class> class_of(std::string_view word) {
  static const std::map<std::string_view, SmiCell> kWords = {
      {"X", SmiCell::kSelf},  {"PIX", SmiCell::kPix},   {"PXB", SmiCell::kPxb},
      {"PHB", SmiCell::kPhb}, {"NODE", SmiCell::kNode}, {"SYS", SmiCell::kSys},
      {"SOC", SmiCell::kSys}};
  const auto known = kWords.find(word);
  if (known != kWords.end()) return Class{known->second, 0};
  const auto links = word.starts_with("NV") ? whole_number(word.substr(2), 1, 64) : std::nullopt;
  if (!links) return std::nullopt;
  return Class{SmiCell::kNvlink, static_cast<std::uint32_t>(*links)};
}

bool is_header(const std::vector<Word>& words) {
  return !words.empty() && is_device(words[0].text) &&
         (words.size() == 1 || !class_of(words[1].text)) && !words[0].text.ends_with(':');
}

bool is_title(std::string_view word) { return word == "cpu" || word == "numa" || word == "gpu"; }

// "CPU Affinity", "NUMA Affinity", "GPU NUMA ID".
std::vector<Column> titles_of(const std::vector<Word>& words, std::size_t first) {
  std::vector<Column> out;
  for (std::size_t i = first; i < words.size(); ++i) {
    const std::string word = base::lower(words[i].text);
    if (word == "cpu") out.push_back({Title::kCpus, words[i].column});
    if (word == "numa") out.push_back({Title::kNumas, words[i].column});
    if (word != "gpu") continue;
    out.push_back({Title::kGpuNuma, words[i].column});
    ++i;  // the word "NUMA" of "GPU NUMA ID"
  }
  if (out.empty()) out = {{Title::kCpus, 0}, {Title::kNumas, 0}};
  return out;
}

class MatrixText {
 public:
  // `clean` must outlive the reader.
  MatrixText(std::string_view clean, std::string source) : source_(std::move(source)) {
    for (const std::string_view line : split(clean, '\n')) {
      lines_.push_back(words_of(line));
      if (lines_.back().size() > 1) row_names_.insert(lines_.back()[0].text);
    }
  }

  // The line of the header, which the first row follows; empty: the text has no matrix.
  [[nodiscard]] std::optional<std::size_t> header() const {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (!is_header(lines_[i])) continue;
      const std::string_view first = lines_[i][0].text;
      const auto row = std::find_if(lines_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                    lines_.end(), [](const auto& words) { return !words.empty(); });
      if (row != lines_.end() && row->size() > 1 && (*row)[0].text == first &&
          class_of((*row)[1].text))
        return i;
    }
    return std::nullopt;
  }

  // Accepts a header without a row too, since no other text has such a line.
  [[nodiscard]] bool is_matrix() const {
    const auto first = std::find_if(lines_.begin(), lines_.end(),
                                    [](const auto& words) { return !words.empty(); });
    return header() || (first != lines_.end() && is_header(*first));
  }

  base::Result<SmiMatrix> read() {
    const auto start = header();
    if (!start) return fail("expected a row of a GPU");
    read_header(lines_[*start]);
    line_ = *start + 1;
    if (columns_.size() > kMaxEnds) return fail(fmt::format("more than {} columns", kMaxEnds));
    for (std::size_t i = *start + 1; i < lines_.size(); ++i) {
      line_ = i + 1;
      REGROUP_RETURN_IF_ERROR(read_line(lines_[i]));
    }
    line_ = 0;
    if (out_.rows.size() != columns_.size())
      return fail(fmt::format("got {} rows for {} columns", out_.rows.size(), columns_.size()));
    REGROUP_RETURN_IF_ERROR(check());
    return std::move(out_);
  }

 private:
  [[nodiscard]] base::Status fail(std::string_view what) const {
    return input_error(source_, line_, what);
  }

  void read_header(const std::vector<Word>& words) {
    std::size_t i = 0;
    for (; i < words.size() && !is_title(base::lower(words[i].text)); ++i) {
      if (!is_device(words[i].text) && !row_names_.contains(words[i].text)) break;
      columns_.emplace_back(words[i].text);
    }
    titles_ = titles_of(words, i);
  }

  base::Status read_line(const std::vector<Word>& words) {
    if (words.empty()) return {};
    const std::string_view first = words[0].text;
    if (first.starts_with("NIC") && first.ends_with(':') && words.size() > 1)
      out_.nic_names[std::string(first.substr(0, first.size() - 1))] = words[1].text;
    if (out_.rows.size() == columns_.size()) return find_another(words);
    const bool row = is_device(first) || std::ranges::find(columns_, first) != columns_.end();
    return row ? read_row(words) : base::Status();
  }

  base::Status read_row(const std::vector<Word>& words) {
    if (columns_[out_.rows.size()] != words[0].text)
      return fail(
          fmt::format("row '{}' does not match column {}", words[0].text, out_.rows.size() + 1));
    if (words.size() <= columns_.size())
      return fail(fmt::format("got {} cells for {} columns", words.size() - 1, columns_.size()));
    SmiRow row;
    row.name = words[0].text;
    row.line = line_;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const auto cell = class_of(words[i + 1].text);
      if (!cell)
        return fail(fmt::format("'{}': expected X, NV#, PIX, PXB, PHB, NODE or SYS",
                                words[i + 1].text.substr(0, 20)));
      row.cells.push_back(cell->cell);
      row.nvlinks.push_back(cell->nvlinks);
    }
    read_affinity({words.begin() + static_cast<std::ptrdiff_t>(columns_.size()) + 1, words.end()},
                  row);
    out_.rows.push_back(std::move(row));
    return {};
  }

  // If there are as many words as titles, they correspond in order. If there are fewer, some
  // columns are empty, and each word belongs to the nearest title.
  void read_affinity(const std::vector<Word>& words, SmiRow& row) {
    std::vector<std::string> values;
    std::vector<std::size_t> at;
    for (const Word& word : words) {
      const bool goes_on =
          !values.empty() && (values.back().ends_with(',') || word.text.starts_with(','));
      if (goes_on) {
        values.back() += word.text;
      } else {
        values.emplace_back(word.text);
        at.push_back(word.column);
      }
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < values.size() && next < titles_.size(); ++i) {
      std::size_t chosen = next;
      const std::size_t last = titles_.size() - std::min(titles_.size(), values.size() - i);
      for (std::size_t j = next; j <= last && values.size() < titles_.size(); ++j) {
        if (distance(at[i], titles_[j].at) < distance(at[i], titles_[chosen].at)) chosen = j;
      }
      if (titles_[chosen].title == Title::kCpus)
        row.cpus = list_of(values[i], "processors", row.name);
      if (titles_[chosen].title == Title::kNumas)
        row.numas = list_of(values[i], "NUMA nodes", row.name);
      next = chosen + 1;
    }
  }

  static std::size_t distance(std::size_t a, std::size_t b) { return a < b ? b - a : a - b; }

  std::vector<int> list_of(const std::string& text, std::string_view what, std::string_view row) {
    auto list = number_list(text, kMaxCpu);
    if (list) return std::move(*list);
    const std::string word = base::lower(text);
    if (word != "n/a" && word != "-" && word != "na" && word != "none")
      out_.notes.push_back(fmt::format("{}: '{}': expected a list of {}; ignored", row,
                                       std::string_view(text).substr(0, 40), what));
    return {};
  }

  // Other output of nvidia-smi may follow, some of which also has rows of devices.
  base::Status find_another(const std::vector<Word>& words) {
    const auto column = std::ranges::find(columns_, words[0].text);
    if (column == columns_.end() || words.size() <= columns_.size()) return {};
    std::vector<SmiCell> cells;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const auto cell = class_of(words[i + 1].text);
      if (!cell) return {};
      cells.push_back(cell->cell);
    }
    if (cells == out_.rows[static_cast<std::size_t>(column - columns_.begin())].cells) return {};
    return fail("a second matrix; expected one machine in a file");
  }

  base::Status check() {
    for (std::size_t i = 0; i < out_.rows.size(); ++i) {
      const SmiRow& row = out_.rows[i];
      line_ = row.line;
      if (row.cells[i] != SmiCell::kSelf)
        return fail(fmt::format("{} to itself: expected X", row.name));
      for (std::size_t j = 0; j < i; ++j) {
        const SmiRow& other = out_.rows[j];
        if (row.cells[j] == other.cells[i] && row.nvlinks[j] == other.nvlinks[i] &&
            row.cells[j] != SmiCell::kSelf)
          continue;
        return fail(fmt::format("{} to {} differs from {} to {}", row.name, other.name, other.name,
                                row.name));
      }
    }
    return {};
  }

  const std::string source_;
  std::vector<std::vector<Word>> lines_;
  std::set<std::string_view> row_names_;
  std::size_t line_ = 0;
  std::vector<std::string> columns_;
  std::vector<Column> titles_;
  SmiMatrix out_;
};

}  // namespace

bool looks_like_nvidia_smi(std::string_view text) {
  if (text.find("GPU") == std::string_view::npos && text.find("NIC") == std::string_view::npos)
    return false;
  const std::string clean = plain_screen(text);
  return MatrixText(clean, std::string()).is_matrix();
}

base::Result<SmiMatrix> read_smi_matrix(std::string_view text, const std::string& source) {
  const std::string clean = plain_screen(text);
  return MatrixText(clean, source).read();
}

}  // namespace regroup::topology
