#include "runner/memory_plan.h"

#include <gtest/gtest.h>

#include "loader/checkpoint.h"
#include "models/registry.h"
#include "runner/model_runner.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

ResolvedConfig demo(EngineConfig engine) {
  engine.model.model = demo_model_folder();
  const ModelConfig model = load_model_config(engine.model.model).value();
  return resolve(engine, model).value();
}

Result<MemoryPlan> plan_of(const ResolvedConfig& config) {
  const BuiltModel built = build_model(config).value();
  return plan_memory(config, built);
}

TEST(MemoryPlan, CountsTheDemoModel) {
  EngineConfig engine;
  engine.cache.num_blocks = 1000;
  const MemoryPlan plan = plan_of(demo(engine)).value();
  // Every tensor of the checkpoint in bfloat16, and a float32 rope table of 2048 positions.
  const auto stored = Checkpoint::open(demo_model_folder()).value().num_bytes();
  EXPECT_EQ(plan.weights, static_cast<int64_t>(stored) + 2048 * 64 * 4);
  // 8 layers of K and V, 2 heads of 64 values in bfloat16.
  EXPECT_EQ(plan.kv_bytes_per_block, 16 * 8 * 2 * 2 * 64 * 2);
  EXPECT_EQ(plan.kv_cache(), 1000 * plan.kv_bytes_per_block);
  EXPECT_EQ(plan.total(), plan.weights + plan.workspace + plan.step_inputs + plan.kv_cache());
}

TEST(MemoryPlan, CountsQuantizedWeightsAndCache) {
  EngineConfig engine;
  engine.cache.num_blocks = 1000;
  engine.model.quantization = QuantizationChoice::kFp8;
  engine.cache.dtype = DType::kFloat8E4M3;
  const MemoryPlan plan = plan_of(demo(engine)).value();
  // The rope table, and three scales of the cache for each layer.
  int64_t expected = 2048 * 64 * 4 + 8 * 3 * 4;
  const Checkpoint checkpoint = Checkpoint::open(demo_model_folder()).value();
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    const bool quantized = tensor.info.name.find("_proj.weight") != std::string::npos;
    const Shape& shape = tensor.info.shape;
    // A byte for each weight and a scale for each row.
    expected += quantized ? shape.num_elements() + shape[0] * 4 : 2 * shape.num_elements();
  }
  EXPECT_EQ(plan.weights, expected);
  EXPECT_EQ(plan.kv_bytes_per_block, 16 * 8 * 2 * 2 * 64);
}

TEST(MemoryPlan, SizesTheCacheByBytesAndByUse) {
  EngineConfig engine;
  engine.cache.kv_cache_memory = int64_t{64} << 20;
  EXPECT_EQ(plan_of(demo(engine))->num_blocks, (64 << 20) / (16 * 4096));
  engine.cache.kv_cache_memory = 0;
  engine.model.max_model_len = 160;
  engine.scheduler.max_num_seqs = 3;
  EXPECT_EQ(plan_of(demo(engine))->num_blocks, 30);
}

// The demo model, every other layer with a window of 128 tokens.
ResolvedConfig windowed_demo(EngineConfig engine) {
  engine.model.model = demo_model_folder();
  ModelConfig model = load_model_config(engine.model.model).value();
  model.sliding_window = 128;
  for (size_t i = 0; i < model.layer_types.size(); i += 2) {
    model.layer_types[i] = LayerType::kSlidingAttention;
  }
  return resolve(engine, model).value();
}

TEST(MemoryPlan, LayersWithAWindowTakeTheirWindowOfASequence) {
  EngineConfig engine;
  engine.cache.kv_cache_memory = int64_t{64} << 20;
  engine.scheduler.max_num_batched_tokens = 256;
  const MemoryPlan plan = plan_of(windowed_demo(engine)).value();
  // A block has 4 layers.
  EXPECT_EQ(plan.kv_bytes_per_block, 16 * 2048);
  EXPECT_EQ(plan.kv_bytes_per_token(), 2048);
  EXPECT_EQ(plan.num_blocks, (64 << 20) / (16 * 2048));
  // 2048 tokens, and of the window what 127 + 256 tokens touch.
  EXPECT_EQ(plan.blocks_per_sequence, 128 + 25);
  EXPECT_EQ(plan.window_bytes_per_sequence(), 25 * 16 * 2048);
  EXPECT_EQ(plan.window_bytes_in_decode(), 9 * 16 * 2048);
  EXPECT_EQ(plan.num_cached_tokens(), int64_t{2048} * 2048 / 153);

  engine.cache.disable_hybrid_kv_cache_manager = true;
  const MemoryPlan whole = plan_of(windowed_demo(engine)).value();
  EXPECT_EQ(whole.kv_bytes_per_token(), 4096);
  EXPECT_EQ(whole.window_bytes_per_sequence(), 0);
  EXPECT_EQ(whole.num_cached_tokens(), (64 << 20) / 4096);
}

// The demo model with a recurrent state of 256 KiB.
Result<MemoryPlan> plan_with_states(const EngineConfig& engine) {
  const ResolvedConfig config = demo(engine);
  BuiltModel built = build_model(config).value();
  built.storage.states.push_back({"recurrent", {int64_t{64} << 10}, DType::kFloat32});
  return plan_memory(config, built);
}

