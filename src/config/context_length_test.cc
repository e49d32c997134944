#include "config/context_length.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atom {
namespace {

using ::testing::HasSubstr;

TEST(ContextLength, APromptNeedsRoomForOneTokenOfTheAnswer) {
  EXPECT_TRUE(check_context_length(7, 1000, 8).ok());
  const Status status = check_context_length(8, 1, 8);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("the prompt has 8 tokens"));
  EXPECT_THAT(status.message(), HasSubstr("limit is 8 tokens"));
}

TEST(ContextLength, APromptThatIsOnlyScoredMayFillTheContext) {
  EXPECT_TRUE(check_context_length(8, 0, 8).ok());
  EXPECT_FALSE(check_context_length(9, 0, 8).ok());
}

}  // namespace
}  // namespace atom
