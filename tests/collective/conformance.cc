// Tests what every operation guarantees if nothing fails.
#include "tests/collective/conformance.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>

#include "base/clock.h"

namespace regroup::collective::testing {

std::string name_of_setting(const ::testing::TestParamInfo<Setting>& info) {
  return info.param.backend.name + std::to_string(info.param.ranks);
}

std::vector<Setting> sizes_of(const Backend& backend) {
  std::vector<Setting> all;
  for (int ranks : {1, 2, 3, 5, 8}) {
    if (!backend.processes || ranks % 2 == 1) all.push_back({backend, ranks});
  }
  return all;
}

std::vector<Setting> sizes_to_nine_of(const Backend& backend) {
  std::vector<Setting> all;
  for (int ranks = 1; ranks <= 9; ++ranks) all.push_back({backend, ranks});
  return all;
}

proto::World make_job_world(proto::Generation g, int ranks, const std::vector<int>& absent) {
  proto::World world;
  world.generation = g;
  for (int r = 0; r < ranks; ++r) {
    const auto slot = static_cast<proto::SlotIndex>(r);
    if (std::ranges::find(absent, r) == absent.end())
      world.members.push_back({.id = slot, .slot_id = {0, slot}});
  }
  return world;
}

Conformance::Conformance() : job_(GetParam().backend.make(GetParam().ranks)) {
  void* memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  board_ = new (memory) Board();
}

Conformance::~Conformance() { ::munmap(board_, sizeof(Board)); }

void Conformance::run(const Body& body, const std::function<void()>& agent, int may_die) {
  const auto one = [&](int rank) {
    const std::unique_ptr<TestJob> mine = processes() ? job_->in_child() : nullptr;
    ASSERT_TRUE(mine != nullptr || !processes());
    body(processes() ? *mine : *job_, rank);
  };
  run_all(processes() ? Ranks::kProcesses : Ranks::kThreads, ranks(), one, agent, may_die);
}

void Conformance::with_communicator(const std::function<void(Communicator&)>& body) {
  run([&](TestJob& job, int rank) {
    auto communicator = job.open(make_job_world(1, ranks()), rank);
    ASSERT_TRUE(communicator.ok()) << communicator.status().to_string();
    ASSERT_EQ((*communicator)->rank(), rank);
    ASSERT_EQ((*communicator)->size(), ranks());
    body(**communicator);
  });
}

namespace {

TEST_P(Conformance, ReducesEveryTypeByEveryOperation) {
  with_communicator([](Communicator& comm) {
    std::uint64_t seed = 0;
    for (Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReduceScatter}) {
      for (Dtype dtype : kDtypes) {
        for (Op op : kOperators) {
          if (!is_defined(dtype, op)) continue;
          for (std::size_t elements : {1, 7, 600}) {
            for (bool in_place : {false, true}) {
              if (!is_sampled(++seed)) continue;
              const Shape shape{kind,     dtype,   op, static_cast<int>(seed) % comm.size(),
                                elements, in_place};
              const auto status = run_checked(comm, shape, seed, soon());
              ASSERT_TRUE(status.ok()) << status.to_string();
            }
          }
        }
      }
    }
  });
}

// From no data to several chunks, at every limit between two algorithms.
TEST_P(Conformance, RunsEveryOperationAtEverySize) {
  with_communicator([](Communicator& comm) {
    std::mt19937_64 random(static_cast<std::uint64_t>(comm.rank()));
    std::uint64_t seed = 0;
    for (Kind kind : kCollectives) {
      const auto pieces = static_cast<std::size_t>(
          kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kBroadcast
              ? 1
              : comm.size());
      for (std::size_t bytes : {0, 4, 8, 56, 60, 64, 4096, 16'388, 131'072, 131'076, 300'004}) {
        for (bool in_place : {false, true}) {
          if (!is_sampled(++seed)) continue;
          const Dtype dtype = bytes % 8 == 0 ? Dtype::kInt64 : Dtype::kFloat32;
          const std::size_t elements =
              bytes > 20'000 ? bytes / size_of(dtype) / pieces : bytes / size_of(dtype);
          const Shape shape{kind,     dtype,   Op::kSum, static_cast<int>(seed) % comm.size(),
                            elements, in_place};
          dawdle(random);
          const auto status = run_checked(comm, shape, seed, soon());
          ASSERT_TRUE(status.ok()) << status.to_string();
        }
      }
    }
  });
}

// Any operations in sequence, each rank at its own speed: nothing is overwritten that is still
// read.
TEST_P(Conformance, RunsRandomSequencesOfOperations) {
  with_communicator([](Communicator& comm) {
    std::mt19937_64 random(static_cast<std::uint64_t>(comm.rank()));
    std::mt19937_64 common(7);
    for (std::uint64_t k = 0; k < rounds(100); ++k) {
      const Kind kind = kCollectives[common() % std::size(kCollectives)];
      const Dtype dtype = kDtypes[common() % std::size(kDtypes)];
      const std::size_t elements = common() % (common() % 8 == 0 ? 40'000 : 300);
      const int root = static_cast<int>(common() % static_cast<std::uint64_t>(comm.size()));
      dawdle(random);
      const auto status =
          run_checked(comm, {kind, dtype, Op::kSum, root, elements, k % 2 == 0}, k, soon());
      ASSERT_TRUE(status.ok()) << k << ": " << status.to_string();
    }
  });
}

TEST_P(Conformance, CompletesStartedOperationsInAnyOrderOfWaiting) {
  with_communicator([](Communicator& comm) {
    std::mt19937_64 random(static_cast<std::uint64_t>(comm.rank()));
    std::vector<Exchange> exchanges;
    std::vector<Request> requests;
    for (std::uint64_t k = 0; k < 20; ++k) {
      const Shape shape{kCollectives[k % std::size(kCollectives)], Dtype::kInt32, Op::kMax, 0,
                        k * 900};
      exchanges.emplace_back(shape, comm.rank(), comm.size(), k);
    }
    for (const Exchange& exchange : exchanges) {
      dawdle(random);
      auto request = comm.start(exchange.operation(), soon());
      ASSERT_TRUE(request.ok()) << request.status().to_string();
      requests.push_back(*request);
    }
    auto done = requests[4].test();
    for (; done.ok() && !*done; done = requests[4].test()) dawdle(random);
    ASSERT_TRUE(done.ok()) << done.status().to_string();
    for (std::size_t k = requests.size(); k-- > 0;) {
      const auto status = requests[k].wait();
      ASSERT_TRUE(status.ok()) << status.to_string();
      ASSERT_EQ(exchanges[k].verify(), "");
    }
    ASSERT_TRUE(comm.barrier(soon()).ok());
  });
}

// Every rank sends to every rank at once, messages of every size, and receives in another order.
TEST_P(Conformance, PassesMessagesBetweenAllPairs) {
  with_communicator([](Communicator& comm) {
    const auto data = [&](int from, int to, std::size_t k) {
      const std::size_t sizes[] = {0, 1, 4000, 45'056, 45'057, 200'000};
      return make_leaf(Dtype::kUint8, sizes[(k * 3 + static_cast<std::size_t>(from)) % 6],
                       static_cast<std::uint64_t>(from * 100 + to) * 100 + k);
    };
    constexpr std::size_t kMessages = 3;
    std::vector<Bytes> memory;
    std::vector<Request> requests;
    memory.reserve(1000);
    const auto start = [&](const Operation& operation) {
      auto request = comm.start(operation, soon());
      EXPECT_TRUE(request.ok()) << request.status().to_string();
      if (request.ok()) requests.push_back(*request);
    };
    for (std::size_t k = 0; k < kMessages; ++k) {
      for (int peer = 0; peer < comm.size(); ++peer) {
        if (peer == comm.rank()) continue;
        memory.push_back(data(comm.rank(), peer, k));
        start(Operation::send(memory.back(), peer));
      }
    }
    std::vector<std::pair<std::size_t, Bytes>> wanted;
    for (int peer = comm.size() - 1; peer >= 0; --peer) {
      for (std::size_t k = 0; k < kMessages && peer != comm.rank(); ++k) {
        wanted.emplace_back(memory.size(), data(peer, comm.rank(), k));
        memory.emplace_back(wanted.back().second.size());
        start(Operation::receive(memory.back(), peer));
      }
    }
    ASSERT_EQ(run_checked(comm, {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, 50'000}, 3, soon())
                  .to_string(),
              "ok");  // concurrently
    for (Request& request : requests) ASSERT_EQ(request.wait().to_string(), "ok");
    for (const auto& [index, bytes] : wanted) ASSERT_EQ(memory[index], bytes);
  });
}

// Rows and columns of a grid, groups of groups, again and again: channels come back.
TEST_P(Conformance, RunsGroupsConcurrently) {
  with_communicator([](Communicator& comm) {
    std::mt19937_64 random(static_cast<std::uint64_t>(comm.rank()));
    for (std::uint64_t round = 0; round < rounds(12); ++round) {
      auto row = comm.split(comm.rank() / 2, soon());
      auto column = comm.split(comm.rank() % 2, soon());
      auto few = comm.split(comm.rank() < 3 ? 0 : -1, soon());
      ASSERT_TRUE(row.ok() && column.ok() && few.ok());
      ASSERT_EQ((*row)->size(), std::min(2, comm.size() - comm.rank() / 2 * 2));
      ASSERT_EQ(*few != nullptr, comm.rank() < 3);
      auto again = (*column)->split(-(*column)->rank(), soon());  // the first of each column, alone
      ASSERT_TRUE(again.ok());
      ASSERT_EQ(*again != nullptr, (*column)->rank() == 0);
      for (std::uint64_t k = 0; k < 4; ++k) {
        const Kind kind = kCollectives[(round + k) % std::size(kCollectives)];
        const Shape shape{kind, Dtype::kInt16, Op::kSum, 0,
                          (round * 7919 + k * 31) % (k == 0 ? 40'000 : 400)};
        for (Communicator* one : {&**row, &**column, few->get(), &comm, again->get()}) {
          if (one == nullptr) continue;
          dawdle(random);
          const auto status = run_checked(*one, shape, round + k, soon());
          ASSERT_TRUE(status.ok()) << status.to_string();
        }
      }
    }
  });
}

// "S" of "... after S s in generation G".
double seconds_told(const std::string& message) {
  const std::size_t at = message.rfind(" after ");
  double seconds = -1;
  if (at != std::string::npos)
    std::from_chars(message.data() + at + 7, message.data() + message.size(), seconds);
  return seconds;
}

// A rank that only polls now and then also learns it: what it waited for, and how long since the
// start.
TEST_P(Conformance, ALateHandleNamesTheMissingRanksAndItsStart) {
  if (ranks() == 1) GTEST_SKIP() << "nobody can be missing";
  for (const bool message : {false, true}) {
    SCOPED_TRACE(message ? "receive" : "allreduce");
    job_ = GetParam().backend.make(ranks());
    board_->through = 0;
    with_communicator([&](Communicator& comm) {
      ASSERT_TRUE(comm.barrier(soon()).ok());
      const int late = comm.size() - 1;
      if (comm.rank() == 0) {
        constexpr std::chrono::milliseconds kTimeout{30};
        Bytes data(1000);
        const auto seconds = [](base::Duration time) {
          return std::chrono::duration<double>(time).count();
        };
        const base::TimePoint begin = base::SystemClock().now();
        auto request = comm.start(message ? Operation::receive(data, late)
                                          : Operation::allreduce(data, data, Dtype::kUint8),
                                  begin + kTimeout);
        const base::TimePoint started = base::SystemClock().now();
        ASSERT_TRUE(request.ok()) << request.status().to_string();
        auto done = request->test();
        while (done.ok() && !*done) done = request->test();
        const base::TimePoint end = base::SystemClock().now();
        EXPECT_GE(end - begin, kTimeout);
        EXPECT_EQ(done.code(), base::Code::kDeadlineExceeded) << done.status().to_string();
        const std::string& why = done.status().message();
        const std::string who = fmt::format(
            "rank [^a-z]*{}( of {} did not arrive| did not send) after", late, comm.size());
        EXPECT_THAT(why, ::testing::ContainsRegex(who));
        EXPECT_GE(seconds_told(why), seconds(begin + kTimeout - started) - 0.001) << why;
        EXPECT_LE(seconds_told(why), seconds(end - begin) + 0.001) << why;
        board_->through = 1;
      }
      EXPECT_TRUE(eventually([&] { return board_->through == 1; }));
    });
  }
}

TEST_P(Conformance, RefusesInvalidArgumentsAndContinues) {
  with_communicator([](Communicator& comm) {
    Bytes six(6);
    Bytes eight(8 * static_cast<std::size_t>(comm.size()));
    const auto why = [&](const Operation& operation) {
      const auto request = comm.start(operation, soon());
      EXPECT_EQ(request.code(), base::Code::kInvalidArgument);
      return request.status().message();
    };
    EXPECT_EQ(why(Operation::allreduce(six, six, Dtype::kFloat32)),
              "allreduce: 6 bytes are not whole elements of 4 bytes");
    EXPECT_EQ(why(Operation::allreduce(eight, eight, Dtype::kBfloat16, Op::kBor)),
              "allreduce: bor of bfloat16: bit operations are for integers");
    EXPECT_EQ(why(Operation::broadcast(six, -1)),
              "broadcast: root -1 of " + std::to_string(comm.size()) + " ranks");
    EXPECT_NE(why(Operation::gather(six, {}, comm.size())), "");
    EXPECT_NE(why(Operation::send(six, comm.rank())), "");
    EXPECT_NE(why(Operation::receive(six, comm.size())), "");
    EXPECT_NE(why(Operation::allgather(six, std::span(six).first(5))), "");
    const std::span<std::byte> all(eight);
    EXPECT_EQ(why(Operation::allreduce(all.first(7), all.subspan(1, 7), Dtype::kUint8)),
              "allreduce: the input and the output overlap without being in place");
    ASSERT_TRUE(comm.barrier(soon()).ok());
  });
}

}  // namespace
}  // namespace regroup::collective::testing
