// Status and Result<T>: how every interface reports expected failures. The message names the call,
// the object and the cause, as the first function that knows them words it; callers pass it up.
// Broken invariants assert instead.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace regroup::base {

// What the caller should do about it.
enum class Code {
  kOk,
  kInvalidArgument,    // fix the input
  kNotFound,           // fix the input or the machine
  kRevoked,            // the generation is over: regroup
  kPeerLost,           // a peer died: wait for the revoke, then regroup
  kDeadlineExceeded,   // took longer than allowed
  kResourceExhausted,  // not enough memory, slots or descriptors
  kDataLoss,           // bytes are damaged
  kUnavailable,        // try again later
  kLeft,               // this process is not (or no longer) a member
  kInternal,           // give up and report
};

[[nodiscard]] std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {
    assert(code != Code::kOk);
  }

  [[nodiscard]] bool ok() const { return code_ == Code::kOk; }
  [[nodiscard]] Code code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  // "revoked: generation 3 is over", or "ok".
  [[nodiscard]] std::string to_string() const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// A T, or the Status that says why there is none. Reading the value of a failed Result asserts.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : value_(std::move(value)) {
  }  // NOLINT(google-explicit-constructor): `return value;` is the point
  Result(Status status) : status_(std::move(status)) {
    assert(!status_.ok());
  }  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] Code code() const { return status_.code(); }
  [[nodiscard]] T& value() & { return assert(ok()), *value_; }
  [[nodiscard]] const T& value() const& { return assert(ok()), *value_; }
  [[nodiscard]] T&& value() && { return assert(ok()), std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace regroup::base

namespace regroup {

using base::Code, base::Result, base::Status;

}  // namespace regroup
