#include "runner/input_builder.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

std::vector<int32_t> values(const Tensor& tensor) {
  const int32_t* data = tensor.data<int32_t>();
  return {data, data + tensor.num_elements()};
}

RunnerSequence make_sequence(std::vector<int32_t> token_ids, std::vector<int32_t> block_ids) {
  SamplingParams params;
  params.seed = 0;
  const auto length = static_cast<int32_t>(token_ids.size());
  SamplingState state(params, token_ids, {}, 100);
  return {.token_ids = std::move(token_ids),
          .num_prompt_tokens = length,
          .block_ids = std::move(block_ids),
          .state_slots = {5, 6, 7},
          .sampling = state};
}

// Two drafts behind the last token; the state is where the step before accepted one.
TEST(InputBuilder, DraftsStandBehindTheTokens) {
  SchedulerConfig config;
  config.block_size = 4;
  config.max_model_len = 16;
  config.max_num_seqs = 2;
  config.max_num_batched_tokens = 8;
  config.num_speculative_tokens = 2;
  ThreadPool pool(1);
  const Stream stream(&pool);
  InputBuilder builder(config, stream);
  RunnerSequence decode = make_sequence({10, 11, 12, 13}, {2, 0});
  decode.drafts = {20, 21};
  decode.state_index = 1;
  RunnerSequence prefill = make_sequence({30, 31, 32}, {1});
  SchedulerOutput step;
  ScheduledSequence& decoded = step.scheduled.emplace_back();
  decoded.num_computed_tokens = 3;
  decoded.num_new_tokens = decoded.num_sampled = 3;
  step.scheduled.emplace_back().num_new_tokens = 2;
  RunnerSequence* sequences[] = {&decode, &prefill};
  const StepInputs inputs = builder.build(step, sequences);
  EXPECT_EQ(values(inputs.token_ids), (std::vector<int32_t>{13, 20, 21, 30, 31}));
  EXPECT_EQ(values(inputs.positions), (std::vector<int32_t>{3, 4, 5, 0, 1}));
  EXPECT_EQ(values(inputs.batch.slot_mapping), (std::vector<int32_t>{11, 0, 1, 4, 5}));
  EXPECT_EQ(values(inputs.batch.seq_lens), (std::vector<int32_t>{6, 2}));
  EXPECT_EQ(values(inputs.state_slots), (std::vector<int32_t>{6, 5}));
  EXPECT_EQ(values(inputs.token_state_slots), (std::vector<int32_t>{5, 6, 7, -1, 5}));
}

// The example of ops/attention/paged_batch.h: a decode at position 9 and a chunk of positions 4
// to 6.
TEST(InputBuilder, LaysOutAMixedStep) {
  SchedulerConfig config;
  config.block_size = 4;
  config.max_model_len = 16;
  config.max_num_seqs = 3;
  config.max_num_batched_tokens = 8;
  ThreadPool pool(1);
  const Stream stream(&pool);
  InputBuilder builder(config, stream);
  RunnerSequence decode = make_sequence({0, 1, 2, 3, 4, 5, 6, 7, 8, 90}, {8, 3, 5});
  RunnerSequence chunk = make_sequence({10, 11, 12, 13, 14, 15, 16, 17}, {2, 7});
  SchedulerOutput step;
  step.scheduled.resize(2);
  step.scheduled[0].num_computed_tokens = 9;
  step.scheduled[0].num_new_tokens = 1;
  step.scheduled[1].num_computed_tokens = 4;
  step.scheduled[1].reset_block_table = true;  // its first tokens may be another one's of this step
  step.scheduled[1].num_new_tokens = 3;
  RunnerSequence* const sequences[] = {&decode, &chunk};

  const StepInputs inputs = builder.build(step, sequences);
  EXPECT_EQ(values(inputs.token_ids), (std::vector<int32_t>{90, 14, 15, 16}));
  EXPECT_EQ(values(inputs.positions), (std::vector<int32_t>{9, 4, 5, 6}));
  EXPECT_EQ(values(inputs.batch.query_start), (std::vector<int32_t>{0, 1, 4}));
  EXPECT_EQ(values(inputs.batch.seq_lens), (std::vector<int32_t>{10, 7}));
  EXPECT_EQ(values(inputs.batch.settled_lens), (std::vector<int32_t>{9, 0}));
  EXPECT_EQ(values(inputs.state_slots), (std::vector<int32_t>{5, 5}));
  EXPECT_EQ(values(inputs.batch.slot_mapping), (std::vector<int32_t>{21, 28, 29, 30}));
  EXPECT_EQ(inputs.batch.block_tables.shape(), (Shape{2, 3}));
  EXPECT_EQ(values(inputs.batch.block_tables), (std::vector<int32_t>{8, 3, 5, 2, 7, -1}));
}

