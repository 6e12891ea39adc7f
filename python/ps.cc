// regroup._native.PsClient: regroup::ps::Client, call by call, for any memory on the CPU.
#include "python/ps.h"

#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "collective/ps/consistency.h"
#include "collective/ps/handover.h"
#include "collective/ps/table.h"
#include "python/errors.h"
#include "python/state.h"
#include "regroup/ps.h"

namespace regroup::python {
namespace {

using namespace nb::literals;
using collective::Dtype;

std::chrono::nanoseconds nanoseconds_of(double seconds) {
  constexpr double kMost = 1e9;  // about 30 years
  return std::chrono::nanoseconds(
      static_cast<std::int64_t>((seconds > 0 ? std::min(seconds, kMost) : 0) * 1e9));
}

// The name of memory's element type, as our dtypes have it. Type codes are DLDataTypeCode's.
std::string name_of(const nb::dlpack::dtype& type) {
  constexpr std::pair<int, const char*> kNames[] = {
      {0, "int"}, {1, "uint"}, {2, "float"}, {4, "bfloat"}};
  for (const auto& [code, name] : kNames) {
    if (type.code == code && type.lanes == 1) return fmt::format("{}{}", name, int{type.bits});
  }
  return "another type";
}
std::optional<Dtype> dtype_of(const std::string& name) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64, Dtype::kInt32, Dtype::kInt64,
                            Dtype::kFloat16, Dtype::kBfloat16}) {
    if (name == collective::name_of(dtype)) return dtype;
  }
  return std::nullopt;
}

template <class Enum>
Enum named(const char* what, const std::string& name, Enum last) {
  std::string known;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const char* const one = collective::ps::name_of(static_cast<Enum>(i));
    if (name == one) return static_cast<Enum>(i);
    known += fmt::format("{}{}", i == 0 ? "" : ", ", one);
  }
  raise(base::invalid_argument(fmt::format("{}: expected one of {}, got {:?}", what, known, name)));
}

void check_type(const char* call, const std::string& table, const char* what,
                const ReadMemory& memory, Dtype expected) {
  const std::string got = name_of(memory.dtype());
  if (got == collective::name_of(expected)) return;
  raise(base::invalid_argument(fmt::format("{} table {}: expected {} of {}, got {}", call, table,
                                           what, collective::name_of(expected), got)));
}

ps::Consistency consistency_of(const std::string& mode, std::optional<std::int64_t> staleness,
                               std::optional<std::int64_t> leaves) {
  return {value_of(collective::ps::mode_of(mode)), staleness, leaves};
}

class PsMemory {
 public:
  PsMemory(std::uint64_t bytes, std::uint32_t shards, std::uint64_t seed) {
    auto spec = collective::ps::cut_into_segments(bytes / std::max(shards, 1U), shards);
    spec.job_seed = seed;
    memory_ = value_of(collective::ps::make_server_memory(spec));
  }
  PsMemory(const PsMemory&) = delete;
  PsMemory& operator=(const PsMemory&) = delete;

  [[nodiscard]] std::string text() const { return collective::ps::to_text(memory_.get()); }
  [[nodiscard]] std::vector<int> descriptors() const {
    std::vector<int> out;
    for (const auto& shard : memory_.get().shards) {
      out.push_back(shard.lanes);
      out.insert(out.end(), shard.segments.begin(), shard.segments.end());
    }
    return out;
  }

 private:
  collective::ps::OwnedServerMemory memory_;
};

class PsClient {
 public:
  PsClient(const std::string& memory, std::uint64_t client, double deadline,
           const std::string& mode, std::optional<std::int64_t> staleness,
           std::optional<std::int64_t> leaves) {
    const ps::Consistency consistency = consistency_of(mode, staleness, leaves);
    base::Result<std::unique_ptr<ps::Client>> attached = [&] {
      const nb::gil_scoped_release released;
      return ps::Client::attach({.memory = memory,
                                 .client = client,
                                 .deadline = nanoseconds_of(deadline),
                                 .consistency = consistency});
    }();
    client_ = value_of(std::move(attached));
  }
  PsClient(double deadline, const std::string& mode, std::optional<std::int64_t> staleness,
           std::optional<std::int64_t> leaves) {
    const ps::Consistency consistency = consistency_of(mode, staleness, leaves);
    base::Result<std::unique_ptr<ps::Client>> joined = [&] {
      const nb::gil_scoped_release released;
      return ps::join(consistency, nanoseconds_of(deadline));
    }();
    client_ = value_of(std::move(joined));
  }

