// If several members of a host have the same failure, only one prints its traceback.
#include "membership/agent/printed_failures.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

proto::Failure failure(proto::MemberId member, const char* place) {
  return {.member = member, .kind = "OSError", .place = place, .message = "OSError: no 'log'"};
}

TEST(PrintedFailures, TheFirstPrintsAndTheOthersSayWhoseItIs) {
  PrintedFailures told;
  EXPECT_EQ(told.answer(failure(3, "train.py:6")), proto::Reply{});
  EXPECT_EQ(told.answer(failure(4, "train.py:6")),
            (proto::Reply{
                false,
                "regroup: member 4 ended by OSError: no 'log' at train.py:6, as member 3 did: its "
                "traceback is above"}));
  EXPECT_EQ(told.answer(failure(5, "train.py:7")), proto::Reply{});
}

TEST(PrintedFailures, AnErrorRaisedAtTheSamePlaceByAnotherCallHasATracebackOfItsOwn) {
  PrintedFailures told;
  const auto called_from = [](proto::MemberId member, std::uint64_t trace) {
    proto::Failure out = failure(member, "train.py:6");
    out.trace = trace;
    return out;
  };
  EXPECT_EQ(told.answer(called_from(3, 17)), proto::Reply{});
  EXPECT_EQ(told.answer(called_from(4, 18)), proto::Reply{});
  EXPECT_FALSE(told.answer(called_from(5, 17)).ok);
  EXPECT_FALSE(told.answer(called_from(6, 18)).message.find("as member 4 did") ==
               std::string::npos);
}

TEST(PrintedFailures, AFailureOfAnEarlierLaunchWasPrintedThen) {
  PrintedFailures told;
  for (int start = 0; start < 2; ++start) told.restore(failure(0, "train.py:6"));
  EXPECT_EQ(
      told.answer(failure(1, "train.py:6")),
      (proto::Reply{false,
                    "regroup: member 1 ended by OSError: no 'log' at train.py:6, as member 0 of an "
                    "earlier launch did: its traceback is above"}));
  EXPECT_EQ(told.answer(failure(1, "train.py:7")), proto::Reply{});
}

TEST(PrintedFailures, OfAFailureThatEndsTheJobNobodyPrintsAnything) {
  PrintedFailures told;
  proto::Failure refused{
      .member = 3, .kind = "refused checkpoint", .message = "w is float32 [10]", .final = true};
  EXPECT_EQ(told.answer(refused), (proto::Reply{false, ""}));
  EXPECT_EQ(told.answer(failure(3, "train.py:6")),
            (proto::Reply{false, ""}));  // its exception by that
  EXPECT_EQ(told.answer(failure(4, "train.py:6")), proto::Reply{});
}

TEST(PrintedFailures, AreForgottenInTheEnd) {
  PrintedFailures told;
  for (int line = 0; line < 100; ++line)
    (void)told.answer(failure(1, std::to_string(line).c_str()));
  EXPECT_EQ(told.answer(failure(2, "0")), proto::Reply{});
  EXPECT_FALSE(told.answer(failure(2, "99")).ok);
}

}  // namespace
}  // namespace regroup::membership
