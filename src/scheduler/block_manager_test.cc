#include "scheduler/block_manager.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "scheduler/scheduler_test_support.h"

namespace atom {
namespace {

class BlockManagerTest : public testing::Test {
 protected:
  static SchedulerConfig config(int32_t num_blocks, bool caching = true) {
    SchedulerConfig config = small_config();
    config.num_blocks = num_blocks;
    config.enable_prefix_caching = caching;
    return config;
  }

  Sequence sequence(std::vector<int32_t> prompt, const std::string& salt = "") {
    SamplingParams sampling = ask_for(8);
    sampling.cache_salt = salt;
    return Sequence(next_id_++, 0, std::move(prompt), sampling, {});
  }

  // As a prefill of the whole prompt does.
  static std::vector<int32_t> fill(BlockManager& manager, Sequence& sequence) {
    std::vector<int32_t> added;
    manager.append(sequence, sequence.num_known_tokens(), added);
    manager.register_blocks(sequence, sequence.num_known_tokens());
    return added;
  }

  SequenceId next_id_ = 1;
};

TEST_F(BlockManagerTest, GrowsByWholeBlocks) {
  BlockManager manager(config(4));
  Sequence a = sequence(prompt_of(5));
  EXPECT_EQ(fill(manager, a), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(manager.num_free(), 2);
  std::vector<int32_t> added;
  manager.append(a, 8, added);
  EXPECT_TRUE(added.empty());
  manager.append(a, 9, added);
  EXPECT_EQ(added, (std::vector<int32_t>{2}));
  EXPECT_TRUE(manager.can_append(a, 16));
  EXPECT_FALSE(manager.can_append(a, 17));
  EXPECT_FALSE(manager.can_start(a, 16, /*num_reserved=*/1));
  manager.free(a);
  EXPECT_EQ(manager.num_free(), 4);
  EXPECT_TRUE(a.block_table.block_ids.empty());
}

TEST_F(BlockManagerTest, SharesFullBlocksOfAnEqualPrefix) {
  BlockManager manager(config(8));
  Sequence a = sequence(prompt_of(11));
  fill(manager, a);
  EXPECT_EQ(manager.num_cached(), 2);
  std::vector<int32_t> prompt = prompt_of(9);
  prompt[8] = 7;
  Sequence b = sequence(prompt);
  EXPECT_EQ(manager.acquire_prefix(b), 8);
  EXPECT_EQ(b.block_table.block_ids, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(manager.ref_count(0), 2);
  EXPECT_EQ(manager.ref_count(2), 1);
  EXPECT_EQ(manager.num_free(), 5);
  manager.free(a);
  EXPECT_EQ(manager.ref_count(0), 1);
  EXPECT_EQ(manager.num_free(), 6);
  manager.free(b);
  EXPECT_EQ(manager.num_free(), 8);
}

TEST_F(BlockManagerTest, LeavesTheLastTokenToCompute) {
  BlockManager manager(config(8));
  Sequence a = sequence(prompt_of(8));
  fill(manager, a);
  Sequence b = sequence(prompt_of(8));
  EXPECT_EQ(manager.acquire_prefix(b), 4);
}

TEST_F(BlockManagerTest, SharesWithinOneSaltOnly) {
  BlockManager manager(config(8));
  Sequence a = sequence(prompt_of(9), "one");
  fill(manager, a);
  Sequence b = sequence(prompt_of(9), "two");
  EXPECT_EQ(manager.acquire_prefix(b), 0);
  Sequence c = sequence(prompt_of(9));
  EXPECT_EQ(manager.acquire_prefix(c), 0);
  Sequence d = sequence(prompt_of(9), "one");
  EXPECT_EQ(manager.acquire_prefix(d), 8);
}

TEST_F(BlockManagerTest, AnEqualBlockBehindAnotherPrefixIsNoHit) {
  BlockManager manager(config(8));
  Sequence a = sequence(prompt_of(9));
  fill(manager, a);
  std::vector<int32_t> prompt = prompt_of(9);
  prompt[0] = 7;
  Sequence b = sequence(prompt);
  EXPECT_EQ(manager.acquire_prefix(b), 0);
}

TEST_F(BlockManagerTest, FreedContentStaysUntilTheBlockIsNeeded) {
  BlockManager manager(config(6));
  Sequence a = sequence(prompt_of(9, 1000));  // blocks 0 1 2, the last one not full
  fill(manager, a);
  Sequence b = sequence(prompt_of(8, 2000));  // blocks 3 4
  fill(manager, b);
  manager.free(a);
  manager.free(b);
  EXPECT_EQ(manager.num_free(), 6);
  EXPECT_EQ(manager.num_cached(), 4);

  // First what holds nothing, then a's tail, a's head, b's tail.
  Sequence c = sequence(prompt_of(20, 3000));
  EXPECT_EQ(fill(manager, c), (std::vector<int32_t>{2, 5, 1, 0, 4}));
  Sequence again = sequence(prompt_of(9, 1000));
  EXPECT_EQ(manager.acquire_prefix(again), 0);
  Sequence b_again = sequence(prompt_of(9, 2000));
  EXPECT_EQ(manager.acquire_prefix(b_again), 4);
  EXPECT_EQ(manager.num_free(), 0);
}

TEST_F(BlockManagerTest, AHitIsAUse) {
  BlockManager manager(config(2));
  Sequence a = sequence(prompt_of(4, 1000));
  fill(manager, a);
  Sequence b = sequence(prompt_of(4, 2000));
  fill(manager, b);
  manager.free(a);
  manager.free(b);
  Sequence a_again = sequence(prompt_of(5, 1000));
  EXPECT_EQ(manager.acquire_prefix(a_again), 4);
  manager.free(a_again);
  Sequence c = sequence(prompt_of(4, 3000));
  EXPECT_EQ(fill(manager, c), (std::vector<int32_t>{1}));  // b's
}

TEST_F(BlockManagerTest, EqualContentComputedTwiceIsRegisteredOnce) {
  BlockManager manager(config(8));
  Sequence a = sequence(prompt_of(8));
  Sequence b = sequence(prompt_of(8));
  fill(manager, a);
  fill(manager, b);
  EXPECT_EQ(manager.num_cached(), 2);
  EXPECT_FALSE(manager.is_cached(b.block_table.block_ids[0]));
  // b goes on where a stopped; its later blocks hang on a's content.
  b.start(0);
  b.advance(8);
  for (int32_t token_id = 1; token_id <= 5; ++token_id) {
    b.append_token(token_id);
    b.advance(1);
  }
  std::vector<int32_t> added;
  manager.append(b, 13, added);
  manager.register_blocks(b, 12);
  std::vector<int32_t> prompt(b.token_ids().begin(), b.token_ids().end());
  Sequence c = sequence(prompt);
  EXPECT_EQ(manager.acquire_prefix(c), 12);
  EXPECT_EQ(
      c.block_table.block_ids,
      (std::vector<int32_t>{
          a.block_table.block_ids[0], a.block_table.block_ids[1], b.block_table.block_ids[2]}));
}

TEST_F(BlockManagerTest, WithoutCachingNothingIsShared) {
  BlockManager manager(config(8, /*caching=*/false));
  Sequence a = sequence(prompt_of(9));
  fill(manager, a);
  EXPECT_EQ(manager.num_cached(), 0);
  Sequence b = sequence(prompt_of(9));
  EXPECT_EQ(manager.acquire_prefix(b), 0);
}

TEST_F(BlockManagerTest, ResetForgetsEverything) {
  BlockManager manager(config(8));
  Sequence a = sequence(prompt_of(9));
  fill(manager, a);
  manager.reset();
  EXPECT_EQ(manager.num_free(), 8);
  EXPECT_EQ(manager.num_cached(), 0);
  EXPECT_EQ(manager.ref_count(0), 0);
  Sequence b = sequence(prompt_of(9));
  EXPECT_EQ(manager.acquire_prefix(b), 0);
}

// Blocks of four tokens, and a window in which a query sees five tokens before itself.
class BlockManagerWindowTest : public BlockManagerTest {
 protected:
  static SchedulerConfig windowed(int32_t num_blocks, int32_t num_groups) {
    SchedulerConfig windowed = config(num_blocks);
    windowed.kv_window = 6;
    windowed.num_kv_groups = num_groups;
    return windowed;
  }

  // As a prefill of the whole prompt does, and the step behind it that gives back.
  static std::vector<int32_t> compute(BlockManager& manager, Sequence& sequence) {
    const int32_t num_known = sequence.num_known_tokens();
    if (sequence.state() == SequenceState::kWaiting) sequence.start(0);
    sequence.advance(num_known - sequence.num_computed_tokens());
    std::vector<int32_t> added = fill(manager, sequence);
    manager.free_behind_window(sequence);
    return added;
  }
};

TEST_F(BlockManagerWindowTest, GivesBackWhatIsWhollyBehindTheWindow) {
  BlockManager manager(windowed(16, 2));
  Sequence a = sequence(prompt_of(17));
  EXPECT_EQ(compute(manager, a), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  // The query at 17 sees 12 and what follows.
  EXPECT_EQ(a.block_table.block_ids, (std::vector<int32_t>{0, -1, 2, -1, 4, -1, 6, 7, 8, 9}));
  EXPECT_EQ(manager.num_free(), 9);
  EXPECT_EQ(manager.num_cached(), 8);
  manager.free(a);
  EXPECT_EQ(manager.num_free(), 16);
}

TEST_F(BlockManagerWindowTest, KeepsWhatIsNotRegisteredYet) {
  BlockManager manager(windowed(16, 2));
  Sequence a = sequence(prompt_of(17));
  a.start(0);
  a.advance(17);
  std::vector<int32_t> added;
  manager.append(a, 17, added);
  manager.register_blocks(a, 7);
  manager.free_behind_window(a);
  EXPECT_EQ(a.block_table.block_ids, (std::vector<int32_t>{0, -1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(BlockManagerWindowTest, AHitNeedsTheWindowBeforeItsEnd) {
  BlockManager manager(windowed(16, 2));
  Sequence a = sequence(prompt_of(17));
  compute(manager, a);
  // Behind 16 tokens: all blocks of the first group, of the second the last two.
  Sequence b = sequence(prompt_of(20));
  EXPECT_EQ(manager.acquire_prefix(b), 16);
  EXPECT_EQ(b.block_table.block_ids, (std::vector<int32_t>{0, -1, 2, -1, 4, 5, 6, 7}));
  EXPECT_EQ(manager.ref_count(5), 1);  // given back by the first, and still there
  EXPECT_EQ(manager.ref_count(7), 2);
  manager.free(b);

  // Others take the blocks without content, then those that were given back: 1 and 3, not 5.
  Sequence other = sequence(prompt_of(12, 5000));
  EXPECT_EQ(fill(manager, other), (std::vector<int32_t>{10, 11, 12, 13, 14, 15}));
  Sequence more = sequence(prompt_of(4, 6000));
  EXPECT_EQ(fill(manager, more), (std::vector<int32_t>{1, 3}));
  Sequence c = sequence(prompt_of(20));
  EXPECT_EQ(manager.acquire_prefix(c), 16);
  manager.free(c);
  manager.free(more);

  // Nothing is hit where a block within the window is missing: of eight tokens both are.
  Sequence d = sequence(prompt_of(9));
  EXPECT_EQ(manager.acquire_prefix(d), 0);
  EXPECT_TRUE(d.block_table.block_ids.empty());
}

TEST_F(BlockManagerWindowTest, CountsWhatASequenceHoldsAtOnce) {
  SchedulerConfig config = windowed(16, 2);
  config.max_num_batched_tokens = 4;
  config.max_model_len = 400;
  // Up to 9 tokens of the window and a step, which touch three blocks at most.
  EXPECT_EQ(config.max_blocks_of_group(1, 400), 3);
  EXPECT_EQ(config.max_blocks_of_sequence(400), 103);
  EXPECT_EQ(config.max_blocks_of_sequence(8), 4);
  BlockManager manager(config);
  Sequence a = sequence(prompt_of(40));
  EXPECT_TRUE(manager.can_start(a, 40, /*num_reserved=*/1));
  EXPECT_FALSE(manager.can_start(a, 40, /*num_reserved=*/2));
  EXPECT_TRUE(manager.can_append(a, 32));
  EXPECT_FALSE(manager.can_append(a, 33));
}

TEST_F(BlockManagerWindowTest, LayersThatAllHaveAWindowAreOneGroup) {
  BlockManager manager(windowed(8, 1));
  Sequence a = sequence(prompt_of(17));
  compute(manager, a);
  EXPECT_EQ(a.block_table.block_ids, (std::vector<int32_t>{-1, -1, -1, 3, 4}));
  EXPECT_EQ(manager.num_free(), 6);
  Sequence b = sequence(prompt_of(20));
  EXPECT_EQ(manager.acquire_prefix(b), 16);
  EXPECT_EQ(b.block_table.block_ids, (std::vector<int32_t>{-1, -1, 2, 3}));
}

}  // namespace
}  // namespace atom