  std::uint32_t open(const std::string& name, const std::string& kind, std::uint64_t rows,
                     std::uint32_t dim, const std::string& dtype,
                     const std::tuple<std::string, double, double>& init,
                     const std::string& optimizer, const std::map<std::string, double>& options) {
    ps::TableSpec spec{.name = name, .rows = rows, .dim = dim};
    spec.kind = named("table kind", kind, ps::TableKind::kHash);
    const auto type = dtype_of(dtype);
    if (!type) raise(base::invalid_argument("table " + name + ": unknown dtype " + dtype));
    spec.dtype = *type;
    spec.init = {named("initializer", std::get<0>(init), ps::InitialKind::kNormal),
                 std::get<1>(init), std::get<2>(init)};
    spec.optimizer.kind = value_of(collective::ps::optimizer_of(optimizer));
    const std::pair<const char*, double ps::OptimizerSpec::*> kFields[] = {
        {"momentum", &ps::OptimizerSpec::momentum},
        {"beta1", &ps::OptimizerSpec::beta1},
        {"beta2", &ps::OptimizerSpec::beta2},
        {"epsilon", &ps::OptimizerSpec::epsilon},
        {"weight_decay", &ps::OptimizerSpec::weight_decay},
        {"l1", &ps::OptimizerSpec::l1},
        {"l2", &ps::OptimizerSpec::l2},
        {"beta", &ps::OptimizerSpec::beta}};
    for (const auto& [field, member] : kFields) {
      if (const auto found = options.find(field); found != options.end())
        spec.optimizer.*member = found->second;
    }
    const auto client = opened_client();
    base::Result<ps::Table> opened = [&] {
      const nb::gil_scoped_release released;
      return client->open(spec);
    }();
    return value_of(std::move(opened)).number;
  }

  std::uint64_t push(std::uint32_t table, const ReadMemory& ids, const ReadMemory& gradients,
                     double lr) {
    const auto client = opened_client();
    const ps::TableSpec& spec = client->spec_of({table});
    check_type("push to", spec.name, "ids", ids, Dtype::kInt64);
    check_type("push to", spec.name, "gradients", gradients, spec.compute_dtype());
    base::Result<ps::Ticket> pushed = [&] {
      const nb::gil_scoped_release released;
      return client->push({table}, ids_of(ids), bytes_of(gradients), {.lr = lr});
    }();
    return value_of(std::move(pushed)).number;
  }
  std::uint64_t push_dense(std::uint32_t table, const ReadMemory& gradients, double lr) {
    const auto client = opened_client();
    const ps::TableSpec& spec = client->spec_of({table});
    check_type("push to", spec.name, "gradients", gradients, spec.compute_dtype());
    base::Result<ps::Ticket> pushed = [&] {
      const nb::gil_scoped_release released;
      return client->push({table}, bytes_of(gradients), {.lr = lr});
    }();
    return value_of(std::move(pushed)).number;
  }
  void wait(std::uint64_t ticket, double seconds) {
    const auto client = opened_client();
    const base::Status status = [&] {
      const nb::gil_scoped_release released;
      return client->wait({ticket}, nanoseconds_of(seconds));
    }();
    check(status);
  }
  void flush() {
    const auto client = opened_client();
    const base::Status status = [&] {
      const nb::gil_scoped_release released;
      return client->flush();
    }();
    check(status);
  }
  [[nodiscard]] std::uint64_t clock() const { return opened_client()->clock(); }
  std::uint64_t advance() {
    const auto client = opened_client();
    const base::Result<std::uint64_t> clock = [&] {
      const nb::gil_scoped_release released;
      return client->advance();
    }();
    return value_of(clock);
  }
  // The number of the next leaf of step clock(); nothing: the step is complete.
  std::optional<std::uint32_t> next_leaf() {
    const auto client = opened_client();
    const base::Result<std::optional<ps::Leaf>> leaf = [&] {
      const nb::gil_scoped_release released;
      return client->next_leaf();
    }();
    const std::optional<ps::Leaf> next = value_of(leaf);
    return next ? std::optional(next->number) : std::nullopt;
  }
  void pull(std::uint32_t table, const ReadMemory& ids, nb::handle out) const {
    const auto client = opened_client();
    const ps::TableSpec& spec = client->spec_of({table});
    check_type("pull of", spec.name, "ids", ids, Dtype::kInt64);
    const Memory rows = memory_of(out, "pull");
    check_type("pull of", spec.name, "memory", ReadMemory(rows), spec.dtype);
    const base::Status status = [&] {
      const nb::gil_scoped_release released;
      return client->pull({table}, ids_of(ids),
                          {static_cast<std::byte*>(rows.data()), rows.nbytes()});
    }();
    check(status);
  }
  void pull_dense(std::uint32_t table, nb::handle out) const {
    const auto client = opened_client();
    const ps::TableSpec& spec = client->spec_of({table});
    const Memory values = memory_of(out, "pull");
    check_type("pull of", spec.name, "memory", ReadMemory(values), spec.dtype);
    const base::Status status = [&] {
      const nb::gil_scoped_release released;
      return client->pull({table}, {static_cast<std::byte*>(values.data()), values.nbytes()});
    }();
    check(status);
  }
  // Gives the lane back, once calls of other threads have returned. Later calls are refused.
  void close() {
    std::shared_ptr<ps::Client> client = std::move(client_);
    const nb::gil_scoped_release released;
    client.reset();
  }

