#include "engine/profile_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace atom {
namespace {

using ::testing::HasSubstr;

constexpr auto kStart = ProfileAction::kStart;
constexpr auto kStop = ProfileAction::kStop;

// What a callback was told.
struct Told {
  std::optional<Result<ProfileFile>> answer;
  ProfileCallback callback() {
    return [this](const Result<ProfileFile>& result) {
      EXPECT_FALSE(answer.has_value());
      answer = result;
    };
  }
};

void start(ProfileControl* control) {
  Told told;
  ASSERT_TRUE(control->begin(kStart, told.callback()).ok());
  control->on_answer({kStart, StatusCode::kOk, "", 0, 0});
  ASSERT_TRUE(told.answer->ok());
}

TEST(ProfileControl, StartsAndStopsInTurns) {
  ProfileControl control;
  for (int round = 0; round < 2; ++round) {
    Told unused;
    EXPECT_THAT(control.begin(kStop, unused.callback()).message(), HasSubstr("start one first"));
    start(&control);
    EXPECT_THAT(control.begin(kStart, unused.callback()).message(), HasSubstr("stop it first"));
    Told told;
    ASSERT_TRUE(control.begin(kStop, told.callback()).ok());
    EXPECT_FALSE(control.begin(kStop, unused.callback()).ok());
    EXPECT_FALSE(control.begin(kStart, unused.callback()).ok());
    control.on_answer({kStop, StatusCode::kOk, "a.json", 3, 1});
    EXPECT_EQ((**told.answer).path, "a.json");
    EXPECT_EQ((**told.answer).num_spans, 3u);
    EXPECT_EQ((**told.answer).num_dropped_spans, 1u);
    EXPECT_FALSE(unused.answer.has_value());
  }
}

TEST(ProfileControl, AFailureIsForWhoAsked) {
  ProfileControl control;
  Told told;
  ASSERT_TRUE(control.begin(kStart, told.callback()).ok());
  control.on_answer({kStart, StatusCode::kInternal, "no folder", 0, 0});
  EXPECT_EQ(told.answer->status().message(), "no folder");
  start(&control);
  Told stopped;
  ASSERT_TRUE(control.begin(kStop, stopped.callback()).ok());
  control.on_answer({kStop, StatusCode::kInternal, "disk full", 0, 0});
  EXPECT_EQ(stopped.answer->status().message(), "disk full");
  start(&control);
}

TEST(ProfileControl, ALostProfileIsAnErrorToWhoEndsIt) {
  ProfileControl control;
  control.lose(unavailable("died"));
  Told unused;
  EXPECT_EQ(control.begin(kStop, unused.callback()).code(), StatusCode::kInvalidArgument);
  start(&control);
  control.lose(unavailable("died"));
  const Status lost = control.begin(kStop, unused.callback());
  EXPECT_EQ(lost.code(), StatusCode::kInternal);
  EXPECT_THAT(lost.message(), HasSubstr("died"));
  EXPECT_EQ(control.begin(kStop, unused.callback()).code(), StatusCode::kInvalidArgument);
  start(&control);
  Told told;
  ASSERT_TRUE(control.begin(kStop, told.callback()).ok());
  control.lose(unavailable("died"));
  EXPECT_EQ(told.answer->status().code(), StatusCode::kInternal);
  control.on_answer({kStop, StatusCode::kOk, "late", 0, 0});
  start(&control);
}

}  // namespace
}  // namespace atom
