// Parameter server: tables in the memory of a host, which processes of the host push to and pull
// from. A server process applies pushes; it may be killed at any instruction, and the next one goes
// on with the same memory: an acknowledged push is never lost, and none is applied twice.
//
//   auto client = regroup::ps::Client::attach({.memory = memory, .client = 3}).value();
//   auto users = client->open({.name = "users", .kind = regroup::ps::TableKind::kHash, .dim = 64,
//                              .optimizer = {regroup::ps::OptimizerKind::kSgd}}).value();
//   auto status = client->pull(users, ids, rows);                      // ids.size() * 64 floats
//   auto pushed = client->push(users, ids, gradients, {.lr = 0.05});   // in the background
//   status = client->flush();                                          // all pushes are applied
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "regroup/operation.h"
#include "regroup/status.h"

namespace regroup::collective::ps {

// What a table holds.
enum class TableKind : std::uint8_t {
  kDense,   // a tensor; a position is an element
  kDirect,  // rows 0 to rows - 1; a position is an id
  kHash,    // rows of any 64-bit id; a position is a mix of its bits
};
// How the server applies gradients.
enum class OptimizerKind : std::uint8_t {
  kSum,
  kAssign,
  kSgd,
  kMomentum,
  kAdagrad,
  kRowAdagrad,  // one accumulator per row: the mean of the squared gradients
  kAdam,
  kLazyAdam,  // Adam of the rows that get a gradient; a row's step is the number of its updates
  kFtrl,
};
// How rows begin.
enum class InitialKind : std::uint8_t { kZeros, kConstant, kUniform, kNormal };

// The initial values of rows: a pure function of the job's seed, the table's name and the position.
struct Initializer {
  InitialKind kind = InitialKind::kZeros;
  double first = 0;   // constant: the value; uniform: lowest value; normal: mean
  double second = 0;  // uniform: highest value; normal: standard deviation
  bool operator==(const Initializer&) const = default;
};

// Hyperparameters under the names of torch.optim; learning rates are in Scalars.
struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kSum;
  double momentum = 0;  // of kMomentum
  double beta1 = 0.9;   // of kAdam, kLazyAdam
  double beta2 = 0.999;
  double epsilon = 1e-8;    // of kAdagrad, kRowAdagrad, kAdam, kLazyAdam
  double weight_decay = 0;  // of kSgd, kMomentum, kAdam, kLazyAdam; added to the gradient
  double l1 = 0;            // of kFtrl, as l2 and beta
  double l2 = 0;
  double beta = 0;
  bool operator==(const OptimizerSpec&) const = default;
};

// What a push carries in addition to gradients.
struct Scalars {
  double lr = 0;  // sum and assign ignore it
  bool operator==(const Scalars&) const = default;
};

// Which part of a table a store has where several stores share it.
struct TablePart {
  std::uint32_t number = 0;  // the store, 0 to of - 1
  std::uint32_t of = 1;      // stores
  std::uint32_t shards = 0;  // of all stores together; 0: it is a whole table
  // Stores that have each range: its own store, and as many of the next ones in turn.
  std::uint32_t replicas = 1;
  bool operator==(const TablePart&) const = default;
};

// A table. All processes that open it must pass an equal one.
struct TableSpec {
  std::string name;  // [A-Za-z0-9_./-], 1 to 200 bytes
  TableKind kind = TableKind::kDense;
  std::uint64_t rows = 0;  // dense: elements; direct: number of ids; hash: 0
  std::uint32_t dim = 1;   // elements of a row; dense: 1
  Dtype dtype = Dtype::kFloat32;
  Initializer init;
  OptimizerSpec optimizer;
  std::uint32_t evict_after = 0;  // must be 0: rows are never forgotten yet
  TablePart part = {};            // must be a whole table: a Client of several stores cuts it
  bool operator==(const TableSpec&) const = default;

  [[nodiscard]] std::size_t value_bytes() const { return dim * size_of(dtype); }  // of a row
  // The type in which the optimizer computes and gradients come: float32 for 16-bit tables.
  [[nodiscard]] Dtype compute_dtype() const;
  // Bytes of the optimizer's state of a row; it begins as zeros.
  [[nodiscard]] std::size_t state_bytes() const;
};

// What a pull may lack of others' pushes.
enum class Mode : std::uint8_t {
  kAsync,  // nobody waits for another client
  kSsp,    // stale synchronous parallel: a bound on how far clients are apart
  kSync,   // bulk synchronous: all pushes of a step are applied as one sum, in a fixed order
};
// The mode of a client. All clients of a job that are attached at a time have the same.
struct Consistency {
  Mode mode = Mode::kAsync;
  // Of kSsp, which needs it: the most clocks that a client may be ahead of the slowest one; 0 or
  // more.
  std::optional<std::int64_t> staleness;
  // Of kSync, which needs it: leaves of a step, 1 to 1024.
  std::optional<std::int64_t> leaves;
  bool operator==(const Consistency&) const = default;
};

