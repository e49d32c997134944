#include "cli/bench_work.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "models/registry.h"
#include "runner/model_source.h"

namespace atom::cli {
namespace {

// Two layers with eight heads of keys and values in them.
ModelWork tiny_work() {
  ModelWork work;
  work.weight_bytes = 1000;
  work.embedding_row_bytes = 16;
  work.matrix_size = 400;
  work.head_size = 80;
  work.windows = {0, 0};
  work.kv_bytes = 32;
  work.pair_flops = {4 * 16, 4 * 16};
  return work;
}

TEST(BenchWork, DecodeReadsEveryWeightOnce) {
  const StepWork work = decode_work(tiny_work(), 3, 10);
  EXPECT_EQ(work.weight_bytes, 1000 + 3 * 16);
  EXPECT_EQ(work.kv_bytes, 3 * 2 * 10 * 32);
  // Scores and sums of 10 tokens in 2 layers.
  EXPECT_EQ(work.flops, 3 * (2 * (400 + 80) + 4 * 16 * 10 * 2));
  EXPECT_EQ(work.fp8_flops, 0);
}

TEST(BenchWork, PrefillComputesTheHeadForTheLastRowOnly) {
  const StepWork work = prefill_work(tiny_work(), 2, 6);
  // 1 + 2 + ... + 6 pairs per head and layer.
  EXPECT_EQ(work.flops, 2 * 12 * 400 + 2 * 2 * 80 + 2 * 4 * 16 * 21 * 2);
}

TEST(BenchWork, PrefillIsTheSumOfItsDecodes) {
  ModelWork model = tiny_work();
  model.windows[1] = 3;
  const int64_t head_flops = 2 * 80;
  int64_t flops = 0;
  for (int64_t context = 1; context <= 6; ++context) {
    flops += decode_work(model, 1, context).flops - head_flops;
  }
  EXPECT_EQ(prefill_work(model, 1, 6).flops, flops + head_flops);
}

TEST(BenchWork, SlidingLayersReadTheirWindow) {
  ModelWork model = tiny_work();
  model.windows[1] = 3;
  EXPECT_EQ(decode_work(model, 1, 10).kv_bytes, (10 + 3) * 32);
}

TEST(BenchWork, AnIndexerReadsAllOfItsKeysAndAttentionWhatItSelects) {
  ModelWork model = tiny_work();
  model.windows = {4, 4};
  model.index_bytes = 6;
  EXPECT_EQ(decode_work(model, 3, 10).kv_bytes, 3 * (2 * 4 * 32 + 10 * 6));
  EXPECT_EQ(prefill_work(model, 1, 10).kv_bytes, 10 * (2 * 32 + 6));
}

TEST(BenchWork, StatesAreReadAndWritten) {
  ModelWork model = tiny_work();
  model.windows.clear();
  model.state_bytes = 500;
  EXPECT_EQ(decode_work(model, 3, 10).kv_bytes, 3 * 2 * 500);
  EXPECT_EQ(prefill_work(model, 3, 10).kv_bytes, 3 * 500);
}

TEST(BenchWork, ATokenReadsItsExpertsAndManyReadAll) {
  ModelWork model = tiny_work();
  model.num_experts = 8;
  model.top_k = 2;
  model.expert_bytes = 8 * 100;
  model.expert_size = 8 * 50;
  EXPECT_EQ(decode_work(model, 1, 1).weight_bytes, 1000 + 16 + 2 * 100);
  // The second of two tokens finds a quarter of its experts read.
  EXPECT_EQ(decode_work(model, 2, 1).weight_bytes, 1000 + 2 * 16 + 350);
  EXPECT_EQ(prefill_work(model, 1, 1000).weight_bytes, 1000 + 1000 * 16 + 800);
  EXPECT_EQ(prefill_work(model, 1, 1).flops - prefill_work(tiny_work(), 1, 1).flops, 2 * 2 * 50);
  // Two more slots that every token has.
  model.num_shared = 2;
  model.expert_bytes = 10 * 100;
  model.expert_size = 10 * 50;
  EXPECT_EQ(decode_work(model, 1, 1).weight_bytes, 1000 + 16 + 4 * 100);
  EXPECT_EQ(prefill_work(model, 1, 1).flops - prefill_work(tiny_work(), 1, 1).flops, 2 * 4 * 50);
}

TEST(BenchWork, TheSlowerRoofBounds) {
  ops::Roofs roofs;
  roofs.read_bandwidth = 100;
  roofs.bf16_flops = 1000;
  roofs.f32_flops = 10;
  StepWork work;
  work.weight_bytes = 150;
  work.kv_bytes = 50;
  work.flops = 500;
  EXPECT_DOUBLE_EQ(least_seconds(work, roofs, DType::kBFloat16), 2);
  EXPECT_DOUBLE_EQ(least_seconds(work, roofs, DType::kFloat32), 50);
  roofs.bf16_flops = roofs.f32_flops = 0;  // not measured
  EXPECT_DOUBLE_EQ(least_seconds(work, roofs, DType::kBFloat16), 2);
}

TEST(BenchWork, Fp8IsItsOwnRoof) {
  ModelWork fp8 = tiny_work();
  fp8.multiplies_fp8 = true;
  const StepWork plain = decode_work(tiny_work(), 3, 10), quantized = decode_work(fp8, 3, 10);
  EXPECT_EQ(plain.flops, quantized.flops);
  EXPECT_EQ(quantized.fp8_flops, 3 * 2 * 400);
  ops::Roofs roofs;
  roofs.read_bandwidth = 1e9;
  roofs.bf16_flops = 1;
  roofs.fp8_flops = 2;
  EXPECT_DOUBLE_EQ(least_compute_seconds(plain, roofs, DType::kBFloat16) -
                       least_compute_seconds(quantized, roofs, DType::kBFloat16),
                   static_cast<double>(quantized.fp8_flops) / 2);
}

// The work of layers that a configuration makes, of sizes that panels do not pad.
class BuiltWork : public testing::Test {
 protected:
  static ModelWork work_of(const char* architecture,
                           const char* more,
                           QuantizationChoice online = QuantizationChoice::kAuto) {
    const std::string text = fmt::format(
        R"({{"architectures": ["{}"], "vocab_size": 128, "hidden_size": 64,
             "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 64,
             "torch_dtype": "bfloat16" {}}})",
        architecture,
        more);
    const std::string folder = testing::TempDir() + "/bench_work_test";
    std::filesystem::create_directories(folder);
    EXPECT_TRUE(write_file(folder + "/config.json", text).ok());
    EngineConfig engine;
    engine.model.model = folder;
    engine.model.dtype = DType::kBFloat16;
    engine.model.quantization = online;
    const Result<ModelConfig> model = load_model_config(folder);
    EXPECT_TRUE(model.ok()) << model.status().message();
    const Result<ResolvedConfig> config = resolve(engine, *model);
    EXPECT_TRUE(config.ok()) << config.status().message();
    const Result<BuiltModel> built = build_model(*config);
    EXPECT_TRUE(built.ok()) << built.status().message();
    return count_work(*config, *built);
  }

  // A layer's q 64x128, k and v 64x64, o 128x64.
  static constexpr int64_t kAttention = 2 * 64 * 128 + 2 * 64 * 64;
  static constexpr int64_t kMlp = 3 * 64 * 128;
  static constexpr int64_t kHead = 64 * 128;
  // Two of each layer and the last.
  static constexpr int64_t kNorms = 5 * 64;
};

