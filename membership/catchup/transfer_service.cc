// Implements docs/design/catch_up.md. Copies chunks out of and into the arena one by one, each with
// its CRC32C. The CRC is checked twice: here, where the sender is known, and by the learner that
// applies the chunk.
#include "membership/catchup/transfer_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/crc32c.h"
#include "launcher/transport/tcp.h"
#include "proto/transfer_step.h"

namespace regroup::catchup {
namespace {

using base::Status;
using catchup::TransferChunk;

constexpr std::size_t kQueued = 2 << 20;  // most bytes queued on a connection
constexpr int kChunksInTurn = 8;          // sent before the event loop does other work
constexpr std::chrono::seconds kDialLimit{5};
constexpr std::chrono::seconds kRequestLimit{10};

constexpr std::uint64_t chunks_of(std::uint64_t bytes) {
  return (bytes + shmem::kSnapshotChunk - 1) / shmem::kSnapshotChunk;
}

std::span<std::byte> chunk_of(std::span<std::byte> whole, std::uint64_t chunk) {
  const std::uint64_t begin = chunk * shmem::kSnapshotChunk;
  return whole.subspan(begin, std::min<std::uint64_t>(shmem::kSnapshotChunk, whole.size() - begin));
}

Status wrong(std::string what) { return base::data_loss("state transfer: " + std::move(what)); }

Status wrong_size(const TransferChunk& chunk, std::size_t expected) {
  return wrong(
      fmt::format("chunk {}: {} bytes, expected {}", chunk.chunk, chunk.bytes.size(), expected));
}

// Checks the CRC here because the learner, which checks it again, cannot name the sender.
Status check_crc(const TransferChunk& chunk, std::uint32_t salt) {
  const std::uint32_t got = base::crc32c(chunk.bytes, salt);
  if (got == chunk.crc) return {};
  const std::string what =
      chunk.step == 0 ? std::string("the state") : fmt::format("the result of step {}", chunk.step);
  return wrong(fmt::format("chunk {} of {}: expected CRC32C {:08x}, got {:08x}", chunk.chunk, what,
                           chunk.crc, got));
}

}  // namespace

TransferService::~TransferService() {
  stop_fetch();
  for (auto& [id, reader] : readers_) reader.channel->close();
}

Status TransferService::listen() {
  if (listener_) return {};
  auto listener = std::make_unique<transport::SecureListener>(
      loop_, context_, [this](Channel channel) { on_reader(std::move(channel)); });
  REGROUP_RETURN_IF_ERROR(listener->start(0));
  REGROUP_ASSIGN_OR_RETURN(auto endpoints, transport::own_endpoints(listener->port()));
  endpoints_ = transport::to_string(endpoints);
  listener_ = std::move(listener);
  return {};
}

void TransferService::attach(membership::AgentCore& core, Perform perform) {
  core_ = &core;
  perform_ = std::move(perform);
}

void TransferService::poll() {
  for (auto it = readers_.begin(); it != readers_.end();) pump((it++)->first);
  for (Source& source : sources_) {
    if (source.paused && core_->room_for(received_.kept_up_to + 1)) {
      source.paused = false;
      source.channel->resume();
    }
  }
}

// --- source side

void TransferService::on_reader(Channel channel) {
  const std::uint64_t id = ++last_reader_;
  Reader& reader = readers_.try_emplace(id, loop_).first->second;
  channel->set_handlers({.message = {},
                         .closed = [this, id](const Status&) { drop_reader(id, ""); },
                         .opened = {},
                         .payload = [this, id](std::span<const std::byte> payload) -> Status {
                           REGROUP_ASSIGN_OR_RETURN(auto message,
                                                    catchup::decode_transfer(payload));
                           const auto* request = std::get_if<catchup::TransferRequest>(&message);
                           if (request == nullptr)
                             return wrong("expected TransferRequest from a reader");
                           on_request(id, *request);
                           return {};
                         }});
  reader.channel = std::move(channel);
  reader.deadline.expires_after(kRequestLimit);
  reader.deadline.async_wait([this, id](const boost::system::error_code& error) {
    const auto late = error ? readers_.end() : readers_.find(id);
    if (late != readers_.end() && !late->second.request)
      drop_reader(id, "no TransferRequest received in time");
  });
}

void TransferService::on_request(std::uint64_t id, const catchup::TransferRequest& request) {
  Reader& reader = readers_.at(id);
  const membership::TransferSource& source = core_->transfer_source();
  if (reader.request || !source.active() || source.base().transfer != request.transfer)
    return drop_reader(id, fmt::format("state transfer {} is not served here", request.transfer));
  reader.request = request;
  reader.deadline.cancel();
  core_->on_reader_progress(id, membership::TransferTarget::Received{
                                    .snapshot = false, .kept_up_to = source.base().step});
  pump(id);
}

void TransferService::pump(std::uint64_t id) {
  const auto found = readers_.find(id);
  if (found == readers_.end() || !found->second.request || found->second.waiting) return;
  Reader& reader = found->second;
  const membership::TransferSource& source = core_->transfer_source();
  if (!source.active() || source.base().transfer != reader.request->transfer)
    return drop_reader(id,
                       source.broken().empty() ? "the state transfer has ended" : source.broken());
  for (int n = 0; n < kChunksInTurn && reader.channel->queued() < kQueued; ++n) {
    auto more = send_next(reader);
    if (!more.ok()) return drop_reader(id, more.status().message());
    if (!*more) break;
  }
  core_->on_reader_progress(
      id,
      membership::TransferTarget::Received{
          .snapshot = reader.step != 0,
          .kept_up_to = reader.request->results ? std::max(reader.step, source.base().step + 1) - 1
                                                : source.kept_up_to()});
  if (reader.channel->queued() < kQueued) return;
  reader.waiting = true;
  reader.channel->when_queued_at_most(kQueued / 2, [this, id] {
    const auto again = readers_.find(id);
    if (again == readers_.end()) return;
    again->second.waiting = false;
    pump(id);
  });
}

base::Result<bool> TransferService::send_next(Reader& reader) {
  if (reader.step == 0) return send_snapshot(reader);
  return reader.request->results ? send_result(reader) : base::Result(false);
}

base::Result<bool> TransferService::send_snapshot(Reader& reader) {
  const membership::TransferSource& source = core_->transfer_source();
  if (!source.snapshot_complete()) return false;
  if (source.snapshot_gone()) return wrong("the snapshot was overwritten before it was read");
  const shmem::Arena& arena = core_->arena();
  const std::uint64_t used = std::min<std::uint64_t>(
      arena.snapshot_used().load(std::memory_order_relaxed), arena.snapshot().size());
  const std::uint64_t chunks = chunks_of(used), parts = reader.request->parts;
  const std::uint64_t end = chunks * (reader.request->part + 1) / parts;
  if (!std::exchange(reader.length_sent, true)) {
    reader.next_chunk = chunks * reader.request->part / parts;
    reader.channel->send_payload(
        catchup::encode(catchup::TransferLength{used, source.kept_up_to()}));
  }
  if (reader.next_chunk < end) {
    const std::uint64_t chunk = reader.next_chunk++;
    const auto bytes = chunk_of(arena.snapshot().first(used), chunk);
    reader.channel->send_payload(
        catchup::encode(TransferChunk{0,
                                      static_cast<std::uint32_t>(chunk),
                                      chunk + 1 == end,
                                      arena.snapshot_crcs()[chunk].load(std::memory_order_relaxed),
                                      {bytes.begin(), bytes.end()}}));
  } else if (end == chunks * reader.request->part / parts) {  // fewer chunks than parts
    reader.channel->send_payload(catchup::encode(TransferChunk{0, 0, true, 0, {}}));
  }
  if (reader.next_chunk < end) return true;
  reader.step = source.base().step + 1;
  reader.next_chunk = 0;
  return true;
}

base::Result<bool> TransferService::send_result(Reader& reader) {
  const shmem::Arena& arena = core_->arena();
  const proto::Step step = reader.step;
  if (step > core_->transfer_source().kept_up_to()) return false;
  // A reader that connects late may find its results overwritten.
  if (arena.kept_step(step).load(std::memory_order_acquire) != step)
    return wrong(fmt::format("the result of step {} is no longer kept", step));
  const auto crcs = arena.kept_crcs(step);
  const std::uint64_t chunk = reader.next_chunk++;
  const auto bytes = chunk_of(arena.kept_result(step), chunk);
  if (chunk == 0)
    reader.channel->send_payload(
        catchup::encode(catchup::TransferLength{0, core_->transfer_source().kept_up_to()}));
  reader.channel->send_payload(catchup::encode(TransferChunk{step,
                                                             static_cast<std::uint32_t>(chunk),
                                                             chunk + 1 == crcs.size(),
                                                             crcs[chunk],
                                                             {bytes.begin(), bytes.end()}}));
  if (reader.next_chunk < crcs.size()) return true;
  reader.step += 1;
  reader.next_chunk = 0;
  return true;
}

void TransferService::drop_reader(std::uint64_t id, const std::string& why) {
  const auto found = readers_.find(id);
  if (found == readers_.end()) return;
  const Channel channel = found->second.channel;
  readers_.erase(found);
  core_->on_reader_progress(id, std::nullopt);
  if (!why.empty()) channel->send_payload(catchup::encode(catchup::TransferError{why}));
  channel->close_when_sent();
}

// --- target side

void TransferService::fetch(const proto::StartTarget& transfer) {
  stop_fetch();
  transfer_ = transfer.transfer;
  received_ = {.snapshot = false, .kept_up_to = transfer.step, .newest = transfer.step};
  sources_.resize(transfer.sources.size());
  for (std::size_t index = 0; index < transfer.sources.size(); ++index)
    sources_[index].host = transfer.sources[index].name;
  const std::uint64_t attempt = attempt_;
  for (std::size_t index = 0; index < transfer.sources.size() && attempt == attempt_; ++index)
    dial(index, transfer.sources[index]);
}

void TransferService::dial(std::size_t index, const proto::SourceAgent& source) {
  auto endpoints = transport::parse_endpoints(source.endpoints);
  if (!endpoints.ok()) return fail(index, endpoints.status().message());
  transport::dial(loop_, std::move(*endpoints), kDialLimit,
                  [this, index, node = source.node, attempt = attempt_,
                   alive = std::weak_ptr(alive_)](base::Result<base::Fd> socket) {
                    if (alive.expired() || attempt != attempt_) return;
                    if (!socket.ok()) return fail(index, socket.status().message());
                    connect(index, node, std::move(*socket));
                  });
}

void TransferService::connect(std::size_t index, proto::NodeId node, base::Fd socket) {
  auto channel = transport::SecureChannel::client(loop_, context_, std::move(socket), node);
  if (!channel.ok()) return fail(index, channel.status().message());
  sources_[index].channel = *channel;
  (*channel)->start({.message = {},
                     .closed =
                         [this, index, attempt = attempt_](const Status& why) {
                           if (attempt == attempt_) fail(index, why.message());
                         },
                     .opened = {},
                     .payload =
                         [this, index, attempt = attempt_](std::span<const std::byte> payload) {
                           return attempt == attempt_ ? on_payload(index, payload) : Status();
                         }});
  const auto parts = static_cast<std::uint32_t>(sources_.size());
  (*channel)->send_payload(catchup::encode(
      catchup::TransferRequest{transfer_, static_cast<std::uint32_t>(index), parts, index == 0}));
}

Status TransferService::on_payload(std::size_t index, std::span<const std::byte> payload) {
  REGROUP_ASSIGN_OR_RETURN(auto message, catchup::decode_transfer(payload));
  Source& source = sources_.at(index);
  if (const auto* error = std::get_if<catchup::TransferError>(&message)) return wrong(error->why);
  if (const auto* chunk = std::get_if<TransferChunk>(&message)) return take(source, *chunk);
  const auto* length = std::get_if<catchup::TransferLength>(&message);
  if (length == nullptr) return wrong("unexpected TransferRequest from a source");
  if (index == 0) {  // this source sends the results; no ring is longer than kMaxKeptResults
    if (length->newest > received_.kept_up_to + proto::kMaxKeptResults)
      return wrong(
          fmt::format("the newest result is of step {}, but the last received one of step {}",
                      length->newest, received_.kept_up_to));
    received_.newest = std::max(received_.newest, length->newest);
  }
  if (length->bytes == 0) return {};
  if (length->bytes > core_->arena().snapshot().size())
    return wrong(fmt::format("state of {} bytes, expected at most {}", length->bytes,
                             core_->arena().snapshot().size()));
  source.bytes = length->bytes;
  return {};
}

Status TransferService::take(Source& source, const TransferChunk& chunk) {
  REGROUP_RETURN_IF_ERROR(chunk.step == 0 ? take_snapshot(source, chunk)
                                          : take_result(source, chunk));
  core_->on_fetched(received_);
  return {};
}

Status TransferService::take_snapshot(Source& source, const TransferChunk& chunk) {
  const shmem::Arena& arena = core_->arena();
  if (source.whole || source.bytes == 0 || chunk.chunk >= chunks_of(source.bytes))
    return wrong(
        fmt::format("unexpected chunk {} of a snapshot of {} bytes", chunk.chunk, source.bytes));
  if (!chunk.bytes.empty()) {
    const auto to = chunk_of(arena.snapshot().first(source.bytes), chunk.chunk);
    if (to.size() != chunk.bytes.size()) return wrong_size(chunk, to.size());
    REGROUP_RETURN_IF_ERROR(check_crc(chunk, proto::snapshot_salt(transfer_)));
    std::ranges::copy(chunk.bytes, to.begin());
    arena.snapshot_crcs()[chunk.chunk].store(chunk.crc, std::memory_order_relaxed);
  }
  source.whole = chunk.last;
  const bool same = std::ranges::all_of(sources_, [&](const Source& other) {
    return other.bytes == 0 || other.bytes == source.bytes;
  });
  if (!same) return wrong("the sources have states of different sizes");
  if (!std::ranges::all_of(sources_, &Source::whole)) return {};
  arena.snapshot_used().store(source.bytes, std::memory_order_relaxed);
  received_.snapshot = true;
  return {};
}

Status TransferService::take_result(Source& source, const TransferChunk& chunk) {
  const shmem::Arena& arena = core_->arena();
  const bool turn =
      &source == &sources_.front() && source.whole && chunk.step == received_.kept_up_to + 1;
  if (!turn || !core_->room_for(chunk.step))
    return wrong(fmt::format("unexpected result of step {}", chunk.step));
  const auto crcs = arena.kept_crcs(chunk.step);
  if (chunk.chunk >= crcs.size())
    return wrong(fmt::format("unexpected chunk {} of a result", chunk.chunk));
  const auto to = chunk_of(arena.kept_result(chunk.step), chunk.chunk);
  if (to.size() != chunk.bytes.size()) return wrong_size(chunk, to.size());
  REGROUP_RETURN_IF_ERROR(check_crc(chunk, proto::result_salt(chunk.step)));
  if (chunk.chunk == 0) arena.kept_step(chunk.step).store(0, std::memory_order_release);
  std::ranges::copy(chunk.bytes, to.begin());
  crcs[chunk.chunk] = chunk.crc;
  if (!chunk.last) return {};
  received_.kept_up_to = chunk.step;
  if (core_->room_for(chunk.step + 1)) return {};
  source.paused = true;
  source.channel->pause();
  return {};
}

void TransferService::stop_fetch() {
  ++attempt_;
  for (const Source& source : sources_) {
    if (source.channel) source.channel->close();
  }
  sources_.clear();
}

// Ends the fetch with an error that names the source.
void TransferService::fail(std::size_t index, const std::string& why) {
  const std::string host = sources_.at(index).host;
  stop_fetch();
  perform_(core_->on_fetch_failed(fmt::format("host {}: {}", host, why)));
}

}  // namespace regroup::catchup
