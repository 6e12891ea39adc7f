// Every call: check the thread, release the GIL, call the session, acquire the GIL, return or
// raise.
#include "python/session.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <utility>

#include "base/status.h"
#include "python/errors.h"

namespace regroup::python {
namespace {

using collective::Dtype;

Dtype dtype_of(const Memory& array, const char* call) {
  const nb::dlpack::dtype type = array.dtype();
  if (type == nb::dtype<float>()) return Dtype::kFloat32;
  if (type == nb::dtype<double>()) return Dtype::kFloat64;
  if (type == nb::dtype<std::int32_t>()) return Dtype::kInt32;
  if (type == nb::dtype<std::int64_t>()) return Dtype::kInt64;
  raise(base::invalid_argument(
      fmt::format("{}: elements are float32, float64, int32 or int64", call)));
}

std::span<std::byte> bytes_of(const Memory& array) {
  return {static_cast<std::byte*>(array.data()), array.nbytes()};
}

}  // namespace

collective::Communicator& SectionCommunicator::get() {
  if (communicator_ == nullptr)
    raise(base::invalid_argument("communicator: its collective section has ended"));
  return *communicator_;
}

void SectionCommunicator::check(const base::Status& status) {
  if (!status.ok() && failure_.ok()) failure_ = status;
  python::check(status);
}

void SectionCommunicator::allreduce(nb::handle object) {
  const Memory array = memory_of(object, "allreduce");
  const Dtype dtype = dtype_of(array, "allreduce");
  auto& communicator = get();
  base::Status status;
  {
    nb::gil_scoped_release released;
    status = communicator.allreduce(bytes_of(array), bytes_of(array), dtype, deadline());
  }
  check(status);
}

void SectionCommunicator::broadcast(nb::handle object, int root) {
  const Memory array = memory_of(object, "broadcast");
  auto& communicator = get();
  if (root < 0 || root >= communicator.size()) {
    raise(base::invalid_argument(fmt::format("broadcast: root {}: expected a rank from 0 to {}",
                                             root, communicator.size() - 1)));
  }
  base::Status status;
  {
    nb::gil_scoped_release released;
    status = communicator.broadcast(bytes_of(array), root, deadline());
  }
  check(status);
}

void SectionCommunicator::barrier() {
  auto& communicator = get();
  base::Status status;
  {
    nb::gil_scoped_release released;
    status = communicator.barrier(deadline());
  }
  check(status);
}

class PythonSession::Entered {
 public:
  explicit Entered(PythonSession* session) : session_(session) {
    session->check_thread();
    if (session->inside_)
      raise(base::invalid_argument("session: called from inside one of its own calls"));
    if (session->broken_)
      raise(
          base::invalid_argument("session: a collective section failed before, by another error; "
                                 "the session cannot continue"));
    session->inside_ = true;
  }
  ~Entered() { session_->inside_ = false; }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  PythonSession* const session_;
};

void PythonSession::check_thread() const {
  if (owner_ == std::this_thread::get_id()) return;
  raise(
      base::invalid_argument("session: called on a thread other than the one that called join()"));
}

// Runs `call` without the GIL and returns its result. An exception that Python code raised within
// it is raised again unchanged.
template <class Call>
auto PythonSession::blocking(Call call) {
  const Entered entered(this);
  kept_.forget();  // the exception of an attempt that was revoked and then repeated
  auto result = [&] {
    nb::gil_scoped_release released;
    return call();
  }();
  if (!result.ok()) kept_.raise_again();
  return result;
}

PythonSession::PythonSession(elastic::Options options, nb::object state, nb::object observer)
    : state_(std::move(state), &kept_),
      observer_(std::move(observer)),
      options_([&] {
        options.state = &state_;
        if (!observer_.is_none())
          options.observer = [this](elastic::StepEvent event, proto::Step step) {
            observe(event, step);
          };
        return std::move(options);
      }()),
      owner_(std::this_thread::get_id()) {
  session_ = value_of(blocking([&] { return elastic::Session::join(options_); }));
}

void PythonSession::observe(elastic::StepEvent event, proto::Step step) const {
  nb::gil_scoped_acquire gil;
  try {
    observer_(elastic::name_of(event), step);
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("regroup: the observer of a session");
  }
}

std::optional<elastic::StepInfo> PythonSession::next_step() {
  return value_of(blocking([&] { return session_->next_step(); }));
}

nb::object PythonSession::view_of(std::span<const std::byte> bytes, bool writable,
                                  nb::handle self) const {
  const bool wide = options_.dtype == Dtype::kFloat64;
  const nb::dlpack::dtype type = wide ? nb::dtype<double>() : nb::dtype<float>();
  const std::size_t length = bytes.size() / (wide ? sizeof(double) : sizeof(float));
  void* data = const_cast<std::byte*>(bytes.data());  // NOLINT: a read-only view refuses writes
  if (writable) return nb::cast(nb::ndarray<nb::memview>(data, 1, &length, self, nullptr, type));
  return nb::cast(nb::ndarray<nb::memview, nb::ro>(data, 1, &length, self, nullptr, type));
}

std::optional<PythonShard> PythonSession::next_shard(nb::handle self) {
  auto shard = value_of(blocking([&] { return session_->next_shard(); }));
  if (!shard) return std::nullopt;
  const bool on_host = options_.memory == elastic::Memory::kHost;
  return PythonShard{shard->leaf, std::move(shard->samples),
                     on_host ? view_of(shard->gradient, true, self) : nb::none(), shard->seed};
}

void PythonSession::fill_gradient(const std::vector<Part>& parts) {
  std::vector<elastic::GradientPart> own;
  own.reserve(parts.size());
  for (const auto& [begin, count, address, weight] : parts)
    own.push_back({begin, count, reinterpret_cast<const void*>(address), weight});
  check(blocking([&] { return session_->fill_gradient(own); }));
}

void PythonSession::change_stream(std::uintptr_t stream) {
  const Entered entered(this);
  check(session_->change_stream(reinterpret_cast<void*>(stream)));
}

void PythonSession::record_samples(const std::vector<std::uint64_t>& samples) {
  const Entered entered(this);
  check(session_->record_samples(samples));
}

std::vector<PythonSession::Planned> PythonSession::planned_shards(proto::Step step) {
  check_thread();
  std::vector<Planned> out;
  for (elastic::Shard& shard : session_->planned_shards(step))
    out.emplace_back(shard.leaf, shard.seed, std::move(shard.samples));
  return out;
}

PythonSession::Planned PythonSession::shard_of(proto::Step step, std::uint32_t leaf) const {
  check_thread();
  if (options_.samples == 0 || leaf >= session_->world().shards)
    raise(base::invalid_argument(fmt::format("shard_of: there is no shard {}", leaf)));
  elastic::Shard shard = session_->shard_of(step, leaf);
  return {shard.leaf, shard.seed, std::move(shard.samples)};
}

nb::object PythonSession::commit(nb::handle self) {
  const Entered entered(this);
  if (options_.memory == elastic::Memory::kDevice)
    raise(base::invalid_argument("commit: the sum is on a device: call commit_on_device()"));
  return view_of(value_of(session_->commit()), false, self);
}

void PythonSession::commit_into(nb::handle object) {
  const Memory out = memory_of(object, "commit_into");
  const Entered entered(this);
  if (options_.memory == elastic::Memory::kDevice)
    raise(base::invalid_argument("commit_into: the sum is on a device: call commit_on_device()"));
  const auto result = value_of(session_->commit());
  if (out.nbytes() != result.size()) {
    raise(base::invalid_argument(fmt::format("commit_into: an array of {} bytes for a result of {}",
                                             out.nbytes(), result.size())));
  }
  std::memcpy(out.data(), result.data(), result.size());
}

void PythonSession::commit_on_device() {
  check(blocking([&] { return session_->commit().status(); }));
}

nb::list PythonSession::save_targets(nb::handle self) {
  targets_ = 0;
  const auto targets = value_of(blocking([&] { return session_->save_targets(); }));
  targets_ = targets.size();
  nb::list out;
  for (const elastic::SaveTarget& target : targets) {
    const std::size_t length = target.memory.size();
    nb::ndarray<nb::memview> memory(target.memory.data(), 1, &length, self, nullptr,
                                    nb::dtype<std::uint8_t>());
    out.append(nb::make_tuple(target.name, target.begin, memory));
  }
  return out;
}

void PythonSession::saved(std::size_t target) {
  const Entered entered(this);
  if (target >= targets_)
    raise(base::invalid_argument(fmt::format(
        "saved: target {} is out of range; save_targets() returned {}", target, targets_)));
  session_->saved(target);
}

elastic::SaveCounts PythonSession::save_counts() {
  check_thread();
  return session_->save_counts();
}

void PythonSession::report_loss(double loss) {
  const Entered entered(this);
  session_->report_loss(loss);
}

int PythonSession::begin_span(const std::string& name) {
  check_thread();
  return session_->begin_span(name);
}

void PythonSession::end_span(int span) {
  check_thread();
  session_->end_span(span);
}

nb::object PythonSession::collective(const nb::object& body) {
  nb::object value = nb::none();
  const auto lend = [&](collective::Communicator& communicator) -> base::Status {
    nb::gil_scoped_acquire gil;
    SectionCommunicator* lent = new SectionCommunicator(&communicator, options_.deadline);
    nb::object object = nb::cast(lent, nb::rv_policy::take_ownership);
    base::Status status;
    try {
      value = body(object);
    } catch (...) {
      status = kept_.keep();
    }
    lent->end();
    if (!lent->failure().ok()) status = lent->failure();
    if (status.code() == base::Code::kRevoked) kept_.forget();
    broken_ = !status.ok() && status.code() != base::Code::kRevoked;
    return status;
  };
  check(blocking([&] { return session_->collective(lend); }));
  return value;
}

void PythonSession::leave_loop() {
  check(blocking([&] { return session_->leave_loop(); }));
}

void PythonSession::finish() {
  check(blocking([&] { return session_->finish(); }));
}

elastic::WorldInfo PythonSession::world() {
  check_thread();
  return session_->world();
}

proto::Step PythonSession::last_step() {
  check_thread();
  return session_->last_step();
}

std::uint64_t PythonSession::job_seed() {
  check_thread();
  return session_->job_seed();
}

}  // namespace regroup::python
