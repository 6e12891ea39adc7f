// Between lesson_messages.h and FlatBuffers (lesson.fbs).
#include "launcher/node/lesson_messages.h"

#include <fmt/format.h>

#include <utility>

#include "launcher/node/lesson_generated.h"

namespace regroup::node {
namespace {

using core::Code;
using core::Result;
using core::Status;

constexpr std::uint32_t kMostParts = 64;

fb::LessonRequestT table(const LessonRequest& m) {
  fb::LessonRequestT t;
  t.lesson = m.lesson, t.part = m.part, t.parts = m.parts, t.results = m.results;
  return t;
}
fb::LessonLengthT table(const LessonLength& m) {
  fb::LessonLengthT t;
  t.bytes = m.bytes, t.newest = m.newest;
  return t;
}
fb::LessonChunkT table(const LessonChunk& m) {
  fb::LessonChunkT t;
  t.step = m.step, t.chunk = m.chunk, t.last = m.last, t.crc = m.crc;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(m.bytes.data());
  t.bytes.assign(bytes, bytes + m.bytes.size());
  return t;
}
fb::LessonErrorT table(const LessonError& m) {
  fb::LessonErrorT t;
  t.why = m.why;
  return t;
}

Result<LessonMessage> plain(const fb::LessonRequestT& t) {
  if (t.parts == 0 || t.parts > kMostParts || t.part >= t.parts)
    return Status(Code::kDataLoss, fmt::format("LessonRequest: part {} of {}", t.part, t.parts));
  return LessonMessage(LessonRequest{t.lesson, t.part, t.parts, t.results});
}
Result<LessonMessage> plain(const fb::LessonLengthT& t) {
  return LessonMessage(LessonLength{t.bytes, t.newest});
}
Result<LessonMessage> plain(const fb::LessonChunkT& t) {
  if (t.bytes.size() > core::kSnapshotChunk)
    return Status(Code::kDataLoss, fmt::format("LessonChunk: {} bytes", t.bytes.size()));
  const auto* bytes = reinterpret_cast<const std::byte*>(t.bytes.data());
  return LessonMessage(LessonChunk{t.step, t.chunk, t.last, t.crc, {bytes, bytes + t.bytes.size()}});
}
Result<LessonMessage> plain(const fb::LessonErrorT& t) { return LessonMessage(LessonError{t.why}); }

template <class Table>
Result<LessonMessage> body(const fb::LessonBodyUnion& in) {
  // The verifier lets a type without its table pass.
  if (in.value == nullptr) return Status(Code::kDataLoss, "message of a lesson: no body");
  return plain(*static_cast<const Table*>(in.value));
}

}  // namespace

std::vector<std::byte> encode(const LessonMessage& message) {
  fb::LessonMessageT wire;
  wire.version = kLessonVersion;
  std::visit([&](const auto& body) { wire.body.Set(table(body)); }, message);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::LessonMessage::Pack(builder, &wire), fb::LessonMessageIdentifier());
  const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {bytes, bytes + builder.GetSize()};
}

Result<LessonMessage> decode_lesson(std::span<const std::byte> payload) {
  const std::vector<std::byte> aligned(payload.begin(), payload.end());  // numbers are read where they lie
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(bytes, aligned.size());
  if (!fb::VerifyLessonMessageBuffer(verifier)) {
    return Status(Code::kDataLoss,
                  fmt::format("message of {} bytes of a lesson does not verify", payload.size()));
  }
  fb::LessonMessageT wire;
  fb::GetLessonMessage(bytes)->UnPackTo(&wire);
  if (wire.version != kLessonVersion) {
    return core::invalid_argument(fmt::format("lesson: the other side speaks version {}, this is version {}",
                                              wire.version, kLessonVersion));
  }
  switch (wire.body.type) {
    case fb::LessonBody::LessonRequest:
      return body<fb::LessonRequestT>(wire.body);
    case fb::LessonBody::LessonLength:
      return body<fb::LessonLengthT>(wire.body);
    case fb::LessonBody::LessonChunk:
      return body<fb::LessonChunkT>(wire.body);
    case fb::LessonBody::LessonError:
      return body<fb::LessonErrorT>(wire.body);
    case fb::LessonBody::NONE:
      break;
  }
  return Status(Code::kInvalidArgument, "message of a lesson: unknown body");
}

}  // namespace regroup::node
