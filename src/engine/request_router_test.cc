#include "engine/request_router.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace atom {
namespace {

class RequestRouterTest : public testing::Test {
 protected:
  RequestRouter make(int num_cores, DataParallelBalance balance) {
    RequestRouter router(num_cores, balance);
    for (int core = 0; core < num_cores; ++core) router.set_up(core);
    return router;
  }

  int route(RequestRouter& router, int64_t num_tokens = 10) {
    const SequenceId id = next_id_++;
    return router.route(std::span(&id, 1), num_tokens);
  }

  static void finish(RequestRouter& router, SequenceId id) {
    StepOutput step;
    step.deltas.emplace_back().id = id;
    step.deltas.back().finish_reason = FinishReason::kStop;
    router.note(step);
  }

  SequenceId next_id_ = 1;
};

TEST_F(RequestRouterTest, APromptGoesWhereItsBeginningIsUnlessThatHasMuchMoreToDo) {
  const std::vector<uint64_t> prefix = prefix_hashes(std::vector<int32_t>(200, 5), "");
  const auto route_prefix = [&](RequestRouter& router) {
    const SequenceId id = next_id_++;
    return router.route(std::span(&id, 1), 200, prefix);
  };
  RequestRouter router = make(2, DataParallelBalance::kLeastRequests);
  EXPECT_EQ(route_prefix(router), 0);
  for (int64_t i = 0; i < RequestRouter::kPrefixSlack; ++i) EXPECT_EQ(route_prefix(router), 0);
  EXPECT_EQ(route_prefix(router), 1);  // 5 there, none here
  EXPECT_EQ(route(router), 1);         // others go by load alone
  (void)router.set_down(0);
  router.set_up(0);
  EXPECT_EQ(route_prefix(router), 1);  // which lost its cache, and had nothing to do

  RequestRouter by_tokens = make(2, DataParallelBalance::kLeastTokens);
  EXPECT_EQ(route_prefix(by_tokens), 0);
  EXPECT_EQ(route_prefix(by_tokens), 1);  // 200 tokens to do there, 192 to save
  RequestRouter in_turn = make(2, DataParallelBalance::kRoundRobin);
  EXPECT_EQ(route_prefix(in_turn), 0);
  EXPECT_EQ(route_prefix(in_turn), 1);
}

TEST_F(RequestRouterTest, RoundRobinTakesTurnsWhateverIsUnfinished) {
  RequestRouter router = make(3, DataParallelBalance::kRoundRobin);
  for (const int core : {0, 1, 2, 0, 1}) EXPECT_EQ(route(router), core);
  finish(router, 1);
  EXPECT_EQ(route(router), 2);
}

TEST_F(RequestRouterTest, LeastRequestsGoesWhereFewestAreUnfinished) {
  RequestRouter router = make(2, DataParallelBalance::kLeastRequests);
  EXPECT_EQ(route(router, 1000), 0);  // request 1
  EXPECT_EQ(route(router), 1);
  EXPECT_EQ(route(router), 0);
  EXPECT_EQ(route(router), 1);
  finish(router, 2);
  EXPECT_EQ(route(router), 1);
}

TEST_F(RequestRouterTest, IdleCoresTakeTurns) {
  RequestRouter router = make(3, DataParallelBalance::kLeastRequests);
  for (SequenceId id = 1; id <= 6; ++id) {
    EXPECT_EQ(route(router), static_cast<int>((id - 1) % 3));
    finish(router, id);
  }
}

TEST_F(RequestRouterTest, LeastTokensCountsPromptsAndAnswers) {
  RequestRouter router = make(2, DataParallelBalance::kLeastTokens);
  EXPECT_EQ(route(router, 100), 0);  // request 1
  EXPECT_EQ(route(router, 30), 1);   // request 2
  EXPECT_EQ(route(router, 60), 1);
  StepOutput step;
  step.deltas.emplace_back().id = 2;
  step.deltas.back().token_ids.assign(20, 7);
  router.note(step);
  EXPECT_EQ(route(router, 1), 0);  // 100 tokens against 110
  finish(router, 2);
  EXPECT_EQ(route(router, 1), 1);  // 101 against 60
}

TEST_F(RequestRouterTest, AnswersOfARequestStayTogether) {
  RequestRouter router = make(2, DataParallelBalance::kLeastRequests);
  const SequenceId ids[] = {11, 12, 13};
  const int core = router.route(ids, 5);
  for (const SequenceId id : ids) EXPECT_EQ(router.core_of(id), core);
  EXPECT_EQ(route(router), 1 - core);
}

TEST_F(RequestRouterTest, ACoreThatGoesDownLosesItsOwnSequencesAlone) {
  RequestRouter router = make(2, DataParallelBalance::kRoundRobin);
  for (int i = 0; i < 6; ++i) route(router);
  std::vector<SequenceId> lost = router.set_down(0);
  std::ranges::sort(lost);
  EXPECT_EQ(lost, (std::vector<SequenceId>{1, 3, 5}));
  EXPECT_FALSE(router.core_of(3).has_value());
  EXPECT_EQ(router.core_of(4), 1);
  EXPECT_EQ(route(router), 1);
  EXPECT_EQ(route(router), 1);
  EXPECT_TRUE(router.is_any_up());
  router.set_up(0);
  EXPECT_EQ(route(router), 0);
  router.set_down(0);
  router.set_down(1);
  EXPECT_FALSE(router.is_any_up());
}

TEST_F(RequestRouterTest, NewsOfForgottenSequencesChangesNothing) {
  RequestRouter router = make(1, DataParallelBalance::kLeastRequests);
  route(router);
  finish(router, 1);
  finish(router, 1);
  finish(router, 99);
  EXPECT_FALSE(router.core_of(1).has_value());
  EXPECT_EQ(route(router), 0);
}

}  // namespace
}  // namespace atom
