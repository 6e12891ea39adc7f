// The line of --progress: what it shows, and what it leaves out where there is little room.
#include "launcher/job/progress_text.h"

#include <gtest/gtest.h>

namespace regroup::job {
namespace {

using membership::TrainingProgress;

const TrainingProgress kShown{.step = 1234,
                              .members = 4,
                              .generation = 3,
                              .loss = 0.43214,
                              .epoch = 3,
                              .epochs = 15,
                              .epoch_done = 0.6199,
                              .steps_per_second = 20,
                              .samples_per_second = 1912.3,
                              .seconds_left = 150.2};

TEST(ProgressText, ShowsAll) {
  EXPECT_EQ(progress_text(kShown, ProgressBar::kYes),
            "epoch 3/15 [######....] 61 %  step 1234  loss 0.4321  1912 samples/s  4 members "
            "(generation 3)  ETA 2:31");
  EXPECT_EQ(progress_text(kShown, ProgressBar::kNo),
            "epoch 3/15 61 %  step 1234  loss 0.4321  1912 samples/s  4 members (generation 3)  "
            "ETA 2:31");
}

TEST(ProgressText, LeavesOutWhatIsUnknown) {
  EXPECT_EQ(progress_text({}, ProgressBar::kYes), "step 0  0 members (generation 0)");
  EXPECT_EQ(progress_text({.step = 7, .members = 1, .generation = 1, .steps_per_second = 0.5},
                          ProgressBar::kYes),
            "step 7  0.50 steps/s  1 member (generation 1)");
  EXPECT_EQ(progress_text({.members = 2, .generation = 1, .epoch = 3, .epoch_done = 1},
                          ProgressBar::kYes),
            "epoch 3 [##########] 100 %  step 0  2 members (generation 1)");
}

TEST(ProgressText, LeavesOutTheLeastImportantPartsOfANarrowTerminal) {
  const std::pair<std::size_t, const char*> kRows[] = {
      {200,
       "epoch 3/15 [######....] 61 %  step 1234  loss 0.4321  1912 samples/s  4 members "
       "(generation 3)  ETA 2:31"},
      {103,
       "epoch 3/15 [######....] 61 %  step 1234  loss 0.4321  1912 samples/s  4 members  ETA 2:31"},
      {80, "epoch 3/15 61 %  step 1234  loss 0.4321  1912 samples/s  4 members  ETA 2:31"},
      {75, "epoch 3/15 61 %  step 1234  loss 0.4321  1912 samples/s  ETA 2:31"},
      {50, "epoch 3/15 61 %  step 1234  loss 0.4321  ETA 2:31"},
      {40, "epoch 3/15 61 %  step 1234  loss 0.4321"},
      {30, "epoch 3/15 61 %  step 1234"},
      {20, "epoch 3/15 61 %"},
      {8, "epoch 3/"},
      {0, ""}};
  for (const auto& [width, line] : kRows)
    EXPECT_EQ(progress_text(kShown, ProgressBar::kYes, width), line) << width;
}

TEST(ProgressText, NeverExceedsTheWidth) {
  for (std::size_t width = 0; width < 120; ++width)
    EXPECT_LE(progress_text(kShown, ProgressBar::kYes, width).size(), width);
  EXPECT_EQ(progress_text({.step = 123456}, ProgressBar::kYes, 8), "step 123");
}

TEST(ProgressText, WritesTimesAndNumbersShortly) {
  const std::pair<double, const char*> kTimes[] = {
      {0, "ETA 0:00"},          {0.1, "ETA 0:01"},       {59, "ETA 0:59"},
      {3599.5, "ETA 1:00:00"},  {86399, "ETA 23:59:59"}, {90061, "ETA 1 d 1:01:01"},
      {1e9, "(generation 1)"},  // no forecast
      {1e300, "(generation 1)"}};
  for (const auto& [seconds, end] : kTimes) {
    const std::string line =
        progress_text({.members = 1, .generation = 1, .seconds_left = seconds}, ProgressBar::kYes);
    EXPECT_TRUE(line.ends_with(end)) << line;
  }
  const std::pair<double, const char*> kSpeeds[] = {{0, "  0.00 steps/s"},
                                                    {9.5, "  9.50 steps/s"},
                                                    {10.04, "  10.0 steps/s"},
                                                    {12345.6, "  12346 steps/s"}};
  for (const auto& [speed, part] : kSpeeds) {
    const std::string line = progress_text({.steps_per_second = speed}, ProgressBar::kYes);
    EXPECT_NE(line.find(part), std::string::npos) << line;
  }
  EXPECT_NE(progress_text({.loss = 1.5e-7}, ProgressBar::kYes).find("loss 1.5e-07"),
            std::string::npos);
}

TEST(ProgressText, IsReadFromAStatusWhateverThatIs) {
  EXPECT_EQ(progress_in(R"({"progress": {"step": 1234, "members": 4, "generation": 3,
    "loss": 0.43214, "epoch": 3, "epochs": 15, "epoch_done": 0.6199, "steps_per_second": 20.0,
    "samples_per_second": 1912.3, "seconds_left": 150.2}})"),
            kShown);
  for (const char* text : {"", "[]", "{}", "{\"progress\": 3}", "no JSON", "{\"job\": \"x\"}"})
    EXPECT_EQ(progress_in(text), std::nullopt) << text;
  const auto odd = progress_in(
      R"({"progress": {"step": -1, "members": 1e99, "generation": "x", "loss": null, "epoch": -3,
    "epochs": 1.5, "seconds_left": []}})");
  EXPECT_EQ(odd, TrainingProgress{});
  const auto wide = progress_in(R"({"progress": {"epoch": 1, "epoch_done": -7e300}})");
  ASSERT_TRUE(wide);
  EXPECT_TRUE(progress_text(*wide, ProgressBar::kYes).starts_with("epoch 1 [..........] 0 %"));
}

}  // namespace
}  // namespace regroup::job
