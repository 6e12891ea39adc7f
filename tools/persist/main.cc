// regroup-persist: writes a checkpoint from an agent's arena while training goes on, and does an
// agent's other slow work on checkpoint directories. usage: regroup-persist VERB ARGUMENTS
//
// write FD < DESCRIPTION
//   Writes a checkpoint from the arena FD; prints its step.
// save-tables MEMORY < DESCRIPTION
//   Writes a checkpoint of the tables in a parameter server's MEMORY, as regroup-ps has it, or of
//   what has changed since the checkpoint `base`; prints its step. Ignores the signals that
//   allocators send: SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2.
//   With "commit" false: one part of a checkpoint of several stores.
// join-tables < DESCRIPTION
//   Makes a checkpoint of the parts of all stores, which are writers 0 to `writer` - 1; prints its
//   step, and before it "no base" if the next one must not be one of changes. With "commit" false:
//   removes them. Ignores the same signals.
// load-tables MEMORY PATH [STORE STORES SHARDS]
//   Puts the tables of the checkpoint PATH into empty MEMORY, which no server has yet; the ranges
//   of store STORE, if STORES share them, which have SHARDS together.
// owner DIRECTORY JOB
//   Succeeds if the directory's LOCK names JOB.
// copy FROM TO JOB KEEP_LAST KEEP_EVERY [STEP]
//   Copies the newest checkpoint, or that of STEP, which the caller has verified. Prints its step
//   if TO did not have it.
// hold DIRECTORY SHARED JOB STEP OWNER
//   Checks that JOB owns both directories. Locks DIRECTORY, which is local to this host, for OWNER,
//   prepares it for a job that resumes from STEP, prints "held" and keeps the lock until the end of
//   standard input. If another process of JOB has the lock: ends with status 0. If another job has
//   it: exit status 3.
// newer DIRECTORY STEP [SEED SHARDS]
//   Prints the newest good step after STEP in a local directory, 0 if there is none. With SEED and
//   SHARDS it considers only checkpoints of that training.
// await DIRECTORY STEP [SECONDS]
//   Waits, a minute by default, until this host sees the whole copy of STEP. Prints as `newest`.
// newest DIRECTORY [pass-over] [DIRECTORY [pass-over]]
//   Prints the newest good checkpoint of the directories in JSON; of equal steps that of the first.
//   The caller has the locks.
//
// All but `owner` and `hold` print empty lines while they write or read.
// Exit status 0: done, and a crash does not undo it. 1: failed; standard error has the reason.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/job_signals.h"
#include "base/printable.h"
#include "base/status.h"
#include "base/values.h"
#include "checkpoint/chain.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/directory.h"
#include "checkpoint/file_io.h"
#include "checkpoint/hdf5/factory.h"
#include "checkpoint/tiers.h"
#include "tools/persist/description.h"
#include "tools/persist/join.h"
#include "tools/persist/tables.h"

namespace {

using namespace regroup;
using base::Status;

constexpr std::size_t kLargest = 256 << 20;  // bytes of a description
constexpr int kAnotherJobs = 3;              // exit status
// Checkpoints of changes between two whole ones: a start reads them all.
constexpr std::size_t kMostChanges = 8;
constexpr std::chrono::seconds kSignOfLife(1);
// For the writers of other stores, and how often one looks for what they say.
constexpr std::chrono::seconds kStepsLimit(60);
constexpr std::chrono::milliseconds kLookForSteps(5);

void say(const std::string& sentence) { fmt::print(stderr, "{}\n", base::escaped_lines(sentence)); }

int fail(const Status& status) {
  say(status.message());
  return 1;
}

base::Result<std::string> read_description() {
  std::string text;
  std::array<char, 65536> part{};
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return base::system_error("read", "description", errno);
    if (count == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(count));
    if (text.back() == '\n') return text;  // the agent keeps its end open
    if (text.size() > kLargest)
      return base::invalid_argument(fmt::format("description: more than {} bytes", kLargest));
  }
}

