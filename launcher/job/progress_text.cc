// The pieces of the line have an order: the last ones are left out first.
#include "launcher/job/progress_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/printable.h"

namespace regroup::job {
namespace {

using membership::TrainingProgress;
using nlohmann::json;

constexpr std::size_t kBarCells = 10;
constexpr double kLongestLeft = 1000.0 * 86400;  // seconds; more is no forecast

// How important a piece is, in the order in which pieces stay.
enum Piece { kEpoch, kStep, kLoss, kTimeLeft, kSpeed, kMembers, kBar, kGeneration };

std::string speed(double per_second, const char* unit) {
  const int digits = per_second >= 100 ? 0 : per_second >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}/s", per_second, digits, unit);
}

// "2:31", "1:02:31", "3 d 1:02:31"
std::string time_left(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::ceil(seconds));
  const std::uint64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  if (hours == 0) return fmt::format("{}:{:02}", minutes, rest);
  if (hours < 24) return fmt::format("{}:{:02}:{:02}", hours, minutes, rest);
  return fmt::format("{} d {}:{:02}:{:02}", hours / 24, hours % 24, minutes, rest);
}

// "epoch 3/15 [######....] 61 %". Only a whole epoch is 100 %.
std::string epoch_text(const TrainingProgress& progress, bool bar) {
  constexpr double kRounding = 1e-9;  // 29 of 100 steps are 29 %
  const double done = std::clamp(progress.epoch_done.value_or(0) + kRounding, 0.0, 1.0);
  std::string out = fmt::format("epoch {}", *progress.epoch);
  if (progress.epochs) out += fmt::format("/{}", *progress.epochs);
  if (bar) {
    const auto full = static_cast<std::size_t>(done * kBarCells);
    out += fmt::format(" [{}{}]", std::string(full, '#'), std::string(kBarCells - full, '.'));
  }
  return out + fmt::format(" {} %", static_cast<int>(done * 100));
}

// All pieces up to `last`.
std::string pieces_up_to(Piece last, const TrainingProgress& progress, ProgressBar bar) {
  std::string out;
  const auto add = [&](Piece piece, const std::string& text) {
    if (piece <= last) out += (out.empty() ? "" : "  ") + text;
  };
  if (progress.epoch) add(kEpoch, epoch_text(progress, bar == ProgressBar::kYes && last >= kBar));
  add(progress.epoch ? kStep : kEpoch, fmt::format("step {}", progress.step));
  if (progress.loss) add(kLoss, fmt::format("loss {:.4g}", *progress.loss));
  if (progress.samples_per_second)
    add(kSpeed, speed(*progress.samples_per_second, "samples"));
  else if (progress.steps_per_second)
    add(kSpeed, speed(*progress.steps_per_second, "steps"));
  std::string members = base::counted(progress.members, "member");
  if (last >= kGeneration) members += fmt::format(" (generation {})", progress.generation);
  add(kMembers, members);
  const double left = progress.seconds_left.value_or(-1);
  if (left >= 0 && left < kLongestLeft) add(kTimeLeft, "ETA " + time_left(left));
  return out;
}

// A value of an object that another process has written; nothing unless it is a number in range.
template <class T>
std::optional<T> number_in(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>) {
    const double value = found->get<double>();
    return std::isfinite(value) ? std::optional(value) : std::nullopt;
  } else {
    if (!found->is_number_unsigned()) return std::nullopt;
    const auto value = found->get<std::uint64_t>();
    if (value > std::numeric_limits<T>::max()) return std::nullopt;
    return static_cast<T>(value);
  }
}

}  // namespace

std::string progress_text(const TrainingProgress& progress, ProgressBar bar, std::size_t width) {
  std::string out;
  for (int last = kGeneration; last >= kEpoch; --last) {
    out = pieces_up_to(static_cast<Piece>(last), progress, bar);
    if (out.size() <= width) return out;
  }
  return out.substr(0, width);
}

std::optional<TrainingProgress> progress_in(const std::string& status_json) {
  const json status = json::parse(status_json, nullptr, false);
  if (!status.is_object() || !status.contains("progress")) return std::nullopt;
  const json& in = status["progress"];
  if (!in.is_object()) return std::nullopt;
  return TrainingProgress{.step = number_in<proto::Step>(in, "step").value_or(0),
                          .members = number_in<std::uint32_t>(in, "members").value_or(0),
                          .generation = number_in<proto::Generation>(in, "generation").value_or(0),
                          .loss = number_in<double>(in, "loss"),
                          .epoch = number_in<std::uint64_t>(in, "epoch"),
                          .epochs = number_in<std::uint64_t>(in, "epochs"),
                          .epoch_done = number_in<double>(in, "epoch_done"),
                          .steps_per_second = number_in<double>(in, "steps_per_second"),
                          .samples_per_second = number_in<double>(in, "samples_per_second"),
                          .seconds_left = number_in<double>(in, "seconds_left")};
}

}  // namespace regroup::job
