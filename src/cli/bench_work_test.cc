#include "cli/bench_work.h"

#include <gtest/gtest.h>

namespace atom::cli {
namespace {

// Small enough to count by hand.
ModelConfig tiny_config() {
  ModelConfig config;
  config.vocab_size = 100;
  config.hidden_size = 8;
  config.intermediate_size = 16;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 4;
  config.layer_types = {LayerType::kFullAttention, LayerType::kFullAttention};
  return config;
}

// Of a layer: q and o 8x16, k and v 8x8, gate, up and down 8x16.
constexpr int64_t kLayerMatrices = 2 * 128 + 2 * 64 + 3 * 128;

TEST(BenchWork, DecodeReadsEveryWeightOnce) {
  const StepWork work = decode_work(tiny_config(), WorkTypes::all(DType::kBFloat16), 3, 10);
  const int64_t norms = 2 * 2 * 8 + 8;
  EXPECT_EQ(work.weight_bytes, 2 * (2 * kLayerMatrices + norms + 800 + 3 * 8));
  // K and V of 10 tokens, 8 elements of 2 bytes, in 2 layers, for 3 sequences.
  EXPECT_EQ(work.kv_bytes, 3 * 2 * 10 * 2 * 8 * 2);
  // 4 heads of 4: scores and sums of 10 tokens in 2 layers.
  EXPECT_EQ(work.flops, 3 * (2 * (2 * kLayerMatrices + 800) + 4 * 16 * 10 * 2));
}

TEST(BenchWork, BytesFollowTheDtypeAndFlopsDoNot) {
  const StepWork half = decode_work(tiny_config(), WorkTypes::all(DType::kFloat16), 1, 5);
  const StepWork full = decode_work(tiny_config(), WorkTypes::all(DType::kFloat32), 1, 5);
  EXPECT_EQ(full.bytes(), 2 * half.bytes());
  EXPECT_EQ(full.flops, half.flops);
}

TEST(BenchWork, PrefillComputesTheHeadForTheLastRowOnly) {
  const StepWork work = prefill_work(tiny_config(), WorkTypes::all(DType::kBFloat16), 2, 6);
  // 1 + 2 + ... + 6 pairs per head and layer.
  EXPECT_EQ(work.flops, 2 * 12 * 2 * kLayerMatrices + 2 * 2 * 800 + 2 * 4 * 16 * 21 * 2);
}

TEST(BenchWork, PrefillIsTheSumOfItsDecodes) {
  ModelConfig config = tiny_config();
  config.layer_types[1] = LayerType::kSlidingAttention;
  config.sliding_window = 3;
  const int64_t head_flops = 2 * 800;
  int64_t flops = 0;
  for (int64_t context = 1; context <= 6; ++context) {
    flops += decode_work(config, WorkTypes::all(DType::kBFloat16), 1, context).flops - head_flops;
  }
  EXPECT_EQ(prefill_work(config, WorkTypes::all(DType::kBFloat16), 1, 6).flops, flops + head_flops);
}

TEST(BenchWork, SlidingLayersReadTheirWindow) {
  ModelConfig config = tiny_config();
  config.layer_types[1] = LayerType::kSlidingAttention;
  config.sliding_window = 3;
  const StepWork work = decode_work(config, WorkTypes::all(DType::kBFloat16), 1, 10);
  EXPECT_EQ(work.kv_bytes, (10 + 3) * 2 * 8 * 2);
}

TEST(BenchWork, BiasesAreRead) {
  ModelConfig config = tiny_config();
  const int64_t without = decode_work(config, WorkTypes::all(DType::kBFloat16), 1, 1).weight_bytes;
  config.qkv_bias = config.o_proj_bias = config.mlp_bias = true;
  const int64_t biases = 16 + 2 * 8 + 8 + 2 * 16 + 8;
  EXPECT_EQ(decode_work(config, WorkTypes::all(DType::kBFloat16), 1, 1).weight_bytes - without,
            2 * 2 * biases);
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

TEST(BenchWork, QuantisedLinearsAreReadAndMultipliedInFp8) {
  const WorkTypes bf16 = WorkTypes::all(DType::kBFloat16);
  WorkTypes fp8 = bf16;
  fp8.linears = DType::kFloat8E4M3;
  fp8.multiplies_fp8 = true;
  const StepWork plain = decode_work(tiny_config(), bf16, 3, 10);
  const StepWork quantised = decode_work(tiny_config(), fp8, 3, 10);
  EXPECT_EQ(plain.weight_bytes - quantised.weight_bytes, 2 * kLayerMatrices);
  EXPECT_EQ(plain.kv_bytes, quantised.kv_bytes);
  EXPECT_EQ(plain.flops, quantised.flops);
  EXPECT_EQ(quantised.fp8_flops, 3 * 2 * 2 * kLayerMatrices);
  EXPECT_EQ(plain.fp8_flops, 0);

  WorkTypes fp8_cache = bf16;
  fp8_cache.kv_cache = DType::kFloat8E4M3;
  EXPECT_EQ(decode_work(tiny_config(), fp8_cache, 3, 10).kv_bytes * 2, plain.kv_bytes);

  ops::Roofs roofs;
  roofs.read_bandwidth = 1e9;
  roofs.bf16_flops = 1;
  roofs.fp8_flops = 2;
  const auto multiplied = static_cast<double>(quantised.fp8_flops);
  EXPECT_DOUBLE_EQ(least_compute_seconds(plain, roofs, DType::kBFloat16) -
                       least_compute_seconds(quantised, roofs, DType::kBFloat16),
                   multiplied / 2);
}

}  // namespace
}  // namespace atom::cli
