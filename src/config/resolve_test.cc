#include "config/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/test_folders.h"

namespace atom {
namespace {

using ::testing::HasSubstr;

ModelConfig model() {
  ModelConfig config;
  config.max_position_embeddings = 4096;
  config.dtype = DType::kBFloat16;
  config.rope.max_position_embeddings = 4096;
  config.rope.original_max_position_embeddings = 4096;
  return config;
}

ResolvedConfig resolved(const EngineConfig& engine, const ModelConfig& config = model()) {
  const auto result = resolve(engine, config);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : ResolvedConfig();
}

TEST(Resolve, DefaultsFollowTheModel) {
  const ResolvedConfig config = resolved({});
  EXPECT_EQ(config.dtype, DType::kBFloat16);
  EXPECT_EQ(config.max_model_len(), 4096);
  EXPECT_EQ(config.scheduler.max_num_batched_tokens, 2048);
  EXPECT_EQ(config.scheduler.num_blocks, 0);
  EXPECT_EQ(config.scheduler.max_steps_in_flight, 2);
  EXPECT_GE(config.num_threads, 1);
}

TEST(Resolve, FlagsOverrule) {
  EngineConfig engine;
  engine.model.dtype = DType::kFloat32;
  engine.model.max_model_len = 100;
  engine.cache.num_blocks = 7;
  engine.cache.block_size = 32;
  engine.cache.enable_prefix_caching = false;
  engine.scheduler.async_scheduling = false;
  engine.device.num_threads = 3;
  const ResolvedConfig config = resolved(engine);
  EXPECT_EQ(config.dtype, DType::kFloat32);
  EXPECT_EQ(config.max_model_len(), 100);
  EXPECT_EQ(config.scheduler.num_blocks, 7);
  EXPECT_EQ(config.scheduler.block_size, 32);
  EXPECT_FALSE(config.scheduler.enable_prefix_caching);
  EXPECT_EQ(config.scheduler.max_steps_in_flight, 1);
  EXPECT_EQ(config.num_threads, 3);
}

TEST(Resolve, RecordedBatchesAreAListOfSizes) {
  EngineConfig engine;
  EXPECT_FALSE(resolved(engine).recorded_batches.has_value());
  const auto sizes = [&](const char* text) {
    engine.device.recorded_batches = text;
    return resolved(engine).recorded_batches.value();
  };
  EXPECT_EQ(sizes("[4, 1,2,4]"), (std::vector<int64_t>{1, 2, 4}));
  EXPECT_EQ(sizes("16"), (std::vector<int64_t>{16}));
  EXPECT_EQ(sizes("8,65,2000000000"), (std::vector<int64_t>{8}));  // max_num_seqs is 64
  EXPECT_TRUE(sizes("[]").empty());
  for (const char* text :
       {"1,", ",1", "0", "-1", "1,,2", "[1,2", "1]", "one", "1.5", "9999999999", "[", " "}) {
    engine.device.recorded_batches = text;
    EXPECT_THAT(resolve(engine, model()).status().message(), HasSubstr("--recorded-batch-sizes"))
        << text;
  }
}

TEST(Resolve, CheckpointsOfStatesAreWholeBlocksApart) {
  EngineConfig engine;
  EXPECT_EQ(resolved(engine).scheduler.state_checkpoint_interval, 8192);
  engine.cache.block_size = 48;
  EXPECT_EQ(resolved(engine).scheduler.state_checkpoint_interval, 8208);
  engine.cache.state_checkpoint_interval = 96;
  EXPECT_EQ(resolved(engine).scheduler.state_checkpoint_interval, 96);
  engine.cache.state_checkpoint_interval = 0;
  EXPECT_EQ(resolved(engine).scheduler.state_checkpoint_interval, 0);
  engine.cache.state_checkpoint_interval = 100;
  EXPECT_THAT(resolve(engine, model()).status().message(),
              HasSubstr("--state-checkpoint-interval-tokens 100 is not a multiple of --block-size "
                        "48; the next is 144"));
}

TEST(Resolve, RopeScalingExtendsTheLimit) {
  ModelConfig config = model();
  config.rope.factor = 4;
  config.rope.type = RopeType::kLinear;
  EXPECT_EQ(max_supported_model_len(config), 16384);
  config.rope.type = RopeType::kYarn;
  config.rope.original_max_position_embeddings = 2048;
  EXPECT_EQ(max_supported_model_len(config), 8192);
  // These files give the extended length themselves.
  config.rope.type = RopeType::kLlama3;
  EXPECT_EQ(max_supported_model_len(config), 4096);
  config.rope.type = RopeType::kLongRope;
  EXPECT_EQ(max_supported_model_len(config), 4096);
  config.rope.type = RopeType::kDynamic;
  config.rope.factor = 1e6;
  EXPECT_EQ(max_supported_model_len(config), 1 << 30);
}

TEST(Resolve, RefusesMoreThanTheModelCanDo) {
  EngineConfig engine;
  engine.model.max_model_len = 4097;
  EXPECT_THAT(resolve(engine, model()).status().message(),
              HasSubstr("--max-model-len 4097: the model's limit is 4096 tokens"));
}

TEST(Resolve, BudgetHoldsEveryDecodeAndWholePromptsWithoutChunks) {
  EngineConfig engine;
  engine.scheduler.max_num_seqs = 3000;
  EXPECT_EQ(resolved(engine).scheduler.max_num_batched_tokens, 3000);
  engine.scheduler.max_num_batched_tokens = 2999;
  EXPECT_THAT(resolve(engine, model()).status().message(),
              HasSubstr("--max-num-batched-tokens 2999 is less than --max-num-seqs 3000"));

  EngineConfig whole;
  whole.scheduler.enable_chunked_prefill = false;
  EXPECT_EQ(resolved(whole).scheduler.max_num_batched_tokens, 4096);
  whole.scheduler.max_num_batched_tokens = 4095;
  EXPECT_THAT(resolve(whole, model()).status().message(), HasSubstr("longest sequence, 4096"));
}

// Of 12 layers every other one, or as many as are asked for, have a window of 128 tokens.
ModelConfig windowed_model(size_t num_windowed = 6) {
  ModelConfig config = model();
  config.sliding_window = 128;
  config.layer_types.assign(12, LayerType::kFullAttention);
  std::fill_n(config.layer_types.begin(), num_windowed, LayerType::kSlidingAttention);
  return config;
}

TEST(Resolve, LayersWithAWindowHaveBlocksOfTheirOwn) {
  EngineConfig engine;
  SchedulerConfig scheduler = resolved(engine, windowed_model()).scheduler;
  EXPECT_EQ(scheduler.num_kv_groups, 2);
  EXPECT_EQ(scheduler.kv_window, 128);
  // The second group's are those of the window and of a step's 2048 tokens.
  EXPECT_EQ(scheduler.max_blocks_of_sequence(4096), 256 + 136 + 1);
  scheduler = resolved(engine, windowed_model(12)).scheduler;
  EXPECT_EQ(scheduler.num_kv_groups, 1);
  EXPECT_EQ(scheduler.kv_window, 128);

  engine.cache.disable_hybrid_kv_cache_manager = true;
  EXPECT_EQ(resolved(engine, windowed_model()).scheduler.kv_window, 0);
  EXPECT_EQ(resolved(engine, windowed_model()).scheduler.num_kv_groups, 1);
  engine.cache.disable_hybrid_kv_cache_manager = false;
  engine.parallel.prefill_context_parallel_size = 2;
  EXPECT_EQ(resolved(engine, windowed_model()).scheduler.kv_window, 0);
}

TEST(Resolve, LayersShareBlocksWhereGroupsWouldTakeMore) {
  // Blocks of the size that 10 layers need, for the 2 with a window as well.
  EXPECT_EQ(resolved({}, windowed_model(2)).scheduler.num_kv_groups, 1);
  EXPECT_EQ(resolved({}, windowed_model(2)).scheduler.kv_window, 0);
  EngineConfig engine;
  engine.scheduler.max_num_batched_tokens = 128;
  EXPECT_EQ(resolved(engine, windowed_model(2)).scheduler.num_kv_groups, 2);
  // No sequence is longer than the window.
  engine.model.max_model_len = 128;
  EXPECT_EQ(resolved(engine, windowed_model()).scheduler.kv_window, 0);
}

TEST(Resolve, CopiesShareTheThreads) {
  EngineConfig engine;
  engine.device.num_threads = 7;
  engine.parallel.data_parallel_size = 2;
  EXPECT_EQ(resolved(engine).num_threads, 3);
  engine.parallel.data_parallel_size = 8;
  EXPECT_EQ(resolved(engine).num_threads, 1);
}

TEST(Resolve, CopiesShareExpertsWhereThereAreSome) {
  const ModelConfig sparse = load_model_config(golden_folder() + "/qwen3-moe", {}).value();
  const ModelConfig dense = load_model_config(golden_folder() + "/qwen3", {}).value();
  EngineConfig engine;
  engine.parallel.tensor_parallel_size = 2;
  engine.parallel.data_parallel_size = 3;
  EXPECT_FALSE(resolved(engine, sparse).copies_share_experts);
  EXPECT_EQ(resolved(engine, sparse).num_cores(), 3);
  engine.parallel.enable_expert_parallel = true;
  EXPECT_FALSE(resolved(engine, dense).copies_share_experts);
  EXPECT_EQ(resolved(engine, dense).scheduler.max_steps_in_flight, 2);
  ResolvedConfig config = resolved(engine, sparse);
  EXPECT_TRUE(config.copies_share_experts);
  EXPECT_EQ(config.num_cores(), 1);
  EXPECT_EQ(config.scheduler.max_steps_in_flight, 1);

  engine.parallel.enable_dp_attention = true;
  // Once more of what came of it: a child process resolves what it is told.
  for (int round = 0; round < 2; ++round, engine = config.engine) {
    config = resolved(engine, sparse);
    EXPECT_EQ(config.engine.parallel.tensor_parallel_size, 1);
    EXPECT_EQ(config.engine.parallel.data_parallel_size, 6);
    EXPECT_TRUE(config.copies_share_experts);
  }
  engine.parallel.tensor_parallel_size = 11;
  EXPECT_THAT(resolve(engine, sparse).status().message(), HasSubstr("66 copies; at most 64"));
}

TEST(Resolve, ExpertsMoveBetweenRanksThatHaveThemWhole) {
  const ModelConfig sparse = load_model_config(golden_folder() + "/qwen3-moe", {}).value();
  const ModelConfig dense = load_model_config(golden_folder() + "/qwen3", {}).value();
  EngineConfig engine;
  engine.parallel.eplb.enabled = true;
  engine.parallel.eplb.json = R"({"num_redundant_experts": 4, "rebalance_interval": 10})";
  engine.parallel.tensor_parallel_size = 2;
  EXPECT_THAT(resolve(engine, sparse).status().message(),
              HasSubstr("--enable-eplb needs --enable-expert-parallel"));
  engine.parallel.enable_expert_parallel = true;
  EXPECT_THAT(resolve(engine, dense).status().message(), HasSubstr("has no experts"));
  // Twice: a child process resolves what it is told.
  for (int round = 0; round < 2; ++round) {
    engine = resolved(engine, sparse).engine;
    EXPECT_EQ(engine.parallel.eplb.num_redundant_experts, 4);
    EXPECT_EQ(engine.parallel.eplb.load_window_size, 10);
  }
  engine.parallel.tensor_parallel_size = 1;
  EXPECT_THAT(resolve(engine, sparse).status().message(), HasSubstr("needs several ranks"));
  engine.parallel.eplb.enabled = false;
  EXPECT_THAT(resolve(engine, sparse).status().message(),
              HasSubstr("--eplb-config needs --enable-eplb"));
}

TEST(Resolve, ActivationsOfExpertsAreThoseOfModelsThatHaveSome) {
  const ModelConfig sparse = load_model_config(golden_folder() + "/qwen3-moe", {}).value();
  const ModelConfig dense = load_model_config(golden_folder() + "/qwen3", {}).value();
  EngineConfig engine;
  engine.model.moe_activations = ExpertActivations::kFp8;
  EXPECT_TRUE(resolve(engine, sparse).ok());
  EXPECT_THAT(resolve(engine, dense).status().message(), HasSubstr("has no experts"));
  engine.model.emulate_quantized_activations = false;
  EXPECT_THAT(resolve(engine, sparse).status().message(),
              HasSubstr("--emulate-quantized-activations=false leaves as it is"));
}

TEST(Resolve, StatesThatStepsRoundAreNotDeterministic) {
  EngineConfig engine;
  engine.cache.state_dtype = DType::kBFloat16;
  EXPECT_TRUE(resolve(engine, model()).ok());
  engine.device.deterministic = true;
  EXPECT_THAT(resolve(engine, model()).status().message(),
              HasSubstr("not with --mamba-ssm-cache-dtype bfloat16"));
}

TEST(Resolve, KVCacheDType) {
  EngineConfig engine;
  EXPECT_EQ(resolved(engine).kv_cache_dtype, DType::kBFloat16);
  ModelConfig made_for_fp8 = model();
  made_for_fp8.quantization.fp8_kv_cache = true;
  EXPECT_EQ(resolved(engine, made_for_fp8).kv_cache_dtype, DType::kFloat8E4M3);
  engine.cache.dtype = DType::kBFloat16;
  EXPECT_EQ(resolved(engine, made_for_fp8).kv_cache_dtype, DType::kBFloat16);
  engine.cache.dtype = DType::kFloat8E4M3;
  EXPECT_EQ(resolved(engine).kv_cache_dtype, DType::kFloat8E4M3);
  engine.cache.dtype = DType::kFloat32;
  EXPECT_THAT(resolve(engine, model()).status().message(),
              HasSubstr("--kv-cache-dtype float32: not supported with activations in bfloat16"));
}

TEST(Resolve, QuantizationOfAnUnquantizedCheckpoint) {
  EngineConfig engine;
  EXPECT_FALSE(resolved(engine).model.quantization.is_quantized());
  engine.model.quantization = QuantizationChoice::kFp8;
  const QuantScheme scheme = resolved(engine).model.quantization.scheme_of("model.layers.0.o_proj");
  EXPECT_EQ(scheme, (QuantScheme{QuantType::kPerToken, QuantType::kPerToken, false, true}));
  ModelConfig quantized = model();
  engine.model.quantization = QuantizationChoice::kMxFp4;
  EXPECT_EQ(resolved(engine).model.quantization.scheme_of("model.layers.0.o_proj").weight_dtype,
            QuantDType::kFloat4E2M1);
  engine.model.online_quant_config = R"({"global_quant_config": "int8"})";
  EXPECT_THAT(resolve(engine, model()).status().message(), HasSubstr("exclude each other"));
  engine.model.quantization = QuantizationChoice::kAuto;
  EXPECT_EQ(resolved(engine).model.quantization.scheme_of("model.layers.0.o_proj").weight_dtype,
            QuantDType::kInt8);
  engine.model.online_quant_config.clear();
  engine.model.quantization = QuantizationChoice::kFp8;
  quantized.quantization.method = "fp8";
  EXPECT_TRUE(resolved(engine, quantized).model.quantization.groups.empty());
  quantized.quantization.method = "compressed-tensors";
  EXPECT_THAT(resolve(engine, quantized).status().message(),
              HasSubstr("quantized already, by method 'compressed-tensors'"));
}

}  // namespace
}  // namespace atom
