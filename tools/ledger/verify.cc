// The positions of a step follow from its number, so the lines are checked in one pass. A gap or a
// line that is not in order is one difference, however many steps it concerns.
#include "tools/ledger/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/printable.h"

namespace regroup::ledger_tool {
namespace {

using base::Status;
using elastic::Batch;
using elastic::LeafRecord;
using elastic::LedgerLine;

constexpr std::size_t kShown = 10;  // differences
// Data sets up to this size have a bit for each sample.
constexpr std::uint64_t kMostBits = 1ULL << 30;

// For what a damaged file may have in it.
std::string shown(std::string_view text) { return base::escaped(text.substr(0, 200)); }

std::string plural(std::uint64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

std::string text_of(const LeafRecord& leaf) {
  return fmt::format("CRC32C {:08x} of {}", leaf.crc, plural(leaf.samples, "sample"));
}

}  // namespace

void Verifier::differ(const std::string& what) {
  count_ += 1;
  if (differences_.size() < kShown) differences_.push_back(fmt::format("line {}: {}", at_, what));
}

bool Verifier::afford(std::uint64_t samples, Step step) {
  if (unchecked_) return false;
  if (samples > most_computed_ - computed_) {
    unchecked_ = step;
    return false;
  }
  computed_ += samples;
  return true;
}

Status Verifier::header(std::string_view text) {
  auto header = elastic::parse_ledger_header(text);
  if (!header.ok()) return header.status();
  header_ = std::move(*header);
  next_ = header_.first;
  if (header_.samples == 0) return {};
  sampler_.emplace(header_.seed, elastic::SamplerOptions{.samples = header_.samples,
                                                         .batch = header_.batch,
                                                         .shards = header_.shards,
                                                         .substeps = header_.substeps,
                                                         .shuffle = header_.shuffle,
                                                         .drop_last = header_.drop_last});
  if (!header_.own_order && header_.samples <= kMostBits) used_.resize(header_.samples);
  return {};
}

void Verifier::line(std::string_view text) {
  at_ += 1;
  const auto line = elastic::parse_ledger_line(text);
  if (!line.ok())
    return differ(
        fmt::format("not a line of a ledger: {}: {}", shown(line.status().message()), shown(text)));
  if (line->step < next_) return check_order(line->step);
  const Batch batch = sampler_ ? sampler_->batch_of(line->step) : Batch{0, 0, header_.batch};
  const bool begins = epoch_ != batch.epoch;
  if (begins) end_epoch();
  check_order(line->step);
  if (begins)
    begin_epoch(batch.epoch, line->step,
                batch.begin == 0 && line->step % header_.substeps == 1 % header_.substeps);
  lines_ += 1;
  check_whole(*line, batch);
}

void Verifier::check_order(Step step) {
  if (step > next_ + 1)
    differ(fmt::format("step {}: the lines of steps {} to {} are missing", step, next_, step - 1));
  if (step == next_ + 1)
    differ(fmt::format("step {}: the line of step {} is missing", step, next_));
  if (step < next_)
    return differ(fmt::format("step {} comes after step {}: its line is doubled or out of order",
                              step, next_ - 1));
  next_ = step + 1;
}

void Verifier::check_whole(const LedgerLine& line, const Batch& batch) {
  if (line.leaves.size() != header_.shards)
    return differ(fmt::format("step {}: it has {}, expected {}", line.step,
                              plural(line.leaves.size(), "leaf record"), header_.shards));
  const std::uint32_t substep = static_cast<std::uint32_t>((line.step - 1) % header_.substeps);
  const auto equal = [&](const char* name, std::uint64_t got, std::uint64_t expected) {
    if (got != expected)
      differ(fmt::format("step {}: {} {}, expected {}", line.step, name, got, expected));
  };
  const std::uint64_t before = count_;
  if (sampler_ && header_.epochs > 0 && batch.epoch >= header_.epochs)
    differ(
        fmt::format("step {}: it is after the last epoch, {} in all", line.step, header_.epochs));
  equal("epoch", line.epoch, batch.epoch);
  equal("substep", line.substep, substep);
  equal("n", line.samples, batch.end - batch.begin);
  for (std::uint32_t leaf = 0; leaf < header_.shards; ++leaf) check_leaf(line, batch, leaf);
  if (count_ == before && substep == 0 && !unchecked_) samples_ += line.samples;
}

void Verifier::check_leaf(const LedgerLine& line, const Batch& batch, std::uint32_t leaf) {
  const LeafRecord& got = line.leaves[leaf];
  LeafRecord expected = got;
  expected.times = 1;
  const auto [begin, end] = elastic::positions_of(batch, leaf, header_.shards);
  if (sampler_) expected.samples = end - begin;
  const bool by_seed = sampler_ && !header_.own_order;
  std::array<std::uint64_t, 256> samples;
  const bool computed = by_seed && got.times == 1 && got.samples == expected.samples &&
                        afford(got.samples, line.step);
  if (computed) expected.crc = 0;
  for (std::uint64_t at = begin; computed && at < end;) {
    const std::size_t count = std::min<std::uint64_t>(samples.size(), end - at);
    for (std::size_t i = 0; i < count; ++i) samples[i] = sampler_->sample_at(batch, at + i);
    expected.crc = elastic::samples_crc(std::span(samples).first(count), expected.crc);
    at += count;
  }
  const std::string where = fmt::format("step {}: leaf {}", line.step, leaf);
  if (got.times != 1)
    return differ(fmt::format("{}: the sum has it {} times, expected once", where, got.times));
  if (got.samples != expected.samples)
    return differ(
        fmt::format("{}: {}, expected {}", where, plural(got.samples, "sample"), expected.samples));
  if (got != expected)
    return differ(fmt::format("{}: {}, expected {}", where, text_of(got), text_of(expected)));
  if (used_.empty() || line.substep != 0 || !computed) return;
  for (std::uint64_t at = begin; at < end; ++at) {
    auto bit = used_[sampler_->sample_at(batch, at)];
    if (bit)
      differ(fmt::format("step {}: sample {} was used before in epoch {}", line.step,
                         sampler_->sample_at(batch, at), batch.epoch));
    used_once_ += bit ? 0 : 1;
    bit = true;
  }
}

void Verifier::begin_epoch(std::uint64_t epoch, Step step, bool from_its_first_step) {
  epoch_ = epoch;
  whole_epoch_ = from_its_first_step;
  differences_before_ = count_;
  if (!afford(used_.size() / 64, step)) return;  // a line may be of another epoch each
  std::fill(used_.begin(), used_.end(), false);
  used_once_ = 0;
}

// Called before the first line of another epoch, and after the last line.
void Verifier::end_epoch() {
  if (!epoch_ || !sampler_) return;
  const std::uint64_t steps = sampler_->batches_per_epoch() * header_.substeps;
  const bool over = next_ > (*epoch_ + 1) * steps;
  if (!whole_epoch_ || !over || count_ != differences_before_ || unchecked_) return;
  const std::uint64_t expected =
      header_.drop_last ? header_.samples - header_.samples % header_.batch : header_.samples;
  if (!used_.empty() && used_once_ != expected)
    return differ(fmt::format("epoch {} used {}, expected {}", *epoch_,
                              plural(used_once_, "sample"), expected));
  complete_ += 1;
}

void Verifier::end() { end_epoch(); }

std::vector<std::string> Verifier::missing() const {
  std::vector<std::string> out;
  if (header_.first > 1) out.push_back(fmt::format("it begins with step {}", header_.first));
  std::uint64_t steps = 0;  // of the run
  const bool ends = sampler_ && header_.epochs > 0;
  if (ends && (__builtin_mul_overflow(sampler_->batches_per_epoch(), header_.substeps, &steps) ||
               __builtin_mul_overflow(steps, header_.epochs, &steps)))
    steps = UINT64_MAX;
  if (ends && next_ - 1 < steps)
    out.push_back(fmt::format("it ends with step {} of {}", next_ - 1, steps));
  if (torn_) out.emplace_back("its last line has no end");
  return out;
}

std::string Verifier::summary() const {
  const elastic::LedgerHeader& h = header_;
  std::string out = fmt::format("job {}, seed {}, {} in batches of {}, {}{}\n",
                                h.job.empty() ? "without a launcher" : shown(h.job), h.seed,
                                plural(h.samples, "sample"), h.batch, plural(h.shards, "shard"),
                                h.epochs > 0 ? ", " + plural(h.epochs, "epoch") : "");
  out += lines_ == 0
             ? std::string("no step")
             : fmt::format("steps {} to {}: {}", h.first, next_ - 1, plural(lines_, "line"));
  if (sampler_) {
    out += fmt::format(", {}, {} used", plural(complete_, "complete epoch"),
                       plural(samples_, "sample"));
    const char* once = h.own_order ? "their order is that of a sampler of the script, which is not "
                                     "computed here"
                       : h.drop_last ? "in a complete epoch each sample at most once"
                                     : "in a complete epoch each sample once";
    out += fmt::format("; {}", once);
  } else {
    out += "; the session has no sampler, so only the order of the steps is checked";
  }
  if (torn_)
    out += fmt::format(
        "\nthe last line has no end, and does not count: the run goes on, or was "
        "killed there");
  return out + "\n";
}

Status read_ledger(std::FILE* file, const std::string& name, Verifier* out) {
  std::string line;
  bool first = true;
  bool more = true;
  while (more) {
    line.clear();
    int c = 0;
    while ((c = ::getc_unlocked(file)) != EOF && c != '\n') {
      if (line.size() == elastic::kLongestLedgerLine)
        return base::data_loss(fmt::format("{}: no ledger: a line is longer than {} bytes", name,
                                           elastic::kLongestLedgerLine));
      line.push_back(static_cast<char>(c));
    }
    if (std::ferror(file) != 0) return base::system_error("read", name, errno);
    more = c == '\n';
    if (first && line.empty() && !more) return base::data_loss(name + ": empty: no step was begun");
    if (first) {
      const Status status = out->header(line);
      if (!status.ok())
        return base::data_loss(fmt::format("{}: no ledger: line 1: {}", name, status.message()));
    } else if (more) {
      out->line(line);
    } else if (!line.empty()) {
      out->torn();
    }
    first = false;
  }
  out->end();
  return {};
}

}  // namespace regroup::ledger_tool
