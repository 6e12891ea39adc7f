// Uses io_uring if the kernel has it. Completes a short or interrupted write by ordinary calls.
#include "checkpoint/hdf5/write_queue.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "checkpoint/file_io.h"

namespace regroup::checkpoint::hdf5 {

using base::Fd;
using base::Result;
using base::Status;
using base::system_error;

WriteQueue::WriteQueue(std::string path, Fd file, bool direct)
    : path_(std::move(path)), file_(std::move(file)), direct_(direct) {}

Result<std::unique_ptr<WriteQueue>> WriteQueue::open(const std::string& path,
                                                     const WriteOptions& options) {
  auto file = open_file(path, O_WRONLY | (options.direct ? O_DIRECT : 0));
  const bool direct = options.direct && file.ok();
  if (options.direct && !file.ok())
    file = open_file(path, O_WRONLY);  // tmpfs and others have no O_DIRECT
  if (!file.ok()) return file.status();
  std::unique_ptr<WriteQueue> out(new WriteQueue(path, std::move(*file), direct));
  void* memory = ::mmap(nullptr, kBuffers * kBufferBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return system_error("mmap", "buffers for " + path, errno);
  out->memory_ = static_cast<std::byte*>(memory);
  io_uring ring;
  if (options.uring && ::io_uring_queue_init(kBuffers, &ring, 0) == 0) out->ring_ = ring;
  return out;
}

WriteQueue::~WriteQueue() {
  while (in_flight_ > 0) (void)reap();  // the kernel still reads the buffers
  if (ring_) ::io_uring_queue_exit(&*ring_);
  if (memory_ != nullptr) ::munmap(memory_, kBuffers * kBufferBytes);
}

Status WriteQueue::take_slot() {
  if (in_flight_ == kBuffers) REGROUP_RETURN_IF_ERROR(reap());
  current_ = static_cast<std::size_t>(std::ranges::find(flights_, false, &Flight::busy) -
                                      flights_.begin());
  return {};
}

Result<std::span<std::byte>> WriteQueue::buffer() {
  REGROUP_RETURN_IF_ERROR(take_slot());
  return std::span(memory(current_), kBufferBytes);
}

Status WriteQueue::write(std::uint64_t offset, std::size_t bytes) {
  if (direct_) {
    const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    std::fill(memory(current_) + bytes, memory(current_) + padded, std::byte{0});
    bytes = padded;
  }
  return submit({memory(current_), offset, bytes, false});
}

Status WriteQueue::write_from(std::uint64_t offset, std::span<const std::byte> bytes) {
  REGROUP_RETURN_IF_ERROR(take_slot());
  return submit({bytes.data(), offset, bytes.size(), false});
}

Status WriteQueue::submit(const Flight& flight) {
  flights_[current_] = flight;
  io_uring_sqe* sqe = ring_ ? ::io_uring_get_sqe(&*ring_) : nullptr;
  if (sqe == nullptr) return write_rest(current_, 0);
  ::io_uring_prep_write(sqe, file_.get(), flight.from, static_cast<unsigned>(flight.bytes),
                        flight.offset);
  ::io_uring_sqe_set_data(sqe, &flights_[current_]);
  int submitted = ::io_uring_submit(&*ring_);
  while (submitted == -EINTR || submitted == -EAGAIN) submitted = ::io_uring_submit(&*ring_);
  if (submitted < 0) return system_error("io_uring_enter", path_, -submitted);
  flights_[current_].busy = true;
  ++in_flight_;
  return {};
}

Status WriteQueue::reap() {
  io_uring_cqe* cqe = nullptr;
  int waited = ::io_uring_wait_cqe(&*ring_, &cqe);
  while (waited == -EINTR || waited == -EAGAIN) waited = ::io_uring_wait_cqe(&*ring_, &cqe);
  if (waited < 0) {
    in_flight_ = 0;  // io_uring will report no more completions
    return system_error("io_uring_wait", path_, -waited);
  }
  auto* flight = static_cast<Flight*>(::io_uring_cqe_get_data(cqe));
  const int written = cqe->res;
  ::io_uring_cqe_seen(&*ring_, cqe);
  flight->busy = false;
  --in_flight_;
  if (written < 0 && written != -EINTR && written != -EAGAIN)
    return system_error("write", path_, -written);
  const std::size_t done = written < 0 ? 0 : static_cast<std::size_t>(written);
  return done == flight->bytes
             ? Status()
             : write_rest(static_cast<std::size_t>(flight - flights_.data()), done);
}

// O_DIRECT needs whole sectors. A remainder goes through the page cache, which finish() also syncs.
Status WriteQueue::write_rest(std::size_t index, std::size_t done) {
  const Flight& flight = flights_[index];
  const std::span<const std::byte> rest(flight.from + done, flight.bytes - done);
  if (!direct_ || done == 0) {
    Status status = write_at(file_.get(), flight.offset + done, rest, path_);
    if (status.ok() || !direct_ || status.code() != base::Code::kInvalidArgument) return status;
  }
  auto plain = open_file(path_, O_WRONLY);
  return plain.ok() ? write_at(plain->get(), flight.offset + done, rest, path_) : plain.status();
}

Status WriteQueue::finish(std::uint64_t bytes) {
  while (in_flight_ > 0) REGROUP_RETURN_IF_ERROR(reap());
  if (direct_ && ::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0)
    return system_error("ftruncate", path_, errno);
  REGROUP_RETURN_IF_ERROR(sync(file_.get(), path_));
  if (::close(file_.release()) != 0) return system_error("close", path_, errno);
  return {};
}

}  // namespace regroup::checkpoint::hdf5
