// Status and Result<T>: how every interface reports expected failures. The message names the call,
// the object and the cause, as the first function that knows them words it; callers pass it up.
// Broken invariants assert instead.
//
//   regroup::Result<regroup::Checkpoint> found = regroup::Checkpoint::newest("checkpoints");
//   if (found.code() == regroup::Code::kNotFound) return start_anew();
//   if (!found.ok()) return fail(found.status().to_string());  // "data loss: ..."
//   use(*found);
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace regroup::base {

// Kinds of failure, by what the caller should do. Each function documents the codes that it returns
// and their meaning there.
enum class Code {
  kOk,
  kInvalidArgument,    // fix the input
  kNotFound,           // fix the input or the machine
  kRevoked,            // the generation is over: regroup
  kPeerLost,           // the agent, or a rank of a World of fixed size, is gone: end the process
  kDeadlineExceeded,   // took longer than allowed
  kResourceExhausted,  // not enough memory, slots or descriptors
  kDataLoss,           // bytes are damaged
  kUnavailable,        // try again later
  kLeft,               // this process is not (or no longer) a member
  kInternal,           // give up and report
};

// The code in words: "data loss". A static string.
[[nodiscard]] std::string_view code_name(Code code);

// Success, or a code and a message. A value: copies share nothing, and one thread at a time may use
// an object. The compiler warns about one that is dropped.
class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  // A failure; `code` is not kOk. The message has no code in it: to_string() adds it.
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {
    assert(code != Code::kOk);
  }

  // True on success.
  [[nodiscard]] bool ok() const { return code_ == Code::kOk; }
  // kOk on success.
  [[nodiscard]] Code code() const { return code_; }
  // What failed, on what and why, for the user; empty on success.
  [[nodiscard]] const std::string& message() const { return message_; }
  // Code and message, "revoked: generation 3 is over", or "ok".
  [[nodiscard]] std::string to_string() const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// A T, or the Status that says why there is none. Reading the value of a failed Result is an error
// of the program: it asserts and, in a build without assertions, is undefined.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : value_(std::move(value)) {
  }  // NOLINT(google-explicit-constructor): `return value;` is the point
  Result(Status status) : status_(std::move(status)) {
    assert(!status_.ok());
  }  // NOLINT(google-explicit-constructor)

  // True if there is a value.
  [[nodiscard]] bool ok() const { return value_.has_value(); }
  // Why there is no value; success if there is one.
  [[nodiscard]] const Status& status() const { return status_; }
  // The code of status().
  [[nodiscard]] Code code() const { return status_.code(); }
  // The value, like * and ->; only if ok(). It can be moved out of a temporary Result.
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