// For Client::attach().
struct ClientOptions {
  // Descriptors of the server's memory in this process, as the agent, or make_server_memory(),
  // hands them over: "LANES:SEGMENT,SEGMENT..." for each shard, separated by semicolons. On another
  // host: where the agent of the servers' host takes connections, as Gateway::address() writes it.
  std::string memory;
  // Of this process; no two living ones may have the same. On another host the agent chooses it.
  std::uint64_t client = 0;
  // Of a single wait: of open(), for room for a push, of flush(), for an attachable lane, and of a
  // pull for another client's clock.
  std::chrono::nanoseconds deadline = std::chrono::seconds(600);
  Consistency consistency;
  std::string name;  // for messages: "worker 2"; at most 63 bytes of it; empty: the number
};

// A table that a Client has opened; valid for this Client only.
struct Table {
  std::uint32_t number = 0;
};
// A push that a Client has begun.
struct Ticket {
  std::uint64_t number = 0;
};
// Mode sync: a piece of a step, which any client may compute. Its gradients must be a pure function
// of `step`, `number` and the tables.
struct Leaf {
  std::uint64_t step = 0;
  std::uint32_t number = 0;  // below Consistency::leaves
  bool operator==(const Leaf&) const = default;
};

// A process's access to the parameter server, of its host, of another one, or of several. All
// functions may be called by any thread; on another host than the servers', and with servers on
// several hosts, one call runs at a time, and the others wait for it. After fork() the child may
// destroy it, and must not use it otherwise: it has no lane.
//
// Consistency in mode async: a pull has all pushes of this client that are acknowledged, that is
// whose wait() or flush() has succeeded, perhaps more, and never older rows than an earlier pull.
//
// In mode ssp with staleness s the client's clock is the number of its completed turns, which
// advance() counts. A pull at clock c has all pushes of turns 0 to c - s - 1 of every other living
// client, all own pushes that have begun, and perhaps newer ones. It waits for the latter, and
// while the clock of another client is below c - s. A client that attaches begins at the highest
// clock of those that live. A Client that is destroyed holds up nobody. One whose process has ended
// without that holds up the others until a server has found it ended: about 100 ms while the server
// of shard 0 lives. One that is stopped, or is busy with something else, holds them up.
//
// In mode sync the clients compute the leaves of one step after the other, in the loop
//
//   for (std::optional<Leaf> leaf; leaf = *client->next_leaf();) { pull; push; }
//
// for each step. A pull of a leaf of step c has exactly c steps, in all tables: the pushes of all
// leaves of a step are added up in the order of the leaves, along one tree, and applied once. So
// the tables after c steps have the same bits whatever the number of clients and servers is, and
// whichever of them are killed: what a client has not finished others compute again. A client that
// is slow, or was stopped, is helped in the same way. The step may then be over before it has
// pushed its leaf: its pulls may have later steps, and its pushes of that leaf count for nothing.
//
// A range is a part of a table. A push is applied once or not at all in each range: one that is
// not acknowledged, since it failed or its process ended, may have reached some ranges only. A
// large push to one range is several messages, for each of which the same holds.
//
// Errors, in addition to those named at the calls: kInvalidArgument: the input is wrong, nothing
// was changed. kDeadlineExceeded: the server did not answer in time; the message names the table
// and the server; what is in the lane stays there and counts once a server reads it: the whole
// push after wait() and flush(), perhaps a part of it after push(). kDataLoss: the memory is not
// that of a server, or the server found this client's lane damaged; attach again. On another host
// also kPeerLost: the connection to the servers' host, which the message names, is broken, and
// stays so. Each push that is not acknowledged is then applied once or not at all in each range.
// With servers on several hosts messages name the store and its host, and calls that need no range
// of a lost host go on.
class Client {
 public:
  // Takes a lane, which is given back when the Client is destroyed or the process ends. Starts a
  // thread, which sleeps. kInvalidArgument: another living process has this client number, or is
  // attached in another mode.
  // kResourceExhausted: all lanes are taken until the deadline. kUnavailable: nobody takes
  // connections on the servers' host. Does not need a server.
  [[nodiscard]] static base::Result<std::unique_ptr<Client>> attach(const ClientOptions& options);
  // The same at several stores, each with servers and memory of its own, on a host of its own, in
  // the order of their numbers. Each has a part of each table. `deadline` and `consistency` are
  // those of the first. A process that opens a table with another list, in another order, or with
  // another number of replicas, is refused by open(). `replicas`: stores that have each range, 1 to
  // their number. With 2 or more, calls go on while a replica of each range lives that they need:
  // one that cannot reach a store waits until the launcher says that the store is lost, and
  // attach() skips such stores. A push is acknowledged once all living replicas have it.
  [[nodiscard]] static base::Result<std::unique_ptr<Client>> attach(
      std::span<const ClientOptions> stores, std::uint32_t replicas = 1);
  // Pushes that have begun are still applied. Does not wait; on another host it waits until the
  // servers' host has all pushes, for at most 10 s.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Makes the table, or finds it. kInvalidArgument: `spec` is wrong, or another process has opened
  // the table with another one. kResourceExhausted: the store has no memory left. Blocks until the
  // server has answered.
  [[nodiscard]] base::Result<Table> open(const TableSpec& spec);
  // The spec with which `table` was opened. `table` is one of this Client.
  [[nodiscard]] const TableSpec& spec_of(Table table) const;

