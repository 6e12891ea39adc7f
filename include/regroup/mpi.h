// A Communicator over an MPI communicator of the program, for jobs of fixed size: the operations of
// Regroup, with its bits, among ranks that MPI has started and connected. Compiled with the
// program's own MPI, of which it calls point-to-point functions only: MPI never adds. Link it as
// any program of Regroup, by `pkg-config --cflags --libs --static regroup`.
//
//   MPI_Init(&argc, &argv);
//   {
//     auto comm = regroup::make_mpi(MPI_COMM_WORLD);
//     if (!comm.ok()) return fail(comm.status());
//     const auto bytes = std::as_writable_bytes(std::span(gradient));
//     auto status = (*comm)->allreduce(bytes, bytes, regroup::Dtype::kFloat32, deadline);
//   }  // before MPI_Finalize
//   MPI_Finalize();
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "regroup/communicator.h"
#include "regroup/operation.h"
#include "regroup/point_to_point.h"
#include "regroup/status.h"

namespace regroup {

// The messages of an MPI communicator, which it owns. For make_mpi().
class MpiMessages final : public PointToPoint {
 public:
  explicit MpiMessages(MPI_Comm owned) : comm_(owned) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~MpiMessages() override {
    int is_over = 0;
    MPI_Finalized(&is_over);
    if (is_over == 0) MPI_Comm_free(&comm_);
  }
  MpiMessages(const MpiMessages&) = delete;
  MpiMessages& operator=(const MpiMessages&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::size_t send(int to, int tag, collective::Input data) override {
    const std::size_t number = unused();
    check("MPI_Isend", MPI_Isend(const_cast<std::byte*>(data.data()), static_cast<int>(data.size()),
                                 MPI_BYTE, to, tag, comm_, &requests_[number]));
    return number;
  }
  [[nodiscard]] std::size_t receive(int from, int tag, collective::Output data) override {
    const std::size_t number = unused();
    check("MPI_Irecv", MPI_Irecv(data.data(), static_cast<int>(data.size()), MPI_BYTE, from, tag,
                                 comm_, &requests_[number]));
    return number;
  }
  [[nodiscard]] bool done(std::size_t number) override {
    int is_done = 0;
    check("MPI_Test", MPI_Test(&requests_[number], &is_done, MPI_STATUS_IGNORE));
    if (is_done != 0) unused_.push_back(number);
    return is_done != 0;
  }
  void cancel(std::size_t number) override {
    check("MPI_Cancel", MPI_Cancel(&requests_[number]));
    check("MPI_Request_free", MPI_Request_free(&requests_[number]));
    unused_.push_back(number);
  }
  [[nodiscard]] std::optional<int> arrived(int tag) override {
    int is_there = 0;
    MPI_Status status;
    check("MPI_Iprobe", MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &is_there, &status));
    return is_there != 0 ? std::optional(status.MPI_SOURCE) : std::nullopt;
  }
  [[nodiscard]] std::unique_ptr<PointToPoint> split(int color) override {
    MPI_Comm part = MPI_COMM_NULL;
    check("MPI_Comm_split", MPI_Comm_split(comm_, color < 0 ? MPI_UNDEFINED : color, rank_, &part));
    if (part == MPI_COMM_NULL) return nullptr;
    return std::make_unique<MpiMessages>(part);
  }
  [[nodiscard]] std::string error() const override { return error_; }

 private:
  [[nodiscard]] std::size_t unused() {
    if (unused_.empty()) {
      requests_.push_back(MPI_REQUEST_NULL);
      return requests_.size() - 1;
    }
    const std::size_t number = unused_.back();
    unused_.pop_back();
    return number;
  }
  // Only if the communicator returns errors: MPI's default ends the program.
  void check(const char* call, int code) {
    if (code == MPI_SUCCESS || !error_.empty()) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    error_ = std::string(call) + ": " + std::string(text, static_cast<std::size_t>(length));
  }

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<std::size_t> unused_;  // numbers of requests_
  std::string error_;
};

// Makes a communicator of the ranks of `comm`, an intracommunicator, all of which call this; blocks
// until they do (MPI_Comm_dup). Its messages do not meet those of the program. Destroy it before
// MPI_Finalize. The thread that uses it must be one that may call MPI. kUnavailable: MPI is not
// initialised, or is over; or MPI_Comm_dup has failed. See make_communicator().
[[nodiscard]] inline base::Result<std::unique_ptr<Communicator>> make_mpi(MPI_Comm comm) {
  int is_initialised = 0;
  int is_over = 0;
  MPI_Initialized(&is_initialised);
  MPI_Finalized(&is_over);
  if (is_initialised == 0 || is_over != 0) {
    return base::Status(base::Code::kUnavailable, is_over != 0
                                                      ? "make_mpi: MPI_Finalize has been called"
                                                      : "make_mpi: MPI_Init has not been called");
  }
  MPI_Comm own = MPI_COMM_NULL;
  if (MPI_Comm_dup(comm, &own) != MPI_SUCCESS)
    return base::Status(base::Code::kUnavailable, "make_mpi: MPI_Comm_dup has failed");
  return make_communicator(std::make_unique<MpiMessages>(own));
}

}  // namespace regroup