// A decode, two prompts and the rest of one: latent attention expands the prompts alone.
TEST(InputBuilder, LongChunksAndOthersAreRunsOfTheirOwn) {
  SchedulerConfig config;
  config.block_size = 512;
  config.max_model_len = 512;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 1024;
  ThreadPool pool(1);
  const Stream stream(&pool);
  InputBuilder builder(config, stream);
  std::vector<RunnerSequence> sequences;
  SchedulerOutput step;
  constexpr int32_t kNewTokens[] = {1, 256, 300, 10};
  for (int32_t s = 0; s < 4; ++s) {
    sequences.push_back(make_sequence(std::vector<int32_t>(300), {s}));
    step.scheduled.emplace_back();
    step.scheduled.back().num_new_tokens = kNewTokens[s];
  }
  RunnerSequence* const order[] = {&sequences[0], &sequences[1], &sequences[2], &sequences[3]};

  const StepInputs inputs = builder.build(step, order);
  ASSERT_EQ(inputs.parts.size(), 3u);
  const ops::BatchPart& prompts = inputs.parts[1];
  EXPECT_EQ(prompts.first_sequence, 1);
  EXPECT_EQ(prompts.first_row, 1);
  EXPECT_EQ(prompts.num_rows, 556);
  EXPECT_EQ(prompts.min_queries, 256);
  EXPECT_EQ(prompts.max_queries, 300);
  EXPECT_EQ(values(inputs.parts[0].query_start), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(values(prompts.query_start), (std::vector<int32_t>{0, 256, 556}));
  EXPECT_EQ(values(inputs.parts[2].query_start), (std::vector<int32_t>{0, 10}));
  EXPECT_EQ(inputs.parts[2].first_row, 557);
  const ops::PagedBatch batch = ops::part_of(inputs.batch, prompts);
  EXPECT_EQ(values(batch.seq_lens), (std::vector<int32_t>{256, 300}));
  EXPECT_EQ(values(batch.block_tables), (std::vector<int32_t>{1, 2}));

  step.scheduled.resize(1);
  EXPECT_TRUE(builder.build(step, std::span(order).first(1)).parts.empty());
}

TEST(InputBuilder, PadsDecodesToABatchOfFixedShape) {
  SchedulerConfig config;
  config.block_size = 4;
  config.max_model_len = 16;
  config.max_num_seqs = 3;
  config.max_num_batched_tokens = 8;
  ThreadPool pool(1);
  const Stream stream(&pool);
  InputBuilder builder(config, stream);
  RunnerSequence decode = make_sequence({0, 1, 2, 3, 4, 5, 6, 7, 8, 90}, {8, 3, 5});
  SchedulerOutput step;
  step.scheduled.resize(1);
  step.scheduled[0].num_computed_tokens = 9;
  step.scheduled[0].num_new_tokens = 1;
  RunnerSequence* const sequences[] = {&decode};

  const StepInputs inputs = builder.build_decodes(step, sequences, {.batch = 3, .queries = 1});
  EXPECT_EQ(values(inputs.token_ids), (std::vector<int32_t>{90, 0, 0}));
  EXPECT_EQ(values(inputs.positions), (std::vector<int32_t>{9, 0, 0}));
  EXPECT_EQ(values(inputs.batch.query_start), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(values(inputs.batch.seq_lens), (std::vector<int32_t>{10, 0, 0}));
  EXPECT_EQ(values(inputs.batch.settled_lens), (std::vector<int32_t>{9, 0, 0}));
  EXPECT_EQ(values(inputs.state_slots), (std::vector<int32_t>{5, -1, -1}));
  EXPECT_EQ(values(inputs.batch.slot_mapping), (std::vector<int32_t>{21, -1, -1}));
  EXPECT_EQ(inputs.batch.block_tables.shape(), (Shape{3, 4}));
  EXPECT_EQ(values(inputs.batch.block_tables.narrow(0, 0, 1).narrow(1, 0, 3)),
            (std::vector<int32_t>{8, 3, 5}));
}

// In the second group what lies behind the window of six tokens has no block, or one that is
// another's by now.
TEST(InputBuilder, LayersWithAWindowHaveTablesOfTheirOwn) {
  SchedulerConfig config;
  config.block_size = 4;
  config.max_model_len = 16;
  config.max_num_seqs = 3;
  config.max_num_batched_tokens = 8;
  config.kv_window = 6;
  config.num_kv_groups = 2;
  ThreadPool pool(1);
  const Stream stream(&pool);
  InputBuilder builder(config, stream);
  RunnerSequence decode = make_sequence({0, 1, 2, 3, 4, 5, 6, 7, 8, 90}, {});
  decode.add_blocks(std::vector<int32_t>{8, -1, 3, 9, 5, 1}, 2);
  EXPECT_EQ(decode.block_ids, (std::vector<int32_t>{8, 3, 5}));
  RunnerSequence chunk = make_sequence({10, 11, 12, 13, 14, 15, 16, 17}, {});
  chunk.add_blocks(std::vector<int32_t>{2, 4, 7, 6}, 2);
  SchedulerOutput step;
  step.scheduled.resize(2);
  step.scheduled[0].num_computed_tokens = 9;
  step.scheduled[0].num_new_tokens = 1;
  step.scheduled[1].num_computed_tokens = 4;
  step.scheduled[1].num_new_tokens = 3;
  RunnerSequence* const sequences[] = {&decode, &chunk};

  const StepInputs inputs = builder.build(step, sequences);
  EXPECT_EQ(values(inputs.batch.block_tables), (std::vector<int32_t>{8, 3, 5, 2, 7, -1}));
  EXPECT_EQ(values(inputs.batch.slot_mapping), (std::vector<int32_t>{21, 28, 29, 30}));
  EXPECT_EQ(values(inputs.window_batch.block_tables), (std::vector<int32_t>{-1, 9, 1, 4, 6, -1}));
  EXPECT_EQ(values(inputs.window_batch.slot_mapping), (std::vector<int32_t>{5, 24, 25, 26}));
  EXPECT_EQ(values(inputs.window_batch.seq_lens), (std::vector<int32_t>{10, 7}));

  step.scheduled.resize(1);
  const StepInputs padded =
      builder.build_decodes(step, std::span(sequences).first(1), {.batch = 3, .queries = 1});
  EXPECT_EQ(values(padded.batch.slot_mapping), (std::vector<int32_t>{21, -1, -1}));
  EXPECT_EQ(values(padded.window_batch.slot_mapping), (std::vector<int32_t>{5, -1, -1}));
  EXPECT_EQ(padded.window_batch.block_tables.shape(), (Shape{3, 4}));
  EXPECT_EQ(values(padded.window_batch.block_tables.narrow(0, 0, 1).narrow(1, 1, 2)),
            (std::vector<int32_t>{9, 1}));
  const StepInputs dummy = builder.build_dummy();
  EXPECT_EQ(values(dummy.window_batch.slot_mapping), (std::vector<int32_t>{-1}));
  EXPECT_EQ(values(dummy.window_batch.block_tables), (std::vector<int32_t>{0}));
}

TEST(InputBuilderDeathTest, TokensWithoutABlockAreOurMistake) {
  SchedulerConfig config;
  config.block_size = 4;
  ThreadPool pool(1);
  const Stream stream(&pool);
  InputBuilder builder(config, stream);
  RunnerSequence sequence = make_sequence({0, 1, 2, 3, 4}, {1});
  SchedulerOutput step;
  step.scheduled.resize(1);
  step.scheduled[0].num_new_tokens = 5;
  RunnerSequence* const sequences[] = {&sequence};
  EXPECT_DEATH(builder.build(step, sequences), "CHECK");
}

}  // namespace
}  // namespace atom
