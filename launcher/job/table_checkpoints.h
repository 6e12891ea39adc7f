// Checkpoints of a parameter server's tables: each is written, or loaded, by a regroup-persist
// process out of the memory that the agent owns. docs/design/ps_checkpoint.md.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/ps/table.h"
#include "launcher/process/piped_process.h"
#include "launcher/spec/checkpoint_plan.h"

namespace regroup::job {

struct TableCheckpointOptions {
  spec::CheckpointPlan plan;       // its directory is locked; `every` 0: none are written
  base::Duration period{};         // between two checkpoints
  std::string program;             // path of regroup-persist
  std::string memory;              // as regroup-ps has it
  std::vector<int> descriptors;    // of `memory`, ascending
  bool quiet = false;              // a checkpoint that is written is not told
  collective::ps::TablePart part;  // of tables that the memory has
};

// The stores on other hosts, as that of the launcher's host sees them.
struct OtherParts {
  // Has each write its part: `description(store)` is what its regroup-persist reads. `then` gets
  // the sum of the versions that the parts have at least, once all have ended.
  std::function<void(const std::function<std::string(std::size_t store)>& description,
                     std::function<void(const base::Result<std::uint64_t>&)> then)>
      save;
  // The sum of their versions; none if one does not say.
  std::function<void(std::function<void(std::optional<std::uint64_t>)> then)> version;
};

// Used by the loop's thread, which also calls the handlers. One process runs at a time. The
// destructor kills it and calls no handler.
class TableCheckpoints {
 public:
  struct Events {
    std::function<void(const std::string&)> said;  // for the user
    // A number that changes whenever the tables do.
    std::function<std::uint64_t()> version;
    OtherParts others = {};  // empty: this store has all tables, or is not that of the launcher
  };
  using Saved = std::function<void(const base::Result<std::string>&)>;

  TableCheckpoints(boost::asio::io_context& loop, TableCheckpointOptions options, Events events);
  ~TableCheckpoints();
  TableCheckpoints(const TableCheckpoints&) = delete;
  TableCheckpoints& operator=(const TableCheckpoints&) = delete;

  // Puts the tables of plan.resume into the memory, which no server has yet. Call it first, if
  // there is one.
  void load(std::function<void(const base::Status&)> loaded);
  // Of a store that only writes parts: checks that its host sees the job's directory, then loads,
  // if there is something to load. kUnavailable, kNotFound: it does not see it.
  void prepare(std::function<void(const base::Status&)> ready);
  // Writes this store's part of a checkpoint; `description` is what regroup-persist reads. `then`
  // gets a version that the part has at least, once it is on the disk.
  void save_part(const std::string& description, Saved then);
  // The stores of other hosts serve; the sum of their versions.
  void others_began(std::uint64_t version);
  // All stores have their tables: checkpoints can be written.
  [[nodiscard]] bool ready() const { return loaded_ && (!events_.others.save || others_began_); }
  // Starts the period. Call it once servers run.
  void start();
  // Saves all pushes that are acknowledged now; `saved` gets a sentence once they are on the disk.
  // Calls that come while a checkpoint is written share the next one.
  void save(Saved saved);
  // Saves what has changed since the last checkpoint, if checkpoints are written. The job is over.
  void finish(const std::function<void()>& then);

  // The host of another store is lost, so finish() has nothing that it could save.
  void on_lost(const base::Status& why);

  // What finish() could not save, as a sentence; "" if all is saved.
  [[nodiscard]] const std::string& unsaved() const { return unsaved_; }
  // The time that finish() may need.
  [[nodiscard]] base::Duration still_needs() const;
  [[nodiscard]] proto::Step newest() const { return newest_; }  // 0: none

 private:
  using Ended = std::function<void(const base::Status&)>;
  // Starts a process with the arguments `words`, which reads `input`.
  void run(std::vector<std::string> words, const std::string& input, Ended ended);
  void on_line(std::string_view line, bool error);
  void on_end(int wait_status);
  void expect_sign();
  void write();
  void on_part(const base::Status& status);
  void join();
  void on_written(const base::Status& status);
  void wait_period();
  void save_last(const std::function<void()>& then);
  // Whether something has changed since the newest checkpoint, as far as all stores say.
  void find_changes(const std::function<void(bool changed)>& then);
  // Of writer `writer` of `part.of`, or of the one that joins their parts.
  [[nodiscard]] std::string description(std::size_t writer) const;

  boost::asio::io_context& loop_;
  const TableCheckpointOptions options_;
  const Events events_;
  boost::asio::steady_timer silence_, period_;
  std::shared_ptr<process::PipedProcess> process_;  // null: none runs
  Ended ended_;
  std::string errors_;
  bool silent_ = false;     // it was killed, since it gave no sign
  bool committed_ = false;  // it has printed the step of its checkpoint
  bool loaded_;             // all tables are in the memory
  base::TimePoint began_{};
  proto::Step newest_ = 0, writing_ = 0;
  proto::Step base_ = 0;          // the newest one of this memory; 0: none
  bool newest_has_base_ = false;  // perhaps: the writer decides
  // The job is over: the last checkpoint has no base, so that others than jobs can read it.
  bool last_ = false;
  std::uint64_t attempts_ = 0;
  bool no_base_ = false;      // it has printed that no checkpoint of changes may follow
  bool busy_ = false;         // a checkpoint is being written
  bool over_ = false;         // finish() was called
  bool lost_ = false;         // on_lost() was called
  bool asks_others_ = false;  // finish() does not know yet whether something has changed
  // Of several stores: parts that are being written, this store's and those of the others; the
  // first error; versions as those below, of the others.
  int open_parts_ = 0;
  base::Status part_error_;
  bool others_began_ = false;
  std::optional<std::uint64_t> saved_others_, writing_others_;
  std::uint64_t saved_version_ = 0, writing_version_ = 0;
  std::vector<Saved> now_, next_;  // for what is being written, and for the one after that
  std::string unsaved_;
};

}  // namespace regroup::job
