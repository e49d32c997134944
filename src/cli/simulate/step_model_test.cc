#include "cli/simulate/step_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace atom::cli::simulate {
namespace {

// Round figures, so that each part can be computed by hand.
Inputs round_inputs() {
  Inputs inputs;
  inputs.memory_bandwidth = 1e12;
  inputs.flops = 1e15;
  inputs.linear_efficiency = inputs.expert_efficiency = inputs.attention_efficiency = 0.5;
  inputs.attention_flop_efficiency = inputs.expert_flop_efficiency = 0.5;
  inputs.layer_seconds = 10e-6;
  inputs.expert_seconds = 20e-6;
  inputs.gpus_per_node = 2;
  inputs.node_bandwidth = 100e9;
  inputs.network_bandwidth = 10e9;
  inputs.all_reduce_seconds = 5e-6;
  inputs.all_reduce_rank_seconds = 1e-6;
  inputs.packet_bandwidth = 200e9;
  inputs.shared_sum_seconds = 8e-6;
  inputs.node_exchange_seconds = 7e-6;
  inputs.network_exchange_seconds = 30e-6;
  inputs.dispatch_bytes = 1;
  inputs.combine_bytes = 2;
  return inputs;
}

RankModel dense_model() {
  RankModel model;
  model.num_layers = 10;
  model.hidden_size = 1000;
  model.dense_bytes = 1e9;
  model.dense_weights = 1e9;
  model.other_bytes = 1e8;
  model.kv_bytes = 1000;
  model.attention_flops = 1000;
  return model;
}

TEST(StepModel, OneGpuReadsWeightsAndCache) {
  const StepTime time = simulate_step(round_inputs(), dense_model(), {"", 1, 1, 1}, 4, 1000);
  EXPECT_DOUBLE_EQ(time.linears, 2e-3 + 8e-6);  // 1e9 / 5e11 and 8e9 / 1e15
  EXPECT_DOUBLE_EQ(time.attention, 8e-6);       // 4e6 bytes / 5e11; 4e6 FLOPs are less
  EXPECT_DOUBLE_EQ(time.launches, 1e-4);
  EXPECT_EQ(time.experts, 0);
  EXPECT_EQ(time.collectives, 0);
  EXPECT_DOUBLE_EQ(time.memory_bytes, 1.104e9);
  EXPECT_DOUBLE_EQ(time.total(), 2.116e-3);
}

TEST(StepModel, ManyRowsAreArithmetic) {
  const StepTime time = simulate_step(round_inputs(), dense_model(), {"", 1, 1, 1}, 10'000, 1);
  EXPECT_DOUBLE_EQ(time.linears, 2e-3 + 2e-2);  // 2 * 1e9 * 1e4 / 1e15
  Inputs slower = round_inputs();
  slower.flops16 = 5e14;
  RankModel of_16_bits = dense_model();
  of_16_bits.dense_weights /= 2;
  EXPECT_DOUBLE_EQ(simulate_step(slower, of_16_bits, {"", 1, 1, 1}, 10'000, 1).linears,
                   2e-3 + 2e-2);
}

// What bench latency measured (docs/parallel.md), of made-up weights, in milliseconds.
struct Measured {
  const char* name;
  const RankModel& model;  // of one rank
  double bandwidth;        // of a card
  int64_t ranks;
  double sequences;
  double milliseconds;
  // Each sum over four ranks and its norm were one kernel, as long as they went in packets.
  bool has_slow_norms = false;
};
// Of such a kernel: 7.24 us for 16 KiB on four H200, 3.95 on two.
constexpr double kSlowNormRankSeconds = (7.24e-6 - 3.95e-6) / 2;

RankModel llama_8b(double ranks) {
  return {.num_layers = 32,
          .hidden_size = 4096,
          .dense_bytes = 15.01e9 / ranks,
          .dense_weights = 7.505e9 / ranks,
          .kv_bytes = 131072 / ranks,
          .attention_flops = 4.0 * 4096 * 32 / ranks};
}
RankModel llama_70b_fp8(double ranks) {
  return {.num_layers = 80,
          .hidden_size = 8192,
          .dense_bytes = 70.6e9 / ranks,
          .dense_weights = 69.5e9 / ranks,
          .kv_bytes = 327680 / ranks,
          .attention_flops = 4.0 * 8192 * 80 / ranks};
}
// Routed weights are counted whole.
RankModel gpt_oss_120b(double ranks) {
  return {.num_layers = 36,
          .num_expert_layers = 36,
          .hidden_size = 2880,
          .num_experts = 128,
          .experts_per_token = 4,
          .dense_bytes = 3.09e9 / ranks,
          .dense_weights = 1.545e9 / ranks,
          .routed_bytes = 60.9e9,
          .routed_weights = 114.7e9,
          .kv_bytes = 73728 / ranks,
          .attention_flops = 4.0 * 4096 * 36 / ranks};
}
RankModel qwen3_30b(double ranks) {
  return {.num_layers = 48,
          .num_expert_layers = 48,
          .hidden_size = 2048,
          .num_experts = 128,
          .experts_per_token = 8,
          .dense_bytes = 2.46e9 / ranks,
          .dense_weights = 1.23e9 / ranks,
          .routed_bytes = 57.98e9,
          .routed_weights = 28.99e9,
          .kv_bytes = 98304 / ranks,
          .attention_flops = 4.0 * 4096 * 48 / ranks};
}

TEST(StepModel, StepsOfOneToFourCardsComeToWhatWasMeasured) {
  constexpr double kH200 = 4.58e12, kH100 = 3.08e12, kContext = 1088;
  const RankModel llama[] = {llama_8b(1), llama_8b(2), llama_8b(4)};
  const RankModel large[] = {llama_70b_fp8(2), llama_70b_fp8(4)}, oss = gpt_oss_120b(4);
  const RankModel qwen[] = {qwen3_30b(1), qwen3_30b(2)};
  const Measured all[] = {{"Llama-8B", llama[0], kH200, 1, 1, 3.84},
                          {"Llama-8B", llama[0], kH200, 1, 64, 6.87},
                          {"Llama-8B TP2", llama[1], kH200, 2, 1, 2.37},
                          {"Llama-8B TP2", llama[1], kH200, 2, 64, 4.41},
                          {"Llama-8B", llama[0], kH100, 1, 1, 5.28},
                          {"Llama-8B", llama[0], kH100, 1, 64, 9.25},
                          {"Llama-8B TP2", llama[1], kH100, 2, 1, 3.03},
                          {"Llama-8B TP2", llama[1], kH100, 2, 64, 5.39},
                          {"Llama-8B TP4", llama[2], kH200, 4, 1, 1.887, true},
                          {"Llama-8B TP4", llama[2], kH200, 4, 64, 3.605},
                          {"Llama-70B FP8 TP2", large[0], kH100, 2, 1, 13.9},
                          {"Llama-70B FP8 TP2", large[0], kH100, 2, 64, 20.7},
                          {"Llama-70B FP8 TP4", large[1], kH200, 4, 1, 6.85, true},
                          {"Llama-70B FP8 TP4", large[1], kH200, 4, 64, 11.43},
                          {"Qwen3-30B", qwen[0], kH200, 1, 1, 3.28},
                          {"Qwen3-30B", qwen[0], kH200, 1, 8, 8.16},
                          {"Qwen3-30B", qwen[0], kH200, 1, 32, 15.9},
                          {"Qwen3-30B", qwen[0], kH200, 1, 64, 18.4},
                          {"Qwen3-30B TP2", qwen[1], kH100, 2, 1, 3.07},
                          {"Qwen3-30B TP2", qwen[1], kH100, 2, 64, 13.84},
                          {"gpt-oss-120b TP4", oss, kH200, 4, 1, 2.053, true}};
  for (const Measured& of : all) {
    Inputs inputs;
    inputs.memory_bandwidth = of.bandwidth;
    if (of.has_slow_norms) inputs.all_reduce_rank_seconds = kSlowNormRankSeconds;
    const Layout layout = {of.name, of.ranks, of.ranks, 1};
    const double simulated =
        1e3 * simulate_step(inputs, of.model, layout, of.sequences, kContext).total();
    const double ratio = simulated / of.milliseconds;
    RecordProperty(of.name, std::to_string(ratio));
    EXPECT_NEAR(ratio, 1, 0.15) << of.name << ", " << of.sequences << " sequences: " << simulated;
  }
}

TEST(StepModel, RanksThatShareLayersAddUp) {
  const StepTime time = simulate_step(round_inputs(), dense_model(), {"", 2, 2, 1}, 4, 1000);
  // All four rows on both: 8000 bytes in packets of twice as many over 200 GB/s; twice a layer.
  EXPECT_NEAR(time.collectives, 10 * 2 * (5e-6 + 8e-8), 1e-12);
  EXPECT_DOUBLE_EQ(time.attention, 8e-6);
}

TEST(StepModel, MoreRanksTakeLongerForASum) {
  const auto sum_of_four = [](double rows) {
    return simulate_step(round_inputs(), dense_model(), {"", 4, 4, 1}, rows, 1).collectives / 20;
  };
  // 2000 bytes a row, to three others.
  EXPECT_NEAR(sum_of_four(1), 5e-6 + 2e-6 + 6 * 2000 / 200e9, 1e-12);
  EXPECT_NEAR(sum_of_four(174), 7e-6 + 6 * 348e3 / 200e9, 1e-12);
  // Together more than 1 MiB: a quarter of it to and from each other rank.
  EXPECT_NEAR(sum_of_four(175), 24e-6 + 1.5 * 350e3 / 100e9, 1e-12);
}

RankModel expert_model() {
  RankModel model = dense_model();
  model.num_expert_layers = 10;
  model.num_experts = 8;
  model.experts_per_token = 2;
  model.routed_bytes = 8e9;
  model.routed_weights = 8e9;
  return model;
}

TEST(StepModel, ExpertsThatRowsReachAreRead) {
  const StepTime time = simulate_step(round_inputs(), expert_model(), {"", 1, 1, 1}, 4, 0);
  // Eight pairs on eight experts: 1 - 1/e of 8e9 bytes at 5e11.
  EXPECT_NEAR(time.experts, 16e-3 * (1 - std::exp(-1.0)), 1e-12);
  EXPECT_DOUBLE_EQ(time.launches, 3e-4);
}

TEST(StepModel, ExpertsSpreadInANodeAreReachedByExchanges) {
  // Two ranks of four rows each: eight pairs come to each one's four experts.
  const StepTime time = simulate_step(round_inputs(), expert_model(), {"", 2, 1, 2}, 8, 0);
  EXPECT_NEAR(time.experts, 8e-3 * (1 - std::exp(-2.0)), 1e-12);
  // A row reaches the other rank with 1 - (1/2)^2: 3000 elements of 1 and of 2 bytes.
  EXPECT_NEAR(time.collectives, 10 * (14e-6 + 9000 / 100e9), 1e-12);
  EXPECT_DOUBLE_EQ(time.memory_bytes, 1.1e9 + 4e9);
}

TEST(StepModel, OverNodesTheNetworkIsTheSlowerLink) {
  // Four ranks in two nodes: one other inside, two outside, each reached with 1 - (3/4)^2.
  const StepTime time = simulate_step(round_inputs(), expert_model(), {"", 4, 1, 4}, 16, 0);
  const double elements = 4 * (1 - 0.5625) * 1000;
  EXPECT_NEAR(time.collectives, 10 * (60e-6 + 2 * elements * 3 / 10e9), 1e-12);
}

TEST(StepModel, MoreRanksThanExpertsHaveOneEach) {
  const StepTime time = simulate_step(round_inputs(), expert_model(), {"", 16, 1, 16}, 16, 0);
  // One row of two pairs for each rank, and 1e9 bytes of one expert's layers.
  EXPECT_NEAR(time.experts, 2e-3 * (1 - std::exp(-2.0)), 1e-12);
}

}  // namespace
}  // namespace atom::cli::simulate