  // Pushes gradients of rows: `gradients` has a row of `dim` elements of compute_dtype() for each
  // id; ids are unique. The bytes are taken over before it returns. Blocks while the lane is full.
  [[nodiscard]] base::Result<Ticket> push(Table table, std::span<const std::int64_t> ids,
                                          Input gradients, const Scalars& scalars = {});
  // Pushes gradients of a whole dense table: `rows` elements of compute_dtype().
  [[nodiscard]] base::Result<Ticket> push(Table table, Input gradients,
                                          const Scalars& scalars = {});
  // Waits until a push is applied or refused, at most `at_most`, and returns its error once.
  // kResourceExhausted: the store has no memory left; parts of the push may be applied. After
  // kDeadlineExceeded it may be called again.
  [[nodiscard]] base::Status wait(Ticket ticket, std::chrono::nanoseconds at_most);
  // Waits until all pushes so far are applied or refused. Returns the first error that no wait() or
  // flush() has returned. In mode sync a push is acknowledged, here and by wait(), when a server
  // has taken it, and it is applied with its step.
  [[nodiscard]] base::Status flush();

  // Turns of this client that are completed; in mode ssp those of clients before it count, too. In
  // mode sync: steps.
  [[nodiscard]] std::uint64_t clock() const;
  // Ends a turn and returns the clock. In mode ssp it waits first, until all pushes so far are
  // applied or refused: an error of flush() is returned, and the clock is not counted. With servers
  // on several hosts some may have counted it after kDeadlineExceeded: call it again before the
  // next push. In mode async it waits for nothing. Pushes that other threads begin meanwhile may
  // belong to the next turn. Not in mode sync, where next_leaf() counts.
  [[nodiscard]] base::Result<std::uint64_t> advance();

  // Mode sync: ends the leaf that this client has begun, and begins another one, of step clock().
  // Nothing: the step is complete and applied in all tables; clock() is the next step then, or a
  // later one if others have gone on. An error of a push of the leaf is returned; the client then
  // begins the leaf again. Blocks while all leaves are in other clients' hands: after one and a
  // half times the time of its last leaf it begins one of theirs. kResourceExhausted: a shard has
  // no memory for the step, or no room for it in its log. One thread at a time.
  [[nodiscard]] base::Result<std::optional<Leaf>> next_leaf();

  // Copies the rows of `ids` to `rows`, `dim` elements of the table's dtype each, from the memory
  // of the store, without the server. Ids may repeat. A row that nobody has pushed has its initial
  // value, and none is made. Each row is of one moment. In mode ssp it blocks, as described above.
  // kUnavailable: rows change faster than they can be copied, or lie in memory that is not mapped
  // here. kDeadlineExceeded names the client that it waits for; it may be called again.
  [[nodiscard]] base::Status pull(Table table, std::span<const std::int64_t> ids,
                                  Output rows) const;
  // Copies a whole dense table: `rows` elements of the table's dtype. Each 4 MiB is of one moment.
  [[nodiscard]] base::Status pull(Table table, Output values) const;

  class Backend;       // what a Client does its calls with
  class StoreBackend;  // of servers on one host
  class Impl;          // on that host
  class Remote;        // on another one
  class Partitioned;   // of servers on several hosts

 private:
  explicit Client(std::unique_ptr<Backend> backend);
  std::unique_ptr<Backend> impl_;
};

}  // namespace regroup::collective::ps

namespace regroup::ps {

using collective::ps::Client, collective::ps::ClientOptions, collective::ps::Consistency,
    collective::ps::InitialKind, collective::ps::Initializer, collective::ps::Leaf,
    collective::ps::Mode, collective::ps::OptimizerKind, collective::ps::OptimizerSpec,
    collective::ps::Scalars, collective::ps::Table, collective::ps::TableKind,
    collective::ps::TableSpec, collective::ps::Ticket;

// Attaches this process to the parameter servers of its job, which are started by, for example,
// `regroup --role ps=1 --role worker=4 --ps-memory 1G PROGRAM`. Each call gives another client.
// kInvalidArgument: the job has none. kUnavailable, kNotFound, kPeerLost: the job has ended. Blocks
// for at most `deadline`, which is also ClientOptions::deadline. Other errors as Client::attach().
[[nodiscard]] base::Result<std::unique_ptr<Client>> join(
    std::chrono::nanoseconds deadline = std::chrono::seconds(600));
[[nodiscard]] base::Result<std::unique_ptr<Client>> join(
    const Consistency& consistency, std::chrono::nanoseconds deadline = std::chrono::seconds(600));

}  // namespace regroup::ps