TEST_F(BuiltWork, Dense) {
  const ModelWork work = work_of("LlamaForCausalLM", R"(, "tie_word_embeddings": false)");
  EXPECT_EQ(work.matrix_size, 2 * (kAttention + kMlp));
  EXPECT_EQ(work.head_size, kHead);
  EXPECT_EQ(work.weight_bytes, 2 * (work.matrix_size + kHead + kNorms));
  EXPECT_EQ(work.embedding_row_bytes, 2 * 64);
  EXPECT_EQ(work.kv_bytes, 2 * 2 * 64);
  EXPECT_EQ(work.windows, (std::vector<int64_t>{0, 0}));
}

TEST_F(BuiltWork, TiedEmbeddingsAreReadAsTheHead) {
  const ModelWork tied = work_of("LlamaForCausalLM", R"(, "tie_word_embeddings": true)");
  const ModelWork apart = work_of("LlamaForCausalLM", R"(, "tie_word_embeddings": false)");
  EXPECT_EQ(tied.weight_bytes, apart.weight_bytes);
  EXPECT_EQ(tied.matrix_size, apart.matrix_size);
}

TEST_F(BuiltWork, QuantizedWeightsAreReadAsTheyAreStored) {
  const ModelWork plain = work_of("LlamaForCausalLM", "");
  for (const auto& [online, bytes_of_64] :
       {std::pair(QuantizationChoice::kFp8, 64), std::pair(QuantizationChoice::kMxFp4, 34)}) {
    const ModelWork work = work_of("LlamaForCausalLM", "", online);
    EXPECT_EQ(work.matrix_size, plain.matrix_size) << bytes_of_64;
    const int64_t matrices = work.matrix_size / 64 * bytes_of_64;
    const int64_t scales = work.weight_bytes - matrices - 2 * (kHead + kNorms);
    // A float for each row of FP8 at most.
    EXPECT_GE(scales, 0) << bytes_of_64;
    EXPECT_LE(scales, 4 * 2 * (128 + 2 * 64 + 64 + 2 * 128 + 64)) << bytes_of_64;
  }
}

TEST_F(BuiltWork, Experts) {
  const ModelWork work =
      work_of("MixtralForCausalLM", R"(, "num_local_experts": 4, "num_experts_per_tok": 2)");
  EXPECT_EQ(work.num_experts, 4);
  EXPECT_EQ(work.num_shared, 0);
  EXPECT_EQ(work.top_k, 2);
  EXPECT_EQ(work.expert_size, 2 * 4 * kMlp);
  EXPECT_EQ(work.expert_bytes, 2 * work.expert_size);
  EXPECT_EQ(work.matrix_size, 2 * (kAttention + 4 * 64));  // and the router
}

}  // namespace
}  // namespace atom::cli
