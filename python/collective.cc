// Translates between the C table and collective/group/group.h; no exception crosses it. With
// `regroup --timeline` it also writes when each operation began and ended.
#include "python/collective.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "collective/group/group.h"
#include "elastic/timeline.h"
#include "python/regroup/_torch/collective_v1.h"

using regroup::base::Code;
using regroup::base::Status;
namespace group = regroup::collective::group;

namespace {

// A span of the timeline, if there is one, that ends with end() or this object.
class Span {
 public:
  Span() = default;
  // `args`: of a JSON object, without its braces.
  Span(const char* name, const std::string& args);
  Span(Span&& from) noexcept : name_(from.name_.exchange(nullptr)), span_(from.span_) {}
  Span& operator=(Span&&) = delete;
  ~Span() { end(); }
  void end();  // several threads may call it, for a work that they wait for

 private:
  std::atomic<const char*> name_ = nullptr;  // null: it has ended, or there is no timeline
  std::uint64_t span_ = 0;
};

}  // namespace

struct regroup_group {
  std::shared_ptr<group::Group> group;
  std::uint64_t number = 0;  // of this process's groups, for the timeline
};
struct regroup_work {
  std::shared_ptr<group::Group> group;
  group::Group::Handle handle;
  bool is_message;
  Span span;
};
struct regroup_memory {
  std::shared_ptr<std::byte> data;
};

namespace {

namespace base = regroup::base;
namespace collective = regroup::collective;
namespace elastic = regroup::elastic;
using collective::Dtype;
using collective::Kind;
using collective::Op;

static_assert(static_cast<int>(Kind::kBarrier) == REGROUP_BARRIER &&
              static_cast<int>(Kind::kAlltoall) == REGROUP_ALLTOALL &&
              static_cast<int>(Kind::kBroadcast) == REGROUP_BROADCAST);
static_assert(static_cast<int>(Dtype::kFloat32) == REGROUP_FLOAT32 &&
              static_cast<int>(Dtype::kBfloat16) == REGROUP_BFLOAT16 &&
              static_cast<int>(Dtype::kUint8) == REGROUP_UINT8);
static_assert(static_cast<int>(Op::kSum) == REGROUP_SUM &&
              static_cast<int>(Op::kBor) == REGROUP_BOR);

// Null: the job has no timeline. It is never destroyed, as threads may use it until the process
// ends. A forked process has one of its own, since it lacks the thread that writes.
elastic::Timeline* timeline() {
  static std::mutex mutex;
  static elastic::Timeline* made = nullptr;
  static pid_t process = 0;
  const std::lock_guard lock(mutex);
  if (process == ::getpid()) return made;
  process = ::getpid();
  made = nullptr;
  if (const std::string file = elastic::timeline_file(); !file.empty()) {
    elastic::TimelinePlace place = elastic::timeline_place();
    made = new elastic::Timeline(file, std::move(place.job), place.node, place.member);
  }
  return made;
}

Span::Span(const char* name, const std::string& args) {
  if (elastic::Timeline* const to = timeline(); to != nullptr) {
    span_ = to->begin_overlapping(name, args);
    name_ = name;
  }
}

void Span::end() {
  if (const char* const name = name_.exchange(nullptr); name != nullptr)
    timeline()->end_overlapping(span_, name);
}

Span span_of(const regroup_group& group, const regroup_operation& operation) {
  static constexpr std::array kNames = {"barrier",        "all_reduce", "reduce",
                                        "reduce_scatter", "all_gather", "gather",
                                        "scatter",        "all_to_all", "broadcast"};
  if (timeline() == nullptr) return {};
  const auto kind = static_cast<std::size_t>(operation.kind);
  return {kind < kNames.size() ? kNames[kind] : "collective",
          fmt::format(R"("bytes":{},"group":{},"ranks":{})",
                      std::max(operation.in_bytes, operation.out_bytes), group.number,
                      group.group->size())};
}

Span span_of(const regroup_group& group, const char* name, const char* peer, int rank,
             std::size_t bytes) {
  if (timeline() == nullptr) return {};
  return {name, fmt::format(R"("bytes":{},"{}":{},"group":{})", bytes, peer, rank, group.number)};
}

base::Duration duration_of(double seconds) {
  constexpr double kMost = 365.0 * 86400;
  return std::chrono::duration_cast<base::Duration>(
      std::chrono::duration<double>(std::clamp(seconds, 0.0, kMost)));
}

base::TimePoint deadline_in(double seconds) {
  return base::SystemClock().now() + duration_of(seconds);
}

int code_of(Code code) {
  if (code == Code::kOk) return REGROUP_OK;
  if (code == Code::kInvalidArgument) return REGROUP_INVALID;
  if (code == Code::kDeadlineExceeded) return REGROUP_TIMEOUT;
  return code == Code::kPeerLost || code == Code::kRevoked ? REGROUP_BROKEN : REGROUP_FAILED;
}

int tell(const Status& status, char* error, std::size_t error_bytes) {
  if (error_bytes > 0) {
    const std::size_t bytes = std::min(status.message().size(), error_bytes - 1);
    std::memcpy(error, status.message().data(), bytes);
    error[bytes] = 0;
  }
  return code_of(status.code());
}

class ForeignStore final : public group::Store {
 public:
  explicit ForeignStore(const regroup_store& store) : store_(store) {}

  Status set(const std::string& key, const std::string& value) override {
    if (store_.set(store_.self, key.c_str(), value.data(), value.size()) == 0) return {};
    return base::unavailable("the store refused to set '" + key + "'");
  }

