// regroup-bench: what `regroup bench` executes, one process per rank.
// usage: regroup-bench RANK SIZE LOCAL_SIZE JOB OPERATION [OPTIONS]
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/printable.h"
#include "base/status.h"
#include "tools/bench/job.h"
#include "tools/bench/measure.h"
#include "tools/bench/options.h"
#include "tools/bench/reporter.h"
#include "tools/bench/rivals.h"

namespace {

using namespace regroup;

constexpr int kPlaceWords = 5;        // with the program's name
constexpr unsigned kForRankZero = 5;  // seconds
constexpr int kMostRanks = proto::kMaxSlots;

int fail(const std::string& why) {
  fmt::print(stderr, "regroup bench: {}\n", regroup::base::escaped_lines(why));
  return 1;
}

// An error that all ranks find is printed by rank 0 alone. The first rank to exit would end the
// job and rank 0 with it, so the others give rank 0 time to print.
int refuse(const bench::Place& place, const std::string& why) {
  if (place.rank <= 0) return fail(why);
  ::sleep(kForRankZero);
  return 1;
}

base::Status check(const bench::Place& place, int local_size, const bench::Options& options) {
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size) {
    return base::invalid_argument(
        "requires the ranks of a job, for example: regroup -np 2 regroup bench allreduce");
  }
  if (local_size != place.size) {
    return base::invalid_argument(
        fmt::format("{} of {} ranks are on this host; expected all", local_size, place.size));
  }
  if (place.size > kMostRanks)
    return base::invalid_argument(
        fmt::format("{} ranks, expected at most {}", place.size, kMostRanks));
  if (options.root >= static_cast<std::uint32_t>(place.size)) {
    return base::invalid_argument(
        fmt::format("option --root {}: expected a rank below {}", options.root, place.size));
  }
  if (place.size == 1 && options.operation->kind == collective::Kind::kSend)
    return base::invalid_argument("sendrecv: expected at least 2 ranks");
  return bench::check_memory(options, place.size);
}

base::Status run(const bench::Place& place, const bench::Options& options,
                 const std::string& agreed) {
  REGROUP_ASSIGN_OR_RETURN(auto job, bench::Job::form(place, bench::room_for(options, place.size),
                                                      agreed, options.timeout));
  bench::Reporter reporter(options, place.size);
  bench::RivalRanks rivals;
  if (place.rank == 0) {
    REGROUP_RETURN_IF_ERROR(reporter.open());
    REGROUP_RETURN_IF_ERROR(rivals.start(options.compare, place.size, options.timeout));
  }
  REGROUP_RETURN_IF_ERROR(
      bench::measure(*job, options, rivals.all(),
                     [&](const bench::SizeResult& result) { reporter.report(result); }));
  if (place.rank == 0) REGROUP_RETURN_IF_ERROR(reporter.close());
  // A rank that exits ends the job: none exits before rank 0 has printed everything.
  REGROUP_RETURN_IF_ERROR(job->barrier());
  if (reporter.wrong() > 0)
    return base::internal_error(
        fmt::format("{} elements of the results are wrong", reporter.wrong()));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < kPlaceWords) return fail("started by regroup bench only");
  const bench::Place place{std::atoi(argv[1]), std::atoi(argv[2]), argv[4]};
  const std::vector<std::string> words(argv + kPlaceWords, argv + argc);
  const auto options = bench::parse_options(words);
  if (!options.ok())
    return refuse(place, fmt::format("{}\nTry regroup bench --help.", options.status().message()));
  if (options->help) {
    if (place.rank <= 0) fmt::print("{}", bench::help_text());
    return 0;
  }
  if (base::Status status = check(place, std::atoi(argv[3]), *options); !status.ok())
    return refuse(place, status.message());
  const base::Status status = run(place, *options, fmt::format("{}", fmt::join(words, "\n")));
  return status.ok() ? 0 : fail(status.message());
}