TEST(MemoryPlan, DividesMemoryAmongBlocksAndStateSlots) {
  constexpr int64_t kSlot = int64_t{256} << 10;
  EngineConfig engine;
  engine.cache.kv_cache_memory = int64_t{64} << 20;
  engine.cache.state_checkpoint_interval = 1024;
  engine.scheduler.max_num_seqs = 8;
  const MemoryPlan plan = plan_with_states(engine).value();
  EXPECT_EQ(plan.state_bytes_per_slot, kSlot);
  // One for each sequence, and one for each 1024 tokens of the cache.
  EXPECT_EQ(plan.num_state_slots, 8 + plan.num_cached_tokens() / 1024);
  EXPECT_EQ(plan.num_checkpoint_slots, plan.num_cached_tokens() / 1024);
  EXPECT_EQ(plan.checkpoints(), plan.num_checkpoint_slots * plan.state_bytes_per_slot);
  EXPECT_LE(plan.kv_cache() + plan.states(), engine.cache.kv_cache_memory);
  EXPECT_GT(plan.kv_cache() + plan.states() + kSlot + 2 * plan.kv_bytes_per_block,
            engine.cache.kv_cache_memory);
  EXPECT_EQ(plan.total(), plan.fixed() + plan.kv_cache() + plan.states());

  engine.cache.enable_prefix_caching = false;
  EXPECT_EQ(plan_with_states(engine)->num_state_slots, 8);
  EXPECT_GT(plan_with_states(engine)->num_blocks, plan.num_blocks);
}

TEST(MemoryPlan, SlotsOfRunningSequencesTakeAtMostHalf) {
  EngineConfig engine;
  engine.cache.kv_cache_memory = int64_t{16} << 20;
  engine.cache.enable_prefix_caching = false;
  engine.scheduler.max_num_seqs = 1000;
  engine.model.max_model_len = 256;
  EXPECT_EQ(plan_with_states(engine)->num_state_slots, 32);
  EXPECT_EQ(plan_with_states(engine)->num_blocks, (8 << 20) / (16 * 4096));
  // 8 MiB are the blocks of one sequence.
  engine.cache.kv_cache_memory = (int64_t{8} << 20) + 3 * (int64_t{256} << 10);
  engine.model.max_model_len = 2048;
  EXPECT_EQ(plan_with_states(engine)->num_state_slots, 3);
  engine.cache.kv_cache_memory = int64_t{8} << 20;
  EXPECT_EQ(plan_with_states(engine).status().code(), StatusCode::kResourceExhausted);
}

TEST(MemoryPlan, RefusesWhatDoesNotFitWithTheNumbers) {
  EngineConfig engine;
  engine.cache.kv_cache_memory = 1 << 20;
  const Status status = plan_of(demo(engine)).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("2048 tokens"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("--max-model-len"), std::string::npos);
}

// Random steps up to the limits: the workspace that was planned is never outgrown (a CHECK), and
// the largest step uses all of it.
void check_workspace(EngineConfig engine) {
  engine.scheduler.max_num_seqs = 5;
  engine.scheduler.max_num_batched_tokens = 70;
  engine.cache.num_blocks = 200;
  const ResolvedConfig config = demo(engine);
  const auto runner = ModelRunner::create(config, config.model.vocab_size, nullptr).value();
  SequenceId next_id = 1;
  uint64_t step_number = 0;
  for (const std::vector<int32_t>& lengths : std::vector<std::vector<int32_t>>{
           {70}, {1}, {14, 14, 14, 14, 14}, {66, 1, 1, 1, 1}, {33, 2}}) {
    SchedulerOutput step;
    step.step = step_number++;
    for (size_t i = 0; i < lengths.size(); ++i) {
      NewSequence& added = step.new_sequences.emplace_back();
      added.id = next_id++;
      added.prompt_token_ids.assign(lengths[i], 5);
      added.sampling.seed = 1;
      added.sampling.prompt_logprobs = 0;
      ScheduledSequence& scheduled = step.scheduled.emplace_back();
      scheduled.id = added.id;
      scheduled.num_new_tokens = lengths[i];
      scheduled.reset_block_table = true;
      for (int32_t b = 0; b < 5; ++b) {
        scheduled.new_block_ids.push_back(static_cast<int32_t>(i) * 5 + b);
      }
      scheduled.num_sampled = 1;
    }
    runner->submit(step);
    const ModelRunnerOutput output = runner->collect().output;
    for (size_t i = 0; i < lengths.size(); ++i) {
      EXPECT_EQ(output.sequences[i].token_ids.size(), 1u);
      EXPECT_EQ(output.sequences[i].prompt_logprobs.size(), static_cast<size_t>(lengths[i] - 1));
    }
  }
}

TEST(MemoryPlan, TheWorkspaceIsExact) {
  check_workspace({});
}

TEST(MemoryPlan, TheWorkspaceIsExactWithFp8) {
  EngineConfig engine;
  engine.model.quantization = QuantizationChoice::kFp8;
  engine.cache.dtype = DType::kFloat8E4M3;
  check_workspace(engine);
}

}  // namespace
}  // namespace atom
