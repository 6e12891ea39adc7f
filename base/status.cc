// Words for status codes and for errno.
#include "base/status.h"

#include <cerrno>
#include <system_error>

namespace regroup::base {
namespace {

Code code_of_errno(int error) {
  switch (error) {
    case ENOENT:
    case ESRCH:
      return Code::kNotFound;
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
      return Code::kResourceExhausted;
    case ETIMEDOUT:
      return Code::kDeadlineExceeded;
    case EAGAIN:
    case EINTR:
    case ECONNREFUSED:
      return Code::kUnavailable;
    case EPIPE:
    case ECONNRESET:
      return Code::kPeerLost;
    case EINVAL:
    case EACCES:
    case EPERM:
      return Code::kInvalidArgument;
    default:
      return Code::kInternal;
  }
}

}  // namespace

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kRevoked:
      return "revoked";
    case Code::kPeerLost:
      return "peer lost";
    case Code::kDeadlineExceeded:
      return "deadline exceeded";
    case Code::kResourceExhausted:
      return "resource exhausted";
    case Code::kDataLoss:
      return "data loss";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kLeft:
      return "left";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown";
}

std::string Status::to_string() const {
  return ok() ? "ok" : std::string(code_name(code_)) + ": " + message_;
}

Status system_error(std::string_view call, std::string_view object, int error) {
  std::string message(call);
  message.append("(").append(object).append("): ").append(std::generic_category().message(error));
  return {code_of_errno(error), std::move(message)};
}

Status invalid_argument(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}
Status not_found(std::string message) { return {Code::kNotFound, std::move(message)}; }
Status revoked(std::string message) { return {Code::kRevoked, std::move(message)}; }
Status peer_lost(std::string message) { return {Code::kPeerLost, std::move(message)}; }
Status deadline_exceeded(std::string message) {
  return {Code::kDeadlineExceeded, std::move(message)};
}
Status resource_exhausted(std::string message) {
  return {Code::kResourceExhausted, std::move(message)};
}
Status data_loss(std::string message) { return {Code::kDataLoss, std::move(message)}; }
Status unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }
Status left(std::string message) { return {Code::kLeft, std::move(message)}; }
Status internal_error(std::string message) { return {Code::kInternal, std::move(message)}; }

}  // namespace regroup::base
