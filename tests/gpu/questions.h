// The questions of gpu_truths, each a function that starts its roles and returns what they saw.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace regroup::gpu {

inline constexpr std::size_t kMiB = 1u << 20;
inline constexpr std::size_t kGiB = 1u << 30;

struct Answer {
  std::string seen;  // in words
  std::map<std::string, double> figures;
};

struct Question {
  const char* name;
  const char* assumed;
  std::chrono::milliseconds limit;
  Answer (*ask)(const std::string& library);
};

// Answers, or throw std::runtime_error. `library`: the driver's.
// device_questions.cc: what the device can do, and what it takes.
Answer ask_driver(const std::string& library);
Answer ask_create_without_context(const std::string& library);
Answer ask_context(const std::string& library);
Answer ask_costs(const std::string& library);
Answer ask_event_to_host(const std::string& library);
Answer ask_pinning(const std::string& library);
// lifetime_questions.cc: what outlives a process, and what ends with it.
Answer ask_forked_child(const std::string& library);
Answer ask_outlives(const std::string& library);
Answer ask_read_only(const std::string& library);
Answer ask_killed_kernel(const std::string& library);
Answer ask_killed_copies(const std::string& library);
Answer ask_held_by_child(const std::string& library);

void pause(std::chrono::milliseconds time);
// Memory that forked roles share, a memfd as the arena is, each byte of it `value`. Mapped until
// the process ends. Throws std::runtime_error.
void* map_shared(std::size_t bytes, int value);
double percentile(std::vector<double> values, double share);
// p50, p99, minimum and count, for a message of a role.
std::vector<double> summary(const std::vector<double>& values);
// Adds what summary() returned under `name`.
void add_summary(Answer& answer, const std::string& name, const double* values);

}  // namespace regroup::gpu
