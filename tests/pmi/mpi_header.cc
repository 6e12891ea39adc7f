// Runs operations of regroup/mpi.h and checks each by what its definition says; prints one line per
// rank. usage: mpi_header [late | mismatch | early]
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "regroup/mpi.h"

namespace {

using regroup::Dtype;
using regroup::Operation;
using regroup::Status;
using Clock = std::chrono::steady_clock;

int failed = 0;

void expect(bool holds, const char* what, const Status& status = {}) {
  if (holds) return;
  ++failed;
  std::printf("FAILED: %s %s\n", what, status.to_string().c_str());
}

template <class T>
auto bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

void run_all(regroup::Communicator& comm) {
  const auto deadline = Clock::now() + std::chrono::seconds(120);
  const int ranks = comm.size();
  const int rank = comm.rank();
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{3'000'001}}) {
    std::vector<std::int64_t> data(count, rank + 1);
    const Status status = comm.allreduce(bytes_of(data), bytes_of(data), Dtype::kInt64, deadline);
    const std::int64_t want = ranks * (ranks + 1) / 2;
    expect(status.ok() && data.front() == want && data.back() == want, "allreduce", status);
  }
  std::vector<int> one{rank};
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::vector<int> want(all.size());
  std::iota(want.begin(), want.end(), 0);
  Status status = comm.run(Operation::allgather(bytes_of(one), bytes_of(all)), deadline);
  expect(status.ok() && all == want, "allgather", status);
  std::vector<int> turned(all.size());
  std::vector<int> mine(all.size(), rank);
  status = comm.run(Operation::alltoall(bytes_of(mine), bytes_of(turned)), deadline);
  expect(status.ok() && turned == want, "alltoall", status);
  std::vector<char> text(200'000, rank == ranks - 1 ? 'x' : ' ');
  status = comm.broadcast(bytes_of(text), ranks - 1, deadline);
  expect(status.ok() && text.back() == 'x', "broadcast", status);
  // A ring of messages.
  if (ranks > 1) {
    std::vector<int> out(50'000, rank);
    std::vector<int> in(out.size(), -1);
    const int before = (rank + ranks - 1) % ranks;
    auto sent = comm.start(Operation::send(bytes_of(out), (rank + 1) % ranks), deadline);
    auto got = comm.start(Operation::receive(bytes_of(in), before), deadline);
    expect(sent.ok() && got.ok() && got->wait().ok() && sent->wait().ok() && in.back() == before,
           "messages");
  }
  auto part = comm.split(rank % 2, deadline);
  expect(part.ok() && (*part)->size() == (ranks + 1 - rank % 2) / 2, "split", part.status());
  if (part.ok()) {
    std::vector<double> value{1.0};
    status = (*part)->allreduce(bytes_of(value), bytes_of(value), Dtype::kFloat64, deadline);
    expect(status.ok() && value[0] == (*part)->size(), "allreduce of a part", status);
  }
  status = comm.barrier(deadline);
  expect(status.ok(), "barrier", status);
}

// Rank 1 is in another operation, or in none.
void disagree(regroup::Communicator& comm, bool late) {
  std::vector<float> data(1000);
  const auto deadline =
      Clock::now() + (late ? std::chrono::milliseconds(500) : std::chrono::minutes(2));
  Status status;
  if (comm.rank() != 1)
    status = comm.allreduce(bytes_of(data), bytes_of(data), Dtype::kFloat32, deadline);
  else if (!late)
    status = comm.barrier(deadline);
  std::printf("rank %d: %s\n", comm.rank(), status.to_string().c_str());
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "early") {
    std::printf("%s\n", regroup::make_mpi(MPI_COMM_WORLD).status().to_string().c_str());
    return 0;
  }
  MPI_Init(&argc, &argv);
  {
    auto comm = regroup::make_mpi(MPI_COMM_WORLD);
    expect(comm.ok(), "make_mpi", comm.status());
    if (what.empty()) {
      run_all(**comm);
      // The program's own messages are not mixed up with ours.
      int sum = 0, one = 1;
      MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      expect(sum == (*comm)->size(), "MPI_Allreduce");
      std::printf("rank %d of %d: %d failed\n", (*comm)->rank(), (*comm)->size(), failed);
    } else {
      disagree(**comm, what == "late");
    }
  }
  MPI_Finalize();
  return failed == 0 ? 0 : 1;
}
