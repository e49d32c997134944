#include "cli/bench_breakdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atom::cli {
namespace {

TEST(BenchBreakdown, AlikeCallsAreOneRowTheLongestFirst) {
  const OperatorWork small{.bytes = 100, .flops = 10};
  const OperatorWork large{.bytes = 900, .flops = 90};
  const std::vector<OperatorTotal> totals = total_operators({
      {"rms_norm", "cuda", {.bytes = 5}, 0, 1},
      {"linear", "cublaslt", small, 1, 2},
      {"linear", "cublaslt", large, 3, 7},
      {"rms_norm", "cuda", {.bytes = 5}, 10, 2},
      {"linear", "cublaslt", small, 12, 3},
      {"linear", "stream", small, 15, 1},
  });
  ASSERT_EQ(totals.size(), 4u);
  EXPECT_EQ(totals[0].work.flops, 90);
  EXPECT_EQ(totals[0].num_calls, 1);
  EXPECT_EQ(totals[1].num_calls, 2);
  EXPECT_EQ(totals[1].seconds, 5);
  EXPECT_EQ(totals[1].work.bytes, 200);
  EXPECT_EQ(totals[2].op, "rms_norm");
  EXPECT_EQ(totals[2].seconds, 3);
  EXPECT_EQ(totals[3].variant, "stream");
}

TEST(BenchBreakdown, ShareOfTheSlowerRoof) {
  ops::Roofs roofs;
  roofs.read_bandwidth = 100;
  roofs.bf16_flops = 10;
  roofs.fp8_flops = 20;
  OperatorTotal total{"linear", "cublaslt", 1, 10, {.bytes = 500, .flops = 80}};
  EXPECT_DOUBLE_EQ(share_of_roof(total, roofs, DType::kBFloat16), 0.8);
  total.work.is_fp8 = true;
  EXPECT_DOUBLE_EQ(share_of_roof(total, roofs, DType::kBFloat16), 0.5);
}

TEST(BenchBreakdown, TheTraceHasStepsAndOperators) {
  BreakdownReport report;
  StepBreakdown& step = report.steps.emplace_back();
  step.name = "decode";
  step.seconds = 3e-3;
  step.runs = {{"linear", "cuda", {.bytes = 7}, 0, 1e-3}, {"argmax", "cuda", {}, 1e-3, 2e-3}};
  const OrderedJson trace = chrome_trace(report);
  ASSERT_EQ(trace["traceEvents"].size(), 3u);
  EXPECT_EQ(trace["traceEvents"][0]["name"], "decode");
  EXPECT_EQ(trace["traceEvents"][1]["args"]["bytes"], 7);
  EXPECT_DOUBLE_EQ(trace["traceEvents"][2]["ts"].get<double>(), 1000);
  EXPECT_DOUBLE_EQ(trace["traceEvents"][2]["dur"].get<double>(), 2000);
}

TEST(BenchBreakdown, SaysWhatARecordedStepTakesAndLaunches) {
  BreakdownReport report;
  report.num_layers = 4;
  report.roofs.read_bandwidth = 1000;
  report.roofs.bf16_flops = 1;
  StepBreakdown& decode = report.steps.emplace_back();
  decode.name = "decode of 1";
  decode.num_launches = 34;
  decode.recorded_seconds = 2;
  decode.work.weight_bytes = 700;
  decode.work.kv_bytes = 300;
  report.steps.emplace_back().name = "prefill of 1";
  const std::string text = breakdown_text(report);
  EXPECT_THAT(
      text,
      testing::ContainsRegex("decode of 1: .* in operators; recorded 2000.000 ms, 50 % of its "
                             "roof, 34 launches, 8.5 a layer"));
  EXPECT_THAT(text, testing::Not(testing::ContainsRegex("prefill of 1: .* launches")));
  EXPECT_EQ(breakdown_json(report)["steps"][0]["launches"], 34);
}

TEST(BenchBreakdown, SaysHowTokensSpreadOverExperts) {
  BreakdownReport report;
  report.num_experts = 128;
  StepBreakdown& sparse = report.steps.emplace_back();
  sparse.name = "decode of 8";
  sparse.experts = {.num_layers = 48, .num_chosen = 40, .num_choices = 64, .largest = 5.25};
  sparse.evenly_chosen = 51.6;
  report.steps.emplace_back().name = "decode of 1";
  EXPECT_THAT(
      breakdown_text(report),
      testing::HasSubstr("\nexperts of a layer: 40.0 of 128 chosen (51.6 if evenly), by 1.6 "
                         "tokens each, 5.2 at most\n"));
  const OrderedJson steps = breakdown_json(report)["steps"];
  EXPECT_EQ(steps[0]["experts"]["tokens_per_chosen"], 1.6);
  EXPECT_TRUE(steps[1]["experts"].is_null());
}

}  // namespace
}  // namespace atom::cli