base::Result<std::span<const std::byte>> map(int fd) {
  struct stat of {};
  if (::fstat(fd, &of) != 0) return base::system_error("fstat", "arena", errno);
  if (of.st_size == 0) return std::span<const std::byte>();
  // Not populated: the page faults then overlap with the device's work.
  void* base = ::mmap(nullptr, static_cast<std::size_t>(of.st_size), PROT_READ, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return base::system_error("mmap", "arena", errno);
  return std::span(static_cast<const std::byte*>(base), static_cast<std::size_t>(of.st_size));
}

// Returns a function that prints an empty line at most once a second, so that the caller does not
// take this process for stuck.
std::function<void()> signs_of_life() {
  return [told = std::chrono::steady_clock::now()]() mutable {
    if (std::chrono::steady_clock::now() - told < kSignOfLife) return;
    told = std::chrono::steady_clock::now();
    fmt::print("\n");
    std::fflush(stdout);
  };
}

checkpoint::OnProgress reading_signs() {
  return [sign = signs_of_life()](const checkpoint::Progress&) { sign(); };
}

// Prints the step of a checkpoint that is committed, and removes those that the retention does not
// keep.
Status tell_committed(const persist::Description& what) {
  fmt::print("{}\n", what.part.about.step);
  std::fflush(stdout);  // an error from here on is only printed
  const auto pruned = checkpoint::prune(what.directory, what.retention, what.part.about.step);
  if (!pruned.ok()) say(pruned.status().message());
  const auto aside = checkpoint::prune_aside(what.directory, what.retention);
  if (!aside.ok()) say(aside.status().message());
  return {};
}

// A new owner has removed leftover stages, perhaps before this one existed.
std::string stage_of(const persist::Description& what) {
  return checkpoint::stage_path(what.directory, what.part.about.step, what.part.uuid);
}

void remove_stage(const persist::Description& what) {
  (void)checkpoint::remove_all(stage_of(what));
}

Status write(int fd) {
  REGROUP_ASSIGN_OR_RETURN(const auto memory, map(fd));
  REGROUP_ASSIGN_OR_RETURN(const auto text, read_description());
  REGROUP_ASSIGN_OR_RETURN(auto what, persist::parse(text, memory));
  what.writing.moved = signs_of_life();
  const auto check_fence = [&] {
    return what.fenced ? checkpoint::check_owner(what.directory, what.part.about.job) : Status();
  };
  REGROUP_RETURN_IF_ERROR(check_fence());
  const std::string path = checkpoint::path_of_step(what.directory, what.part.about.step);
  // True if another host of the job has written the same state: the agent asks each host for it
  // when all members have to leave.
  const auto is_there = [&] {
    const auto opened = checkpoint::Checkpoint::open(path);
    return what.fenced && opened.ok() && opened->manifest().job == what.part.about.job;
  };
  if (what.commit && is_there()) {
    fmt::print("{}\n", what.part.about.step);
    return {};
  }
  const auto store = checkpoint::hdf5::make_store(what.directory, what.writing);
  REGROUP_RETURN_IF_ERROR(store->write(what.part));
  if (!what.commit) return {};
  if (Status owner = check_fence(); !owner.ok()) {
    remove_stage(what);
    return owner;
  }
  if (Status committed = store->commit(what.part); !committed.ok()) {
    if (!is_there()) return committed;
    remove_stage(what);
  }
  return tell_committed(what);
}

// A mapping of all shards of a parameter server.
base::Result<std::vector<collective::ps::MappedShard>> map_shards(std::string_view memory) {
  REGROUP_ASSIGN_OR_RETURN(const auto all, collective::ps::parse_server_memory(memory));
  std::vector<collective::ps::MappedShard> out;
  for (const auto& shard : all.shards) {
    REGROUP_ASSIGN_OR_RETURN(auto mapped, collective::ps::MappedShard::open(
                                              shard, collective::ps::StoreMemory::Mode::kWrite));
    out.push_back(std::move(mapped));
  }
  return out;
}

// What a checkpoint of changes may begin with; empty if the next one should be whole.
std::optional<persist::TablesBase> base_of(const persist::Description& what) {
  if (what.base == 0) return std::nullopt;
  const auto chain = checkpoint::open_chain(checkpoint::path_of_step(what.directory, what.base));
  if (!chain.ok() || chain->size() > kMostChanges) return std::nullopt;
  persist::TablesBase out{.step = what.base};
  for (std::size_t i = 1; i < chain->size(); ++i)
    out.changed_bytes += bytes_of_files((*chain)[i].manifest());
  if (!what.commit)
    out.changed_bytes /= std::max(what.part.writers, 2U) - 1;  // of one of the stores, about
  return out;
}

// Where a writer of one of several stores leaves ranges_text(), until the parts are joined.
std::string ranges_path(const persist::Description& what, std::uint32_t writer) {
  return fmt::format("{}/RANGES-{:04}", stage_of(what), writer);
}

std::string steps_path(const persist::Description& what, std::uint32_t writer) {
  return fmt::format("{}/STEPS-{:04}", stage_of(what), writer);
}

// What the writer of store `writer` says: how many steps of mode sync that store has logged.
base::Result<std::uint64_t> await_steps(const persist::Description& what, std::uint32_t writer,
                                        std::chrono::steady_clock::time_point end) {
  const std::string path = steps_path(what, writer);
  while (true) {
    const auto text = checkpoint::read_file(path, kLargest);
    if (text.ok() && text->ends_with('\n')) {
      std::uint64_t steps = 0;
      if (!base::read_number(std::string_view(*text).substr(0, text->size() - 1), steps))
        return base::data_loss(fmt::format("{}: expected a number", path));
      return steps;
    }
    if (std::chrono::steady_clock::now() >= end) {
      return base::deadline_exceeded(
          fmt::format("steps of mode sync: the writer of store {} has not held them in {} s",
                      writer, kStepsLimit.count()));
    }
    what.writing.moved();
    std::this_thread::sleep_for(kLookForSteps);
  }
}

// Tells the writers of the other stores how many steps of mode sync this one has logged, and waits
// for what they say. Each holds the steps of its store then, so none logs more.
base::Result<std::uint64_t> agree_on_steps(const persist::Description& what, std::uint64_t logged,
                                           bool wait) {
  REGROUP_RETURN_IF_ERROR(checkpoint::make_folder(stage_of(what)));
  REGROUP_RETURN_IF_ERROR(checkpoint::write_new_file(steps_path(what, what.part.writer),
                                                     fmt::format("{}\n", logged),
                                                     /*durable=*/false));
  std::uint64_t least = logged;
  const auto end = std::chrono::steady_clock::now() + kStepsLimit;
  for (std::uint32_t writer = 0; wait && writer + 1 < what.part.writers; ++writer) {
    REGROUP_ASSIGN_OR_RETURN(const std::uint64_t steps, await_steps(what, writer, end));
    least = std::min(least, steps);
  }
  return least;
}

Status check_owner(const persist::Description& what) {
  return checkpoint::check_owner(what.directory, what.part.about.job);
}

Status save_part(persist::Description& what, persist::TablesImage& image) {
  REGROUP_RETURN_IF_ERROR(check_owner(what));
  std::erase_if(image.pieces, [](const auto& piece) {
    return piece.name == persist::kSpecsName || piece.name == persist::kStepName;
  });
  what.part.pieces = std::move(image.pieces);
  REGROUP_RETURN_IF_ERROR(checkpoint::make_folder(stage_of(what)));
  REGROUP_RETURN_IF_ERROR(checkpoint::write_new_file(ranges_path(what, what.part.writer),
                                                     persist::ranges_text(image),
                                                     /*durable=*/true));
  const auto store = checkpoint::hdf5::make_store(what.directory, what.writing);
  REGROUP_RETURN_IF_ERROR(store->write(what.part));
  // Before the commit, after which this process is gone. If there is none, no checkpoint ever names
  // this step as its base, and the next part has all rows.
  note_saved(image, what.part.about.step);
  fmt::print("{}\n", what.part.about.step);
  return {};
}

Status join_parts(persist::Description& what) {
  what.writing.moved = signs_of_life();
  what.writing.commits = false;  // this writer's part is read back with the others
  REGROUP_RETURN_IF_ERROR(check_owner(what));
  std::vector<std::string> texts;
  for (std::uint32_t writer = 0; writer < what.part.writer; ++writer) {
    REGROUP_ASSIGN_OR_RETURN(texts.emplace_back(),
                             checkpoint::read_file(ranges_path(what, writer), kLargest));
    REGROUP_RETURN_IF_ERROR(checkpoint::remove_all(ranges_path(what, writer)));
    REGROUP_RETURN_IF_ERROR(checkpoint::remove_all(steps_path(what, writer)));
  }
  REGROUP_ASSIGN_OR_RETURN(const auto join, persist::TablesJoin::of(texts));
  // The writers have seen the base, perhaps some time ago and on other hosts.
  if (join.changes()) {
    REGROUP_RETURN_IF_ERROR(
        checkpoint::open_chain(checkpoint::path_of_step(what.directory, what.base)).status());
  }
  what.writing.settle = [&](std::vector<checkpoint::Manifest>& parts) {
    return join.settle(parts, what.base);
  };
  const std::string specs = persist::to_json(join.specs());
  what.part.about.content = checkpoint::Content::kTables;
  what.part.pieces = {{persist::kSpecsName,
                       "uint8",
                       {specs.size()},
                       checkpoint::whole({specs.size()}),
                       std::as_bytes(std::span(specs))}};
  const std::uint64_t step = join.step();
  if (step != 0) {
    what.part.pieces.push_back({persist::kStepName,
                                "uint64",
                                {1},
                                checkpoint::whole({1}),
                                std::as_bytes(std::span(&step, 1))});
  }
  const auto store = checkpoint::hdf5::make_store(what.directory, what.writing);
  REGROUP_RETURN_IF_ERROR(store->write(what.part));
  REGROUP_RETURN_IF_ERROR(check_owner(what));
  REGROUP_RETURN_IF_ERROR(store->commit(what.part));
  if (join.left_out()) fmt::print("no base\n");
  return tell_committed(what);
}

Status join_tables() {
  base::ignore_signals_of_jobs();
  REGROUP_ASSIGN_OR_RETURN(const auto text, read_description());
  REGROUP_ASSIGN_OR_RETURN(auto what, persist::parse(text, {}));
  const Status status = what.commit ? join_parts(what) : Status();
  if (!what.commit || !status.ok()) remove_stage(what);  // after a commit it is not there
  return status;
}

Status save_tables(std::string_view memory) {
  base::ignore_signals_of_jobs();  // the tables are saved once the job has ended
  REGROUP_ASSIGN_OR_RETURN(const auto text, read_description());
  REGROUP_ASSIGN_OR_RETURN(auto what, persist::parse(text, {}));
  REGROUP_ASSIGN_OR_RETURN(const auto shards, map_shards(memory));
  what.writing.moved = signs_of_life();
  persist::AgreeOnSteps agree;
  if (!what.commit) {
    REGROUP_RETURN_IF_ERROR(check_owner(what));
    agree = [&](std::uint64_t logged, bool wait) { return agree_on_steps(what, logged, wait); };
  }
  REGROUP_ASSIGN_OR_RETURN(auto image,
                           persist::copy_tables(shards, what.writing.moved, base_of(what), agree));
  checkpoint::Manifest& about = what.part.about;
  about.content = image.changes ? checkpoint::Content::kTableChanges : checkpoint::Content::kTables;
  about.base = image.changes ? what.base : 0;
  if (!what.commit) return save_part(what, image);
  what.part.pieces = std::move(image.pieces);
  REGROUP_RETURN_IF_ERROR(check_owner(what));
  const auto store = checkpoint::hdf5::make_store(what.directory, what.writing);
  REGROUP_RETURN_IF_ERROR(store->write(what.part));
  if (Status owner = check_owner(what); !owner.ok()) {
    remove_stage(what);
    return owner;
  }
  REGROUP_RETURN_IF_ERROR(store->commit(what.part));
  note_saved(image, about.step);
  return tell_committed(what);
}

Status load_tables(std::string_view memory, const std::string& path,
                   const collective::ps::TablePart& part) {
  REGROUP_ASSIGN_OR_RETURN(const auto shards, map_shards(memory));
  REGROUP_ASSIGN_OR_RETURN(const auto chain, checkpoint::open_chain(path));
  return persist::restore_tables(shards, chain, signs_of_life(), part);
}

Status copy(const std::string& from, const std::string& to, const std::string& job,
            const checkpoint::CopyOptions& options) {
  REGROUP_RETURN_IF_ERROR(checkpoint::check_owner(to, job));
  REGROUP_ASSIGN_OR_RETURN(const auto copied, checkpoint::copy_newest(from, to, options, say));
  if (copied.has_value()) fmt::print("{}\n", *copied);
  return {};
}

void await_end_of_input() {
  std::array<char, 256> part{};
  for (ssize_t count = 1; count > 0 || (count < 0 && errno == EINTR);)
    count = ::read(STDIN_FILENO, part.data(), part.size());
}

Status prepare(const std::string& directory, proto::Step after) {
  REGROUP_ASSIGN_OR_RETURN(const auto aside, checkpoint::prepare_local(directory, after));
  for (const proto::Step step : aside)
    fmt::print(
        "{}: the checkpoint of step {} is newer than that of step {}, from which the job resumes, "
        "and is set "
        "aside\n",
        directory, step, after);
  return {};
}

// Returns the exit status.
int hold(const std::string& directory, const std::string& shared, const std::string& job,
         proto::Step after, const std::string& owner) {
  const auto lock = checkpoint::DirectoryLock::take(directory, owner);
  if (!lock.ok() && lock.code() != base::Code::kUnavailable) return fail(lock.status());
  if (const Status status = checkpoint::check_owner(directory, job); !status.ok())
    return fail(status), lock.ok() ? 1 : kAnotherJobs;
  if (const Status status = checkpoint::check_owner(shared, job); !status.ok()) return fail(status);
  if (!lock.ok()) return 0;
  if (const Status status = prepare(directory, after); !status.ok()) return fail(status);
  fmt::print("held\n");
  std::fflush(stdout);
  await_end_of_input();
  return 0;
}

Status newer(const std::string& directory, proto::Step after,
             const std::optional<checkpoint::Training>& of) {
  REGROUP_ASSIGN_OR_RETURN(const auto found,
                           checkpoint::newest_after(directory, after, of, say, reading_signs()));
  fmt::print("{}\n", found.has_value() ? found->step : 0);
  return {};
}

// Returns what made the checkpoint if no job can resume from it; empty if a job did: a job's
// checkpoint has the tensor regroup.pieces. The import of an exported checkpoint has it, too, but
// neither seed nor model.
std::string made_by_other(const checkpoint::Checkpoint& opened) {
  const std::string& job = opened.manifest().job;
  if (checkpoint::has_tables(opened.manifest())) return "";  // for --ps-memory
  if (job == checkpoint::kImportJob) return "`regroup checkpoint import`";
  return opened.find("regroup.pieces") ? "" : fmt::format("{:?}, not by a job", job);
}

base::Result<std::string> described(const std::string& path) {
  REGROUP_ASSIGN_OR_RETURN(const auto opened, checkpoint::Checkpoint::open(path));
  const checkpoint::Manifest& manifest = opened.manifest();
  const nlohmann::json out = {{"path", path},
                              {"step", manifest.step},
                              {"seed", manifest.seed},
                              {"shards", manifest.shards},
                              {"tables", checkpoint::has_tables(manifest)},
                              {"made_by_other", made_by_other(opened)},
                              {"fingerprint", manifest.fingerprint}};
  return out.dump();
}

Status await(const std::string& directory, proto::Step step, checkpoint::CopyOptions options) {
  options.on_progress = reading_signs();
  REGROUP_RETURN_IF_ERROR(checkpoint::await_copy(directory, step, options));
  REGROUP_ASSIGN_OR_RETURN(const auto out, described(checkpoint::path_of_step(directory, step)));
  fmt::print("{}\n", out);
  return {};
}

Status newest(const std::vector<checkpoint::Place>& places) {
  REGROUP_ASSIGN_OR_RETURN(const auto found, checkpoint::newest_good(places, say, reading_signs()));
  REGROUP_ASSIGN_OR_RETURN(
      const auto out, found.has_value() ? described(found->path) : base::Result<std::string>("{}"));
  fmt::print("{}\n", out);
  for (const checkpoint::Place& place : places) {
    if (!place.aside) continue;
    Status cleaned = checkpoint::clean(place.directory);
    if (!cleaned.ok() && cleaned.code() != base::Code::kNotFound) return cleaned;
  }
  return {};
}

// Parses directories, each optionally followed by "pass-over": damaged checkpoints there are not
// moved aside, since rename may not be atomic.
std::vector<checkpoint::Place> places_of(std::span<char*> words) {
  std::vector<checkpoint::Place> out;
  for (const std::string_view word : words) {
    if (word == "pass-over" && !out.empty())
      out.back().aside = false;
    else
      out.push_back({std::string(word), /*aside=*/true});
  }
  return out;
}

template <class T>
bool read_number(std::string_view word, T& out) {
  return std::from_chars(word.data(), word.data() + word.size(), out).ec == std::errc();
}

int usage() {
  fmt::print(stderr,
             "usage: regroup-persist write FD < description | owner DIRECTORY JOB |\n"
             "       save-tables MEMORY < description | join-tables < description |\n"
             "       load-tables MEMORY PATH [STORE STORES SHARDS] |\n"
             "       hold DIRECTORY SHARED JOB STEP OWNER |\n"
             "       copy FROM TO JOB KEEP_LAST KEEP_EVERY [STEP] |\n"
             "       newer DIRECTORY STEP [SEED SHARDS] | await DIRECTORY STEP [SECONDS] |\n"
             "       newest DIRECTORY [pass-over] [DIRECTORY [pass-over]]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view verb = argc >= 3 ? argv[1] : "";
  const std::string_view word = argc >= 3 ? argv[2] : "";
  int fd = -1;
  if (argc == 2 && std::string_view(argv[1]) == "join-tables") {
    const Status status = join_tables();
    return status.ok() ? 0 : fail(status);
  }
  if (verb == "owner" && argc == 4) {
    const Status status = checkpoint::check_owner(std::string(word), argv[3]);
    return status.ok() ? 0 : fail(status);
  }
  if (verb == "hold" && argc == 7) {
    proto::Step after = 0;
    if (!read_number(argv[5], after)) return usage();
    return hold(argv[2], argv[3], argv[4], after, argv[6]);
  }
  if (verb == "copy" && (argc == 7 || argc == 8)) {
    checkpoint::CopyOptions options;
    if (!read_number(argv[5], options.retention.last) ||
        !read_number(argv[6], options.retention.every))
      return usage();
    if (argc == 8 && !read_number(argv[7], options.verified.emplace())) return usage();
    options.on_progress = reading_signs();
    const Status status = copy(argv[2], argv[3], argv[4], options);
    return status.ok() ? 0 : fail(status);
  }
  proto::Step step = 0;
  if (verb == "newer" && (argc == 4 || argc == 6) && read_number(argv[3], step)) {
    std::optional<checkpoint::Training> of;
    if (argc == 6 &&
        (!read_number(argv[4], of.emplace().seed) || !read_number(argv[5], of->shards)))
      return usage();
    const Status status = newer(argv[2], step, of);
    return status.ok() ? 0 : fail(status);
  }
  if (verb == "await" && (argc == 4 || argc == 5) && read_number(argv[3], step)) {
    checkpoint::CopyOptions options;
    std::uint32_t seconds = 0;
    if (argc == 5 && !read_number(argv[4], seconds)) return usage();
    if (argc == 5) options.visible_within = std::chrono::seconds(seconds);
    const Status status = await(argv[2], step, options);
    return status.ok() ? 0 : fail(status);
  }
  if (verb == "newest" && argc <= 6) {
    const Status status =
        newest(places_of(std::span(argv, static_cast<std::size_t>(argc)).subspan(2)));
    return status.ok() ? 0 : fail(status);
  }
  if (verb == "save-tables" && argc == 3) {
    const Status status = save_tables(word);
    return status.ok() ? 0 : fail(status);
  }
  if (verb == "load-tables" && (argc == 4 || argc == 7)) {
    collective::ps::TablePart part;
    if (argc == 7 && (!read_number(argv[4], part.number) || !read_number(argv[5], part.of) ||
                      !read_number(argv[6], part.shards)))
      return usage();
    const Status status = load_tables(word, argv[3], part);
    return status.ok() ? 0 : fail(status);
  }
  if (verb != "write" || argc != 3 || !read_number(word, fd)) return usage();
  const Status status = write(fd);
  return status.ok() ? 0 : fail(status);
}
