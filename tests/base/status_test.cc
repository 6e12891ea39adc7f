// Status and Result: what callers read from them, and how errno becomes advice.
#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace regroup::base {
namespace {

TEST(Status, DefaultIsSuccess) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.to_string(), "ok");
}

TEST(Status, EveryCodeHasItsOwnName) {
  std::vector<std::string> names;
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code) {
    names.emplace_back(code_name(static_cast<Code>(code)));
    EXPECT_NE(names.back(), "unknown") << code;
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

TEST(Status, SystemErrorNamesCallObjectCauseAndAdvice) {
  constexpr struct {
    int error;
    Code code;
  } kRows[] = {{ENOENT, Code::kNotFound},        {ENOMEM, Code::kResourceExhausted},
               {EAGAIN, Code::kUnavailable},     {ECONNRESET, Code::kPeerLost},
               {EACCES, Code::kInvalidArgument}, {ETIMEDOUT, Code::kDeadlineExceeded},
               {EXDEV, Code::kInternal}};
  for (const auto& row : kRows)
    EXPECT_EQ(system_error("open", "x", row.error).code(), row.code) << row.error;
  EXPECT_EQ(system_error("open", "/a/b", ENOENT).to_string(),
            "not found: open(/a/b): No such file or directory");
}

Result<std::unique_ptr<int>> make(bool good) {
  if (!good) return invalid_argument("make: not good");
  return std::make_unique<int>(7);
}

Status first_failure(bool first, bool second) {
  REGROUP_RETURN_IF_ERROR(make(first).status());
  REGROUP_RETURN_IF_ERROR(make(second).ok() ? Status() : internal_error("second"));
  return {};
}

TEST(Result, HoldsAValueOrTheReason) {
  auto good = make(true);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(**good, 7);
  const std::unique_ptr<int> taken = std::move(good).value();
  EXPECT_EQ(*taken, 7);
  EXPECT_EQ(make(false).code(), Code::kInvalidArgument);
  EXPECT_EQ(make(false).status().message(), "make: not good");
}

TEST(Result, ReturnIfErrorStopsAtTheFirst) {
  EXPECT_TRUE(first_failure(true, true).ok());
  EXPECT_EQ(first_failure(false, false).code(), Code::kInvalidArgument);
  EXPECT_EQ(first_failure(true, false).code(), Code::kInternal);
}

}  // namespace
}  // namespace regroup::base