 private:
  // A call keeps the client while another thread closes it.
  [[nodiscard]] std::shared_ptr<ps::Client> opened_client() const {
    if (client_ == nullptr) raise(base::invalid_argument("ps: this client is closed"));
    return client_;
  }
  static std::span<const std::int64_t> ids_of(const ReadMemory& ids) {
    return {static_cast<const std::int64_t*>(ids.data()), ids.size()};
  }
  static std::span<const std::byte> bytes_of(const ReadMemory& memory) {
    return {static_cast<const std::byte*>(memory.data()), memory.nbytes()};
  }

  std::shared_ptr<ps::Client> client_;  // null: closed
};

}  // namespace

void bind_ps(nb::module_& module) {
  nb::class_<PsMemory>(module, "PsMemory")
      .def(nb::init<std::uint64_t, std::uint32_t, std::uint64_t>(), "bytes"_a, "shards"_a = 1,
           "seed"_a = 0)
      .def_prop_ro("text", &PsMemory::text)
      .def_prop_ro("descriptors", &PsMemory::descriptors);
  nb::class_<PsClient>(module, "PsClient")
      .def(nb::init<const std::string&, std::uint64_t, double, const std::string&,
                    std::optional<std::int64_t>, std::optional<std::int64_t>>(),
           "memory"_a, "client"_a, "deadline"_a = 600.0, "mode"_a = "async",
           "staleness"_a = nb::none(), "leaves"_a = nb::none())
      .def("open", &PsClient::open, "name"_a, "kind"_a, "rows"_a, "dim"_a, "dtype"_a, "init"_a,
           "optimizer"_a, "options"_a)
      .def("push", &PsClient::push, "table"_a, "ids"_a, "gradients"_a, "lr"_a)
      .def("push_dense", &PsClient::push_dense, "table"_a, "gradients"_a, "lr"_a)
      .def("wait", &PsClient::wait, "ticket"_a, "seconds"_a)
      .def("flush", &PsClient::flush)
      .def("close", &PsClient::close)
      .def("clock", &PsClient::clock)
      .def("advance", &PsClient::advance)
      .def("next_leaf", &PsClient::next_leaf)
      .def("pull", &PsClient::pull, "table"_a, "ids"_a, "out"_a)
      .def("pull_dense", &PsClient::pull_dense, "table"_a, "out"_a);
  module.def(
      "ps_join",
      [](double deadline, const std::string& mode, std::optional<std::int64_t> staleness,
         std::optional<std::int64_t> leaves) {
        return std::make_unique<PsClient>(deadline, mode, staleness, leaves);
      },
      "deadline"_a = 600.0, "mode"_a = "async", "staleness"_a = nb::none(),
      "leaves"_a = nb::none());
}

}  // namespace regroup::python
