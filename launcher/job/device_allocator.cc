// One process at a time. The socket tells that it has ended; the agent reaps it with its other
// children.
#include "launcher/job/device_allocator.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include "launcher/process/environment.h"
#include "launcher/process/spawn.h"
#include "launcher/transport/packet_socket.h"

namespace regroup::job {

DeviceAllocator::DeviceAllocator(boost::asio::io_context& loop, DeviceAllocatorOptions options)
    : loop_(loop), options_(std::move(options)), socket_(loop), deadline_(loop) {}

DeviceAllocator::~DeviceAllocator() { end(); }

void DeviceAllocator::allocate(const std::string& gpu, std::uint64_t bytes, Done done) {
  const std::uint64_t request = ++last_;
  requests_[request] = {{request, gpu, bytes}, std::move(done)};
  boost::asio::post(loop_, [this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) send();
  });
}

base::Status DeviceAllocator::start() {
  REGROUP_ASSIGN_OR_RETURN(auto sockets, transport::packet_sockets("regroup-devices"));
  const base::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) return base::system_error("open", "/dev/null", errno);
  spec::Environment environment = options_.environment;
  environment.erase("CUDA_VISIBLE_DEVICES");
  process::SpawnSpec spec;
  spec.path = options_.program;
  spec.argv = {"regroup-devices"};
  spec.environment = process::to_strings(environment);
  spec.in = spec.out = spec.err = null.get();
  spec.inherited = sockets.second.get();
  REGROUP_ASSIGN_OR_RETURN(pid_, process::spawn(spec));
  child_.emplace(pid_);
  socket_.assign(sockets.first.release());
  wait_read();
  return {};
}

// Sends what the process has not got yet.
void DeviceAllocator::send() {
  if (requests_.empty()) return;
  if (!socket_.is_open()) {
    if (const base::Status started = start(); !started.ok()) return fail_all(started.message());
  }
  for (auto& [id, request] : requests_) {
    if (std::exchange(request.sent, true)) continue;
    const base::Status sent =
        transport::send_packet(socket_.native_handle(), request.wanted, -1, /*wait=*/false);
    if (!sent.ok()) return on_lost(sent);
  }
  // New requests do not put off the end of a wait for a process that does not answer.
  if (!awaits_answer_) await_answer();
}

void DeviceAllocator::wait_read() {
  socket_.async_wait(socket_.wait_read, [this](const boost::system::error_code& error) {
    if (!error && socket_.is_open()) read();
  });
}

void DeviceAllocator::read() {
  auto packet = transport::receive_packet(socket_.native_handle(), /*wait=*/false);
  if (!packet.ok()) return on_lost(packet.status());
  wait_read();
  if (!packet->has_value()) return;
  const auto* memory = std::get_if<proto::DeviceMemory>(&(*packet)->message.body);
  const auto found = memory == nullptr ? requests_.end() : requests_.find(memory->request);
  if (found == requests_.end() || memory->why.empty() != (*packet)->descriptor.valid())
    return on_lost(base::data_loss("regroup-devices sent an unexpected answer"));
  const Done done = std::move(found->second.done);
  requests_.erase(found);
  await_answer();
  done(*memory, std::move((*packet)->descriptor));
}

// A process that hangs in the driver may not end by SIGKILL: it is left alone.
void DeviceAllocator::await_answer() {
  deadline_.cancel();
  awaits_answer_ = !requests_.empty();
  if (!awaits_answer_) return;
  deadline_.expires_after(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(options_.answer_limit));
  deadline_.async_wait([this](const boost::system::error_code& error) {
    if (error || deadline_.expiry() > std::chrono::steady_clock::now()) return;
    end();
    fail_all(fmt::format("regroup-devices did not answer within {:g} s",
                         std::chrono::duration<double>(options_.answer_limit).count()));
  });
}

void DeviceAllocator::on_lost(const base::Status& why) {
  end();
  std::vector<std::uint64_t> failed;
  for (auto& [id, request] : requests_) {
    if (request.sent && ++request.ended >= options_.tries) failed.push_back(id);
  }
  for (const std::uint64_t id : failed)
    fail(id, fmt::format("regroup-devices has ended {} times before it answered: {}",
                         options_.tries, why.message()));
  for (auto& [id, request] : requests_) request.sent = false;
  send();
}

void DeviceAllocator::end() {
  deadline_.cancel();
  awaits_answer_ = false;
  boost::system::error_code ignored;
  socket_.close(ignored);
  // Once it is reaped, its number may be another process's.
  if (child_ && !child_->status()) ::kill(pid_, SIGKILL);
  child_.reset();
  pid_ = 0;
}

void DeviceAllocator::fail(std::uint64_t request, const std::string& why) {
  const auto found = requests_.extract(request);
  if (!found) return;
  proto::DeviceMemory none;
  none.request = request;
  none.why = why;
  found.mapped().done(none, {});
}

void DeviceAllocator::fail_all(const std::string& why) {
  std::vector<std::uint64_t> all;
  for (const auto& [id, request] : requests_) all.push_back(id);
  for (const std::uint64_t id : all) fail(id, why);
}

}  // namespace regroup::job