  base::Result<std::string> get(const std::string& key, base::TimePoint deadline) override {
    std::vector<char> value(kMost);
    const double seconds =
        std::chrono::duration<double>(deadline - base::SystemClock().now()).count();
    const std::int64_t bytes =
        store_.get(store_.self, key.c_str(), value.data(), kMost, std::max(seconds, 0.001));
    if (bytes == -1) return base::deadline_exceeded("no rank has set '" + key + "' in the store");
    if (bytes < 0) return base::unavailable("the store failed to get '" + key + "'");
    if (bytes > kMost)
      return base::data_loss("the value of '" + key + "' in the store is too long");
    return std::string(value.data(), static_cast<std::size_t>(bytes));
  }

 private:
  static constexpr std::int64_t kMost = 64 << 10;
  const regroup_store store_;
};

collective::Operation operation_of(const regroup_operation& from) {
  return {.kind = static_cast<Kind>(from.kind),
          .dtype = static_cast<Dtype>(from.dtype),
          .op = static_cast<Op>(from.op),
          .root = from.root,
          .in = {static_cast<const std::byte*>(from.in), from.in_bytes},
          .out = {static_cast<std::byte*>(from.out), from.out_bytes}};
}

int give(regroup_group* to, base::Result<group::Group::Handle> handle, bool is_message, Span span,
         regroup_work** work, char* error, std::size_t error_bytes) {
  if (!handle.ok()) return tell(handle.status(), error, error_bytes);
  *work = new regroup_work{to->group, std::move(*handle), is_message, std::move(span)};
  return REGROUP_OK;
}

// Reports the failure of an operation that had started. It leaves the group unusable, also if the
// ranks disagree (kInvalidArgument).
int tell_broken(const Status& status, char* error, std::size_t error_bytes) {
  const int code = tell(status, error, error_bytes);
  return code == REGROUP_INVALID ? REGROUP_BROKEN : code;
}

int form(const regroup_store* store, int rank, int size, const char* host, double seconds,
         regroup_group** out, char* error, std::size_t error_bytes) {
  static std::atomic<std::uint64_t> groups = 0;
  ForeignStore adapter(*store);
  const std::uint64_t number = groups++;
  const Span span("init_process_group", fmt::format(R"("group":{},"ranks":{})", number, size));
  auto formed = group::Group::form(adapter, rank, size, duration_of(seconds), host);
  if (!formed.ok()) return tell(formed.status(), error, error_bytes);
  *out = new regroup_group{std::move(*formed), number};
  return REGROUP_OK;
}

void leave(regroup_group* group) {
  delete group;
  if (elastic::Timeline* const to = timeline(); to != nullptr) to->flush();
}

void abort_group(regroup_group* group, const char* why) { group->group->abort(why); }

int run(regroup_group* group, const regroup_operation* from, double seconds, char* error,
        std::size_t error_bytes) {
  const collective::Operation operation = operation_of(*from);
  Status status = operation.check(group->group->rank(), group->group->size());
  if (!status.ok()) return tell(status, error, error_bytes);
  const Span span = span_of(*group, *from);
  status = group->group->run(operation, deadline_in(seconds));
  return status.ok() ? REGROUP_OK : tell_broken(status, error, error_bytes);
}

int start(regroup_group* group, const regroup_operation* operation, double seconds,
          regroup_work** work, char* error, std::size_t error_bytes) {
  Span span = span_of(*group, *operation);
  return give(group, group->group->start(operation_of(*operation), deadline_in(seconds)), false,
              std::move(span), work, error, error_bytes);
}

int send(regroup_group* group, int to, std::uint32_t tag, const void* data, std::size_t bytes,
         double seconds, regroup_work** work, char* error, std::size_t error_bytes) {
  Span span = span_of(*group, "send", "to", to, bytes);
  return give(group,
              group->group->send(to, tag, {static_cast<const std::byte*>(data), bytes},
                                 deadline_in(seconds)),
              true, std::move(span), work, error, error_bytes);
}

int receive(regroup_group* group, int from, std::uint32_t tag, void* data, std::size_t bytes,
            double seconds, regroup_work** work, char* error, std::size_t error_bytes) {
  Span span = span_of(*group, "recv", "from", from, bytes);
  return give(group,
              group->group->receive(from, tag, {static_cast<std::byte*>(data), bytes},
                                    deadline_in(seconds)),
              true, std::move(span), work, error, error_bytes);
}

int wait(regroup_work* work, double seconds) {
  if (!work->group->wait(work->handle, deadline_in(seconds))) return 0;
  work->span.end();
  return 1;
}

int status(regroup_work* work, int* source, char* error, std::size_t error_bytes) {
  if (source != nullptr) *source = work->group->source_of(work->handle);
  const Status status = work->group->status_of(work->handle);
  if (status.ok()) return REGROUP_OK;
  return work->is_message ? tell(status, error, error_bytes)
                          : tell_broken(status, error, error_bytes);
}

void free_work(regroup_work* work) { delete work; }

void* allocate(regroup_group* group, std::size_t bytes, regroup_memory** memory) {
  std::shared_ptr<std::byte> data = group->group->allocate(bytes);
  if (!data) return nullptr;
  void* const at = data.get();
  *memory = new regroup_memory{std::move(data)};
  return at;
}

void release(regroup_memory* memory) { delete memory; }

}  // namespace

namespace regroup::python {

const regroup_collective_v1* collective_v1() {
  static constexpr regroup_collective_v1 kTable = {.version = REGROUP_COLLECTIVE_VERSION,
                                                   .bytes = sizeof kTable,
                                                   .form = form,
                                                   .leave = leave,
                                                   .abort = abort_group,
                                                   .run = run,
                                                   .start = start,
                                                   .send = send,
                                                   .receive = receive,
                                                   .wait = wait,
                                                   .status = status,
                                                   .free = free_work,
                                                   .allocate = allocate,
                                                   .release = release};
  return &kTable;
}

}  // namespace regroup::python
