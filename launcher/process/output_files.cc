// Builds the paths and opens each file once.
#include "launcher/process/output_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <utility>

#include "launcher/process/line_prefix.h"

namespace regroup::process {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::string fill_in(const std::string& pattern, std::uint32_t rank) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    switch (pattern[++i]) {
      case 'r':
        out += std::to_string(rank);
        break;
      case 'h':
        out += host_name();
        break;
      case 'g':
      case 'p':
        out += '0';
        break;
      case '%':
        out += '%';
        break;
      default:
        out.append({'%', pattern[i]});
    }
  }
  return out;
}

std::uint32_t local_rank(const Place& place) { return place.local_rank.value_or(place.rank); }

std::uint8_t number_of_stream(const std::string& stream) { return stream == "stdout" ? 1 : 2; }

bool is_shown(const spec::LogRequest& log, const Place& place) {
  return log.shown.empty() || std::ranges::count(log.shown, local_rank(place)) != 0;
}

std::string with_ranks(const std::string& text, const Place& place) {
  return fill_in_names(text, {{"local_rank", std::to_string(local_rank(place))},
                              {"rank", std::to_string(place.rank)}});
}

}  // namespace

std::string OutputFiles::own_prefix(const Place& place, const std::string& stream) const {
  const bool tee = request_.log.tee.has(local_rank(place), number_of_stream(stream));
  return tee ? with_ranks(request_.log.prefix, place) : "";
}

base::Result<std::vector<Sink*>> OutputFiles::sinks(const Place& place, const std::string& stream,
                                                    Sink& own) {
  std::vector<std::string> paths;
  const std::string& pattern =
      stream == "stdout" ? request_.stdout_pattern : request_.stderr_pattern;
  if (!request_.folder.empty()) paths.push_back(in_folder(place, stream));
  if (!pattern.empty()) paths.push_back(fill_in(pattern, place.member));
  std::vector<Sink*> out;
  const spec::LogRequest& log = request_.log;
  const std::uint8_t number = number_of_stream(stream);
  const bool tee = log.tee.has(local_rank(place), number);
  const bool redirect = !tee && log.redirect.has(local_rank(place), number);
  const bool copied = paths.empty() || (request_.copy && pattern.empty());
  if (copied && !redirect && is_shown(log, place)) out.push_back(&own);
  if (tee || redirect) paths.push_back(in_log_folder(place, stream));
  for (const std::string& path : paths) {
    REGROUP_ASSIGN_OR_RETURN(auto file, open(path));
    out.push_back(file);
  }
  return out;
}

// Zero-padded, so that names sort as ranks do.
std::string OutputFiles::in_folder(const Place& place, const std::string& stream) {
  if (digits_ == 0) digits_ = std::to_string(place.world_size).size();
  const std::string job = request_.job_folder ? fmt::format("/{}", place.space + 1) : "";
  const std::uint32_t number = request_.job_folder ? number_of(place) : place.member;
  return fmt::format("{}{}/rank.{:0{}}/{}", request_.folder, job, number, digits_, stream);
}

std::string OutputFiles::in_log_folder(const Place& place, const std::string& stream) const {
  const spec::LogRequest& log = request_.log;
  const std::string host = log.host == 0 ? "" : fmt::format("_{}", log.host);
  return fmt::format("{}_{}{}/attempt_0/{}/{}.log", log.folder, log.job, host, local_rank(place),
                     stream);
}

base::Result<Sink*> OutputFiles::open(const std::string& path) {
  if (const auto found = files_.find(path); found != files_.end()) return found->second.get();
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty() && !std::filesystem::create_directories(folder, error) && error) {
    return base::system_error("mkdir", folder.string(), error.value());
  }
  base::Fd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
  if (!fd.valid()) return base::system_error("open", path, errno);
  auto file = std::make_unique<Sink>(loop_, std::move(fd), path);
  file->on_error(broken_);
  return files_.emplace(path, std::move(file)).first->second.get();
}

bool OutputFiles::congested() const {
  for (const auto& [path, file] : files_) {
    if (file->congested()) return true;
  }
  return false;
}

void OutputFiles::when_free(std::function<void()> resume) {
  for (const auto& [path, file] : files_) {
    if (file->congested()) return file->when_free(std::move(resume));
  }
}

}  // namespace regroup::process
